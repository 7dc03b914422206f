"""A real server under a workload: requests sent on schedule, what came back and when, and what the server says."""
