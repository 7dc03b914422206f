"""Simulations: one that can be stepped, and two compared."""
