"""The terminal interface: a debugger for a serving cluster that steps forward and backward."""

import os

# Textual reads this variable, its number of screen updates per second, when it is imported. At its default of 60, a key
# waits up to 17 ms for an update; a higher rate costs nothing while nothing changes.
os.environ.setdefault("TEXTUAL_FPS", "120")
