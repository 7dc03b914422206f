"""Which requests are preempted when the KV cache is full, and how victims come back."""
