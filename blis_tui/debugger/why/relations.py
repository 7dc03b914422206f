"""What a request has to do with others: its session, who was scheduled while it waited, and who lost blocks to whom."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.units import plural, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blis_tui.cluster.snapshot import KvSharer, KvSharing
    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.why.lifespans import RequestLife, Span

_NAMED: Final = 2
"""Maximum number of requests named that computed the same blocks."""


@dataclass(frozen=True, slots=True)
class Related:
    """Another request, and the event that relates it."""

    request: str
    event: int
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """What a request has to do with some others, in the order of events."""

    title: str
    requests: tuple[Related, ...]


def relations(tape: EventStore, life: RequestLife) -> tuple[Relation, ...]:
    """Return what a request has had to do with others, as far as its life is known; without those of which is none."""
    ahead, later = _scheduled_first(tape, life)
    every = (
        Relation(*_session(tape, life)),
        Relation("Scheduled first, queued before it", ahead),
        Relation("Scheduled first, queued after it", later),
        Relation("Preempted for it", tuple(_victims(tape, life))),
        Relation("It was preempted for", tuple(_beneficiaries(tape, life))),
    )
    return tuple(relation for relation in every if relation.requests)


def block_sharers(tape: EventStore, life: RequestLife, sharing: KvSharing) -> Relation | None:
    """Return who holds some of the same KV blocks at the position, and who computed them; None if nobody does."""
    sharers: list[Related] = []
    for other in sharing.others:
        number = tape.number(other.request_id)
        scheduled = None if number is None else tape.latest(number, "scheduled", life.until)
        held = f"{plural(other.blocks, 'block')}, {plural(other.tokens, 'token')}"
        remark = f"{held}, {_computed_by(life.name, other, sharing)}"
        sharers.append(Related(other.request_id, 0 if scheduled is None else scheduled.event, remark))
    return Relation("Hold some of its KV blocks", _by_event(sharers)) if sharers else None


def _computed_by(name: str, other: KvSharer, sharing: KvSharing) -> str:
    """Return who computed what two requests share: whoever did not find all of it in the cache."""
    cached = {name: sharing.cached_tokens} | {
        each.request_id: each.cached_tokens for each in sharing.others if each.tokens >= other.tokens
    }
    computed = [each for each, tokens in cached.items() if tokens < other.tokens]
    if not computed:
        return "computed by one that has left"
    words = {name: "this one", other.request_id: "it"}
    return f"computed by {' and '.join(words.get(each, each) for each in computed[:_NAMED])}"


def prefix_text(sharing: KvSharing) -> str:
    """Return the part of the prompt that is shared with others, by segments: ``system-prompt 512 tokens``."""
    most, parts = max((other.tokens for other in sharing.others), default=0), []
    for name, tokens in sharing.segments:
        if most > 0:
            parts.append(f"{name} {plural(min(tokens, most), 'token')}")
        most -= tokens
    return ", ".join(parts)


def _session(tape: EventStore, life: RequestLife) -> tuple[str, tuple[Related, ...]]:
    """Return its session's name, and the other calls that were sent by then."""
    number = tape.number(life.name)
    session = None if number is None else tape.sessions.of_request(number)
    if session is None:
        return "", ()
    calls = [call for call in tape.sessions.calls(session) if call.event <= life.until]
    place = next(at for at, call in enumerate(calls, 1) if call.request == number)
    title = f"Session {tape.sessions.name(session)}, call {place} of {tape.sessions.length(session)}"
    others = (
        Related(tape.name(call.request), call.event, f"call {at}, sent at {time_text(tape.time_us(call.event))}")
        for at, call in enumerate(calls, 1)
        if call.request != number
    )
    return title, tuple(others)


def _scheduled_first(tape: EventStore, life: RequestLife) -> tuple[tuple[Related, ...], tuple[Related, ...]]:
    """Return who was scheduled on its instance while it waited there: those queued before it, and those after."""
    waits = [(span, _end_of(life, span)) for span in life.spans if span.what == "wait"]
    ahead: dict[str, Related] = {}
    later: dict[str, Related] = {}
    if not waits:
        return (), ()
    own = tape.number(life.name)
    for event, number, _, _ in tape.entries_of("scheduled", waits[0][0].first + 1, waits[-1][1]):
        span = next((span for span, end in waits if span.first < event <= end), None)
        if span is None or number == own or tape.row(event).instance != span.instance:
            continue
        queued = _queued(tape, number, event)
        name, remark = tape.name(number), f"scheduled at {time_text(tape.time_us(event))}"
        (ahead if queued < span.first else later).setdefault(name, Related(name, event, remark))
    return _by_event(ahead.values()), _by_event(later.values())


def _end_of(life: RequestLife, wait: Span) -> int:
    """Return the last event of a wait: that before what follows began."""
    return next((span.first - 1 for span in life.spans if span.first > wait.first), life.settled)


def _queued(tape: EventStore, number: int, scheduled: int) -> int:
    """Return the event at which a request had come into the queue from which it was scheduled."""
    entries = (tape.latest(number, what, scheduled) for what in ("queued", "preempted"))
    return max((entry.event for entry in entries if entry is not None), default=0)


def _victims(tape: EventStore, life: RequestLife) -> Iterator[Related]:
    """Yield who lost its KV blocks to it."""
    own = tape.number(life.name)
    preemptions = tape.entries_of("preempted", life.entries[0].event, life.until)
    rows = sorted((event, number, lost) for event, number, lost, needs in preemptions if needs == own != number)
    for event, number, lost in rows:
        yield Related(tape.name(number), event, _lost(tape, event, lost))


def _beneficiaries(tape: EventStore, life: RequestLife) -> Iterator[Related]:
    """Yield for whom it lost its KV blocks, which may be itself."""
    for entry in life.preemptions:
        name = tape.name(entry.second)
        remark = _lost(tape, entry.event, entry.first)
        yield Related(name, entry.event, f"itself, {remark}" if name == life.name else remark)


def _lost(tape: EventStore, event: int, tokens: int) -> str:
    return f"at {time_text(tape.time_us(event))}, {plural(tokens, 'token')} lost"


def _by_event(related: Iterable[Related]) -> tuple[Related, ...]:
    return tuple(sorted(related, key=attrgetter("event")))
