"""Batch formation: one module an engine's rule."""
