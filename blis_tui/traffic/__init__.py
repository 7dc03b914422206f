"""Analysis and composition of workloads: descriptions of requests, and workloads made from others."""
