"""Pure functions from the state of a simulation to the displayed text, without widgets."""
