"""Same experiment, same bytes: whatever runs it, whoever listens, wherever it stopped on the way."""
