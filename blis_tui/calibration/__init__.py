"""Compares step-time models with measured servers, and fits their coefficients."""
