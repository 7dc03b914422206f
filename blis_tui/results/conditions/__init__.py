"""The language of conditions: breakpoints, and expectations about the course of a run."""
