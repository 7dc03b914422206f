"""Support for writing documents: templates, provenance, explanations, formatting, migration, reference pages."""
