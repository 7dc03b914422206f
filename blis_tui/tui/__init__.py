"""The terminal interface: a debugger for a serving cluster that steps forwards and backwards."""

import os

# Textual looks for something to paint so many times a second, and reads this when it is imported. At its own 60 a key
# waits up to 17 ms for nothing; looking costs nothing while nothing changes.
os.environ.setdefault("TEXTUAL_FPS", "120")
