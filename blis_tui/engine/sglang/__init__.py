"""SGLang: its scheduler, its event loops and its caches."""
