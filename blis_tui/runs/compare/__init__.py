"""Two runs compared: documents, figures, requests, and the first event that differs."""
