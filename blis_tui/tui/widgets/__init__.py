"""Panes and smaller widgets, one per file; they display presenters' output and keep no history."""
