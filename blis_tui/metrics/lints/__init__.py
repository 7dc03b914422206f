"""Checks that look for problems in a run, each with its figures; they produce the report's warnings."""
