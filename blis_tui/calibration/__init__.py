"""Step-time models against measured servers: judge them, and fit their coefficients."""
