r"""What may reach a terminal of texts from outside: names in documents and traces, paths, messages about them.

A terminal acts on control characters (``"\x1b]0;…\x07"`` sets the title of the window), and marks of writing direction
show a text in another order than it has. Everything printed for people goes through :func:`printable` or
:func:`printable_lines`; JSON writes the same characters as escapes, which lose nothing (:mod:`blis_tui.canonical`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

# Written out, not by Unicode's categories: those differ between versions of Python.
_CONTROLS: Final = r"\x00-\x1f\x7f-\x9f"
_UNSEEN: Final = (
    r"\xad\u061c\u180e"  # soft hyphen, Arabic letter mark, Mongolian vowel separator
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # joiners, directions, separators of lines, invisible operators
    r"\ufeff\ufff9-\ufffb"  # byte-order mark, annotations
    r"\ud800-\udfff"  # halves of characters: no encoding has them
    r"\U000e0000-\U000e007f"  # tags
)
REPLACEMENT: Final = "\ufffd"


@cache
def acted_on() -> re.Pattern[str]:
    """A character that a terminal acts on or does not show; compiled when the first text needs it, which few do."""
    return re.compile(f"[{_CONTROLS}{_UNSEEN}]")


def printable(text: str) -> str:
    """A text that stays on its line: tabs as blanks, and what a terminal would act on as a replacement character."""
    if text.isascii() and text.isprintable():
        return text
    return acted_on().sub(REPLACEMENT, text.replace("\t", " "))


def printable_lines(text: str) -> str:
    """As :func:`printable` for a text of several lines: their ends and tabs stay."""
    shown = text.replace("\n", "").replace("\t", "")
    if shown.isascii() and shown.isprintable():
        return text
    return acted_on().sub(lambda found: found[0] if found[0] in "\n\t" else REPLACEMENT, text.replace("\r\n", "\n"))
