"""Importers of documents of BLIS (the simulator in Go), Hugging Face and load generators."""
