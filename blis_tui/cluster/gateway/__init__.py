"""The gateway queue in front of the router, and what counts as saturated. One module a detector."""
