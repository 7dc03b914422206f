"""The formats of recorded workloads, one a file: each reads a file's text into columns."""
