"""Batch-formation rules of engines, one module each."""
