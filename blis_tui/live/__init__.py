"""What concerns real servers: recording, loading and imitating them, and fitting step times to them."""
