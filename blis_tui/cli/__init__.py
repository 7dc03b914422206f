"""The command line: one module a command, imported when that command runs."""
