"""Loads a real server with a workload, and records requests, answers and the server's own data."""
