"""Two experiments side by side: what differs in their documents, and what that does to their reports."""
