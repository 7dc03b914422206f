"""A run's metrics as vLLM servers would have exposed them."""
