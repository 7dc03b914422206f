"""Events as lines (kind, subject, what each did), and their list with a cursor and a filter."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import partial
from math import ceil, isnan
from typing import TYPE_CHECKING, ClassVar, Final

from rich.segment import Segment
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.text import cut
from blis_tui.base.units import count_text, filled, plural, span_text, time_text
from blis_tui.debugger.event_store import of_kind
from blis_tui.debugger.state import settles
from blis_tui.debugger.why.explanation import Subject, event_ref
from blis_tui.debugger.why.lifespans import AGAIN
from blis_tui.engine.records import Preempted, Scheduled, described
from blis_tui.results.conditions.breakpoints import Reaches, RecordMatch, Sends
from blis_tui.tui.actions import named, shown_key
from blis_tui.tui.boxes import Box
from blis_tui.tui.drawing.event_filter import of_request
from blis_tui.tui.drawing.lines import cells_text
from blis_tui.tui.drawing.series import FUTURE, PAST, strip
from blis_tui.tui.panes.pane import Pane
from blis_tui.tui.panes.timeline import scale_of
from blis_tui.tui.view import Picked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.style import Style
    from textual.app import ComposeResult
    from textual.events import Click, Leave, MouseMove
    from textual.geometry import Region
    from textual.timer import Timer

    from blis_tui.debugger.event_store import EventRow, EventStore, StepRow
    from blis_tui.debugger.state import DebuggerState
    from blis_tui.debugger.traces import Trace
    from blis_tui.engine.records import Description
    from blis_tui.results.conditions.breakpoints import Condition
    from blis_tui.tui.view import View


HERE: Final = "▶"
"""Marks the event of the present position."""
BEFORE_HERE: Final = "▷"
"""Marks the last visible event before the present position, if a filter hides that one."""
BREAKPOINT: Final = "●"
CURSOR: Final = "▸"
"""Marks the cursor for readers without colours, except at the position."""
PLANNED: Final = "→"
"""Prefix of such changes in a narrow line that the event plans for the following step."""
START: Final = "start: nothing has happened yet"


class Run(NamedTuple):
    """A text in one colour: a theme colour's name, or empty for the default."""

    text: str
    colour: str = ""


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event in words; parts at the end may be left out."""

    kind: str
    look: Description
    subject: str
    parts: tuple[Run, ...]
    """What the subject did, as parts of a sentence."""
    short: tuple[Run, ...]
    """The same in fewer words."""
    brief: tuple[Run, ...]
    """The essentials in a few characters."""


def event_line(tape: EventStore, event: int, phase: int | None = None) -> EventLine:
    """Return a recorded event in words; of a step only what applies at the phase."""
    row = tape.row(event)
    look = described(row.kind)
    if row.step >= 0:
        step = tape.step(row.step)
        if not settles(phase):
            step = step._replace(first_tokens=0, completed=0, duration_us=step.duration_us if phase else 0)
        subject = f"i{row.instance} step {step.number}"
        plan = _Plan(tape, row) if settles(phase) else None
        return EventLine(row.kind, look, subject, _step(step, plan), _short_step(step, plan), _signs(step, plan))
    if row.request >= 0:
        subject = tape.name(row.request)
    else:
        subject = f"instance {row.instance}" if row.instance >= 0 else "cluster"
    values = {"request_id": subject, **tape.values(row)}
    parts, short, brief = (_filled(text, values, look) for text in (look.line, look.short, look.brief))
    return EventLine(row.kind, look, subject, parts, short, brief)


def _filled(template: str, values: Mapping[str, object], look: Description) -> tuple[Run, ...]:
    """Return a text about an event in parts; the end of a request is highlighted."""
    if not template:
        return ()
    head, *rest = (filled(part, values) for part in template.split(", "))
    return (Run(head, look.colour if look.ends else ""), *map(Run, rest))


class _Plan:
    """What a step's event plans for the following step of its instance, or of one that steps together with it."""

    def __init__(self, tape: EventStore, row: EventRow) -> None:
        planned = tape.plan(row.event)
        self._preempts = [tape.name(entry.request) for entry in planned if entry.what == Preempted.kind]
        self._schedules = [tape.name(entry.request) for entry in planned if entry.what == Scheduled.kind]
        self._new_tokens = sum(
            event.second
            for entry in planned
            if entry.what == Scheduled.kind and (event := tape.latest(entry.request, entry.what, row.event)) is not None
        )
        others = [entry.instance for entry in planned if entry.instance != row.instance]
        self._step = f"i{others[0]}" if others else f"step {tape.step(row.step).number + 1}"

    def sentence(self) -> tuple[Run, ...]:
        """Return whom it preempts and schedules."""
        parts = []
        if self._preempts:
            parts.append(Run(f"preempts {_some(self._preempts)}", AGAIN.tone))
        if self._schedules:
            parts.append(Run(f"schedules {_some(self._schedules)} ({plural(self._new_tokens, 'prompt token')})"))
        return tuple(
            Run(run.text if place else f"plans {self._step}: {run.text}", run.colour) for place, run in enumerate(parts)
        )

    def short(self) -> tuple[Run, ...]:
        """Return the same in signs, with names instead of numbers where it is one request."""
        return self._signed("plans ", *(names[0] if len(names) == 1 else str(len(names)) for names in self._both))

    def brief(self) -> tuple[Run, ...]:
        """Return the same in signs and numbers."""
        return self._signed(PLANNED, *(str(len(names)) for names in self._both))

    @property
    def _both(self) -> tuple[list[str], list[str]]:
        return self._preempts, self._schedules

    def _signed(self, head: str, preempted: str, scheduled: str) -> tuple[Run, ...]:
        parts = [AGAIN.sign + preempted] * bool(self._preempts)
        parts += [described("arrived").sign + scheduled] * bool(self._schedules)
        return (Run(head + " ".join(parts), AGAIN.tone if self._preempts else ""),) if parts else ()


def _some(names: Sequence[str]) -> str:
    """Return the first name, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {count_text(len(names) - 1)} more"


def _step(step: StepRow, plan: _Plan | None) -> tuple[Run, ...]:
    """Return what a step did: its work, its changes, the worst first, and those that it plans for the next step."""
    kinds = ((step.prefill_tokens, "prefill"), (step.decode_requests, "decode"))
    work = " + ".join(f"{count_text(count)} {kind}" for count, kind in kinds if count) or "0"
    noun = "token" if step.batch_tokens == 1 else "tokens"
    return (Run(f"{work} {noun}{_duration(step)}"), *_changes(step), *(plan.sentence() if plan else ()))


def _short_step(step: StepRow, plan: _Plan | None) -> tuple[Run, ...]:
    planned = plan.short() if plan else ()
    return (Run(f"{plural(step.batch_tokens, 'token')}{_duration(step)}"), *planned, *_changes(step))


def _duration(step: StepRow) -> str:
    """Return the step's duration; empty before it applies."""
    return f" in {span_text(step.duration_us)}" if step.duration_us else ""


def _changes(step: StepRow) -> tuple[Run, ...]:
    changes = (
        (step.preempted, f"{step.preempted} {AGAIN.word}", AGAIN.tone),
        (step.admitted, f"{step.admitted} scheduled", ""),
        (step.first_tokens, plural(step.first_tokens, "first token"), "secondary"),
        (step.completed, f"{step.completed} completed", "success"),
        (step.stalled, f"{step.stalled} stalled", "warning"),
    )
    return tuple(Run(text, colour) for count, text, colour in changes if count)


def _signs(step: StepRow, plan: _Plan | None) -> tuple[Run, ...]:
    """Return a step's changes as signs with counts, those that it plans, then its work."""
    changes = (
        (step.preempted, AGAIN.sign, AGAIN.tone),
        (step.admitted, described("arrived").sign, ""),
        (step.completed, described("completed").sign, "success"),
        (step.stalled, described("queued").sign, "warning"),
    )
    signs = [Run(f"{sign}{count}", colour) for count, sign, colour in changes if count]
    planned = plan.brief() if plan else ()
    return (*signs, *planned, Run(f"{step.batch_tokens} tok"))


def stops_at(view: View) -> Callable[[EventRow], bool]:
    """Return a predicate for events at which an enabled breakpoint on an event, a time, a record or a session stops.

    Breakpoints on the state are excluded, because the tape does not contain states.
    """
    tests = [_stop(point.condition, view.tape) for point in view.breakpoints if point.enabled]
    return lambda row: any(test(row) for test in tests)


def _stop(condition: Condition, tape: EventStore) -> Callable[[EventRow], bool]:
    if isinstance(condition, Reaches) and condition.figure in ("event", "time_us"):
        goal = ceil(condition.value)
        event = goal if condition.figure == "event" else tape.at_time(goal - 1) + 1
        return lambda row: row.event == event
    if isinstance(condition, Sends):
        session = tape.sessions.place(condition.session)
        sent = frozenset(() if session is None else [call.event for call in tape.sessions.calls(session)])
        return lambda row: row.event in sent
    if not isinstance(condition, RecordMatch):
        return lambda _row: False
    tests: list[Callable[[EventRow], bool]] = []
    if condition.request:
        tests.append(of_request(condition.request, tape, condition.kind))
    elif condition.kind:
        counted = tape.counted(condition.kind)
        tests.append(of_kind(condition.kind, tape) if counted else partial(_has, tape, condition.kind))
    if condition.instance is not None:
        tests.append(lambda row: row.instance == condition.instance)
    return lambda row: all(test(row) for test in tests)


def _has(tape: EventStore, kind: str, row: EventRow) -> bool:
    return tape.has(row.event, kind)


# ---- layout ----


@dataclass(frozen=True, slots=True)
class Columns:
    """Positions of the parts of a line, in cells; 0 = the part is left out."""

    number: int
    time: int
    subject: int
    summary: int


_MARKS: Final = 3
_GLYPH: Final = 2
_NUMBERED_FROM: Final = 96
"""Width from which events have their numbers."""


def columns(tape: EventStore, width: int) -> Columns:
    """Return the columns that fit a width."""
    time = len(time_text(tape.time_us(len(tape))))
    longest = len(tape.name(tape.requests - 1)) if tape.requests else 0
    subject = min(max(longest, 12), 20)
    number = len(count_text(len(tape)))
    if width < 60:
        time -= len(" 678")
        return Columns(0, time, 0, width - _MARKS - time - 1 - _GLYPH)
    if width < _NUMBERED_FROM:
        number = 0
    left = width - _MARKS - time - 2 - _GLYPH - subject - 2
    return Columns(number, time, subject, left - (number + 2 if number else 0))


def event_runs(line: EventLine, event: int, time_us: int, at: Columns) -> list[Run]:
    """Return a line in its columns, without the marks in front."""
    runs: list[Run] = []
    if at.number:
        runs.append(Run(f"{event:>{at.number},}  ", "muted"))
    glyph, colour = line.look.sign, line.look.colour
    if not at.subject:
        runs += [Run(f"{milliseconds(time_us):>{at.time}} "), Run(f"{glyph} ", colour), Run(line.subject)]
        return runs + _brief(line, at.summary - len(line.subject))
    runs.append(Run(f"{time_text(time_us):>{at.time}}  "))
    runs.append(Run(f"{glyph} ", colour))
    subject = cut(line.subject, at.subject)
    runs.append(Run(subject.ljust(at.subject + 2)))
    return runs + fitting(line, at.summary)


def _brief(line: EventLine, width: int) -> list[Run]:
    """Return as many of the brief parts as fit after the subject."""
    runs: list[Run] = []
    for part in line.brief:
        width -= len(part.text) + (1 if runs else 3)
        if width < 0:
            break
        runs += [Run(" " if runs else " · ", "muted"), part]
    return runs


def milliseconds(time_us: int) -> str:
    """Return a time without its microseconds: ``12.345 s``."""
    return time_text(time_us)[: -len(" 678 s")] + " s"


def fitting(line: EventLine, width: int) -> list[Run]:
    """Return as much of a summary as fits: in full, in short, cut (with a ``…``), or in signs."""
    for parts in (line.parts, line.short):
        if _length(parts) <= width:
            return _joined(parts)
    kept = list(line.short)
    while kept and _length(kept) + 2 > width:
        kept.pop()
    if kept:
        return [*_joined(kept), Run(" …")]
    signs = list(line.brief)
    while signs and len(" ".join(part.text for part in signs)) > width:
        signs.pop()
    if signs:
        return _joined(signs, " ")
    only = line.short[0] if line.short else Run("")
    return [Run(only.text[: max(width - 1, 0)] + "…", only.colour)]


def _length(parts: Sequence[Run]) -> int:
    return len(", ".join(part.text for part in parts))


def _joined(parts: Sequence[Run], between: str = ", ") -> list[Run]:
    runs: list[Run] = []
    for part in parts:
        if runs:
            runs.append(Run(between, "muted"))
        runs.append(part)
    return runs


def event_text(tape: EventStore, event: int, *, short: bool = False) -> str:
    """Return what an event did in a sentence, or in fewer words."""
    if event == 0:
        return START
    line = event_line(tape, event)
    subject = f"{line.subject}:" if tape.row(event).step >= 0 else line.subject
    return f"{subject} {', '.join(part.text for part in (line.short if short else line.parts))}"


def full_text(tape: EventStore, event: int) -> str:
    """Return everything known about an event, in one line."""
    if event == 0:
        return START
    return f"event {count_text(event)} at {time_text(tape.time_us(event))}: {event_text(tape, event)}"


def sentence(view: View, width: int) -> Content:
    """Return in one line what the present event is about and did, as far as it fits and has happened yet."""
    moment = view.moment
    if not moment.event:
        event, end = (shown_key(named(name).keys[0]) for name in ("step.event", "run.to_end"))
        return Content.styled(f"Nothing has happened yet: {event} next event, {end} to the end", "$text-muted")
    about = event_line(view.tape, moment.event, moment.phase)
    row = view.tape.row(moment.event)
    subject = (
        about.subject
        if row.step < 0
        else f"instance {row.instance}, step {count_text(view.tape.step(row.step).number)}:"
    )
    head = Content.assemble(
        (f"{about.look.sign} ", _STYLES.get(about.look.colour, f"${about.look.colour}")), f"{subject} "
    )
    runs = fitting(about, width - head.cell_length)
    return head + Content.assemble(*((run.text, _STYLES.get(run.colour, f"${run.colour}")) for run in runs))


_STYLES: Final = {"": "", "muted": "$text-muted"}


class Sentence(Widget):
    """The present event in one line, above everything that shows it."""

    DEFAULT_CSS = """
    Sentence {
        height: 1;
        padding: 0 1;
        text-wrap: nowrap;
    }
    """

    view: reactive[View | None] = reactive(None, always_update=True)

    def render(self) -> Content:
        """Return the line."""
        return Content("") if self.view is None else sentence(self.view, self.content_size.width)


def tail(moment: DebuggerState, width: int, *, playing: bool) -> Run:
    """Return the row after the last recorded event."""
    if moment.failure:
        return Run(f"✗ simulation failed: {shown_key(named('pane.warnings').keys[0])} shows why", "error")
    if moment.complete:
        return Run(f"■ end of the run after {plural(moment.frontier, 'event')}", "success")
    if playing:
        return Run("… running", "accent")
    event, run = (shown_key(named(name).keys[0]) for name in ("step.event", "run.toggle"))
    keys = f"{run} run" if moment.event < moment.frontier else f"{event} next event, {run} run"
    text = f"… not simulated yet: {keys}"
    return Run(text if len(text) + _MARKS <= width else f"… {keys}", "muted")


_MARGIN: Final = 2
"""Rows kept visible before and after a revealed row."""
_REMEMBERED: Final = 500
"""Maximum number of cached lines; a screen shows far fewer."""


_VALUE: Final = 10
"""Width of a watch's value beside an event."""
_EVENT: Final = 28
"""Minimum width that is left for an event beside the values of watches."""
_HEADS: Final = 3
"""Maximum number of watches whose course is shown above the events."""
_NAME: Final = 24
"""Maximum width of a watch's name above the events."""


def columns_of(view: View, width: int) -> tuple[Trace, ...]:
    """Return the watches that have a column beside the events: the first ones, as many as fit."""
    return view.traces[: max(min((width - _EVENT) // (_VALUE + 1), _HEADS), 0)]


def _value(trace: Trace, event: int) -> str:
    """Return the value of a watch after an event."""
    return trace.figure.text_of(trace.at(event), unit=False) if event <= trace.until else "…"


def _filled_up(runs: Sequence[Run], width: int) -> list[Run]:
    """Return a row in exactly a width."""
    padded: list[Run] = []
    for run in runs:
        text = run.text[:width]
        width -= len(text)
        padded.append(Run(text, run.colour))
    return [*padded, Run(" " * width)]


def watch_lines(view: View, width: int) -> list[Content]:
    """Return for each watch its name, its course over the run, and its value at the position."""
    traces = view.traces[:_HEADS]
    if not traces:
        return []
    names = [cut(str(trace.figure), _NAME) for trace in traces]
    label = max(map(len, names))
    values = [trace.figure.text_of(trace.at(view.moment.event)) for trace in traces]
    value = max(map(len, values))
    scale = scale_of(view, max(width - label - value - 2, 1))
    here = scale.cell(view.moment.time_us)
    lines = []
    for name, trace, text in zip(names, traces, values, strict=True):
        ends = [view.tape.at_time(scale.last_us(cell)) for cell in range(scale.cells)]
        most = [trace.largest(view.tape.at_time(scale.start_us(cell) - 1), end) for cell, end in enumerate(ends)]
        known_us = view.tape.time_us(min(trace.until, view.moment.frontier))
        course = [
            None if scale.start_us(cell) > known_us else 0.0 if isnan(largest) else largest
            for cell, largest in enumerate(most)
        ]
        styles = [FUTURE if cell > here else PAST for cell in range(scale.cells)]
        drawn = cells_text(strip(course, trace.top), styles)
        lines.append(Content.assemble((f"{name:<{label}} ", "$accent"), drawn, (f" {text:>{value}}", "bold")))
    return lines


class WatchHeads(Widget):
    """The course of each watch over the run."""

    DEFAULT_CSS = """
    WatchHeads {
        height: auto;
        text-wrap: nowrap;
    }
    """

    view: reactive[View | None] = reactive(None, always_update=True, layout=True)

    def render(self) -> Content:
        """Return the lines."""
        return Content("") if self.view is None else Content("\n").join(watch_lines(self.view, self.content_size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002  (Textual's signature)
        """Return the number of watches shown."""
        return 0 if self.view is None else min(len(self.view.traces), _HEADS)


class EventRows(ScrollView, can_focus=False):
    """The rows, scrolled. Row 0 is the start; the last row says what follows the last recorded event.

    Args:
        on_scroll: called after scrolling.

    Attributes:
        view: the displayed view; None before the first.
        index: the events that match the filter, after a 0 for the start; None = all.
        cursor: the event at the cursor.
    """

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar = {
        *(f"event-rows--{name}" for name in ("muted", "error", "warning", "success", "primary", "secondary", "accent")),
        "event-rows--cursor",
        "event-rows--blurred",
        "event-rows--hover",
    }
    DEFAULT_CSS = """
    EventRows {
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        & > .event-rows--muted { color: $text-muted; }
        & > .event-rows--error { color: $error; }
        & > .event-rows--warning { color: $warning; }
        & > .event-rows--success { color: $success; }
        & > .event-rows--primary { color: $primary; }
        & > .event-rows--secondary { color: $secondary; }
        & > .event-rows--accent { color: $accent; }
        & > .event-rows--cursor { background: $block-cursor-background; }
        & > .event-rows--blurred { background: $block-cursor-blurred-background; }
        &:ansi > .event-rows--cursor { color: $block-cursor-foreground; }
        &:ansi > .event-rows--blurred { color: $block-cursor-blurred-foreground; }
        & > .event-rows--hover { background: $panel; }
    }
    """

    _shared_style: Style | None = None
    """The style of a row without the cursor, while rows are drawn."""

    def __init__(self, on_scroll: Callable[[], None]) -> None:
        super().__init__()
        self._on_scroll = on_scroll
        self.view: View | None = None
        self.index: array[int] | None = None
        self.cursor = 0
        self._stops: Callable[[EventRow], bool] | None = None
        self._hover = -1
        self._lines: dict[int, EventLine] = {}
        self._tape: EventStore | None = None

    # ---- rows and events ----

    @property
    def count(self) -> int:
        """Number of rows with events, including the start."""
        if self.view is None:
            return 0
        return self.view.moment.frontier + 1 if self.index is None else len(self.index)

    def event_at(self, row: int) -> int:
        """Return the event in a row; the last event for the row below it."""
        row = max(0, min(row, self.count - 1))
        return row if self.index is None else self.index[row]

    def row_of(self, event: int) -> int:
        """Return the row of an event, or of the last visible one before it."""
        return event if self.index is None else bisect_right(self.index, event) - 1

    def in_sight(self, row: int) -> bool:
        """Return whether a row is visible."""
        return 0 <= row - self.scroll_offset.y < self.size.height

    def reveal(self, row: int) -> None:
        """Scroll to a row: as little as necessary, or to the middle after a long way."""
        height = max(self.size.height, 1)
        top = self.scroll_offset.y
        if self.in_sight(row):
            return
        near = top - height < row < top + 2 * height
        margin = min(_MARGIN, height // 4)
        target = (row - margin if row < top else row - height + 1 + margin) if near else row - height // 2
        self.scroll_to(y=max(0, min(target, self.count + 1 - height)), animate=False)

    def present(self, view: View) -> None:
        """Set the view; the caller handles scrolling."""
        if view.tape is not self._tape:
            self._tape = view.tape
            self._lines.clear()
        self.view = view
        self._stops = stops_at(view) if view.breakpoints else None
        self.fit()

    def fit(self) -> None:
        """Adapt the scrollbar to the number of rows."""
        size = Size(self.size.width, self.count + 1)
        if size != self.virtual_size:
            # The scrollbar is always visible, so no other widget moves and no new layout is needed.
            self.set_reactive(Widget.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = size.height
            self.vertical_scrollbar.window_size = self.size.height
        self.refresh()

    # ---- drawing ----

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the visible rows; Textual finds the style that they share anew at each call, which takes long."""
        self._shared_style = self.rich_style
        strips = super().render_lines(crop)
        self._shared_style = None
        return strips

    @property
    def _base_style(self) -> Style:
        return self.rich_style if self._shared_style is None else self._shared_style

    def render_line(self, y: int) -> Strip:
        """Return a row."""
        width = self.scrollable_content_region.width
        row = self.scroll_offset.y + y
        view = self.view
        if view is None or row > self.count:
            return Strip.blank(width, self._base_style)
        if row == self.count:
            runs, base = [Run("   "), self._tail(view, width)], self._base_style
        else:
            runs, base = self._runs(view, row, width), self._base(row)
        # Of sixteen colours, those of text may be that of the cursor.
        plain = self.app.native_ansi_color and base != self._base_style
        strip = Strip([Segment(run.text, None if plain else self._style(run.colour)) for run in runs])
        return strip.adjust_cell_length(width).apply_style(base)

    def _runs(self, view: View, row: int, width: int) -> list[Run]:
        event = self.event_at(row)
        traces = columns_of(view, width)
        if traces:
            left = width - (_VALUE + 1) * len(traces)
            values = [Run(f" {_value(trace, event):>{_VALUE}}", "accent") for trace in traces]
            return [*_filled_up(self._event_runs(view, row, left), left), *values]
        return self._event_runs(view, row, width)

    def _event_runs(self, view: View, row: int, width: int) -> list[Run]:
        event = self.event_at(row)
        here = view.moment.event
        pointer = " "
        if self.row_of(here) == row:
            pointer = HERE if event == here else BEFORE_HERE
        cursor = CURSOR if pointer == " " and self.row_of(self.cursor) == row else " "
        if event == 0:
            return [Run(f"{pointer} {cursor}", "accent"), Run(START, "muted")]
        stops = self._stops is not None and self._stops(view.tape.row(event))
        marks = [Run(pointer, "accent"), Run(BREAKPOINT if stops else " ", "warning"), Run(cursor, "accent")]
        line = event_line(view.tape, event, view.moment.phase) if event == here else self._line(view.tape, event)
        runs = event_runs(line, event, view.tape.time_us(event), columns(view.tape, width))
        # The future is known, but has not happened at the present position.
        return marks + ([Run(run.text, "muted") for run in runs] if event > here else runs)

    def _tail(self, view: View, width: int) -> Run:
        if self.index is not None and self.count == 1:
            return Run("no event matches the filter" + (" so far" if not view.moment.complete else ""), "muted")
        return tail(view.moment, width, playing=view.playing)

    def _line(self, tape: EventStore, event: int) -> EventLine:
        line = self._lines.get(event)
        if line is None:
            if len(self._lines) >= _REMEMBERED:
                self._lines.clear()
            line = self._lines[event] = event_line(tape, event)
        return line

    def _base(self, row: int) -> Style:
        if self.row_of(self.cursor) == row:
            focused = self.parent is self.screen.focused
            name = "event-rows--cursor" if focused else "event-rows--blurred"
            return self._base_style + self.get_component_rich_style(name, partial=True)
        if row == self._hover:
            return self._base_style + self.get_component_rich_style("event-rows--hover", partial=True)
        return self._base_style

    def _style(self, colour: str) -> Style | None:
        return self.get_component_rich_style(f"event-rows--{colour}", partial=True) if colour else None

    # ---- mouse ----

    def on_mouse_move(self, event: MouseMove) -> None:
        """Highlight the row under the mouse, and show everything known about it."""
        row = self.scroll_offset.y + event.y
        if row == self._hover:
            return
        self._hover = row
        known = self.view is not None and row < self.count
        self.tooltip = full_text(self.view.tape, self.event_at(row)) if self.view is not None and known else None
        self.refresh()

    def on_leave(self, _event: Leave) -> None:
        """Remove the highlight."""
        self._hover = -1
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scroll, and report it."""
        super().watch_scroll_y(old_value, new_value)
        self._on_scroll()


_SLICE: Final = 4000
"""Events that a filter examines between two chances to handle keys: 5 to 10 ms."""
_PACE_S: Final = 1 / 30


class EventList(Box):
    """All recorded events in order; the known future is dimmed.

    The cursor is at the selected event, or at the present one. The list follows the position, unless the reader has
    scrolled away while the simulation plays.
    """

    BINDINGS: ClassVar = [
        Binding("up", "move(-1)", "event up", show=False),
        Binding("down", "move(1)", "event down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("enter", "go", "go there", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self._rows = EventRows(self.describe)
        self._heads = WatchHeads()
        self._asked: int | None = None
        self._matches: Callable[[EventRow], bool] | None = None
        self._label = ""
        self._searched = 0
        self._timer: Timer | None = None
        self._followed = True
        self._height = 0

    def compose(self) -> ComposeResult:
        """Create the rows, and what is above them."""
        yield self._heads
        yield self._rows

    # ---- display ----

    def show(self, view: View) -> None:
        """Show the recorded events, and follow the position, unless the reader looks elsewhere."""
        rows = self._rows
        if view.traces or (self._heads.view is not None and self._heads.view.traces):
            self._heads.view = view
        old = rows.view
        was_cursor = rows.cursor
        moved = old is None or old.moment.event != view.moment.event
        # A new size does not mean that the reader has scrolled.
        if rows.size.height == self._height and old is not None:
            self._followed = rows.in_sight(rows.row_of(old.moment.event))
        followed, resized = self._followed, rows.size.height != self._height
        self._height = rows.size.height
        if old is not None and old.tape is not view.tape:
            self._restart_filter()
        rows.present(view)
        if not view.playing:
            self.step_filter(_SLICE)
        self._take_cursor(view, moved=moved)
        if (moved and (followed or not view.playing)) or (resized and followed):
            rows.reveal(self._position_row(view))
        elif rows.cursor != was_cursor and view.selection.event is not None:
            rows.reveal(rows.row_of(rows.cursor))
        self.describe()

    def _position_row(self, view: View) -> int:
        """Return the row to keep visible: that of the position, or the last row at the end."""
        row = self._rows.row_of(view.moment.event)
        return self._rows.count if row == self._rows.count - 1 else row

    def _take_cursor(self, view: View, *, moved: bool) -> None:
        selected = view.selection.event
        wanted = view.moment.event if selected is None else selected
        if moved or wanted == self._asked:
            self._asked = None
        if self._asked is None:
            # Otherwise the reader is already beyond what this view knows.
            self._rows.cursor = min(wanted, view.moment.frontier)

    def describe(self) -> None:
        """Show in the border how much is visible, and where the position is if it is out of sight."""
        view = self._rows.view
        if view is None:
            return
        known = plural(view.moment.frontier, "event")
        if self._matches is not None:
            count = count_text(self._rows.count - 1)
            known = f"{self._label}: {count} of {known}"
            if self._searched < view.moment.frontier:
                known += f", searched {100 * self._searched // view.moment.frontier} %"
        row = self._rows.row_of(view.moment.event)
        if self._rows.size.height and not self._rows.in_sight(row):
            top = self._rows.scroll_offset.y
            above = row < top
            distance = top - row if above else row - top - self._rows.size.height + 1
            known += f" · {HERE} {plural(distance, 'row')} {'up' if above else 'down'}"
        self.put_hint(known)

    def on_focus(self) -> None:
        """Redraw the cursor, which is brighter with the focus."""
        self._rows.refresh()

    on_blur = on_focus

    # ---- filter ----

    def set_filter(self, matches: Callable[[EventRow], bool] | None, label: str = "") -> None:
        """Show only the events that match; None = all of them.

        Args:
            matches: whether to show an event.
            label: the filter as text.
        """
        self._matches = matches
        self._label = label
        self._restart_filter()
        view = self._rows.view
        if view is None:
            return
        self.step_filter(_SLICE)
        self._rows.fit()
        self._rows.reveal(self._rows.row_of(self._rows.cursor))
        self.describe()

    def _restart_filter(self) -> None:
        self._searched = 0
        self._rows.index = None if self._matches is None else array("q", [0])
        if self._matches is not None and self._timer is None:
            self._timer = self.set_interval(_PACE_S, self._go_on)
        elif self._matches is None and self._timer is not None:
            self._timer.stop()
            self._timer = None

    def step_filter(self, budget: int) -> bool:
        """Let the filter examine some further events; return whether more are left."""
        view, index, matches = self._rows.view, self._rows.index, self._matches
        if view is None or index is None or matches is None:
            return False
        tape, known = view.tape, view.moment.frontier
        if self._searched > known:  # an exception has cut the tape
            del index[bisect_left(index, known + 1) :]
            self._searched = known
        end = min(self._searched + budget, known)
        for event in range(self._searched + 1, end + 1):
            if matches(tape.row(event)):
                index.append(event)
        self._searched = end
        return end < known

    def _go_on(self) -> None:
        """Continue the filter for a moment."""
        rows = self._rows
        view = rows.view
        if view is None or self._searched >= view.moment.frontier or not self.is_on_screen:
            return
        followed = rows.in_sight(rows.row_of(view.moment.event))
        self.step_filter(_SLICE)
        rows.fit()
        if followed:
            rows.reveal(rows.row_of(view.moment.event))
        self.describe()

    # ---- cursor ----

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._point(self._rows.row_of(self._rows.cursor) + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by a page."""
        self.action_move(pages * max(self._rows.size.height - 1, 1))

    def at_cursor(self) -> Subject | None:
        """Return the event of the marked row: with a filter, the last match up to the selected event."""
        rows = self._rows
        return None if rows.view is None else event_ref(rows.event_at(rows.row_of(rows.cursor)))

    def action_go(self) -> None:
        """Go to the event at the cursor."""
        there = self.at_cursor()
        if there is not None:
            self.post_message(Picked(event=int(there.value), go=True))

    def on_click(self, event: Click) -> None:
        """Select the clicked event; a double click goes there."""
        offset = event.get_content_offset(self._rows)
        row = -1 if offset is None else offset.y + self._rows.scroll_offset.y
        if not 0 <= row < self._rows.count:
            return
        if event.chain == 2:
            self.post_message(Picked(event=self._rows.event_at(row), go=True))
        elif event.chain == 1:
            self._point(row)

    def _point(self, row: int) -> None:
        """Move the cursor to a row, and report it."""
        rows = self._rows
        if rows.view is None:
            return
        event = rows.event_at(row)
        if event == rows.cursor:
            return
        rows.cursor = self._asked = event
        rows.reveal(rows.row_of(event))
        rows.refresh()
        self.post_message(Picked(event=event))


PANE: Final = Pane(widget=EventList)
