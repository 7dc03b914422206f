"""The control plane's policies: its plug points, and what this package brings for each of them."""
