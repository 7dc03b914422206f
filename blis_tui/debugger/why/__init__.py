"""Explanations: what requests waited for, what their latencies consist of, what events did and why."""
