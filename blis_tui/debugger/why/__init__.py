"""Explanations: what requests waited for, what makes up their latencies, what events did and why."""
