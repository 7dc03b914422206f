"""Parts of a cluster that a plain run does not have, one module each."""
