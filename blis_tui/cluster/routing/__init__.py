"""Routing: which instance serves a request? One module a policy."""
