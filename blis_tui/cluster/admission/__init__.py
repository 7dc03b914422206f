"""Admission control: may a request enter the cluster at all? One module a policy."""
