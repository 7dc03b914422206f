"""Studies: many runs of one experiment, and their joint results."""
