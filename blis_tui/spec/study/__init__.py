"""Study documents: what varies between runs, and what to look for in the results."""
