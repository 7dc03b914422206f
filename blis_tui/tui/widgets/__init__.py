"""Panes and smaller parts, one a file; they show what presenters say and keep no history."""
