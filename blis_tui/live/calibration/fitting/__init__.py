"""Fits the coefficients of step-time models to measurements."""
