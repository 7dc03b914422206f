"""Pure functions from the state of a simulation to what is shown; no widget in here."""
