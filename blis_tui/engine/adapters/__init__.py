"""LoRA adapters: which are on an instance, what loading them takes, and what steps with them cost."""
