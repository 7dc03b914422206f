"""The resolved experiment as coloured YAML, with the origin of each value."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.debugger.why.explanation import Subject
from blis_tui.tui.drawing.lines import Line, line, remark, shorten, with_hanging_indent, words
from blis_tui.tui.panes.pane import Pane, selected

if TYPE_CHECKING:
    from blis_tui.tui.drawing.lines import Part


_LINE: Final = re.compile(r"(?P<indent> *(?:- )*)(?P<key>[^\s:#'\"][^:#]*:)?(?P<value>.*?)(?P<remark>\s+# .*|^# .*)?$")
_MARKS: Final = (("default", "$text-muted dim"), ("computed", "$text-muted italic"), ("--", "$accent bold"))
"""Prefix of a remark, and its colour; all other remarks name a file."""

_REMARKS_BELOW_EACH_OTHER: Final = 90
"""Width from which remarks are aligned; below, each follows its value."""


@lru_cache(maxsize=2)
def spec_lines(document: tuple[str, ...], width: int) -> list[Line]:
    """Return the document's lines; a remark that does not fit goes below its value.

    They are the same at every position of a run.
    """
    lines: list[Line] = []
    for text, path in zip(document, spec_paths(document), strict=True):
        lines += _lines(text, Subject("figure", path), width)
    return lines or remark("There is no document to show.", width)


def _lines(text: str, about: Subject, width: int) -> list[Line]:
    value = spec_value(text)
    if text.startswith("#"):
        rows = words(text.removeprefix("#").strip(), width - 2, "$text-muted")
        return [line(row) for row in with_hanging_indent(Content.styled("# ", "$text-muted"), rows)]
    if len(text) <= width and width >= _REMARKS_BELOW_EACH_OTHER:
        return [Line(partial(coloured, text), about, copy=value)]
    body, _, remark = text.partition("  # ")
    body = body.rstrip()
    short = f"{body}  # {remark}" if remark else body
    if len(short) <= width:
        return [Line(partial(coloured, short), about, copy=value)]
    own = len(body) - len(body.lstrip())
    indent = " " * (own + 4)
    rows = coloured(body.strip()).wrap(max(width - len(indent), 8))
    wrapped = [Content(" " * own) + rows[0], *(Content(indent) + row for row in rows[1:])]
    first, *others = [coloured(body)] if len(body) <= width else wrapped
    lines = [line(first, subject=about, copy=value), *map(line, others)]
    if remark:
        lines.append(line(indent, (f"# {shorten(remark, max(width - len(indent) - 2, 8))}", _style(remark))))
    return lines


def coloured(text: str) -> Content:
    """Return a line of YAML in colours."""
    match = _LINE.match(text)
    if match is None:
        return Content(text)
    remark = match["remark"] or ""
    parts: list[Part] = [
        (match["indent"], "$text-muted"),
        (match["key"] or "", "$primary"),
        match["value"] or "",
        (remark, _style(remark.strip().removeprefix("# "))),
    ]
    return Content.assemble(*parts)


def _style(remark: str) -> str:
    return next((style for start, style in _MARKS if remark.startswith(start)), "$text-muted")


def spec_value(text: str) -> str:
    """Return the value on a line, without its key and remark."""
    match = _LINE.match(text)
    return "" if match is None else (match["value"] or "").strip()


def spec_paths(document: tuple[str, ...]) -> list[str]:
    """Return the path of the value on each line: ``workload.clients.0.id``."""
    stack: list[tuple[int, str | int]] = []  # columns, with the key or the list position that began there
    paths: list[str] = []
    for text in document:
        match = None if text.startswith("#") else _LINE.match(text)
        if match is not None:
            for column in (dash.start() for dash in re.finditer("-", match["indent"])):
                place = _open_list(stack, column)
                stack.append((column, place))
            if match["key"]:
                column = len(match["indent"])
                while stack and stack[-1][0] >= column:
                    stack.pop()
                stack.append((column, match["key"].rstrip(":").strip()))
        paths.append(".".join(str(step) for _, step in stack))
    return paths


def _open_list(stack: list[tuple[int, str | int]], column: int) -> int:
    """Close everything deeper than an entry's dash; return the entry's position in its list."""
    place = 0
    while stack and stack[-1][0] >= column:
        at, step = stack.pop()
        if at == column and isinstance(step, int):
            place = step + 1
    return place


PANE: Final = Pane(
    lines=lambda view, room: spec_lines(view.document, room.width),
    points=selected,
    follows_selection=False,
)
