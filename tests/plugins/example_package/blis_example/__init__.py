"""Policies for blis-tui: one module each."""
