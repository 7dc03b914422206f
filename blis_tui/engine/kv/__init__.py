"""The KV cache: block pool, prompt keys, capacity."""
