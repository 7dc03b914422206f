"""Scoring: how good is each instance for a request? One module a scorer; `weighted` routing adds them up."""
