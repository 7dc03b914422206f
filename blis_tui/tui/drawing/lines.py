"""Lines of text in panes, drawn lazily, so that only visible ones cost time; diagnostics in colours."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from textwrap import wrap
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from textual.content import Content

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.diagnostics import MAX_SHOWN, render_text
from blis_tui.base.errors import SpecError, TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from textual.message import Message

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.errors import BlisError
    from blis_tui.debugger.why.explanation import Subject

T = TypeVar("T")
Part = str | tuple[str, str]
"""Text, or text and its style."""


class Cell(NamedTuple):
    """A part of a line, from where the one before ends."""

    width: int
    """In columns; 0 = the cursor stops at its subject, although there is no room to draw it."""
    subject: Subject | None = None
    tip: str = ""
    sends: Message | None = None
    """What a click on it sends besides selecting the subject."""


class Line(NamedTuple):
    """One line of a pane."""

    draw: Callable[[], Content]
    """Creates the text; called only when the line is visible."""
    subject: Subject | None = None
    """What the line is about; the cursor stops only at lines with a subject."""
    tip: str = ""
    """The tooltip."""
    copy: str = ""
    """The value on the line, for copying; empty = the subject itself."""
    cells: Callable[[], Iterable[Cell]] | None = None
    """Returns its parts, if they have subjects of their own."""

    def under(self, column: int) -> Cell:
        """Return what is at a column."""
        for cell in () if self.cells is None else self.cells():
            if 0 <= column < cell.width:
                return cell._replace(subject=cell.subject or self.subject)
            column -= cell.width
        return Cell(0, self.subject, self.tip)

    def subjects(self) -> Iterator[Subject]:
        """Yield what the cursor stops at."""
        if self.subject is not None:
            yield self.subject
        elif self.cells is not None:
            yield from (cell.subject for cell in self.cells() if cell.subject is not None)


def line(*parts: Part | Content, subject: Subject | None = None, tip: str = "", copy: str = "") -> Line:
    """Return a line of a few parts."""
    return Line(partial(Content.assemble, *parts), subject, tip, copy)


def remark(text: str, width: int) -> list[Line]:
    """Return a sentence as muted lines."""
    return [line(row) for row in words(text, width, "$text-muted")]


BLANK = line("")


def fact(label: str, value: str | Content, style: str = "") -> Content:
    """Return a value after its muted label."""
    return Content.assemble((f"{label} ", "$text-muted"), value if isinstance(value, Content) else (value, style))


def heading(title: str, note: str = "", width: int = 1000) -> Line:
    """Return a heading, with a remark if there is room."""
    fits = note and len(title) + 2 + len(note) <= width
    return line((title, "bold"), (f"  {note}" if fits else "", "$text-muted"))


def flow(items: Iterable[Content], width: int, gap: str = "  ") -> list[Content]:
    """Return items side by side, in as many lines as needed; only items longer than a line are broken."""
    rows: list[list[Content]] = []
    used = 0
    for item in _pieces(items, width):
        size = item.cell_length
        if rows and used + len(gap) + size <= width:
            rows[-1].append(item)
            used += len(gap) + size
        else:
            rows.append([item])
            used = size
    return [Content(gap).join(row) for row in rows]


def _pieces(items: Iterable[Content], width: int) -> Iterator[Content]:
    for item in items:
        if item.cell_length <= width:
            yield item
        else:
            yield from (piece.rstrip() for piece in item.wrap(width))


def words(text: str, width: int, style: str = "") -> list[Content]:
    """Return a sentence wrapped to a width."""
    return [Content.styled(row.plain, style) for row in flow(map(Content, text.split()), width, " ")]


def with_hanging_indent(head: Content, rows: Sequence[Content]) -> list[Content]:
    """Return lines beside a head: the first follows it, the others are indented accordingly."""
    indent = " " * head.cell_length
    return [(head if at == 0 else Content(indent)) + row for at, row in enumerate(rows or [Content("")])]


def cells_text(chars: Iterable[str], styles: Iterable[str]) -> Content:
    """Return characters with individual styles, one piece per run of equal styles."""
    runs = groupby(zip(chars, styles, strict=True), key=itemgetter(1))
    return Content.assemble(*(("".join([char for char, _ in run]), style) for style, run in runs))


def names_text(names: Sequence[str], limit: int = 3) -> str:
    """Return a few names: ``r1, r2, r3 and 5 more``."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def shorten(text: str, width: int) -> str:
    """Return a name shortened at its start, because the end is more distinctive."""
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table.

    Attributes:
        title: its title.
        width: its width in cells, or the minimum if it grows.
        cell: returns its content for an item, given the width.
        right: whether texts are aligned right.
        rank: columns with the highest rank are left out first for lack of room; 0 = never.
        grows: whether it takes the remaining room.
        most: the maximum width to which it grows.
    """

    title: str
    width: int
    cell: Callable[[T, int], Part]
    right: bool = False
    rank: int = 0
    grows: bool = False
    most: int = 1000


_GAP = 2


def fit(columns: Sequence[Column[T]], width: int) -> tuple[Column[T], ...]:
    """Return the columns that fit, the growing one as wide as possible."""
    kept = list(columns)
    while _needed(kept) > width and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    spare = max(width - _needed(kept), 0)
    return tuple(
        replace(column, width=min(column.width + spare, column.most)) if column.grows else column for column in kept
    )


def _needed(columns: Sequence[Column[T]]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def titles(columns: Sequence[Column[T]]) -> Line:
    """Return the heading of a table."""
    parts = [_aligned(column.title, column) for column in columns]
    return line(((" " * _GAP).join(parts), "$text-muted"))


def cells(columns: Sequence[Column[T]], item: T) -> Content:
    """Return the line of an item."""
    parts: list[Part] = []
    for column in columns:
        if parts:
            parts.append(" " * _GAP)
        cell = column.cell(item, column.width)
        if isinstance(cell, str):
            parts.append(_aligned(cell, column))
        else:
            parts.append((_aligned(cell[0], column), cell[1]))
    return Content.assemble(*parts)


def table_rows(
    columns: Sequence[Column[T]], items: Iterable[T], subject: Callable[[T], Subject | None] = lambda _: None
) -> list[Line]:
    """Return the lines of many items, and what each is about."""
    return [Line(partial(cells, columns, item), subject(item)) for item in items]


def _aligned(text: str, column: Column[T]) -> str:
    return text.rjust(column.width) if column.right else text.ljust(column.width)


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


def diagnostics_text(diagnostics: Sequence[Diagnostic], *, width: int = 0) -> Content:
    """Return all diagnostics in colours; sentences are wrapped to ``width``, 0 = not wrapped."""
    return problem_text(render_text(diagnostics, limit=MAX_SHOWN), width)


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
        match = pattern.match(text)
        if match is not None:
            return Content(text).stylize(style, match.start(), match.end())
    return Content(text)


def message_text(error: BlisError, width: int = 0) -> Content:
    """Return an error without a place: its message and its hint; wrapped as in `diagnostics_text`."""
    return problem_text(f"error: {error}", width)
