"""Events as lines: what each one is called, whom it is about, and what it did."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple, dataclass
from blis_tui.columns import cut
from blis_tui.conditions.probes import Happens, Reaches
from blis_tui.debugger.moment import settles
from blis_tui.engine.records import described
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
"""At the event of the present position."""
BEFORE_HERE: Final = "▷"
"""At the last event shown that is not later than the present position, where a filter hides that one."""
BREAKPOINT: Final = "●"
CURSOR: Final = "▸"
"""Beside the bar of the cursor, for those who see no colours; not where the position is."""
PREEMPTED: Final = "×"  # noqa: RUF001  (a cross, no letter)
"""So many requests were preempted, where there is no room for words; ``+`` joined the batch, ``✓`` are done."""
START: Final = "start: nothing has happened yet"


class Run(NamedTuple):
    """A piece of text of one colour: a theme colour's name, or nothing for the ordinary one."""

    text: str
    colour: str = ""


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event in words. The parts of what it did come in the order in which they may be left out from the end."""

    kind: str
    look: Description
    subject: str
    parts: tuple[Run, ...]
    """What the subject did, as the parts of a sentence."""
    short: tuple[Run, ...]
    """The same in fewer words, where there is little room."""
    brief: tuple[Run, ...]
    """What matters most in a few characters, where there is hardly any room."""


def event_line(tape: Tape, event: int, phase: int | None = None) -> EventLine:
    """A known event in words; of a step that is being looked into, only what is past at its phase."""
    row = tape.row(event)
    look = described(row.kind)
    if row.step >= 0:
        step = tape.step(row.step)
        if not settles(phase):
            step = step._replace(first_tokens=0, completed=0, duration_us=step.duration_us if phase else 0)
        subject = f"i{row.instance} step {step.number}"
        return EventLine(row.kind, look, subject, _step(step), _short_step(step), _signs(step))
    if row.request >= 0:
        subject = tape.name(row.request)
    else:
        subject = f"instance {row.instance}" if row.instance >= 0 else "cluster"
    values = {"request_id": subject, **tape.values(row)}
    parts, short, brief = (_filled(text, values, look) for text in (look.line, look.short, look.brief))
    return EventLine(row.kind, look, subject, parts, short, brief)


def _filled(template: str, values: Mapping[str, object], look: Description) -> tuple[Run, ...]:
    """A text about an event in parts; that a request ends stands out."""
    if not template:
        return ()
    head, *rest = (filled(part, values) for part in template.split(", "))
    return (Run(head, look.colour if look.ends else ""), *map(Run, rest))


def _step(step: StepRow) -> tuple[Run, ...]:
    """What a step did: its work first, then what it changed, the worst first."""
    kinds = ((step.prefill_tokens, "prefill"), (step.decode_requests, "decode"))
    work = " + ".join(f"{count_text(count)} {kind}" for count, kind in kinds if count) or "0"
    noun = "token" if step.batch_tokens == 1 else "tokens"
    return (Run(f"{work} {noun}{_duration(step)}"), *_changes(step))


def _short_step(step: StepRow) -> tuple[Run, ...]:
    return (Run(f"{plural(step.batch_tokens, 'token')}{_duration(step)}"), *_changes(step))


def _duration(step: StepRow) -> str:
    """How long it took; empty before that is past."""
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


def _signs(step: StepRow) -> tuple[Run, ...]:
    """A step's changes as signs with a count, then its work."""
    changes = (
        (step.preempted, PREEMPTED, "error"),
        (step.admitted, described("arrived").sign, ""),
        (step.completed, described("completed").sign, "success"),
        (step.stalled, described("queued").sign, "warning"),
    )
    signs = [Run(f"{sign}{count}", colour) for count, sign, colour in changes if count]
    return (*signs, Run(f"{step.batch_tokens} tok"))


def stops_at(view: View) -> Callable[[EventRow], bool]:
    """Whether an enabled breakpoint that asks for an event, a time or something that happens stops at an event.

    Breakpoints with a condition on the state say nothing here: the tape does not know states.
    """
    tests = [_stop(one.condition, view.tape) for one in view.breakpoints if one.enabled]
    return lambda row: any(test(row) for test in tests)


def _stop(condition: Condition, tape: Tape) -> Callable[[EventRow], bool]:
    if isinstance(condition, Reaches) and condition.figure in ("event", "time_us"):
        goal = ceil(condition.value)
        event = goal if condition.figure == "event" else tape.at_time(goal - 1) + 1
        return lambda row: row.event == event
    if not isinstance(condition, Happens):
        return lambda _row: False
    tests: list[Callable[[EventRow], bool]] = []
    if condition.request:
        tests.append(of_request(condition.request, tape, condition.kind))
    elif condition.kind:
        own = described(condition.kind).own_event
        tests.append(partial(_has, tape, condition.kind) if own else of_kind(condition.kind, tape))
    if condition.instance is not None:
        tests.append(lambda row: row.instance == condition.instance)
    return lambda row: all(test(row) for test in tests)


def _has(tape: Tape, kind: str, row: EventRow) -> bool:
    return tape.has(row.event, kind)


# ---- layout ----


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the parts of a line stand, in cells; 0 = that part is left out."""

    number: int
    time: int
    subject: int
    summary: int


_MARKS: Final = 3
_GLYPH: Final = 2
_NUMBERED_FROM: Final = 96
"""Columns from which on events have their numbers."""


def columns(tape: Tape, width: int) -> Columns:
    """The columns that fit a width."""
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
    """A line in its columns, without the marks at its front."""
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
    """As many of the brief parts as fit behind the subject."""
    runs: list[Run] = []
    for part in line.brief:
        width -= len(part.text) + (1 if runs else 3)
        if width < 0:
            break
        runs += [Run(" " if runs else " · ", "muted"), part]
    return runs


def milliseconds(time_us: int) -> str:
    """A time where there is no room for its microseconds: ``12.345 s``."""
    return time_text(time_us)[: -len(" 678 s")] + " s"


def fitting(line: EventLine, width: int) -> list[Run]:
    """As much of a summary as fits: in full, else in short, else without its last parts (``…`` stands for them)."""
    for parts in (line.parts, line.short):
        if _length(parts) <= width:
            return _joined(parts)
    kept = list(line.short)
    while kept and _length(kept) + 2 > width:
        kept.pop()
    if kept:
        return [*_joined(kept), Run(" …")]
    only = line.short[0] if line.short else Run("")
    return [Run(only.text[: max(width - 1, 0)] + "…", only.colour)]


def _length(parts: Sequence[Run]) -> int:
    return len(", ".join(part.text for part in parts))


def _joined(parts: Sequence[Run]) -> list[Run]:
    runs: list[Run] = []
    for part in parts:
        if runs:
            runs.append(Run(", ", "muted"))
        runs.append(part)
    return runs


def full_text(tape: Tape, event: int) -> str:
    """All that is known about an event, in one line."""
    if event == 0:
        return START
    line = event_line(tape, event)
    what = ", ".join(part.text for part in line.parts)
    return f"event {count_text(event)} at {time_text(tape.time_us(event))}: {line.subject} {what}"


def tail(moment: Moment, width: int, *, playing: bool) -> Run:
    """The row below the last known event: what could follow."""
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
