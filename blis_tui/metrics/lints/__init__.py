"""Checks of a run that look for what is wrong with it, each with its figures: the report's warnings."""
