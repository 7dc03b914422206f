"""A counterfactual as lines: the effect of another routing decision on the request, and on all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.classes import NamedTuple
from blis_tui.compare.divergence import record_text
from blis_tui.compare.whatif_text import place_text
from blis_tui.compare.wording import both_names
from blis_tui.tui.presenters.lines import (
    BLANK,
    Column,
    fact,
    fit,
    flow,
    heading,
    line,
    shorten,
    table_rows,
    titles,
    words,
)
from blis_tui.units import count_text, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.compare.whatif import Change, LatencyShift, OtherRequests, WhatIf
    from blis_tui.tui.presenters.lines import Line, Part

_NAME: Final = 19
_FIGURE: Final = 13
_STATISTICS: Final = {"total": 0, "mean": 1, "p50": 2, "p99": 3, "max": 4}
"""Statistics of the changes, and the order in which they are left out in a narrow terminal."""


class _Row(NamedTuple):
    """A figure of the request in both runs."""

    name: str
    before: str
    after: str
    change: Part = ""


def whatif_lines(found: WhatIf, width: int) -> list[Line]:
    """Return the request, the others, and the divergence of the two runs.

    Args:
        found: the result.
        width: available columns.
    """
    if found.divergence is None:
        same = f"The router chose instance {found.forced} anyway: nothing changes."
        return [line(row) for row in words(same, width)]
    return [
        *_request(found.request, width),
        BLANK,
        *_others(found.others, width),
        BLANK,
        heading("First difference"),
        *(line(row) for row in words(f"- {record_text(found.divergence.left)}", width, "$text-muted")),
        *(line(row) for row in words(f"+ {record_text(found.divergence.right)}", width)),
    ]


def _request(one: Change, width: int) -> list[Line]:
    before, after = one.before, one.after
    rows = [
        _Row("state", before.state, after.state),
        _Row("instance", place_text(before), place_text(after)),
        _Row("time to first token", ms_text(before.ttft_us), ms_text(after.ttft_us), change_text(one.ttft_change_us)),
        _Row("end to end", ms_text(before.e2e_us), ms_text(after.e2e_us), change_text(one.e2e_change_us)),
    ]
    columns: list[Column[_Row]] = [
        Column(shorten(one.request_id, _NAME), _NAME, lambda row, _: row.name),
        Column("before", _FIGURE, lambda row, _: row.before, right=True, rank=1),
        Column("after", _FIGURE, lambda row, _: row.after, right=True),
        Column("change", _FIGURE, lambda row, _: row.change, right=True),
    ]
    fitting = fit(columns, width)
    return [titles(fitting), *table_rows(fitting, rows, lambda _: "")]


def _others(others: OtherRequests, width: int) -> list[Line]:
    facts = [
        Content.styled(f"{count_text(others.changed)} of {plural(others.total, 'other request')} changed", "bold"),
        fact("on another instance", count_text(others.moved)),
        fact("slower end to end", count_text(others.e2e.longer), "$warning" if others.e2e.longer else ""),
        fact("faster", count_text(others.e2e.shorter), "$success" if others.e2e.shorter else ""),
    ]
    facts += [Content(f"{plural(one.count, 'request')} {one.b} instead of {one.a}") for one in others.different_ends]
    if others.not_compared:
        facts.append(Content(f"{plural(others.not_compared, 'request')} not the same, or not sent"))
    lines = [line(row) for row in flow(facts, width)]
    shifts = [("time to first token", others.ttft), ("end to end", others.e2e)]
    shifts = [(name, shift) for name, shift in shifts if shift.longer + shift.shorter]
    if shifts:
        columns = fit(list(_shift_columns()), width)
        lines += [titles(columns), *table_rows(columns, shifts, lambda _: "")]
    for title, changes in (("slowed down most", others.worst), ("gained most", others.best)):
        if changes:
            about = fit(list(_change_columns(title)), width)
            lines += [BLANK, titles(about), *table_rows(about, changes, lambda one: one.request_id)]
    return lines


def _shift_columns() -> Iterator[Column[tuple[str, LatencyShift]]]:
    def column(name: str, rank: int) -> Column[tuple[str, LatencyShift]]:
        def cell(row: tuple[str, LatencyShift], _width: int) -> Part:
            shift = row[1]
            if name == "total":
                return change_text(shift.total_us)
            value = getattr(shift.change_ms, name)
            return "-" if value is None else _signed_ms(value)

        return Column(name, _FIGURE, cell, right=True, rank=rank)

    yield Column("change of those", _NAME, lambda row, _: row[0])
    for name, rank in _STATISTICS.items():
        yield column(name, rank)


def _change_columns(title: str) -> Iterator[Column[Change]]:
    yield Column(title, _NAME, lambda one, room: shorten(both_names(one.before.request_id, one.after.request_id), room))
    yield Column("instance", 9, lambda one, _: moved_text(one), rank=2)
    yield Column("end to end", _FIGURE, lambda one, _: ms_text(one.after.e2e_us), right=True, rank=1)
    yield Column("change", _FIGURE, lambda one, _: change_text(one.e2e_change_us), right=True)


def moved_text(one: Change) -> str:
    """Return where it was served in both runs: ``2``, or ``2 → 1``."""
    before, after = place_text(one.before), place_text(one.after)
    return before if before == after else f"{before} → {after}"


def ms_text(us: int | None) -> str:
    """Return a time to the microsecond: ``1,234.567 ms``."""
    return "-" if us is None else f"{us / 1000:,.3f} ms"


def change_text(us: int | None) -> Part:
    """Return the change of a time to the microsecond."""
    if not us:
        return "-" if us is None else "="
    return (_signed_ms(us / 1000), "$warning" if us > 0 else "$success")


def _signed_ms(value: float) -> str:
    return f"{value:+,.3f} ms"
