"""Where requests come from: generated from distributions, or read from recorded traces."""
