"""Golden files: the bytes every shipped experiment must give."""
