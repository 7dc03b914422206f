"""A run as a trace for Perfetto (https://ui.perfetto.dev)."""
