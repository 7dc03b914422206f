"""Help with writing documents: templates, formatting, explanations, and where each value comes from."""
