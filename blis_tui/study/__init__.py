"""Studies: many runs of one experiment, and what they say together."""
