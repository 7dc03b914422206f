"""Checks of a run that look for what is wrong with it, each with its numbers."""
