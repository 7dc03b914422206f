"""Formats of recorded workloads, one per module: each reads a file's text into columns."""
