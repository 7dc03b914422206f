"""Step times from measured requests."""
