"""The highest rate that a cluster holds, and the cheapest cluster that holds a rate."""
