"""LoRA adapters: which ones an instance holds, how long they take to load, and what they add to steps."""
