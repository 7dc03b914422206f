"""The window that answers "what if?": a run repeated with one routing decision changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual import work
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static
from textual.worker import get_current_worker

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import BlisError
from blis_tui.base.units import count_text, plural
from blis_tui.runs.comparison_text import both_names
from blis_tui.runs.divergence import record_text
from blis_tui.runs.reroute import ask_whatif
from blis_tui.runs.reroute_text import place_text, whatif_text
from blis_tui.tui.actions import bindings
from blis_tui.tui.bars import KeyBar
from blis_tui.tui.drawing.lines import (
    BLANK,
    Column,
    fact,
    fit,
    flow,
    heading,
    line,
    message_text,
    shorten,
    table_rows,
    titles,
    words,
)
from blis_tui.tui.screens.windows import ScrolledWindow
from blis_tui.tui.shell import shell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult

    from blis_tui.cluster.records import RoutingDecision
    from blis_tui.model import Experiment
    from blis_tui.runs.reroute import Change, LatencyShift, OtherRequests, WhatIf
    from blis_tui.tui.drawing.lines import Line, Part
    from blis_tui.tui.shell import LoadedBy


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


def whatif_lines(what_if: WhatIf, width: int) -> list[Line]:
    """Return the request, the others, and the divergence of the two runs.

    Args:
        what_if: the result.
        width: available columns.
    """
    if what_if.divergence is None:
        same = f"The router chose instance {what_if.forced} anyway: nothing changes."
        return [line(row) for row in words(same, width)]
    return [
        *_request(what_if.request, width),
        BLANK,
        *_others(what_if.others, width),
        BLANK,
        heading("First difference"),
        *(line(row) for row in words(f"- {record_text(what_if.divergence.left)}", width, "$text-muted")),
        *(line(row) for row in words(f"+ {record_text(what_if.divergence.right)}", width)),
    ]


def _request(change: Change, width: int) -> list[Line]:
    before, after = change.before, change.after
    rows = [
        _Row("state", before.state, after.state),
        _Row("instance", place_text(before), place_text(after)),
        _Row(
            "time to first token", ms_text(before.ttft_us), ms_text(after.ttft_us), change_text(change.ttft_change_us)
        ),
        _Row("end to end", ms_text(before.e2e_us), ms_text(after.e2e_us), change_text(change.e2e_change_us)),
    ]
    columns: list[Column[_Row]] = [
        Column(shorten(change.request_id, _NAME), _NAME, lambda row, _: row.name),
        Column("before", _FIGURE, lambda row, _: row.before, right=True, rank=1),
        Column("after", _FIGURE, lambda row, _: row.after, right=True),
        Column("change", _FIGURE, lambda row, _: row.change, right=True),
    ]
    fitting = fit(columns, width)
    return [titles(fitting), *table_rows(fitting, rows)]


def _others(others: OtherRequests, width: int) -> list[Line]:
    facts = [
        Content.styled(f"{count_text(others.changed)} of {plural(others.total, 'other request')} changed", "bold"),
        fact("on another instance", count_text(others.moved)),
        fact("slower end to end", count_text(others.e2e.longer), "$warning" if others.e2e.longer else ""),
        fact("faster", count_text(others.e2e.shorter), "$success" if others.e2e.shorter else ""),
    ]
    facts += [
        Content(f"{plural(counts.count, 'request')} {counts.b} instead of {counts.a}")
        for counts in others.different_ends
    ]
    if others.not_compared:
        facts.append(Content(f"{plural(others.not_compared, 'request')} not the same, or not sent"))
    lines = [line(row) for row in flow(facts, width)]
    shifts = [("time to first token", others.ttft), ("end to end", others.e2e)]
    shifts = [(name, shift) for name, shift in shifts if shift.longer + shift.shorter]
    if shifts:
        columns = fit(list(_shift_columns()), width)
        lines += [titles(columns), *table_rows(columns, shifts)]
    for title, changes in (("slowed down most", others.worst), ("gained most", others.best)):
        if changes:
            about = fit(list(_change_columns(title)), width)
            lines += [BLANK, titles(about), *table_rows(about, changes)]
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
    yield Column(
        title, _NAME, lambda change, room: shorten(both_names(change.before.request_id, change.after.request_id), room)
    )
    yield Column("instance", 9, lambda change, _: moved_text(change), rank=2)
    yield Column("end to end", _FIGURE, lambda change, _: ms_text(change.after.e2e_us), right=True, rank=1)
    yield Column("change", _FIGURE, lambda change, _: change_text(change.e2e_change_us), right=True)


def moved_text(change: Change) -> str:
    """Return where it was served in both runs: ``2``, or ``2 → 1``."""
    before, after = place_text(change.before), place_text(change.after)
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


_WAITING: Final = "Replaying the run with that one decision changed …"


class WhatIfScreen(ScrolledWindow[None]):
    """Shows the answer, from which both runs can be opened side by side.

    Args:
        experiment: the original experiment.
        by: what it was loaded from.
        decision: the decision to change.
        route_to: the new instance for the request.
    """

    SCOPE = "whatif"
    BINDINGS = [*bindings(SCOPE), Binding("q", "whatif_close", show=False)]  # noqa: RUF012  (Textual's convention)
    DEFAULT_CSS = """
    WhatIfScreen {
        & > Vertical { width: 96%; max-width: 104; max-height: 96%; padding: 0 1 0 2; }
        VerticalScroll { height: auto; max-height: 100%; padding: 1 0; scrollbar-size-vertical: 1; }
        Static { height: auto; width: 1fr; padding-right: 1; }
    }
    """

    def __init__(self, experiment: Experiment, by: LoadedBy, decision: RoutingDecision, route_to: int) -> None:
        super().__init__()
        self._experiment = experiment
        self._by = by
        self._decision = decision
        self._route_to = route_to
        self._what_if: WhatIf | None = None
        self._error: BlisError | None = None

    def compose(self) -> ComposeResult:
        """Create the text."""
        with Vertical(), VerticalScroll(can_focus=False):
            yield Static(_WAITING)
        yield KeyBar()

    def on_mount(self) -> None:
        """Start the computation."""
        self.query_one(Vertical).border_title = Content(self._question)
        self._ask()
        self.call_after_refresh(self._show)

    def on_resize(self) -> None:
        """Adapt to the new size."""
        self.call_after_refresh(self._show)

    @property
    def _question(self) -> str:
        decision = self._decision
        return f"What if {decision.request_id} went to instance {self._route_to} instead of {decision.instance}?"

    @work(thread=True, exclusive=True, group="whatif")
    def _ask(self) -> None:
        """Repeat the run, until the window is closed."""
        worker = get_current_worker()
        asking = ask_whatif(self._experiment, self._decision.request_id, self._route_to, self._decision.event)
        try:
            while not worker.is_cancelled:
                next(asking)
        except StopIteration as end:
            self._what_if = end.value
        except BlisError as error:
            self._error = error
        if not worker.is_cancelled:
            self.call_later(self._show)

    def _show(self) -> None:
        if self.is_attached:
            width = max(self.query_one(Static).content_size.width, 20)
            self.query_one(Static).update(self._text(width))
            self.refresh_bindings()

    def _text(self, width: int) -> Content:
        if self._error is not None:
            return message_text(self._error, width)
        if self._what_if is None:
            return Content(_WAITING)
        lines = whatif_lines(self._what_if, width)
        return Content("\n").join(row.draw() for row in lines)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide actions that are impossible."""
        del parameters
        if action == "whatif_copy":
            return self._what_if is not None
        if action == "whatif_compare":
            return self._what_if is not None and self._what_if.divergence is not None
        return True

    def action_whatif_compare(self) -> None:
        """Show both runs side by side, at their divergence."""
        what_if = self._what_if
        if what_if is not None and what_if.divergence is not None:
            request = what_if.request.request_id
            names = (self._by.source, f"{request} on instance {what_if.forced}")
            experiment, event = self._experiment, what_if.divergence.event
            by = (self._by, self._by)
            shell(self.app).open_compare(
                experiment, experiment, names, event=event, routes=what_if.routes, loaded_by=by
            )

    def action_whatif_copy(self) -> None:
        """Copy the answer in the format of the command line."""
        if self._what_if is not None:
            self.app.copy_to_clipboard(whatif_text(self._what_if))
            self.app.notify("The answer is in the clipboard.")

    action_whatif_close = ScrolledWindow.action_dialog_close
