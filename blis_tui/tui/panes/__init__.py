"""The panes of the debugger."""
