"""Full screens, one a file."""
