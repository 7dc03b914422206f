"""Arrivals over time: a row for each client or tenant, below the timeline and on its scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.classes import NamedTuple
from blis_tui.tui.presenters.lines import cells_text, shorten
from blis_tui.tui.presenters.series import FUTURE, PAST, strip
from blis_tui.tui.presenters.timeline import LABEL, known_until, scale_of
from blis_tui.units import count_text, plural, span_text, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.presenters.timeline import Scale
    from blis_tui.tui.view import View

GROUPINGS: Final = ("client", "tenant")
_NAME: Final = 7
_OTHER_LINES: Final = 12
"""Lines of a screen reserved for other content; the rows get a third of the rest."""


class Row(NamedTuple):
    """The senders in a row: one client or tenant, or several combined for lack of room."""

    label: str
    names: tuple[str, ...]


def groupings(view: View) -> tuple[str, ...]:
    """Return the possible groupings: by client if there are several, by tenant if there are any."""
    found = {"client": len(_names(view, "client")) > 1, "tenant": bool(_names(view, "tenant"))}
    return tuple(by for by in GROUPINGS if found[by])


def _names(view: View, by: str) -> tuple[str, ...]:
    """Return names in the experiment's order; for a trace, in the order of their first requests."""
    clients = [one for one in view.experiment.workload.clients if one.share > 0]
    told = [one.id if by == "client" else one.tenant for one in clients]
    return tuple(dict.fromkeys(name for name in (*told, *view.tape.arrivals.names(by)) if name))


def rows_of(view: View, by: str, height: int) -> tuple[Row, ...]:
    """Return the rows that fit a screen height: the senders with most known requests, then the rest combined."""
    names = _names(view, by)
    room = max((height - _OTHER_LINES) // 3, 2)
    if len(names) <= room:
        return tuple(Row(name, (name,)) for name in names)
    arrivals, known = view.tape.arrivals, view.moment.frontier
    most = sorted(names, key=lambda name: -arrivals.until(by, name, known))[: room - 1]
    others = tuple(name for name in names if name not in most)
    return (*(Row(name, (name,)) for name in names if name in most), Row(f"{len(others)} more", others))


def arrivals_until(view: View, by: str, row: Row, event: int) -> int:
    """Return how many requests of a row had arrived by an event."""
    return sum(view.tape.arrivals.until(by, name, event) for name in row.names)


def counts(view: View, by: str, row: Row, scale: Scale) -> list[int | None]:
    """Return the arrivals per column, up to the position in its column; None where unknown."""
    here, known_us = scale.cell(view.moment.time_us), known_until(view)
    found: list[int | None] = []
    before = 0
    for cell in range(scale.cells):
        if scale.start_us(cell) > known_us:
            return [*found, *[None] * (scale.cells - cell)]
        last = view.tape.at_time(scale.last_us(cell))
        upto = arrivals_until(view, by, row, last)
        found.append((arrivals_until(view, by, row, view.moment.event) if cell == here else upto) - before)
        before = upto
    return found


def arrival_lines(view: View, by: str, width: int, height: int) -> list[Content]:
    """Return the title, and a row for each sender with the arrivals up to the position, and over time.

    Args:
        view: the view.
        by: ``client`` or ``tenant``.
        width: columns.
        height: lines of the whole screen.
    """
    scale = scale_of(view, width - LABEL)
    here = scale.cell(view.moment.time_us)
    rows = rows_of(view, by, height)
    values = [counts(view, by, row, scale) for row in rows]
    top = max((value for one in values for value in one if value is not None), default=0)
    styles = [FUTURE if cell > here else PAST for cell in range(scale.cells)]
    span = span_text(scale.end_us // scale.cells)
    about = f"by {by}, up to here; a full bar is {plural(top, 'arrival')} in {span}"
    lines = [
        Content.assemble((" arrivals".ljust(LABEL), "bold"), (about, "$text-muted")).truncate(width, ellipsis=True)
    ]
    for row, one in zip(rows, values, strict=True):
        count = count_text(arrivals_until(view, by, row, view.moment.event))
        label = f" {shorten(row.label, max(LABEL - 3 - len(count), 3)):<{_NAME}}"
        label += f"{count:>{LABEL - 1 - len(label)}} "
        lines.append(Content(label) + cells_text(strip(one, top), styles))
    return lines


def row_text(view: View, by: str, row: Row, scale: Scale, cell: int) -> str:
    """Return what is known about a row at a column."""
    value: int | None = counts(view, by, row, scale)[cell]
    if value is None:
        return f"{time_text(scale.start_us(cell))}: not simulated yet"
    names: Sequence[str] = row.names[:5]
    more = f" and {len(row.names) - 5} more" if len(row.names) > len(names) else ""
    event = view.tape.at_time(scale.last_us(cell))
    if cell == scale.cell(view.moment.time_us):
        event = view.moment.event
    total = count_text(arrivals_until(view, by, row, event))
    return f"{', '.join(names)}{more} · {plural(value, 'arrival')} here, {total} up to {time_text(scale.last_us(cell))}"
