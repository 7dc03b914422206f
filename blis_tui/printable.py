r"""Sanitizes external text for a terminal: names in documents and traces, paths, messages about them.

A terminal acts on control characters (``"\x1b]0;…\x07"`` sets the window title), and bidirectional marks change the
displayed order of a text. Everything printed for people goes through :func:`printable` or :func:`printable_lines`; JSON
writes the same characters as escapes, which lose nothing (:mod:`blis_tui.canonical`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

# Listed explicitly: Unicode's categories differ between versions of Python.
_CONTROLS: Final = r"\x00-\x1f\x7f-\x9f"
_UNSEEN: Final = (
    r"\xad\u061c\u180e"  # soft hyphen, Arabic letter mark, Mongolian vowel separator
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # joiners, directions, line separators, invisible operators
    r"\ufeff\ufff9-\ufffb"  # byte-order mark, annotations
    r"\ud800-\udfff"  # surrogates, which no encoding has
    r"\U000e0000-\U000e007f"  # tags
)
REPLACEMENT: Final = "\ufffd"


@cache
def control_characters() -> re.Pattern[str]:
    """Return the pattern of characters that a terminal acts on or does not show; compiled on first, rare use."""
    return re.compile(f"[{_CONTROLS}{_UNSEEN}]")


def printable(text: str) -> str:
    """Sanitize a text for a single line: tabs become blanks, and dangerous characters a replacement character."""
    if text.isascii() and text.isprintable():
        return text
    return control_characters().sub(REPLACEMENT, text.replace("\t", " "))


def escaped(text: str) -> str:
    """Write dangerous characters of a name as escapes of Python, so that different names stay different."""
    if text.isascii() and text.isprintable():
        return text
    return control_characters().sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """Sanitize a text of several lines like :func:`printable`, but keep line ends and tabs."""
    shown = text.replace("\n", "").replace("\t", "")
    if shown.isascii() and shown.isprintable():
        return text
    return control_characters().sub(
        lambda found: found[0] if found[0] in "\n\t" else REPLACEMENT, text.replace("\r\n", "\n")
    )
