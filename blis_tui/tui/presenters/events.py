"""Events as lines: kind, subject, and what each did."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple, dataclass
from blis_tui.columns import cut
from blis_tui.conditions.probes import Reaches, RecordMatch, Sends
from blis_tui.debugger.moment import settles
from blis_tui.engine.records import Preempted, Scheduled, described
from blis_tui.tui.actions import named, shown_key
from blis_tui.tui.presenters.event_filter import of_kind, of_request
from blis_tui.units import count_text, filled, plural, span_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.conditions.probes import Condition
    from blis_tui.debugger.moment import Moment
    from blis_tui.debugger.tape import EventRow, StepRow, Tape
    from blis_tui.engine.records import Description
    from blis_tui.tui.view import View

HERE: Final = "▶"
"""Marks the event of the present position."""
BEFORE_HERE: Final = "▷"
"""Marks the last visible event before the present position, if a filter hides that one."""
BREAKPOINT: Final = "●"
CURSOR: Final = "▸"
"""Marks the cursor for readers without colours, except at the position."""
PREEMPTED: Final = "×"  # noqa: RUF001  (a cross, not a letter)
"""Prefix of the number of preempted requests in a narrow line; ``+`` joined the batch, ``✓`` are done."""
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


def event_line(tape: Tape, event: int, phase: int | None = None) -> EventLine:
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

    def __init__(self, tape: Tape, row: EventRow) -> None:
        planned = tape.plan(row.event)
        self._preempts = [tape.name(one.request) for one in planned if one.what == Preempted.kind]
        self._schedules = [tape.name(one.request) for one in planned if one.what == Scheduled.kind]
        self._new_tokens = sum(
            found.second
            for one in planned
            if one.what == Scheduled.kind and (found := tape.latest(one.request, one.what, row.event)) is not None
        )
        others = [one.instance for one in planned if one.instance != row.instance]
        self._step = f"i{others[0]}" if others else f"step {tape.step(row.step).number + 1}"

    def sentence(self) -> tuple[Run, ...]:
        """Return whom it preempts and schedules."""
        parts = []
        if self._preempts:
            parts.append(Run(f"preempts {_some(self._preempts)}", "error"))
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
        parts = [PREEMPTED + preempted] * bool(self._preempts)
        parts += [described("arrived").sign + scheduled] * bool(self._schedules)
        return (Run(head + " ".join(parts), "error" if self._preempts else ""),) if parts else ()


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
        (step.preempted, f"{step.preempted} preempted", "error"),
        (step.admitted, f"{step.admitted} scheduled", ""),
        (step.first_tokens, plural(step.first_tokens, "first token"), "secondary"),
        (step.completed, f"{step.completed} completed", "success"),
        (step.stalled, f"{step.stalled} stalled", "warning"),
    )
    return tuple(Run(text, colour) for count, text, colour in changes if count)


def _signs(step: StepRow, plan: _Plan | None) -> tuple[Run, ...]:
    """Return a step's changes as signs with counts, those that it plans, then its work."""
    changes = (
        (step.preempted, PREEMPTED, "error"),
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
    tests = [_stop(one.condition, view.tape) for one in view.breakpoints if one.enabled]
    return lambda row: any(test(row) for test in tests)


def _stop(condition: Condition, tape: Tape) -> Callable[[EventRow], bool]:
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


def _has(tape: Tape, kind: str, row: EventRow) -> bool:
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


def columns(tape: Tape, width: int) -> Columns:
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


def full_text(tape: Tape, event: int) -> str:
    """Return everything known about an event, in one line."""
    if event == 0:
        return START
    line = event_line(tape, event)
    what = ", ".join(part.text for part in line.parts)
    return f"event {count_text(event)} at {time_text(tape.time_us(event))}: {line.subject} {what}"


def tail(moment: Moment, width: int, *, playing: bool) -> Run:
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
