"""The optional sections of a report."""
