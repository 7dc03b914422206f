"""Full screens, one per file."""
