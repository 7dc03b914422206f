"""The resolved experiment as coloured YAML, with the origin of each value."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.tui.drawing.lines import Line, line, shorten, with_hanging_indent, words
from blis_tui.tui.panes.pane_rows import LinesPane

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.tui.drawing.lines import Part
    from blis_tui.tui.view import View


_LINE: Final = re.compile(r"(?P<indent> *(?:- )*)(?P<key>[^\s:#'\"][^:#]*:)?(?P<value>.*?)(?P<remark>\s+# .*|^# .*)?$")
_MARKS: Final = (("default", "$text-muted dim"), ("computed", "$text-muted italic"), ("--", "$accent bold"))
"""Prefix of a remark, and its colour; all other remarks name a file."""

_REMARKS_BELOW_EACH_OTHER: Final = 90
"""Width from which remarks are aligned; below, each follows its value."""


def spec_lines(document: Iterable[str], width: int) -> list[Line]:
    """Return the document's lines; a remark that does not fit goes below its value."""
    found: list[Line] = []
    for number, text in enumerate(document):
        found += _lines(text.rstrip("\n"), number, width)
    return found or [line((row.plain, "$text-muted")) for row in words("There is no document to show.", width)]


def _lines(text: str, number: int, width: int) -> list[Line]:
    key = f"{number}"
    if text.startswith("#"):
        rows = words(text.removeprefix("#").strip(), width - 2, "$text-muted")
        return [line(row) for row in with_hanging_indent(Content.styled("# ", "$text-muted"), rows)]
    if len(text) <= width and width >= _REMARKS_BELOW_EACH_OTHER:
        return [Line(partial(coloured, text), key)]
    body, _, remark = text.partition("  # ")
    body = body.rstrip()
    short = f"{body}  # {remark}" if remark else body
    if len(short) <= width:
        return [Line(partial(coloured, short), key)]
    own = len(body) - len(body.lstrip())
    indent = " " * (own + 4)
    rows = coloured(body.strip()).wrap(max(width - len(indent), 8))
    wrapped = [Content(" " * own) + rows[0], *(Content(indent) + row for row in rows[1:])]
    first = [coloured(body)] if len(body) <= width else wrapped
    lines = [line(row, key=key if at == 0 else "") for at, row in enumerate(first)]
    if remark:
        lines.append(line(indent, (f"# {shorten(remark, max(width - len(indent) - 2, 8))}", _style(remark))))
    return lines


def coloured(text: str) -> Content:
    """Return a line of YAML in colours."""
    found = _LINE.match(text)
    if found is None:
        return Content(text)
    remark = found["remark"] or ""
    parts: list[Part] = [
        (found["indent"], "$text-muted"),
        (found["key"] or "", "$primary"),
        found["value"] or "",
        (remark, _style(remark.strip().removeprefix("# "))),
    ]
    return Content.assemble(*parts)


def _style(remark: str) -> str:
    return next((style for start, style in _MARKS if remark.startswith(start)), "$text-muted")


def spec_value(text: str) -> str:
    """Return the value on a line, without its key and remark."""
    found = _LINE.match(text)
    return "" if found is None else (found["value"] or "").strip()


def spec_path(document: Sequence[str], number: int) -> str:
    """Return the path of the value on a line: ``workload.clients.0.id``."""
    stack: list[tuple[int, str | int]] = []  # columns, with the key or the list position that began there
    for text in document[: number + 1]:
        found = _LINE.match(text)
        if found is None or text.startswith("#"):
            continue
        for column in (dash.start() for dash in re.finditer("-", found["indent"])):
            place = _open_list(stack, column)
            stack.append((column, place))
        if found["key"]:
            column = len(found["indent"])
            while stack and stack[-1][0] >= column:
                stack.pop()
            stack.append((column, found["key"].rstrip(":").strip()))
    return ".".join(str(step) for _, step in stack)


def _open_list(stack: list[tuple[int, str | int]], column: int) -> int:
    """Close everything deeper than an entry's dash; return the entry's position in its list."""
    place = 0
    while stack and stack[-1][0] >= column:
        at, step = stack.pop()
        if at == column and isinstance(step, int):
            place = step + 1
    return place


class SpecPane(LinesPane):
    """The resolved experiment, with the origin of each value."""

    FOLLOWS_SELECTION = False

    _document: Sequence[str] = ()
    _shown: tuple[int, Sequence[Line]] = (0, ())

    def set_document(self, lines: Iterable[str]) -> None:
        """Show a document in the format of ``blis-tui spec resolve``."""
        self._document = [line.rstrip("\n") for line in lines]
        self._shown = (0, ())
        self.refresh_view()

    def lines(self, view: View, width: int) -> Sequence[Line]:  # noqa: ARG002  (the same at every position)
        """Return the document's lines, cached per width."""
        if self._shown[0] != width:
            self._shown = (width, spec_lines(self._document, width))
        return self._shown[1]

    def selected_value(self) -> str:
        """Return the value on the cursor's line."""
        return spec_value(self._document[int(self._key)]) if self._key else ""

    def selected_path(self) -> str:
        """Return the path of that value for ``--set``."""
        return spec_path(self._document, int(self._key)) if self._key else ""
