"""Step-time models: how long an accelerator needs for a given load."""
