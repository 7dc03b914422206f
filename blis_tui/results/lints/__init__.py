"""Checks of a run, each of which may give a warning."""
