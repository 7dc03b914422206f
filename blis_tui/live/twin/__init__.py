"""A recording of a real server beside a simulation of its requests."""
