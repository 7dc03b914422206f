"""Parts of an instance that a plain run does not have, one module each."""
