"""Documents of other tools, imported as documents of this one."""
