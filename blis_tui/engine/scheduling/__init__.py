"""In which order an instance's waiting requests are served."""
