"""Two runs side by side, advanced together by simulated time."""

from __future__ import annotations

from functools import partial
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Final

from textual.containers import Horizontal
from textual.content import Content

from blis_tui.base.errors import BlisError
from blis_tui.base.units import plural
from blis_tui.debugger.lockstep import Lockstep, RequestStatuses, differing_requests, figure_pairs
from blis_tui.debugger.places import parse_place
from blis_tui.debugger.why.explanation import request_ref
from blis_tui.runs.comparison import Simulated, compare, request_changes, rows
from blis_tui.runs.documents import experiment_differences
from blis_tui.tui.actions import bindings
from blis_tui.tui.bars import KeyBar, TitleBar
from blis_tui.tui.drawing.plot import curves_text
from blis_tui.tui.drawing.series import BY_NAME
from blis_tui.tui.driver import GOING, Pump
from blis_tui.tui.screens.compare_lines import (
    LETTERS,
    CompareView,
    SideView,
    activity,
    differences_text,
    file_stem,
    file_text,
    first_request,
    metrics_text,
    names_text,
    requests_text,
    short_names,
    side_text,
)
from blis_tui.tui.screens.side_by_side import LONG_S, CompareBox, CurvesBox, SideBySideScreen, show_in_boxes
from blis_tui.tui.shell import LoadedBy, shell
from blis_tui.tui.view import InTime

if TYPE_CHECKING:
    from typing import Unpack

    from textual.app import ComposeResult
    from textual.events import DescendantFocus
    from textual.timer import Timer

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.history import Move, Stop
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.model import Experiment
    from blis_tui.results.report import Report
    from blis_tui.runs.comparison import ComparedFigure, RequestChanges
    from blis_tui.runs.divergence import Divergence
    from blis_tui.tui.shell import ComparedFrom

_AT_ONCE_S: Final = 0.05
"""Maximum time in seconds that a move may block the screen at first."""
_SLICE_S: Final = 0.01
_TICK_S: Final = 1 / 30
_PAINT_S: Final = 1 / 15
_REPORT_S: Final = 0.5
"""Interval of reports during a run."""
_REST: Final = 4
"""Reports take at most a fifth of the time of a run."""
_REQUESTS: Final = 200
"""Maximum number of requests listed."""


class CompareScreen(SideBySideScreen):
    """Two experiments in lockstep.

    Args:
        left: experiment A.
        right: experiment B.
        names: their names.
        event: the event at which both sides start; the first divergence is then searched for, too.
        time_us: the simulated time at which to start, in microseconds.
        routes: routing decisions to override on the right side, as for ``Simulation``.
        at_divergence: whether to search for the first divergence, and to start there.
        loaded_by: what each side was loaded from, if known.
    """

    SCOPE = "compare"
    NAME = "comparison"
    AUTO_FOCUS = "#a"
    BINDINGS = bindings(SCOPE)
    BOXES = ("a", "b", "metrics", "requests", "curves", "differences")
    PAIRS = (("a", "b"), ("metrics", "requests"))
    TIGHT = 76
    SHORT = 36
    DEFAULT_CSS = """
    CompareScreen {
        #differences { height: auto; min-height: 2; max-height: 4; }
        #sides { height: auto; max-height: 45%; }
        #sides > CompareBox { width: 1fr; height: auto; max-height: 100%; }
        #tables { height: 1fr; min-height: 16; }
        #metrics { width: 52%; height: 100%; }
        #requests { width: 1fr; height: 100%; }
        #curves { height: 1fr; min-height: 8; }
        &.-short #tables { min-height: 0; }
        &.-short #curves { display: none; }
        &.-short.-curves #curves { display: block; }
        &.-short.-curves #tables { display: none; }
        &.-wide #differences { max-height: 9; }
        &.-tight #metrics { width: 100%; }
        &.-tight .-behind { display: none; }
    }
    """

    def __init__(
        self, left: Experiment, right: Experiment, names: tuple[str, str], **start: Unpack[ComparedFrom]
    ) -> None:
        super().__init__()
        self.lockstep = Lockstep(left, right, start.get("routes"))
        self.pump = Pump()
        self._names = names
        self._first = start.get("event")
        self._first_us = start.get("time_us")
        self._at_divergence = start.get("at_divergence", False)
        self._loaded_by = start.get("loaded_by", (LoadedBy(names[0]), LoadedBy(names[1])))
        self._documents = tuple(experiment_differences(left.document, right.document))
        self._searched = False
        self._divergence: Divergence | None = None
        self._side = 0
        self._figures = InTime(self._measured, self.set_timer, self._paint, every_s=_REPORT_S, rest=_REST)
        self._painted_s = 0.0
        self._clock: Timer | None = None

    def compose(self) -> ComposeResult:
        """Create title, differences, the two sides, two tables, keys."""
        yield TitleBar(names_text(self._names), id="status")
        count = len(self._documents)
        summary = plural(count, "difference") if count else "no differences"
        yield CompareBox(f"The experiments: {summary}", differences_text, id="differences")
        with Horizontal(id="sides"):
            for side, letter in enumerate(LETTERS):
                yield CompareBox(letter, partial(side_text, side), id=letter.lower())
        with Horizontal(id="tables"):
            yield CompareBox("Metrics", metrics_text, id="metrics")
            yield CompareBox("Requests", requests_text, id="requests")
        yield CurvesBox(BY_NAME, curves_text, id="curves")
        yield KeyBar()

    def on_mount(self) -> None:
        """Go to the requested place."""
        self._clock = self.set_interval(_TICK_S, self.tick, pause=True)
        self._mark_side()
        for name, _ in self.PAIRS:
            self.bring_to_front(name)
        if self._at_divergence:
            self.action_compare_divergence()
        elif self._first is None and self._first_us is None:
            self._show()
        elif self._first is None:
            self._go(self.lockstep.seek_time(self._first_us or 0), GOING)
        else:
            self.pump.start(self.lockstep.seek(self._first), GOING, self._at_start)
            self._drive(_AT_ONCE_S)

    def bug_report_facts(self) -> dict[str, str]:
        """Return the facts about both runs that a bug report should contain."""
        sides = zip(LETTERS, self.lockstep.sides, strict=True)
        return {f"{letter} {name}": fact for letter, side in sides for name, fact in side.bug_report_facts().items()}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  (Textual's signature)
        """Dim actions that are currently impossible."""
        if action in ("compare_event", "compare_step", "compare_to_end") and self.lockstep.at_end:
            return None
        if action in ("compare_back", "compare_to_start") and self.lockstep.at_start:
            return None
        return True

    # ---- moves ----

    @property
    def busy(self) -> bool:
        """Whether a move is in progress."""
        return self.pump.busy

    def _go(self, move: Move, label: str) -> None:
        """Start a move; short ones complete at once."""
        self.pump.start(move, label, partial(self._stopped, label))
        self._drive(_AT_ONCE_S)

    def _drive(self, seconds: float) -> None:
        try:
            self.pump.drive(seconds)
        except BlisError as error:
            self.notify(str(error), title="Command failed", severity="error", timeout=LONG_S, markup=False)
        if self._clock is not None:
            (self._clock.resume if self.busy else self._clock.pause)()
        if not self.busy or perf_counter() - self._painted_s >= _PAINT_S:
            self._show()

    def tick(self) -> None:
        """Continue a move for a moment."""
        if self.busy:
            self._drive(_SLICE_S)

    def _halt(self) -> bool:
        """Stop a move; return whether there was one."""
        was = self.pump.stop()
        if was:
            self._drive(0)
        return was

    def _stopped(self, label: str, stop: Stop) -> None:
        if stop.reason == "failed":
            failed = next(side.failure for side in self.lockstep.sides if side.failure is not None)
            title = "The simulation failed"
            self.notify(str(failed), title=title, severity="error", timeout=LONG_S, markup=False)
        elif stop.reason == "unknown":
            self.notify("Neither run has a request with that name.", severity="warning", markup=False)
        elif stop.reason == "end" and label == GOING:
            self.notify("Both runs end before that.", markup=False)

    # ---- showing ----

    def view(self) -> CompareView:
        """Return the state to display."""
        left, right = (side.quick_moment() for side in self.lockstep.sides)
        request_statuses, other = (
            RequestStatuses(self.lockstep.left.tape, left.state),
            RequestStatuses(self.lockstep.right.tape, right.state),
        )
        known = None if self.lockstep.at_start else self._figures.value
        metrics, changes = known or ((), None)
        return CompareView(
            sides=(_side_view(self.lockstep.left), _side_view(self.lockstep.right)),
            documents=self._documents,
            searched=self._searched,
            divergence=self._divergence,
            figures=figure_pairs(left.state, right.state),
            metrics=metrics,
            under_way=bool(request_statuses.live or other.live),
            requests=tuple(islice(differing_requests(request_statuses, other), _REQUESTS)),
            changes=changes,
        )

    def _show(self) -> None:
        self._painted_s = perf_counter()
        if self._clock is None:
            return
        at = (self.busy, *(side.event for side in self.lockstep.sides))
        self._figures.follow(self.busy, at, running=self.busy)
        self._paint()

    def _paint(self) -> None:
        view = self.view()
        doing = activity(view.sides, self.lockstep.time_us, self.pump.label, self.pump.progress)
        show_in_boxes(self, view, names_text(self._names), doing)

    def _reports(self) -> tuple[Report, Report]:
        return self.lockstep.left.report(), self.lockstep.right.report()

    def _measured(self, busy: bool) -> tuple[tuple[ComparedFigure, ...], RequestChanges | None]:
        """Return the figures of both reports, and unless a move is in progress, those of each request."""
        a, b = self._reports()
        return tuple(rows(a.to_dict(), b.to_dict())), None if busy else request_changes(a.rows, b.rows)

    def _mark_side(self) -> None:
        names = short_names(self._names)
        for side, letter in enumerate(LETTERS):
            mark = "▶ " if side == self._side else ""
            title = Content.assemble((f"{mark}{letter} ", "$accent bold"), names[side])
            self.query_one(f"#{letter.lower()}", CompareBox).border_title = title

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Remember the side with the focus, which `enter` opens."""
        chosen = {"a": 0, "b": 1}.get(event.widget.id or "")
        if chosen is not None and chosen != self._side:
            self._side = chosen
            self._mark_side()

    # ---- actions ----

    action_compare_side = SideBySideScreen.focus_next_box

    def action_compare_event(self) -> None:
        """Go to the next event."""
        self._halt()
        self.lockstep.step()
        self._show()

    def action_compare_step(self) -> None:
        """Go to the end of the next step of either side."""
        self._go(self.lockstep.step_batch(), "next step")

    def action_compare_back(self) -> None:
        """Go to the previous event."""
        self._go(self.lockstep.back(), "going back")

    def action_compare_toggle(self) -> None:
        """Run, or pause."""
        if self._halt():
            return
        if self.lockstep.at_end:
            self.notify("Both runs have ended: [ goes back, home goes to the start.", markup=False)
        else:
            self.pump.start(self.lockstep.run(), "running", partial(self._stopped, ""))
            self._drive(0)

    def action_compare_to_end(self) -> None:
        """Go to the end of both sides."""
        self._go(self.lockstep.to_end(), "to the end")

    def action_compare_to_start(self) -> None:
        """Go to the start."""
        self._go(self.lockstep.to_start(), "to the start")

    def action_compare_stop(self) -> None:
        """Stop the move."""
        self._halt()

    def action_compare_go_to(self) -> None:
        """Ask for a place to go to."""
        about = "An event (1234), a time (1.5s, 200ms, 300us) or the name of a request, A's first. Both sides go there."
        self.ask_where_to(about, self._go_to)

    def _go_to(self, text: str | None) -> None:
        if text is not None:
            self._go(parse_place(text).move(self.lockstep), GOING)

    def action_compare_divergence(self) -> None:
        """Find the first event that differs, and go there."""
        if self._searched:
            self._go_to_divergence(self._divergence)
            return
        self.pump.start(self.lockstep.first_divergence(), "comparing events", self._compared)
        self._drive(_AT_ONCE_S)

    def _at_start(self, stop: Stop) -> None:
        """At the start position, also search for the divergence, which is usually the reason to start there."""
        self._stopped("", stop)
        self.pump.start(self.lockstep.first_divergence(), "comparing events", self._noted)

    def _noted(self, divergence: Divergence | None) -> None:
        self._searched = True
        self._divergence = divergence

    def _compared(self, divergence: Divergence | None) -> None:
        self._noted(divergence)
        # The search has just ended in the pump; the next move can begin only after it returns.
        self.call_next(self._go_to_divergence, divergence)

    def _go_to_divergence(self, divergence: Divergence | None) -> None:
        self.query_one("#differences", CompareBox).scroll_home(animate=False)
        if divergence is None:
            self.notify("The two runs are identical, from the first event to the last.", markup=False)
            self._show()
        else:
            self._go(self.lockstep.seek(divergence.event), GOING)

    def action_compare_open_side(self) -> None:
        """Open the selected side in the debugger, at its position."""
        self._halt()
        side = self.lockstep.sides[self._side]
        by = self._loaded_by[self._side]
        shell(self.app).open_loaded(side.experiment, by, str(side.event), side.routes or None)

    def action_compare_why(self) -> None:
        """Explain the latest event of the selected side; in the table of requests, the first one there."""
        from blis_tui.debugger.why.explain import explain, explain_event  # noqa: PLC0415  (only needed for questions)
        from blis_tui.tui.screens.why import WhyScreen  # noqa: PLC0415

        self._halt()
        side = self.lockstep.sides[self._side]
        focused = None if self.focused is None else self.focused.id
        request = first_request(self.view(), self._side) if focused == "requests" else ""
        about = explain(side, request_ref(request)) if request else None
        self.app.push_screen(WhyScreen(side, about or explain_event(side, side.event)), self._follow)

    def _follow(self, reference: Subject | None) -> None:
        """Go to an event or a request of an explanation."""
        if reference is not None and reference.kind != "instance":
            self._go_to(reference.value)

    def action_compare_export(self) -> None:
        """Ask for a file, and write the current comparison to it."""
        self._halt()
        about = "Differences, current figures and the requests most affected, as text."
        self.export("Export the comparison", about, file_stem(self._names), self._text)

    def _text(self) -> str:
        sides = [
            Simulated(experiment=side.experiment, source=name, report=report)
            for side, name, report in zip(self.lockstep.sides, self._names, self._reports(), strict=True)
        ]
        return file_text(compare(sides[0], sides[1]), self.view())


def _side_view(side: Debugger) -> SideView:
    return SideView(moment=side.quick_moment(), tape=side.tape, upcoming=side.upcoming())
