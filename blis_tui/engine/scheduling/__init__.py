"""The orders in which an instance's waiting requests are served."""
