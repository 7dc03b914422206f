"""Loads a real server with a workload, and records it."""
