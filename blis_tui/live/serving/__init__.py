"""An endpoint that answers as a simulated server would."""
