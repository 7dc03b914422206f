"""Names for the files that the interface writes: none that a file has already."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path


def new_name(stem: str, ending: str) -> str:
    """``STEM.ENDING``, or ``STEM-2.ENDING`` and so on where the working folder has that already."""
    names = (f"{stem}{f'-{number}' if number > 1 else ''}.{ending}" for number in count(1))
    # A dangling link counts as there, too.
    return next(name for name in names if not os.path.lexists(Path.cwd() / name))
