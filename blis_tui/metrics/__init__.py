"""Measurements: request log, distributions, report, expectations."""
