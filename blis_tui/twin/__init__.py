"""A recording of a real server beside the same requests simulated: how well they agree, where they part, and why."""
