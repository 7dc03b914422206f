"""The simulation of one serving instance, and the event queue. Standard library only."""
