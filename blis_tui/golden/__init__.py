"""Golden tests of experiments: what is stored, how it is compared, and where two runs diverge."""
