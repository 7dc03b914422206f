"""Finds all differences between two experiments, their reports and their record streams."""
