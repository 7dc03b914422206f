"""Batch formation: one module per engine."""
