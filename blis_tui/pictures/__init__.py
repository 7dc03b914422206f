"""Self-contained HTML pages with pictures, for offline viewing and printing."""
