"""Diagnostics in colours, with the text of the command line."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.base.diagnostics import MAX_SHOWN, render_text
from blis_tui.base.errors import SpecError, TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.errors import BlisError

_LINES: Final = (
    (re.compile(r"^error(\[\w+\])?(?=:)"), "$error bold"),
    (re.compile(r"^ *\| +\^+$"), "$error"),
    (re.compile(r"^ *= help:.*"), "$success"),
    (re.compile(r"^ *--> .*"), "$text-muted"),
    (re.compile(r"^ *\d* \|"), "$text-muted"),
)
"""Patterns of lines, and the colour of the matching part."""


_HELP: Final = re.compile(r" *= help:")
_QUOTED: Final = re.compile(r" *\d* \|")
_PROSE: Final = re.compile(r"error\[\w+\]: |error: | *= help: | *--> ")
"""Starts of lines that may be wrapped; quoted lines may not, because marks must stay below what they mark."""


def diagnostics_of(error: BlisError) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of an error, if it has any."""
    return error.diagnostics if isinstance(error, SpecError | TraceError) else ()


def diagnostics_text(diagnostics: Sequence[Diagnostic], *, limit: int = MAX_SHOWN, width: int = 0) -> Content:
    """Return all diagnostics in colours; sentences are wrapped to ``width``, 0 = not wrapped."""
    return problem_text(render_text(diagnostics, limit=limit), width)


def problem_text(text: str, width: int = 0) -> Content:
    """Return a printed error in colours; wrapped as in `diagnostics_text`."""
    lines = (part for line in text.splitlines() for part in _wrapped(line, width))
    return Content("\n").join(lines)


def _wrapped(text: str, width: int) -> list[Content]:
    whole = _line(text)
    begins = _PROSE.match(text)
    quoted = begins is None and _QUOTED.match(text) is not None
    if not width or quoted or whole.cell_length <= width:
        return [whole]
    indent = " " * (0 if begins is None else 2 if text.startswith("error") else begins.end())
    parts = wrap(text, max(width, len(indent) + 8), subsequent_indent=indent, break_on_hyphens=False)
    style = "$success" if _HELP.match(text) else ""
    return [_line(parts[0]), *(Content.styled(part, style) for part in parts[1:])]


def _line(text: str) -> Content:
    for pattern, style in _LINES:
        found = pattern.match(text)
        if found is not None:
            return Content(text).stylize(style, found.start(), found.end())
    return Content(text)


def message_text(error: BlisError, width: int = 0) -> Content:
    """Return an error without a place: its message and its hint; wrapped as in `diagnostics_text`."""
    return problem_text(f"error: {error}", width)
