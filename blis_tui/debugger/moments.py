"""Moments: events that a reader has kept, with a name and a note; and the report of them for others.

A moment knows its event by more than the number: where the experiment has changed, the event of that number may be
another one, which is said instead of shown as if nothing had happened.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from blis_tui.base.classes import dataclass
from blis_tui.base.text import printable
from blis_tui.base.units import count_text, plural, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.event_store import EventStore

START: Final = "start"
"""What is at event 0, before anything has happened."""
_MARKED: Final = re.compile(r"([\\`*_{}\[\]<>#|~&$])")
"""Characters that would mean something in Markdown."""
_BEGINNING: Final = re.compile(r"([0-9]*)([-+=.)])")
"""What would mean something at the beginning of a paragraph, such as a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A kept event."""

    event: int
    """Its number; 0 = the start."""
    time_us: int
    what: str
    """The kind of event and whose it is, without figures: ``preempted request_12``."""
    sentence: str
    """The event in words, as they were when it was kept."""
    sha256: str
    """Digest of the experiment in which it was kept."""
    name: str
    note: str = ""
    """What the reader wrote about it; empty = nothing."""


def what_is(tape: EventStore, event: int) -> str:
    """Return the kind of a recorded event, and whose it is."""
    if event == 0:
        return START
    row = tape.row(event)
    if row.step >= 0:
        return f"{row.kind} {tape.step(row.step).number} on instance {row.instance}"
    if row.request >= 0:
        return f"{row.kind} {tape.name(row.request)}"
    return f"{row.kind} on instance {row.instance}" if row.instance >= 0 else row.kind


def time_of(tape: EventStore, event: int) -> int:
    """Return the time of a recorded event in microseconds; the start is at 0."""
    return tape.time_us(event) if event else 0


def change_of(moment: Moment, debugger: Debugger) -> str:
    """Return how a run differs at a moment's event from what was kept; empty = it does not, or is not known yet."""
    tape = debugger.tape
    why = "the experiment has changed" if debugger.experiment.sha256 != moment.sha256 else "this run is another"
    number = count_text(moment.event)
    if moment.event > len(tape):
        return f"{why}: it ends after {plural(len(tape), 'event')}" if debugger.complete else ""
    what, time_us = what_is(tape, moment.event), time_of(tape, moment.event)
    if what != moment.what:
        return f"{why}: event {number} is now {what} at {time_text(time_us)}, and was {moment.what}"
    if time_us != moment.time_us:
        return f"{why}: event {number} is now at {time_text(time_us)}, and was at {time_text(moment.time_us)}"
    return ""


def with_moment(moments: Iterable[Moment], wanted: Moment) -> tuple[Moment, ...]:
    """Return moments in the order of their events, with another one instead of that of the same event."""
    others = (moment for moment in moments if moment.event != wanted.event)
    return tuple(sorted((*others, wanted), key=attrgetter("event")))


def with_others(moments: Iterable[Moment], others: Iterable[Moment]) -> tuple[Moment, ...]:
    """Return moments with those of others, such as of a bundle; of the same event, the first ones stay."""
    kept = tuple(others)
    for moment in moments:
        kept = with_moment(kept, moment)
    return kept


def without_moment(moments: Iterable[Moment], event: int) -> tuple[Moment, ...]:
    """Return the moments of all other events."""
    return tuple(moment for moment in moments if moment.event != event)


# ---- files ----

_NUMBERS: Final = ("event", "time_us")
_TEXTS: Final = ("what", "sentence", "sha256", "name", "note")


def to_data(moments: Iterable[Moment]) -> list[Json]:
    """Return moments as they are written into the files of sessions and bundles."""
    return [{name: getattr(moment, name) for name in (*_NUMBERS, *_TEXTS)} for moment in moments]


def from_data(entries: Iterable[object]) -> tuple[Moment, ...]:
    """Return the valid moments of a file, in order; others are left out."""
    moments: tuple[Moment, ...] = ()
    for entry in entries:
        if isinstance(entry, dict) and (moment := _moment(entry)) is not None:
            moments = with_moment(moments, moment)
    return moments


def _moment(entry: Mapping[str, object]) -> Moment | None:
    texts = {name: text for name in _TEXTS if isinstance(text := entry.get(name), str)}
    event, time_us = (entry.get(name) for name in _NUMBERS)
    if len(texts) < len(_TEXTS) or not (_is_natural(event) and _is_natural(time_us)):
        return None
    return Moment(event=int(str(event)), time_us=int(str(time_us)), **texts)


def _is_natural(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


# ---- the report ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A moment in a report."""

    moment: Moment
    command: str
    """The shell command that opens the debugger there; empty = none can."""
    picture: str = ""
    """The name of the picture's file; empty = the run has no such event."""
    changed: str = ""
    """See :func:`change_of`."""


def report(title: str, about: Sequence[str], shown: Sequence[Shown]) -> str:
    """Return moments as a Markdown document: an incident report.

    Args:
        title: its title.
        about: sentences on the run.
        shown: the moments, in order.
    """
    parts = [f"# {_plain(title)}", *map(_plain, about)]
    for number, entry in enumerate(shown, 1):
        parts += [f"## {number}. {_plain(entry.moment.name)}", *_moment_parts(entry)]
    return "\n\n".join(parts) + "\n"


def _moment_parts(shown: Shown) -> Iterable[str]:
    moment = shown.moment
    yield _plain(f"Event {count_text(moment.event)} at {time_text(moment.time_us)}: {moment.sentence}")
    if moment.note:
        yield _plain(moment.note)
    if shown.changed:
        yield f"> {_plain(shown.changed[:1].upper() + shown.changed[1:])}."
    if shown.picture:
        yield f"![{_plain(moment.name)}]({quote(shown.picture, errors='surrogateescape')})"
    if shown.command:
        yield f"```sh\n{printable(shown.command)}\n```"


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    shown = _MARKED.sub(r"\\\1", printable(text).strip())
    begun = _BEGINNING.match(shown)
    return shown if begun is None else f"{begun[1]}\\{shown[begun.end(1) :]}"
