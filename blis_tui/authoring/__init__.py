"""Help with writing documents: templates, provenance, explanations, formatting, migration, reference pages."""
