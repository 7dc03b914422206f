"""Workloads described, fitted to traces, and combined."""
