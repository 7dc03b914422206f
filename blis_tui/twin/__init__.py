"""Compares a recording of a real server with a simulation of the same requests: agreement, divergence, and causes."""
