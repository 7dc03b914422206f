"""Speculative decoding: a step verifies several drafted tokens of each request."""
