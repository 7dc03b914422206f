"""Workloads as such: what their requests are like, and workloads made from others."""
