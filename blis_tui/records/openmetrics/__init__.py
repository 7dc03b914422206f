"""A run as the metrics that vLLM servers would have shown."""
