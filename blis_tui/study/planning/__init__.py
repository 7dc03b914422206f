"""The planner: the highest rate that a cluster sustains, and the cheapest cluster that sustains a rate."""
