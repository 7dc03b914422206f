"""The stage of the debugger: the panes that fit, their view, the title, and the clock that drives a run."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Final

from rich.markup import escape
from textual import on
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.keys import key_to_character
from textual.screen import Screen

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, DivergenceError
from blis_tui.base.units import count_text, time_text
from blis_tui.debugger.state import PHASES
from blis_tui.debugger.why.explanation import event_ref, request_ref
from blis_tui.tui.actions import APP, bindings, of_scope
from blis_tui.tui.bars import KeyBar, Tab, TabBar, TitleBar
from blis_tui.tui.boxes import Box, RowsBox
from blis_tui.tui.debug_session import DebugSession
from blis_tui.tui.drawing.lines import shorten
from blis_tui.tui.driver import (
    AT_ONCE_S,
    BACK_TO_BREAKPOINT,
    GOING,
    MOVE_SLICE_S,
    SLICE_S,
    TICK_S,
    TO_BREAKPOINT,
    TO_LAST_CHANGE,
    TO_NEXT_CHANGE,
    TRACE_S,
)
from blis_tui.tui.panes import panes_of
from blis_tui.tui.panes.events import Sentence
from blis_tui.tui.panes.timeline import Timeline
from blis_tui.tui.shell import shell
from blis_tui.tui.view import InTime, Picked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.widget import Widget

    from blis_tui.cluster.decisions import RouteOverrides
    from blis_tui.debugger.history import Move, Progress, Stop
    from blis_tui.debugger.state import DebuggerState
    from blis_tui.debugger.summary import Summary
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.model import Experiment
    from blis_tui.results.lints.table import Checkup
    from blis_tui.tui.panes import PaneInfo
    from blis_tui.tui.view import View


_PAINT_S: Final = 0.08
"""Interval between paints while a run is played, in seconds."""
_PROGRESS_S: Final = 0.2
"""Interval at which a move shows in the title how far it is, in seconds."""
_PASSING_S: Final = 1.0
"""Interval at which a move shows in the panes where it is, in seconds."""
_PAINTS_APART: Final = 4
"""Minimum interval between two such paints, in times of one: a move gets three quarters of the time at least."""
_READINGS: Final = 8
"""Slices of reading lives between two looks at their ranking: a quarter of a second."""
_COURTESY_S: Final = 0.05
"""Pause of a run after a user action in seconds, so that its effect is painted first."""
_LONG_S: Final = 8.0
_VIEWS: Final = 50
"""Number of earlier arrangements of panes that are remembered."""
_NAME: Final = 40
"""Maximum length of a name in a message."""
_ENDS: Final = {
    ("end", GOING): "The run ends before that: this is its last event.",
    ("end", TO_BREAKPOINT): "No breakpoint is hit from there on: this is the last event.",
    ("start", BACK_TO_BREAKPOINT): "No breakpoint is hit before that: this is the start.",
    ("unchanged", TO_LAST_CHANGE): "It does not change before this event.",
    ("unchanged", TO_NEXT_CHANGE): "It does not change after this event.",
}
"""Message for a move that did not reach its target, by how it ended and its label."""


# ---- which panes fit ----

NARROW: Final = "narrow"
NORMAL: Final = "normal"
WIDE: Final = "wide"
HUGE: Final = "huge"

SIZES: Final = ("shared", "tall", "full")
"""Size of the active pane: its share of the screen, most of the height, or everything."""


def width_class(columns: int) -> str:
    """Return the number of panes that fit side by side into a width."""
    if columns < 100:  # one pane
        return NARROW
    if columns < 140:  # two
        return NORMAL
    return WIDE if columns < 180 else HUGE  # three; the latter with room for whole sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The active pane, and the latest active ones of places that several panes share."""

    active: str = "events"
    right: str = "instances"
    """The pane beside the events in the upper row if only two fit."""
    lower: str = "metrics"
    size: str = "shared"

    def with_active(self, pane: PaneInfo) -> Arrangement:
        """Return the arrangement after going to a pane."""
        right = pane.id if pane.upper and pane.id != "events" else self.right
        lower = self.lower if pane.upper else pane.id
        return Arrangement(active=pane.id, right=right, lower=lower, size=self.size)

    def with_size(self, by: int) -> Arrangement:
        """Return the arrangement with more or less room for the active pane."""
        place = max(0, min(SIZES.index(self.size) + by, len(SIZES) - 1))
        return Arrangement(active=self.active, right=self.right, lower=self.lower, size=SIZES[place])

    def shown(self, columns: int) -> tuple[str, ...]:
        """Return the visible panes, in reading order."""
        fits = width_class(columns)
        if fits == NARROW or self.size == "full":
            return (self.active,)
        if fits == NORMAL:
            return ("events", self.right, self.lower)
        return ("events", "instances", "request", self.lower)


# ---- the title ----

_ROOMY: Final = 100
"""Width from which there is room for everything."""
_SHORT: Final = 20
"""Width of a name below that."""


def run_name(experiment: Experiment, width: int) -> Content:
    """Return the run's name, as far as it fits."""
    if width < _ROOMY:
        return Content.styled(experiment.name, "bold").truncate(_SHORT, ellipsis=True)
    return Content.assemble((experiment.name, "bold"), (f"  seed {experiment.seed}", "$text-muted"))


def place_text(moment: DebuggerState, *, complete: bool) -> Content:
    """Return the position: time, event and number of events, phase of the step."""
    total = f" of {count_text(moment.frontier)}{'' if complete else '+'}" if moment.frontier else ""
    phase = "" if moment.phase is None or moment.phase == len(PHASES) - 1 else f" · {PHASES[moment.phase]}"
    return Content.assemble(
        ("t ", "$text-muted"),
        time_text(moment.time_us),
        ("  event ", "$text-muted"),
        count_text(moment.event),
        (total, "$text-muted"),
        (phase, "$accent"),
    )


def activity(moment: DebuggerState, *, label: str, progress: Progress | None, speed: str, warnings: int) -> Content:
    """Return the activity (running, paused, at the end), and the number of warnings."""
    if label == "running":
        state = Content.assemble(("▶ running", "$success bold"), (f" {speed}", "$text-muted"))
    elif label:
        state = Content.assemble((f"» {label}{_share(progress)}", "$accent bold"), (" escape stops", "$text-muted"))
    elif moment.at_end and moment.failure:
        state = Content.assemble(("✗ cannot continue", "$error bold"))
    elif moment.at_end:
        state = Content.assemble(("■ end", "$success bold"))
    elif moment.event == 0:
        state = Content.assemble(("○ at the start", "$text-muted"))
    elif moment.event < moment.frontier:
        state = Content.assemble(("‖ paused", "$foreground bold"), (" (earlier)", "$text-muted"))
    else:
        state = Content.assemble(("‖ paused", "$foreground bold"))
    if warnings:
        state = Content.assemble(state, (f"  ! {warnings}", "$warning bold"))
    return state


def _share(progress: Progress | None) -> str:
    if progress is None:
        return ""
    if not progress.goal:
        return f" {count_text(progress.event)}"
    return f" {100 * progress.event // progress.goal} %"


# ---- the screen ----


class Stage(Screen[None]):
    """Shows a debug session and lets its driver run; subclasses handle the keys."""

    SCOPE = "debugger"
    NAME = "debugger"
    BINDINGS: ClassVar = [*bindings("debugger")]
    AUTO_FOCUS = None
    HORIZONTAL_BREAKPOINTS = []  # noqa: RUF012  (Textual's type; place_panes determines the width itself)

    def __init__(self, experiment: Experiment, *, source: str, routes: RouteOverrides | None = None) -> None:
        super().__init__()
        self.session = DebugSession(experiment, routes=routes)
        self.source = source
        self.panes = {pane.id: pane for pane in panes_of(experiment)}
        self._arrangement = Arrangement()
        self._earlier: list[Arrangement] = []
        self._undone: list[Arrangement] = []
        self._painted_s = 0.0
        self._paint_took_s = 0.0
        self._progress_s = 0.0
        self._just_painted = False
        """Whether no tick has followed the latest paint yet."""
        self._readings = 0
        self._quiet_until_s = 0.0
        self._defect = ""
        self._held = False
        self._shown: View | None = None
        self._checks: InTime[View, Checkup] = InTime(
            lambda view: view.checkup(), self.set_timer, self._show_late_checks
        )

    def compose(self) -> ComposeResult:
        """Create title, timeline, panes, tabs, keys."""
        yield TitleBar(id="status")
        yield Sentence(id="sentence")
        yield Timeline(id="timeline")
        with Vertical(id="body", classes=" ".join(self._looks())):
            with Horizontal(id="upper"):
                yield from (self._made(pane) for pane in self.panes.values() if pane.upper)
            yield TabBar(id="tabs")
            with Horizontal(id="lower"):
                yield from (self._made(pane) for pane in self.panes.values() if not pane.upper)
        yield KeyBar()

    @staticmethod
    def _made(info: PaneInfo) -> Widget:
        """Create the widget of a pane."""
        pane = info.pane
        made = RowsBox.of(pane, id=info.id) if pane.widget is None else pane.widget(id=info.id)
        made.border_title = escape(info.title or info.name)
        return made

    def on_mount(self) -> None:
        """Arrange the panes, and create the clock, which only ticks while something runs."""
        self._clock = self.set_interval(TICK_S, self._tick, pause=True)
        self._tracing = self.set_interval(TRACE_S, self._trace, pause=True)
        self.session.begins_to_read = self._tracing.resume
        self._drop_taken_keys()
        self.place_panes()
        self.begin()

    def _drop_taken_keys(self) -> None:
        """Remove keys of plug-ins' panes that are already in use, and notify the user."""
        wanted = [info for info in self.panes.values() if info.brought and info.key]
        if not wanted:
            return
        keymap = shell(self.app).keymap.keys
        keys = [key for scope in (APP, self.SCOPE) for action in of_scope(scope) for key in keymap[action.name]]
        taken = {key_to_character(key) or key for key in keys}
        without = []
        for pane in wanted:
            if pane.key in taken:
                self.panes[pane.id] = replace(pane, key="")
                without.append(f"The key {pane.key} is already in use: the pane {pane.name} has none.")
            taken.add(pane.key)
        if without:
            self.notify("\n".join(without), markup=False)

    def begin(self) -> None:
        """Start; called when all widgets exist, for subclasses to override."""

    # ---- moves ----

    def go(self, move: Move, label: str) -> None:
        """Start a move; short ones complete at once, long ones show their progress."""
        self.session.driver.start(move, label, partial(self._over, label))
        self._drive(AT_ONCE_S)
        self._go_on()

    def play(self) -> None:
        """Play forward to the next breakpoint or the end."""
        self.session.driver.play(self.session.watch(), partial(self._over, ""))
        self._go_on()

    def halt(self) -> bool:
        """Stop a move; return whether there was one."""
        was = self.session.driver.stop()
        if was:
            self._clock.pause()
            self.moved()
        return was

    def hold(self) -> None:
        """Pause a move at the displayed position."""
        if self.session.driver.busy:
            self._clock.pause()
            self._held = True
            self.show_view()

    def resume(self) -> None:
        """Continue a paused move."""
        self._held = False
        if self.session.driver.busy:
            self.session.driver.pace()
            self._clock.resume()
            self.show_view()

    def moved(self) -> None:
        """Show a new final position, and clear notifications about the previous one."""
        self.app.clear_notifications()
        self.session.moved()
        self.show_view()

    def stopped(self, stop: Stop, label: str = "") -> None:
        """Show where a move ended, and notify what is notable. ``label``: the move's label."""
        self.session.disable_one_shot(stop.hits)
        at_breakpoint = stop.hits and label not in (TO_LAST_CHANGE, TO_NEXT_CHANGE)
        if at_breakpoint and self.arrangement.active == "summary":  # of the whole run; questions are now about here
            self.activate("events")
        self.moved()
        if stop.hits:
            sentences = "\n".join(hit.sentence for hit in stop.hits)
            self.notify(sentences, title=f"Event {count_text(self.session.debugger.event)}", markup=False)
        elif stop.reason == "failed":
            failure = str(self.session.debugger.failure)
            self.notify(failure, title="The simulation failed", severity="error", timeout=_LONG_S, markup=False)
        elif stop.reason == "unknown":
            name = shorten(self.session.selection.request or "", _NAME)
            self.session.clear_unknown_request()
            self.show_view()
            self.notify(
                f"No request of this run is named {name!r}. Other places: an event (1234), a time (1.5s, 200ms).",
                severity="warning",
                markup=False,
            )
        elif (stop.reason, label) in _ENDS:
            self.notify(_ENDS[stop.reason, label], markup=False)

    def _over(self, label: str, stop: Stop) -> None:
        self._clock.pause()
        self.stopped(stop, label)

    def _go_on(self) -> None:
        """Let the clock continue a longer move."""
        if self.session.driver.busy:
            self._clock.resume()
            self.show_view()

    def _drive(self, seconds: float) -> None:
        try:
            self.session.driver.drive(seconds)
        except BlisError as error:
            self._failed(error)

    def _tick(self) -> None:
        driver = self.session.driver
        began_s = perf_counter()
        if began_s < self._quiet_until_s:
            return
        if self._just_painted:  # drawn after it was painted, so it is over by the first tick that follows
            self._paint_took_s = began_s - self._painted_s
            self._just_painted = False
        self._drive(SLICE_S if driver.playing else MOVE_SLICE_S)
        now_s = perf_counter()
        pause_s = _PAINT_S if driver.playing else max(_PASSING_S, _PAINTS_APART * self._paint_took_s)
        if driver.busy and now_s - self._painted_s >= pause_s:
            self._paint()
        elif driver.busy and not driver.playing and now_s - self._progress_s >= _PROGRESS_S:
            self._progress_s = now_s
            self._show_status()

    def _trace(self) -> None:
        """Find some more values of the watches, and read more for the ranking; a move has precedence."""
        if self.session.driver.busy:
            return
        until_s = perf_counter() + SLICE_S
        for _ in self.session.trace():
            if perf_counter() >= until_s:
                break
        if not self.session.trails:
            self._tracing.pause()
        if self._shown is None or not self.is_attached:
            return
        self._show_in("events", self._shown)
        self._readings += 1
        if (self._readings >= _READINGS or not self.session.trails) and self.session.ranking_grew():
            self._readings = 0
            self._show_in("request", self._shown)

    def _failed(self, error: BlisError) -> None:
        """Handle a failed move, which may have changed the position."""
        self.session.driver.stop()
        self._clock.pause()
        self.moved()
        self.notify(str(error), title="Command failed", severity="error", timeout=_LONG_S, markup=False)

    # ---- display ----

    def show_view(self) -> None:
        """Update the screen after a user action."""
        self._quiet_until_s = perf_counter() + _COURTESY_S
        self._paint()

    def _paint(self) -> None:
        self._painted_s = perf_counter()
        self._just_painted = True
        if not self.is_attached:
            return
        view = self._view()
        if self.session.trails:
            self._tracing.resume()
        self._checks.follow(view, view.place, running=view.playing)
        view = self._shown = replace(view, checked=self._checks.value)
        with self.app.batch_update():
            for box in self.query(Box):
                if box.follows_selection or not view.same_place(box.view):
                    box.view = view
            self._show_status()
            self._show_tabs()
            self.query_one(Sentence).view = view
        self.refresh_bindings()

    def _view(self) -> View:
        """Return the view; if a replay diverges, the view without the event's records, and report that once."""
        try:
            view = self.session.view()
        except DivergenceError as error:
            if self._defect != str(error):
                self._defect = str(error)
                self.notify(
                    self._defect,
                    title="Replay gave a different result",
                    severity="error",
                    timeout=_LONG_S,
                    markup=False,
                )
            return self.session.view(briefly=True)
        self._defect = ""
        return view

    def _show_late_checks(self) -> None:
        """Show checks that took long."""
        if self._shown is not None and self.is_attached:
            self._show_in("warnings", replace(self._shown, checked=self._checks.value))
            self._show_status()
            self._show_tabs()

    def _show_in(self, pane: str, view: View) -> None:
        """Show a view with something new that a single pane tells."""
        self._shown = self.query_one(f"#{pane}", Box).view = view

    def _show_status(self) -> None:
        session, driver, view = self.session, self.session.driver, self._shown
        if view is None:
            return
        status = self.query_one("#status", TitleBar)
        status.left = (
            run_name(session.experiment, self.size.width)
            + "   "
            + place_text(view.moment, complete=session.debugger.complete)
        )
        status.right = activity(
            view.moment,
            label="" if self._held else driver.label,
            progress=driver.progress,
            speed=driver.speed.text(),
            warnings=self.panes["warnings"].pane.badge(view),
        )

    def _show_tabs(self) -> None:
        shown, view = self.arrangement.shown(self.app.size.width), self._shown
        if view is None:
            return
        self.query_one("#tabs", TabBar).tabs = tuple(
            Tab(
                info,
                str(info.pane.badge(view) or ""),
                shown=info.id in shown,
                active=info.id == self.arrangement.active,
            )
            for info in self.panes.values()
        )

    # ---- layout ----

    @property
    def arrangement(self) -> Arrangement:
        """The panes in use and their sizes; earlier ones are remembered."""
        return self._arrangement

    @arrangement.setter
    def arrangement(self, wanted: Arrangement) -> None:
        if wanted != self._arrangement:
            self._earlier.append(self._arrangement)
            del self._earlier[:-_VIEWS]
            self._undone.clear()
            self._arrangement = wanted

    def forget_arrangements(self) -> None:
        """Make the present arrangement the first one."""
        self._earlier.clear()
        self._undone.clear()

    @contextmanager
    def arrangement_restored(self) -> Iterator[None]:
        """Restore the present arrangement at the end, with those before and after it."""
        now, earlier, undone = self._arrangement, [*self._earlier], [*self._undone]
        try:
            yield
        finally:
            self._arrangement, self._earlier, self._undone = now, earlier, undone
            self.place_panes()

    def _swap_arrangement(self, taken: list[Arrangement], kept: list[Arrangement]) -> bool:
        """Show the latest arrangement of one list, and remember the present one in the other."""
        if taken:
            kept.append(self._arrangement)
            self._arrangement = taken.pop()
            self.place_panes()
            return True
        return False

    def action_view_undo(self) -> None:
        """Show the panes as they were before."""
        if not self._swap_arrangement(self._earlier, self._undone):
            self.notify("The panes have not been changed before.", markup=False)

    def action_view_redo(self) -> None:
        """Show the panes as they were before going back."""
        if not self._swap_arrangement(self._undone, self._earlier):
            self.notify("There is no later view.", markup=False)

    def place_panes(self) -> None:
        """Show the panes that fit, and give the active one the focus."""
        shown = self.arrangement.shown(self.app.size.width)
        for pane in self.panes.values():
            self.query_one(f"#{pane.id}").display = pane.id in shown
        self.query_one("#upper").display = any(pane.upper and pane.id in shown for pane in self.panes.values())
        self.query_one("#lower").display = any(not pane.upper and pane.id in shown for pane in self.panes.values())
        # Set them at once: each change makes Textual look up all styles inside again.
        self.query_one("#body").set_classes(self._looks())
        self.query_one(f"#{self.arrangement.active}").focus()
        self.show_view()

    def _looks(self) -> list[str]:
        """Return the classes of the body that determine the sizes of panes."""
        width = self.app.size.width
        shown = self.arrangement.shown(width)
        fits = width_class(width)
        tall = self.arrangement.size == "tall"
        in_upper = self.panes[self.arrangement.active].upper
        looks = {
            "-single": len(shown) == 1,
            "-three": fits in (WIDE, HUGE),
            "-huge": fits == HUGE,
            "-tall-upper": tall and in_upper,
            "-tall-lower": tall and not in_upper,
        }
        return [name for name, holds in looks.items() if holds]

    def activate(self, pane: str) -> None:
        """Go to a pane."""
        shown = self.arrangement.shown(self.app.size.width)
        self.arrangement = self.arrangement.with_active(self.panes[pane])
        if self.arrangement.shown(self.app.size.width) != shown or self.arrangement.size != "shared":
            self.place_panes()
            return
        self.query_one(f"#{pane}").focus()
        self._show_tabs()

    def on_resize(self) -> None:
        """Show the panes that fit the new size."""
        self.place_panes()

    @property
    def box_in_use(self) -> Box:
        """The pane with the focus, which keys are about."""
        focused = self.focused
        return focused if isinstance(focused, Box) else self.query_one(f"#{self.arrangement.active}", Box)

    def at_cursor(self) -> Subject:
        """Return what the cursor is on; in a pane without one the selected request, else the present event."""
        request = self.session.selection.request
        otherwise = event_ref(self.session.debugger.event) if request is None else request_ref(request)
        return self.box_in_use.at_cursor() or otherwise

    @on(TabBar.Chosen)
    def _tab_chosen(self, message: TabBar.Chosen) -> None:
        self.activate(message.pane)

    def on_descendant_focus(self) -> None:
        """Make the focused pane the active one."""
        focused = self.focused
        if not isinstance(focused, Box):
            return
        if focused.id and focused.id not in (self.arrangement.active, "timeline"):
            self.arrangement = self.arrangement.with_active(self.panes[focused.id])
            self._show_tabs()

    @on(Picked)
    def picked(self, message: Picked) -> None:
        """Apply the reader's selection, and go there."""
        self.session.select(
            event=message.event,
            request=message.request,
            instance=message.instance,
            session=message.session,
            metric=message.metric,
        )
        if message.go and message.event is not None:
            self.session.leave()
            self.go(self.session.debugger.seek(message.event), GOING)
        elif message.go and message.metric is not None:
            self.session.leave()
            self.go(self.session.to_metric(message.metric), GOING)
        else:
            if message.go and message.request is not None:
                self.activate("request")
            elif message.go and message.instance is not None:
                self.activate("instances")
            self.show_view()

    def show_summary(self, summary: Summary) -> None:
        """Show the summary of the whole run."""
        self.session.summary = summary
        if self._shown is not None and self.is_attached:
            self._show_in("summary", replace(self._shown, summary=summary))

    def show_spec(self, lines: tuple[str, ...]) -> None:
        """Show the resolved document; the reader may have left the screen meanwhile."""
        self.session.document = lines
        if self._shown is not None and self.is_attached:
            self._show_in("spec", replace(self._shown, document=lines))
