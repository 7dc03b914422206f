"""A server that is not there: an OpenAI-compatible endpoint that answers at simulated times."""
