"""A run as a Perfetto trace (https://ui.perfetto.dev)."""
