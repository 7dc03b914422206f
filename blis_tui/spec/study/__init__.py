"""Study documents: what varies from run to run, and what to look for in the results."""
