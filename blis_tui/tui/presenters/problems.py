"""Diagnostics with colours: the same text that the command line prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.spec.diagnostics import MAX_SHOWN, render_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.errors import BlisError
    from blis_tui.spec.diagnostics import Diagnostic

_LINES: Final = (
    (re.compile(r"^(error\[\w+\]):"), "$error bold"),
    (re.compile(r"^ *\| +\^+$"), "$error"),
    (re.compile(r"^ *= help:.*"), "$success"),
    (re.compile(r"^ *--> .*"), "$text-muted"),
    (re.compile(r"^ *\d* \|"), "$text-muted"),
)
"""What a line looks like, and the colour of the part that matched."""


def diagnostics_text(diagnostics: Sequence[Diagnostic], *, limit: int = MAX_SHOWN) -> Content:
    """All diagnostics, the marks and hints coloured."""
    return Content("\n").join(_line(line) for line in render_text(diagnostics, limit=limit).splitlines())


def _line(text: str) -> Content:
    for pattern, style in _LINES:
        found = pattern.match(text)
        if found is not None:
            return Content(text).stylize(style, found.start(), found.end())
    return Content(text)


def message_text(error: BlisError) -> Content:
    """An error that has no place: its message, and what to do about it."""
    parts: list[str | tuple[str, str]] = [("error", "$error bold"), f": {error.message}"]
    if error.help:
        parts.append((f"\n  = help: {error.help}", "$success"))
    return Content.assemble(*parts)
