"""One moment of a run, frozen: everything needed to display it and to say what just happened.

What an event changed is every field of the state that differs after it, the most important first.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.units import filled, plural
from blis_tui.engine.records import Preempted, Record, Scheduled, StepFinished
from blis_tui.results.record_lines import record_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.cluster.snapshot import InstanceSnapshot, RequestSnapshot, Snapshot
    from blis_tui.engine.records import Record

PHASES: Final = ("schedule", "execute", "complete", "next")
"""The phases of a step, in order; a position within a step is the phase that the reader has reached."""
LAST_PHASE: Final = len(PHASES) - 1
WINDOW: Final = 300
"""Maximum number of requests of each queue and batch in a moment."""
_COMPLETE: Final = PHASES.index("complete")


def settles(phase: int | None) -> bool:
    """Return whether, at a phase (None = the event is no step), all results of the event are in effect."""
    return phase is None or phase >= _COMPLETE


def before_results(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """Return the records of a step that apply in its middle: no results, and no plan for the following step."""
    over = False
    kept: list[Record] = []
    for record in records:
        over = over or isinstance(record, StepFinished)
        if not record.shown.result and not (over and isinstance(record, Scheduled | Preempted)):
            kept.append(record)
    return tuple(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class DebuggerState:
    """The simulation right after an event, or in the middle of a step, and how it got there.

    A step is one event. Its results carry the time at which the step ends, and are in effect from its phase
    ``complete``. The reader sees ``state``, ``applied_records`` and the events up to ``settled``; the rest is future.
    """

    event: int
    """Number of events so far; 0 = nothing has happened yet."""
    phase: int | None
    """For a step, the phase that the reader has reached, as an index of ``PHASES``. None for other events."""
    time_us: int
    """Simulated time of the event, in microseconds."""
    records: tuple[Record, ...]
    """All records of the event; empty while running, and at the start."""
    before: Snapshot | None
    """The state just before the event; None while running, and at the start."""
    scheduled: Snapshot | None = None
    """For a step, the state in its middle: the batch is formed, but nothing is computed. None for other events."""
    after: Snapshot
    frontier: int
    """Number of recorded events; greater than ``event`` if the reader has gone back."""
    at_end: bool
    """Whether no event follows (or only events beyond the horizon)."""
    complete: bool = False
    """Whether the whole run is recorded, that is, no event follows ``frontier``."""
    failure: str
    """Why the simulation cannot go on from its end; empty if it did not fail."""

    @property
    def step(self) -> StepFinished | None:
        """The record of the step, if the event is a step."""
        return next((record for record in self.records if isinstance(record, StepFinished)), None)

    @property
    def settled(self) -> int:
        """The last event whose results are all in effect: the current one, or in the middle of a step the previous."""
        return self.event if settles(self.phase) else self.event - 1

    @property
    def state(self) -> Snapshot:
        """The state at the reader's phase."""
        return self.after if self.scheduled is None or settles(self.phase) else self.scheduled

    @property
    def applied_records(self) -> tuple[Record, ...]:
        """The records of the event that apply at the reader's phase."""
        if settles(self.phase):
            return self.records
        return before_results(self.records)

    def instance(self, index: int) -> InstanceSnapshot:
        """Return an instance at the reader's phase."""
        return next(instance for instance in self.state.instances if instance.index == index)

    def request(self, name: str) -> RequestSnapshot | None:
        """Return a live request at the reader's phase, if the snapshot holds it."""
        return next((request for request in live(self.state) if request.request_id == name), None)


def live(snapshot: Snapshot) -> tuple[RequestSnapshot, ...]:
    """Return all requests of a snapshot: those in transit, then by instance those waiting and running."""
    requests = [*snapshot.in_transit]
    for instance in snapshot.instances:
        requests += [*instance.waiting, *instance.running]
    return tuple(requests)


Value = int | str | None

GROUPS: Final = (
    "lost",
    "preempted",
    "scheduled",
    "first-token",
    "done",
    "moved",
    "decode",
    "queue",
    "KV cache",
    "counters",
    "details",
)
"""Groups of changes, in display order; groups named after other kinds of records come last."""

COUNT: Final = ""
TIME: Final = "time"
SPAN: Final = "span"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change made by an event."""

    group: str
    """One of ``GROUPS``, or a kind of record."""
    path: str
    """Path of the field in the state: ``instances[0].kv.used_blocks``."""
    old: Value = None
    """Value before the event; None = absent."""
    new: Value = None
    """Value after the event; None = absent."""
    unit: str = COUNT
    """Unit of a number: ``time`` (a point in time, microseconds), ``span`` (a duration, microseconds) or empty (a
    count)."""
    about: str = ""
    """Meaning of the change, in a few words."""
    request: str = ""
    """The request it concerns."""

    @property
    def delta(self) -> int | None:
        """Difference between the new and the old number; None if either is no number."""
        return self.new - self.old if isinstance(self.old, int) and isinstance(self.new, int) else None


@dataclass(frozen=True, slots=True)
class _Field:
    """A field to compare: its path below its owner, its unit, and its meaning."""

    path: str
    unit: str = COUNT
    about: str = ""
    group: str = "details"
    source: str = ""
    """The attribute that holds the value, if its name differs from the path."""

    def read(self, owner: object) -> Value:
        value: Value = attrgetter(self.source or self.path)(owner)
        return value


_REQUEST_FIELDS: Final = (
    _Field("instance", about="instance number"),
    _Field("queued_us", TIME, "entered the queue"),
    _Field("scheduled_us", TIME, "first scheduled"),
    _Field("first_token_us", TIME, "first token"),
    _Field("target_tokens", about="tokens its prefill needs"),
    _Field("computed_tokens", about="tokens in the KV cache"),
    _Field("generated_tokens", about="output tokens"),
    _Field("cached_tokens", about="cached tokens"),
    _Field("held_blocks", about="KV blocks it holds"),
    _Field("shared_blocks", about="of them shared"),
    _Field("priority", about="lower is more urgent"),
    _Field("preemptions", about="times preempted"),
    _Field("max_output_tokens", about="maximum output tokens"),
)
_DECODED: Final = frozenset({"computed_tokens", "generated_tokens", "held_blocks"})
"""Fields that an ordinary decode changes; one change reports them for all requests."""

_INSTANCE_FIELDS: Final = (
    _Field("life", about="its state", group="queue"),
    _Field("waiting.count", about="requests in the queue", group="queue", source="waiting_count"),
    _Field("running.count", about="requests in the batch", group="queue", source="running_count"),
    _Field("kv.used_blocks", about="blocks in use", group="KV cache"),
    _Field("kv.cached_free_blocks", about="evictable (cached) free blocks", group="KV cache"),
    _Field("kv.blank_blocks", about="empty free blocks", group="KV cache"),
    _Field("kv.hits", about="blocks found in the cache", group="KV cache"),
    _Field("kv.misses", about="blocks allocated from the free ones", group="KV cache"),
    _Field("routed", about="requests sent here", group="counters"),
    _Field("steps", about="steps so far", group="counters"),
    _Field("preemptions", about="preemptions so far", group="counters"),
    _Field("busy_us", SPAN, "time spent in steps", "counters"),
)
_CLUSTER_FIELDS: Final = (
    _Field("time_us", TIME, "simulated time", "counters"),
    _Field("arrived", about="requests arrived so far", group="counters"),
    _Field("rejected", about="requests rejected so far", group="counters"),
    _Field("ended", about="requests ended so far", group="counters"),
)


def differences(moment: DebuggerState) -> tuple[Change, ...]:
    """Return what the event of a moment has changed so far; empty at the start, and while running."""
    if moment.before is None:
        return ()
    return compare(moment.before, moment.state, moment.applied_records)


def compare(before: Snapshot, after: Snapshot, records: Sequence[Record]) -> tuple[Change, ...]:
    """Return the differences between two states with one event between them, the most important first.

    Snapshots may hold only a window of a long queue. Therefore only requests that the records name count as having come
    or gone: others may merely have moved into or out of the window.
    """
    news = _outcomes(records)
    old = {request.request_id: request for request in live(before)}
    new = {request.request_id: request for request in live(after)}
    changes: list[Change] = []
    for name in dict.fromkeys((*old, *new)):
        changes += _request(name, old.get(name), new.get(name), news)
    changes += _decoded(old, new, records)
    changes += _instances(before, after)
    changes += _fields(_CLUSTER_FIELDS, before, after, "")
    changes += _others(records)
    order = {
        group: place for place, group in enumerate(dict.fromkeys((*GROUPS, *(change.group for change in changes))))
    }
    return tuple(sorted(changes, key=lambda change: order[change.group]))


def _instances(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Yield the changes of the instances, including instances that were added or removed."""
    old, new = ({instance.index: instance for instance in side.instances} for side in (before, after))
    for index in sorted({**old, **new}):
        if index in old and index in new:
            yield from _fields(_INSTANCE_FIELDS, old[index], new[index], f"instances[{index}].")
        else:
            was, now = ("there", "gone") if index in old else (None, "there")
            yield Change(group="queue", path=f"instances[{index}]", old=was, new=now)


def _others(records: Sequence[Record]) -> Iterator[Change]:
    """Yield the changes reported by records that are not about a request."""
    for record in records:
        if record.shown.change and not hasattr(record, "request_id"):
            instance = getattr(record, "instance", None)
            path = "cluster" if instance is None else f"instances[{instance}]"
            yield Change(group=record.kind, path=path, about=filled(record.shown.change, record_dict(record)))


# ---- requests ----


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What the records say about a request: the group, a word for what became of the request, and its meaning."""

    group: str
    fate: str
    about: str


def _outcomes(records: Sequence[Record]) -> Mapping[str, _Outcome]:
    """Return what the event did to each request it names; if it did several things, the most important comes first."""
    by_name: dict[str, list[_Outcome]] = {}
    for record in records:
        for name, news in _outcomes_of(record):
            by_name.setdefault(name, []).append(news)
    outcomes: dict[str, _Outcome] = {}
    for name, several in by_name.items():
        several.sort(key=lambda news: GROUPS.index(news.group) if news.group in GROUPS else GROUPS.index("moved"))
        abouts = dict.fromkeys(news.about for news in several if news.about)
        outcomes[name] = replace(several[0], about=", ".join(abouts))
    return MappingProxyType(outcomes)


def _outcomes_of(record: Record) -> Iterator[tuple[str, _Outcome]]:
    if isinstance(record, StepFinished):
        yield from _each(record.completed, _Outcome("done", "done", "its last token is computed"))
        yield from _each(record.first_tokens, _Outcome("first-token", "first token", "its first token"))
        return
    name, shown = getattr(record, "request_id", ""), record.shown
    if name and shown.change:
        yield name, _Outcome(shown.ends or shown.kind, shown.label, filled(shown.change, record_dict(record)))
    elif name:
        yield name, _Outcome("moved", "", "")


def _each(names: Iterable[str], news: _Outcome) -> Iterator[tuple[str, _Outcome]]:
    return ((name, news) for name in names)


def _request(
    name: str, old: RequestSnapshot | None, new: RequestSnapshot | None, news: Mapping[str, _Outcome]
) -> Iterator[Change]:
    latest = news.get(name)
    path = f"requests.{name}"
    if old is None or new is None:
        if latest is not None:
            was, now = (None if old is None else old.phase), (latest.fate or "gone" if new is None else new.phase)
            yield Change(group=latest.group, path=path, old=was, new=now, about=latest.about, request=name)
        return
    if old == new:
        return
    group, about = ("moved", "") if latest is None else (latest.group, latest.about)
    # A request may have been preempted and rescheduled at once: its phase is the same, but the change must be shown.
    if old.phase != new.phase or group != "moved":
        yield Change(group=group, path=f"{path}.phase", old=old.phase, new=new.phase, about=about, request=name)
    skipped = _DECODED if _is_ordinary(old, new) else frozenset[str]()
    fields = [field for field in _REQUEST_FIELDS if field.path not in skipped]
    yield from _fields(fields, old, new, f"{path}.", name)


def _is_ordinary(old: RequestSnapshot, new: RequestSnapshot) -> bool:
    """Return whether a request only decoded one token."""
    return (
        old.phase == new.phase == "decode"
        and new.generated_tokens == old.generated_tokens + 1
        and new.computed_tokens == old.computed_tokens + 1
    )


def _decoded(
    old: Mapping[str, RequestSnapshot], new: Mapping[str, RequestSnapshot], records: Sequence[Record]
) -> Iterator[Change]:
    """Yield one change for all ordinary decodes of the step."""
    step = next((record for record in records if isinstance(record, StepFinished)), None)
    if step is None or not any(_is_ordinary(old[name], request) for name, request in new.items() if name in old):
        return
    generated = plural(step.decode_requests, "request")
    yield Change(group="decode", path="requests.*.generated_tokens", about=f"{generated} decoded one token each")


# ---- fields ----


def _fields(
    fields: Iterable[_Field],
    old: RequestSnapshot | InstanceSnapshot | Snapshot,
    new: RequestSnapshot | InstanceSnapshot | Snapshot,
    prefix: str,
    request: str = "",
) -> Iterator[Change]:
    for field in fields:
        was, now = field.read(old), field.read(new)
        if was != now:
            yield Change(
                group=field.group,
                path=f"{prefix}{field.path}",
                old=was,
                new=now,
                unit=field.unit,
                about=field.about,
                request=request,
            )
