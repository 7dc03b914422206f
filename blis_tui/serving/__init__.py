"""An OpenAI-compatible endpoint without a real server: it answers at simulated times."""
