"""The terminal interface: a debugger for a serving cluster that steps forwards and backwards."""
