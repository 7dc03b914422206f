"""The tape records what every event did in a few integers, so that a million events take tens of megabytes.

A simulation is deterministic, so recorded events stay valid when the reader goes back. The tape therefore grows only at
the frontier, and knows the future of every earlier position.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import fields
from functools import partial
from itertools import islice
from operator import add
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.units import with_spans
from blis_tui.debugger.overview import Bucket, Latencies, Overview
from blis_tui.debugger.session_log import ArrivalLog, SessionLog
from blis_tui.engine.records import RECORD_KINDS, FirstToken, Preempted, Scheduled, described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from blis_tui.engine.profile import Profile
    from blis_tui.engine.records import Record, StepFinished


# Entries of a tape: events, steps, and what happened to requests.


class EventRow(NamedTuple):
    """One event, named after its main record. ``event`` counts from 1."""

    event: int
    time_us: int
    kind: str
    instance: int
    """Index of the instance, or -1 if the event concerns none."""
    request: int
    """Number of the request, or -1 if the event concerns none."""
    step: int
    """Index of the step's figures, or -1 if the event is no step."""


class StepRow(NamedTuple):
    """A step's figures; those of the state are taken after the step."""

    duration_us: int
    admitted: int
    preempted: int
    prefill_tokens: int
    decode_requests: int
    stalled: int
    first_tokens: int
    completed: int
    waiting: int
    running: int
    kv_used_blocks: int
    number: int
    """Number of the step on its instance, from 1."""
    all_waiting: int
    """Requests waiting on all instances after the step. The next two fields also cover all instances."""
    all_running: int
    all_kv_used_blocks: int
    planned: int
    """The event in which the step was planned: its own, or with asynchronous scheduling the start of the previous step.
    """
    chunks: int
    """Number of requests whose prefill it continued."""

    @property
    def served(self) -> int:
        """Number of requests that the step served, without those whose whole prompt was cached."""
        return self.chunks + self.decode_requests

    @property
    def batch_tokens(self) -> int:
        """Number of tokens the step computed, without drafted ones: those of prompts, and one for each decode."""
        return self.prefill_tokens + self.decode_requests


class StopRow(NamedTuple):
    """Where a step's plan stopped scheduling requests from the queue: see ``SchedulingStopped``."""

    cause: str
    request: int
    """Number of the request that was not scheduled; -1 = the cause applies to all waiting requests."""
    need: int
    had: int
    kept: int
    tried_us: int


class PlannedChange(NamedTuple):
    """What the plan made in one event, for a later one, does to a request."""

    what: str
    """The kind of record: ``scheduled`` or ``preempted``."""
    request: int
    """Number of the request."""
    instance: int
    """Index of the instance whose following step it belongs to."""


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """One thing that happened to a request.

    ``what`` is a kind of record; ``first`` and ``second`` are then the figures of its description, with requests given
    by number. A step adds these kinds: started (-, -: the first step after the request was scheduled, where steps are
    planned ahead), chunk (tokens computed before it, tokens it adds), stalled and resumed (-, -: the first step without
    a token for it, and the next one with a token again), and last-token (time of the token, -).
    """

    event: int
    time_us: int
    what: str
    first: int
    second: int


_WORDS: Final = ("step", "chunk", "stalled", "resumed", "last-token", "started")
"""Words with a fixed code on every tape; kinds of records get their codes when they first occur."""
STEP, CHUNK, STALLED, RESUMED, LAST_TOKEN, STARTED = range(len(_WORDS))
_STEP_WIDTH: Final = len(StepRow._fields)
_PLAN_WIDTH: Final = len(PlannedChange._fields)
_STOP_WIDTH: Final = 1 + len(StopRow._fields)
"""Each entry starts with the number of the step."""
_RESULTS: Final = frozenset({"chunk", "last-token"})
"""Request events that are results of a step, as some records are: they do not apply yet in the middle of the step."""
_PLANNED: Final = frozenset({"scheduled", "preempted"})
"""Request events made by a plan. A plan for the following step is made only once the present step's results count."""
_COUNTED: Final = (Scheduled, Preempted, FirstToken)
"""Records that accompany others and are counted in the figures of steps."""
_COUNTED_AHEAD: Final = (FirstToken,)
"""The same where steps are planned ahead: the others are made by a plan, before the event of the step that has them."""

_NUMBER_BITS, _REASON_BITS = 32, 40
"""Where a key of a reason begins to say the kind of the record, and the event."""
_RANGES: Final = 64
"""Maximum number of ranges of events whose figures are remembered."""
_WORK_BITS: Final = 8
"""The cumulative work is stored at every 256th event."""


class EventStore:
    """What every event so far did.

    Args:
        profiles: profile of each initial instance.
        paced_by_clock: clients whose sessions continue whether or not their calls are answered.

    Attributes:
        profiles: profile of each instance.
        keeps_output: whether preempted requests keep the tokens they have generated; otherwise a preemption also
            discards the first token.
        plans_ahead: whether a step is planned when the previous one starts, in the same event.
        overview: figures of the whole run in a limited number of time buckets.
        latencies: latencies measured by the clients.
        sessions: which requests belong to which session.
        arrivals: arrival events per client and tenant.
    """

    def __init__(self, profiles: Iterable[Profile], paced_by_clock: Iterable[str] = ()) -> None:
        self.profiles = list(profiles)
        self.keeps_output = self.profiles[0].traits.keeps_output
        self.plans_ahead = self.profiles[0].traits.plans_ahead
        self._counted = _COUNTED_AHEAD if self.plans_ahead else _COUNTED
        self._words = list(_WORDS)
        self._codes = {word: code for code, word in enumerate(_WORDS)}
        self._lost: list[int] = []  # codes of the kinds that end a request without success
        self._times = array("q")
        self._kinds = array("B")
        self._instances = array("h")
        self._subjects = array("i")
        self._steps = array("q")
        self._stop_events = array("q")
        self._stops = array("q")
        self._plan_events = array("q")
        self._plans = array("q")
        self._causes: list[str] = []
        self._cause_codes: dict[str, int] = {}
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._lives: list[array[int]] = []
        self._reasons: dict[int, str] = {}
        """By event, kind and request: see :meth:`_reason_key`."""
        self._figures: dict[int, tuple[int, ...]] = {}
        self._beside: dict[str, array[int]] = {}
        self._unnamed = False
        self.latencies = Latencies()
        self.overview = Overview()
        self.sessions = SessionLog(frozenset(paced_by_clock))
        self.arrivals = ArrivalLog()
        self._media: dict[int, tuple[int, int, int]] = {}
        self._reasoned: dict[int, int] = {}
        self._counted_between: dict[tuple[int, int, int | None], Bucket] = {}
        self._work = 0
        self._work_marks = array("q", [0])

    # ---- events ----

    @property
    def instances(self) -> int:
        """Number of instances seen so far."""
        return self.overview.instances

    def __len__(self) -> int:
        return len(self._times)

    def time_us(self, event: int) -> int:
        """Return the simulated time of an event, in microseconds; 0 before the first."""
        return self._times[event - 1] if event > 0 else 0

    def kind(self, event: int) -> str:
        """Return the kind of an event."""
        return self._words[self._kinds[event - 1]]

    def row(self, event: int) -> EventRow:
        """Return an event by its number, from 1."""
        place = event - 1
        code = self._kinds[place]
        subject = self._subjects[place]
        step = code == STEP
        return EventRow(
            event,
            self._times[place],
            self._words[code],
            self._instances[place],
            -1 if step else subject,
            subject if step else -1,
        )

    def step(self, number: int) -> StepRow:
        """Return a step's figures by ``EventRow.step``."""
        return StepRow._make(self._steps[number * _STEP_WIDTH : (number + 1) * _STEP_WIDTH])

    def stop(self, event: int, number: int) -> StopRow | None:
        """Return why a step left requests in the queue, given the event of its plan; None = no cause stated."""
        place = bisect_right(self._stop_events, event) - 1
        while place >= 0 and self._stop_events[place] == event:
            if self._stops[place * _STOP_WIDTH] == number:
                _, cause, *rest = self._stops[place * _STOP_WIDTH : (place + 1) * _STOP_WIDTH]
                return StopRow(self._causes[cause], *rest)
            place -= 1
        return None

    def plan(self, event: int) -> tuple[PlannedChange, ...]:
        """Return whom the plan that a step's event makes for the following step schedules and preempts.

        Empty where steps are planned in their own events.
        """
        there = range(bisect_left(self._plan_events, event), bisect_right(self._plan_events, event))
        entries = (self._plans[place * _PLAN_WIDTH : (place + 1) * _PLAN_WIDTH] for place in there)
        return tuple(PlannedChange(self._words[code], request, instance) for code, request, instance in entries)

    def first_stop(self, causes: Sequence[str]) -> int:
        """Return the first event whose plan left requests in the queue for one of these causes; 0 if there is none."""
        codes = [self._cause_codes[cause] for cause in causes if cause in self._cause_codes]
        stopped = (place for place, code in enumerate(self._stops[1::_STOP_WIDTH]) if code in codes)
        place = next(stopped, -1)
        return 0 if place < 0 else self._stop_events[place]

    def stops_of(self, first: int, last: int) -> Mapping[tuple[int, int], tuple[str, int]]:
        """Return what :meth:`stop` knows in a range of events: cause and request by event and step number."""
        there = range(bisect_left(self._stop_events, first), bisect_right(self._stop_events, last))
        events, stops, causes, width = self._stop_events, self._stops, self._causes, _STOP_WIDTH
        return {
            (events[place], stops[place * width]): (causes[stops[place * width + 1]], stops[place * width + 2])
            for place in there
        }

    def steps_of(self, instance: int, first: int, last: int, *figures: str) -> Iterator[tuple[int, ...]]:
        """Yield the steps of an instance in a range of events: event, time, and the named figures of ``StepRow``."""
        if first > last:
            return iter(())
        there = slice(first - 1, last)
        events = enumerate(zip(self._kinds[there], self._instances[there], strict=True), first)
        steps = [event for event, (kind, on) in events if kind == STEP and on == instance]
        times_us = [self._times[event - 1] for event in steps]
        rows = [self._subjects[event - 1] * _STEP_WIDTH for event in steps]
        columns = [[self._steps[row + column] for row in rows] for column in map(StepRow._fields.index, figures)]
        return zip(steps, times_us, *columns, strict=True)

    def steps_in(self, first: int, last: int, *figures: str) -> Iterator[tuple[int, ...]]:
        """Yield the steps of all instances in a range of events: event, instance, and figures of ``StepRow``."""
        places = [place for place, kind in enumerate(self._kinds[first - 1 : last], first - 1) if kind == STEP]
        rows = [self._subjects[place] * _STEP_WIDTH for place in places]
        columns = [[self._steps[row + column] for row in rows] for column in map(StepRow._fields.index, figures)]
        events, instances = [place + 1 for place in places], [self._instances[place] for place in places]
        return zip(events, instances, *columns, strict=True)

    def work(self, event: int) -> int:
        """Return the work of all events up to this one, in ordinary events; steps under memory pressure count more."""
        return self._work_marks[event >> _WORK_BITS] + (event & (1 << _WORK_BITS) - 1)

    def between(self, first: int, last: int, now_us: int | None = None) -> Bucket:
        """Return the figures of a range of events as one bucket of the overview.

        ``now_us``: first tokens of steps that end later do not count yet. Each figure on a screen asks for the same
        ranges, so the latest answers are remembered.
        """
        place = (first, last, now_us)
        bucket = self._counted_between.get(place)
        if bucket is None:
            if len(self._counted_between) >= _RANGES:
                self._counted_between.clear()
            bucket = self._counted_between[place] = self._count_between(first, last, now_us)
        return bucket

    def _count_between(self, first: int, last: int, now_us: int | None) -> Bucket:
        kinds = self._kinds[first - 1 : last]
        bucket = Bucket(
            arrivals=kinds.count(self.code("arrived")),
            completions=kinds.count(self.code("completed")),
            losses=sum(map(kinds.count, self._lost)) + self._losses_beside(first, last),
        )
        last_step = self.next_step(last + 1, back=True)
        if last_step >= first:
            of = partial(self._step_figures, self.row(self.next_step(first - 1)).step, self.row(last_step).step)
            batch_tokens = list(map(add, of("prefill_tokens"), of("decode_requests")))
            bucket.tokens, bucket.batch_tokens_max = sum(batch_tokens), max(batch_tokens)
            bucket.preemptions = sum(of("preempted"))
            bucket.step_us_max = max(of("duration_us"))
            bucket.waiting_max = max(of("all_waiting"))
            bucket.running_max = max(of("all_running"))
            bucket.kv_used_max = max(of("all_kv_used_blocks"))
        before = self.next_step(first, back=True)
        if before:
            held = self.step(self.row(before).step)
            bucket.waiting_max = max(bucket.waiting_max, held.all_waiting)
            bucket.running_max = max(bucket.running_max, held.all_running)
            bucket.kv_used_max = max(bucket.kv_used_max, held.all_kv_used_blocks)
        bucket.ttft_us_max = max(self.latencies.ttfts_of(first, last, now_us), default=0)
        return bucket

    def _losses_beside(self, first: int, last: int) -> int:
        """Return in how many events of a range requests were lost that the events are not named after."""
        beside = [self._beside[kind] for kind in (self._words[code] for code in self._lost) if kind in self._beside]
        return sum(bisect_right(events, last) - bisect_left(events, first) for events in beside)

    def _step_figures(self, first: int, last: int, name: str) -> array[int]:
        """Return a figure of consecutive steps."""
        column = StepRow._fields.index(name)
        return self._steps[first * _STEP_WIDTH + column : (last + 1) * _STEP_WIDTH : _STEP_WIDTH]

    def at_time(self, time_us: int) -> int:
        """Return the last event at or before a time; 0 if there is none."""
        return bisect_right(self._times, time_us)

    def reason(self, event: int, kind: str = "", request: int = -1) -> str:
        """Return the reason given in the record that names an event, or in another one; empty if there was none.

        Args:
            event: the event.
            kind: of another record of it.
            request: the number of that record's request; -1 = it has none.
        """
        if not kind:
            row = self.row(event)
            kind, request = row.kind, row.request
        code = self._codes.get(kind)
        return "" if code is None else with_spans(self._reasons.get(_reason_key(event, code, request), ""))

    def has(self, event: int, kind: str) -> bool:
        """Return whether an event has a record of a kind; those that are :meth:`counted` in steps are ignored."""
        beside = self._beside.get(kind, ())
        place = bisect_left(beside, event)
        return self.kind(event) == kind or (place < len(beside) and beside[place] == event)

    def counted(self, kind: str) -> bool:
        """Return whether records of a kind are kept only as figures of the steps that they belong to."""
        return any(counter.kind == kind for counter in self._counted)

    def values_of_kind(self, kind: str, until: int) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield the events up to ``until`` that :meth:`has` a kind, latest first, with the values for their lines."""
        beside = self._beside.get(kind, array("q"))
        place = bisect_right(beside, until)
        kinds, code = self._kinds[:until].tobytes(), self._codes.get(kind)
        named = 0 if code is None else kinds.rfind(code) + 1
        while named or place:
            event = max(named, beside[place - 1] if place else 0)
            if named == event and code is not None:
                named = kinds.rfind(code, 0, event - 1) + 1
            if place and beside[place - 1] == event:
                place -= 1
            yield event, self._own_values(event, kind)

    def _own_values(self, event: int, kind: str) -> dict[str, object]:
        request = self.row(event).request
        entry = self.latest(request, kind, event) if request >= 0 else None
        if entry is not None and entry.event == event:
            return self._values_of(request, entry)
        return self._values(event, kind, request, self._figures.get(event, ()))

    def values(self, row: EventRow) -> dict[str, object]:
        """Return the values that an event's line can name (see ``Description``)."""
        entry = self.latest(row.request, row.kind, row.event) if row.request >= 0 else None
        if entry is not None:
            return self._values_of(row.request, entry)
        return self._values(row.event, row.kind, row.request, self._figures.get(row.event, ()))

    def values_of(self, name: str, entry: RequestEvent) -> dict[str, object]:
        """Return the values that the line about an event of a request's life can name."""
        return self._values_of(self._numbers[name], entry)

    def _values_of(self, request: int, entry: RequestEvent) -> dict[str, object]:
        return self._values(entry.event, entry.what, request, (entry.first, entry.second))

    def _values(self, event: int, kind: str, request: int, figures: Sequence[int]) -> dict[str, object]:
        named: dict[str, object] = dict(zip(described(kind).figures, figures, strict=False))
        for name in named.keys() & text_fields(kind):
            named[name] = self._names[figures[described(kind).figures.index(name)]]
        instance = self._instances[event - 1]
        return {"instance": instance, "reason": self.reason(event, kind, request) or "no reason given", **named}

    def find(self, matches: Callable[[EventRow], bool], start: int, *, back: bool = False) -> Iterator[int | None]:
        """Search from ``start`` (exclusive); yield None now and then, and finally the event, or 0 if none matches.

        The caller may abandon the search at any yield.
        """
        step = -1 if back else 1
        event = start + step
        while 0 < event <= len(self):
            if matches(self.row(event)):
                yield event
                return
            event += step
            if event % 2048 == 0:
                yield None
        yield 0

    def is_step(self, event: int) -> bool:
        """Return whether an event is a step."""
        return self._kinds[event - 1] == STEP

    def latest_of(self, kind: str, until: int) -> int:
        """Return the latest event of a kind up to ``until``; 0 if there is none."""
        return self._kinds[:until].tobytes().rfind(self.code(kind)) + 1

    def latest_on(self, instance: int, until: int) -> int:
        """Return the latest event on an instance up to ``until``; 0 if there is none."""
        return next((event for event in range(until, 0, -1) if self._instances[event - 1] == instance), 0)

    def next_step(self, event: int, *, back: bool = False) -> int:
        """Return the nearest step after (or before) an event; 0 if the tape has none."""
        move = -1 if back else 1
        event += move
        while 0 < event <= len(self):
            if self._kinds[event - 1] == STEP:
                return event
            event += move
        return 0

    def longest_queue(self) -> int:
        """Return the first step after which most requests waited; the last event if there is no step."""
        waiting = self._steps[StepRow._fields.index("all_waiting") :: _STEP_WIDTH]
        if not waiting:
            return len(self)
        steps = (event for event, kind in enumerate(self._kinds, 1) if kind == STEP)
        return next(islice(steps, waiting.index(max(waiting)), None))

    # ---- requests ----

    @property
    def requests(self) -> int:
        """Number of requests that have arrived."""
        return len(self._names)

    def name(self, number: int) -> str:
        """Return a request's name by its number in order of arrival."""
        return self._names[number]

    def names(self) -> tuple[str, ...]:
        """Return all names, in order of arrival."""
        return tuple(self._names)

    def number(self, name: str) -> int | None:
        """Return a request's number, or None if no request of that name has arrived."""
        return self._numbers.get(name)

    def media(self, name: str) -> tuple[int, int, int] | None:
        """Return the image, audio and video tokens of a request's prompt; None if the prompt is all text."""
        return self._media.get(self._numbers.get(name, -1))

    def reasoned(self, name: str) -> int:
        """Return the reasoning tokens of a request whose answer has begun."""
        return self._reasoned[self._numbers[name]]

    def life(self, name: str, until: int | None = None, settled: int | None = None) -> tuple[RequestEvent, ...]:
        """Return what happened to a request, up to and including an event (None = everything recorded).

        ``settled``: the last event whose results are in effect, if it is not ``until`` (see ``DebuggerState.settled``).
        """
        number = self._numbers.get(name)
        if number is None:
            return ()
        flat = self._lives[number]
        events: list[RequestEvent] = []
        for i in range(0, len(flat), 4):
            event = flat[i]
            if until is not None and event > until:
                break
            what = self._words[flat[i + 1]]
            if settled is not None and event > settled and (what in _RESULTS or described(what).result):
                continue
            ahead = self.plans_ahead and what in _PLANNED and tuple(flat[i + 4 : i + 6]) != (event, STARTED)
            if settled is not None and event > settled and ahead:
                continue
            events.append(RequestEvent(event, self._times[event - 1], what, flat[i + 2], flat[i + 3]))
        return tuple(events)

    def latest(self, number: int, what: str, until: int) -> RequestEvent | None:
        """Return the latest event of a kind in a request's life, up to ``until``; fast for what ends a life."""
        flat = self._lives[number]
        code = self.code(what)
        for i in range(len(flat) - 4, -1, -4):
            if flat[i + 1] == code and flat[i] <= until:
                return RequestEvent(flat[i], self._times[flat[i] - 1], what, flat[i + 2], flat[i + 3])
        return None

    def entries_of(self, what: str, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield every entry of a kind in a range of events, by request: event, request number, its two figures."""
        code = self.code(what)
        for number, flat in enumerate(self._lives):
            if not flat or flat[0] > last or flat[-4] < first:
                continue
            for place in range(0, len(flat), 4):
                if flat[place + 1] == code and first <= flat[place] <= last:
                    yield flat[place], number, flat[place + 2], flat[place + 3]

    def arrived_by(self, event: int) -> int:
        """Return how many requests had arrived by an event."""
        return bisect_right(self._lives, event, key=_first_event)

    def first_event_of(self, name: str) -> int:
        """Return the event at which a request arrived; 0 if it has not."""
        number = self._numbers.get(name)
        return 0 if number is None else self._lives[number][0]

    def last_event_of(self, name: str) -> int:
        """Return the last recorded event in which something happened to a request; 0 if it has not arrived."""
        number = self._numbers.get(name)
        return 0 if number is None else self._lives[number][-4]

    def slowest(self, until: int, count: int) -> list[tuple[str, int]]:
        """Return the slowest requests completed up to an event, with their end-to-end times in microseconds."""
        return [(self._names[number], e2e_us) for number, e2e_us in self.latencies.slowest(until, count)]

    # ---- recording ----

    def cut(self, event: int) -> None:
        """Forget everything after an event, because an exception interrupted the next one."""
        self._counted_between.clear()
        del self._times[event:]
        del self._kinds[event:]
        del self._instances[event:]
        del self._subjects[event:]
        del self._work_marks[(event >> _WORK_BITS) + 1 :]
        stops = bisect_right(self._stop_events, event)
        del self._stop_events[stops:]
        del self._stops[stops * _STOP_WIDTH :]
        plans = bisect_right(self._plan_events, event)
        del self._plan_events[plans:]
        del self._plans[plans * _PLAN_WIDTH :]
        for beside in self._beside.values():
            del beside[bisect_right(beside, event) :]
        while self._reasons and (last := next(reversed(self._reasons))) >> _REASON_BITS > event:
            del self._reasons[last]
        self._unnamed = False
        for store in (self.latencies, self.sessions, self.arrivals):
            store.cut(event)
        for life in self._lives:
            while life and life[-4] > event:
                del life[-4:]
        while self._lives and not self._lives[-1]:
            self._lives.pop()
            del self._numbers[self._names.pop()]
            self._media.pop(len(self._names), None)
            self._reasoned.pop(len(self._names), None)

    def agrees(self, records: Sequence[Record]) -> bool:
        """Return whether the records of a replayed event match the tape."""
        event = records[0].event
        if event > len(self) or any(record.time_us != self._times[event - 1] for record in records):
            return False
        return self.kind(event) == next((record for record in records if record.shown.own_event), records[0]).kind

    def code(self, word: str) -> int:
        """Return the code of a kind of record on this tape."""
        code = self._codes.setdefault(word, len(self._words))
        if code == len(self._words):
            self._words.append(word)
            if described(word).ends == "lost":
                self._lost.append(code)
        return code

    def add_request(self, name: str) -> None:
        """Assign the next number to a request."""
        self._numbers[name] = len(self._names)
        self._names.append(name)
        self._lives.append(array("q"))

    def add(self, record: Record, code: int, instance: int, subject: int) -> None:
        """Add an event's row, named after the first of its records that may name an event."""
        own = record.shown.own_event
        if record.event > len(self._times):
            self._times.append(record.time_us)
            self._kinds.append(code)
            self._instances.append(instance)
            self._subjects.append(subject)
            self._unnamed = not own
            self._work += 1
            if not len(self._times) & (1 << _WORK_BITS) - 1:
                self._work_marks.append(self._work)
        elif own and self._unnamed:
            self._kinds[-1], self._instances[-1], self._subjects[-1] = code, instance, subject
            self._unnamed = False
        elif own:
            self._note_beside(record)
        if not own and not isinstance(record, self._counted):
            self._note_beside(record)
            if self.plans_ahead and not self._unnamed and isinstance(record, Scheduled | Preempted):
                self._plan_events.append(record.event)
                self._plans.extend((code, subject, instance))

    def add_step(self, record: StepFinished, figures: Iterable[int], work: int) -> None:
        """Add a step's row and figures; ``work``: how many extra events it counts as (see :meth:`work`)."""
        self.add(record, STEP, record.instance, len(self._steps) // _STEP_WIDTH)
        self._steps.extend(figures)
        self._work += work

    def add_stop(self, event: int, number: int, stop: StopRow) -> None:
        """Record why a step, planned in ``event``, leaves requests in the queue."""
        self._stop_events.append(event)
        code = self._cause_codes.setdefault(stop.cause, len(self._causes))
        if code == len(self._causes):
            self._causes.append(stop.cause)
        self._stops.extend((number, code, *stop[1:]))

    def note(self, number: int, event: int, code: int, first: int = -1, second: int = -1) -> None:
        """Record that something happened to a request."""
        self._lives[number].extend((event, code, first, second))

    def note_media(self, number: int, tokens: tuple[int, int, int]) -> None:
        """Record the media tokens of a request's prompt."""
        self._media[number] = tokens

    def note_reasoning(self, number: int, tokens: int) -> None:
        """Record the reasoning tokens of a request."""
        self._reasoned[number] = tokens

    def record_reason(self, event: int, code: int, number: int, reason: str) -> None:
        """Record the reason in a record of an event; of several alike, the first one counts, which names the event."""
        self._reasons.setdefault(_reason_key(event, code, number), reason)

    def record_figures(self, event: int, figures: Iterable[int]) -> None:
        """Record the figures of an event that is not about a request."""
        self._figures[event] = tuple(figures)

    def _note_beside(self, record: Record) -> None:
        events = self._beside.setdefault(record.kind, array("q"))
        if not events or events[-1] != record.event:
            events.append(record.event)


def _first_event(life: Sequence[int]) -> int:
    return life[0]


def _reason_key(event: int, code: int, number: int) -> int:
    """Return where the reason in a record is kept; ``number``: its request's, or -1. One integer takes little room."""
    return event << _REASON_BITS | code << _NUMBER_BITS | number + 1


def text_fields(kind: str) -> frozenset[str]:
    """Return the names of a kind's fields that hold text."""
    known = RECORD_KINDS.get(kind)
    return (
        frozenset() if known is None else frozenset(field.name for field in fields(known) if field.type in ("str", str))
    )


# ---- which events did something ----

CHANGES: Final[Mapping[str, Callable[[StepRow], int]]] = MappingProxyType(
    {
        "admitted": lambda step: step.admitted,
        "scheduled": lambda step: step.admitted,
        "preempted": lambda step: step.preempted,
        "first-token": lambda step: step.first_tokens,
        "completed": lambda step: step.completed,
        "stalled": lambda step: step.stalled,
        "prefill": lambda step: step.prefill_tokens,
        "decode": lambda step: step.decode_requests,
    }
)
"""Actions of a step, each with the function that counts them."""


def of_kind(kind: str, tape: EventStore) -> Callable[[EventRow], bool]:
    """Return a predicate for events of a kind, and steps that did it."""
    count = CHANGES.get(kind)
    if count is None:
        return lambda row: tape.has(row.event, kind)

    def matches(row: EventRow) -> bool:
        return count(tape.step(row.step)) > 0 if row.step >= 0 else tape.has(row.event, kind)

    return matches
