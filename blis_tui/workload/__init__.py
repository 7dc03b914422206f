"""Sources of requests: generated from distributions, or read from recorded traces."""
