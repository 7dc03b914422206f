"""Whom a full KV cache preempts, and how a victim comes back."""
