"""The tape: what every event so far did, a few whole numbers each, so that a million events take tens of megabytes.

A simulation is deterministic, so what was once recorded stays true when the reader goes back: the tape grows at the
frontier only, and knows the future of every earlier position.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import fields
from operator import add
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple, dataclass
from blis_tui.debugger.overview import Bucket, Latencies, Overview
from blis_tui.debugger.session_log import ArrivalLog, SessionLog
from blis_tui.engine.records import RECORD_KINDS, FirstToken, Preempted, Scheduled, described
from blis_tui.units import with_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from blis_tui.engine.profile import Profile
    from blis_tui.engine.records import Record, StepFinished


# What a tape says of events, of steps, and of what happened to requests.


class EventRow(NamedTuple):
    """One event, called what its main record is. ``event`` counts from 1."""

    event: int
    time_us: int
    kind: str
    instance: int
    """-1 where no instance was concerned."""
    request: int
    """Number of the request, -1 where it is not about one."""
    step: int
    """Row of the step's figures, -1 for other events."""


class StepRow(NamedTuple):
    """A step's figures; the state figures are those after it."""

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
    """Of its instance's steps, from 1."""
    all_waiting: int
    """Of all instances together, after it; likewise below."""
    all_running: int
    all_kv_used_blocks: int
    planned: int
    """The event in which it was planned: its own, or with asynchronous scheduling the start of the step before."""
    chunks: int
    """Requests whose prefill it went on with."""

    @property
    def served(self) -> int:
        """Requests that got something from the step; those apart whose whole prompt was cached."""
        return self.chunks + self.decode_requests

    @property
    def batch_tokens(self) -> int:
        """Tokens the step computed."""
        return self.prefill_tokens + self.decode_requests


class StopRow(NamedTuple):
    """Where the plan of a step stopped to take requests from the queue: see ``SchedulingStopped``."""

    cause: str
    request: int
    """Number of the request that did not get in; -1 = it holds for all that wait."""
    need: int
    had: int
    kept: int
    tried_us: int


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """One thing that happened to a request.

    ``what`` is a kind of record; ``first`` and ``second`` are then the figures of its description, requests by their
    number. Of steps, it is also started (where steps are planned ahead: -, -: the first step after it was scheduled),
    chunk (tokens computed before it, tokens it adds), stalled and resumed (-, -: the first
    step without a token for it, and the next one with a token again), and last-token (time of the token, -).
    """

    event: int
    time_us: int
    what: str
    first: int
    second: int


_WORDS: Final = ("step", "chunk", "stalled", "resumed", "last-token", "started")
"""What has a code of its own on every tape; the kinds of records get theirs when they are first met."""
STEP, CHUNK, STALLED, RESUMED, LAST_TOKEN, STARTED = range(len(_WORDS))
_STEP_WIDTH: Final = len(StepRow._fields)
_STOP_WIDTH: Final = 1 + len(StopRow._fields)
"""The number of the step comes first."""
_RESULTS: Final = frozenset({"chunk", "last-token"})
"""What of it is a step's result, as some records are: in the middle of the step it is still to come."""
_PLANNED: Final = frozenset({"scheduled", "preempted"})
"""What a plan does; one for the step to come is made once the results of the present step count."""
_COUNTED: Final = (Scheduled, Preempted, FirstToken)
"""What accompanies other records and is counted in the figures of steps."""

_WORK_BITS: Final = 8
"""Work is remembered at every 256th event."""


class Tape:
    """What every event so far did.

    Args:
        profiles: what each instance of the start is like.
        paced_by_clock: the clients whose sessions go on whether or not their calls are answered.

    Attributes:
        profiles: what each instance is like.
        keeps_output: whether preempted requests keep the tokens they have generated; else a preemption takes also a
            first token back.
        plans_ahead: whether a step is planned when the one before it starts, in the same event.
        overview: figures of the whole run in a fixed number of buckets of time.
        latencies: what the clients have measured.
        sessions: which requests belong together.
        arrivals: whose requests arrived when.
    """

    def __init__(self, profiles: Iterable[Profile], paced_by_clock: Iterable[str] = ()) -> None:
        self.profiles = list(profiles)
        self.keeps_output = self.profiles[0].traits.keeps_output
        self.plans_ahead = self.profiles[0].traits.plans_ahead
        self._words = list(_WORDS)
        self._codes = {word: code for code, word in enumerate(_WORDS)}
        self._lost: list[int] = []  # codes of the kinds in which a request is lost
        self._times = array("q")
        self._kinds = array("B")
        self._instances = array("h")
        self._subjects = array("i")
        self._steps = array("q")
        self._stop_events = array("q")
        self._stops = array("q")
        self._causes: list[str] = []
        self._cause_codes: dict[str, int] = {}
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._lives: list[array[int]] = []
        self._reasons: dict[int, str] = {}
        self._figures: dict[int, tuple[int, ...]] = {}
        self._beside: dict[str, array[int]] = {}
        self._unnamed = False
        self.latencies = Latencies()
        self.overview = Overview()
        self.sessions = SessionLog(frozenset(paced_by_clock))
        self.arrivals = ArrivalLog()
        self._media: dict[int, tuple[int, int, int]] = {}
        self._reasoned: dict[int, int] = {}
        self._work = 0
        self._work_marks = array("q", [0])

    # ---- events ----

    @property
    def instances(self) -> int:
        """How many instances have had something to do."""
        return self.overview.instances

    def __len__(self) -> int:
        return len(self._times)

    def time_us(self, event: int) -> int:
        """Simulated time of an event, in microseconds; 0 before the first."""
        return self._times[event - 1] if event > 0 else 0

    def kind(self, event: int) -> str:
        """What an event is called."""
        return self._words[self._kinds[event - 1]]

    def row(self, event: int) -> EventRow:
        """An event, from 1."""
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
        """A step's figures, by ``EventRow.step``."""
        return StepRow._make(self._steps[number * _STEP_WIDTH : (number + 1) * _STEP_WIDTH])

    def stop(self, event: int, number: int) -> StopRow | None:
        """Why the step of that number left requests in the queue, planned in an event; None = its rule did not say."""
        place = bisect_right(self._stop_events, event) - 1
        while place >= 0 and self._stop_events[place] == event:
            if self._stops[place * _STOP_WIDTH] == number:
                _, cause, *rest = self._stops[place * _STOP_WIDTH : (place + 1) * _STOP_WIDTH]
                return StopRow(self._causes[cause], *rest)
            place -= 1
        return None

    def stops_of(self, first: int, last: int) -> Mapping[tuple[int, int], tuple[str, int]]:
        """All that :meth:`stop` knows from one event to another, by event and number: the cause, and the request."""
        there = range(bisect_left(self._stop_events, first), bisect_right(self._stop_events, last))
        events, stops, causes, width = self._stop_events, self._stops, self._causes, _STOP_WIDTH
        return {
            (events[place], stops[place * width]): (causes[stops[place * width + 1]], stops[place * width + 2])
            for place in there
        }

    def steps_of(self, instance: int, first: int, last: int, *figures: str) -> Iterator[tuple[int, ...]]:
        """The steps of an instance from one event to another: event, time, and the named figures of ``StepRow``."""
        if first > last:
            return iter(())
        there = slice(first - 1, last)
        events = zip(self._kinds[there], self._instances[there], self._times[there], self._subjects[there], strict=True)
        found = [
            (event, time_us, step * _STEP_WIDTH)
            for event, (kind, on, time_us, step) in enumerate(events, first)
            if kind == STEP and on == instance
        ]
        steps = self._steps
        columns = [[steps[at + column] for *_, at in found] for column in map(StepRow._fields.index, figures)]
        return zip([event for event, *_ in found], [time_us for _, time_us, _ in found], *columns, strict=True)

    def work(self, event: int) -> int:
        """How much work the events up to this one were, in ordinary events; under memory pressure steps count more."""
        return self._work_marks[event >> _WORK_BITS] + (event & (1 << _WORK_BITS) - 1)

    def between(self, first: int, last: int, now_us: int | None = None) -> Bucket:
        """The figures of the events from one to another, as a bucket of the overview that holds just these has them.

        ``now_us``: first tokens of steps that end later do not count yet.
        """
        kinds = self._kinds[first - 1 : last]
        bucket = Bucket(
            arrivals=kinds.count(self.code("arrived")),
            completions=kinds.count(self.code("completed")),
            losses=sum(map(kinds.count, self._lost)),
        )
        last_step = self.next_step(last + 1, back=True)
        if last_step >= first:
            rows = self._step_rows(self.row(self.next_step(first - 1)).step, self.row(last_step).step)
            batch_tokens = list(map(add, rows["prefill_tokens"], rows["decode_requests"]))
            bucket.tokens, bucket.batch_tokens_max = sum(batch_tokens), max(batch_tokens)
            bucket.preemptions = sum(rows["preempted"])
            bucket.step_us_max = max(rows["duration_us"])
            bucket.waiting_max = max(rows["all_waiting"])
            bucket.running_max = max(rows["all_running"])
            bucket.kv_used_max = max(rows["all_kv_used_blocks"])
        before = self.next_step(first, back=True)
        if before:
            held = self.step(self.row(before).step)
            bucket.waiting_max = max(bucket.waiting_max, held.all_waiting)
            bucket.running_max = max(bucket.running_max, held.all_running)
            bucket.kv_used_max = max(bucket.kv_used_max, held.all_kv_used_blocks)
        bucket.ttft_us_max = max(self.latencies.ttfts_of(first, last, now_us), default=0)
        return bucket

    def _step_rows(self, first: int, last: int) -> dict[str, array[int]]:
        """The figures of some steps in a row, by name."""
        width = _STEP_WIDTH
        return {
            name: self._steps[first * width + column : (last + 1) * width : width]
            for column, name in enumerate(StepRow._fields)
        }

    def at_time(self, time_us: int) -> int:
        """The last event not later than a time; 0 when there is none."""
        return bisect_right(self._times, time_us)

    def reason(self, event: int) -> str:
        """Why an event turned out as it did, in its record's words; empty when nothing was said."""
        return with_spans(self._reasons.get(event, ""))

    def has(self, event: int, kind: str) -> bool:
        """Whether a kind of record is an event's, or one that accompanies it without being counted for its step."""
        beside = self._beside.get(kind, ())
        place = bisect_left(beside, event)
        return self.kind(event) == kind or (place < len(beside) and beside[place] == event)

    def told(self, kind: str, until: int) -> Iterator[tuple[int, dict[str, object]]]:
        """The events up to one that :meth:`has` says have a kind, the latest first, with what their lines can name."""
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
            yield event, self._told(event, kind)

    def _told(self, event: int, kind: str) -> dict[str, object]:
        request = self.row(event).request
        found = self.latest(request, kind, event) if request >= 0 else None
        if found is not None and found.event == event:
            return self.values_of(found)
        return self._values(event, kind, self._figures.get(event, ()))

    def values(self, row: EventRow) -> dict[str, object]:
        """What the line about an event can name (see ``Description``)."""
        found = self.latest(row.request, row.kind, row.event) if row.request >= 0 else None
        if found is not None:
            return self.values_of(found)
        return self._values(row.event, row.kind, self._figures.get(row.event, ()))

    def values_of(self, one: RequestEvent) -> dict[str, object]:
        """What the line about something that happened to a request can name."""
        return self._values(one.event, one.what, (one.first, one.second))

    def _values(self, event: int, kind: str, figures: Sequence[int]) -> dict[str, object]:
        named: dict[str, object] = dict(zip(described(kind).figures, figures, strict=False))
        for name in named.keys() & text_fields(kind):
            named[name] = self._names[figures[described(kind).figures.index(name)]]
        instance = self._instances[event - 1]
        return {"instance": instance, "reason": self.reason(event) or "no reason given", **named}

    def find(self, matches: Callable[[EventRow], bool], start: int, *, back: bool = False) -> Iterator[int | None]:
        """Search from ``start`` on (exclusive); yields None now and then, and at last the event, or 0 if none matches.

        A search may be given up between two looks.
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
        """Whether an event is a step."""
        return self._kinds[event - 1] == STEP

    def latest_of(self, kind: str, until: int) -> int:
        """The latest event up to one that is called so; 0 when there is none."""
        return self._kinds[:until].tobytes().rfind(self.code(kind)) + 1

    def next_step(self, event: int, *, back: bool = False) -> int:
        """The nearest step after (or before) an event; 0 when the tape has none."""
        move = -1 if back else 1
        event += move
        while 0 < event <= len(self):
            if self._kinds[event - 1] == STEP:
                return event
            event += move
        return 0

    # ---- requests ----

    @property
    def requests(self) -> int:
        """How many requests have arrived."""
        return len(self._names)

    def name(self, number: int) -> str:
        """A request's name by its number in order of arrival."""
        return self._names[number]

    def names(self) -> tuple[str, ...]:
        """All names, in order of arrival."""
        return tuple(self._names)

    def number(self, name: str) -> int | None:
        """A request's number, or None when none of that name has arrived."""
        return self._numbers.get(name)

    def media(self, name: str) -> tuple[int, int, int] | None:
        """Image, audio and video tokens of a request's prompt; None where it is all text."""
        return self._media.get(self._numbers.get(name, -1))

    def reasoned(self, name: str) -> int:
        """Tokens that a request whose answer has begun had before: its reasoning."""
        return self._reasoned[self._numbers[name]]

    def life(self, name: str, until: int | None = None, settled: int | None = None) -> tuple[RequestEvent, ...]:
        """What happened to a request, up to and including an event (None = all that is known).

        ``settled``: the last event whose results are past, where that is not ``until`` (see ``Moment.settled``).
        """
        number = self._numbers.get(name)
        if number is None:
            return ()
        flat = self._lives[number]
        found: list[RequestEvent] = []
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
            found.append(RequestEvent(event, self._times[event - 1], what, flat[i + 2], flat[i + 3]))
        return tuple(found)

    def latest(self, number: int, what: str, until: int) -> RequestEvent | None:
        """The last time that something happened to a request, up to an event; cheap for what ends a life."""
        flat = self._lives[number]
        code = self.code(what)
        for i in range(len(flat) - 4, -1, -4):
            if flat[i + 1] == code and flat[i] <= until:
                return RequestEvent(flat[i], self._times[flat[i] - 1], what, flat[i + 2], flat[i + 3])
        return None

    def chunks(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Every prefill chunk of the steps from one event to another: event, number of the request, tokens."""
        for number, flat in enumerate(self._lives):
            if not flat or flat[0] > last or flat[-4] < first:
                continue
            for place in range(0, len(flat), 4):
                if flat[place + 1] == CHUNK and first <= flat[place] <= last:
                    yield flat[place], number, flat[place + 3]

    def first_event_of(self, name: str) -> int:
        """The event at which a request arrived; 0 when it has not."""
        number = self._numbers.get(name)
        return 0 if number is None else self._lives[number][0]

    def slowest(self, until: int, count: int) -> list[tuple[str, int]]:
        """The requests that took longest of those completed up to an event, with their end-to-end times in us."""
        return [(self._names[number], e2e_us) for number, e2e_us in self.latencies.slowest(until, count)]

    # ---- recording ----

    def cut(self, event: int) -> None:
        """Forget what stands behind an event: an exception interrupted the one after it."""
        del self._times[event:]
        del self._kinds[event:]
        del self._instances[event:]
        del self._subjects[event:]
        del self._work_marks[(event >> _WORK_BITS) + 1 :]
        stops = bisect_right(self._stop_events, event)
        del self._stop_events[stops:]
        del self._stops[stops * _STOP_WIDTH :]
        for beside in self._beside.values():
            del beside[bisect_right(beside, event) :]
        self._unnamed = False
        for one in (self.latencies, self.sessions, self.arrivals):
            one.cut(event)
        for life in self._lives:
            while life and life[-4] > event:
                del life[-4:]
        while self._lives and not self._lives[-1]:
            self._lives.pop()
            del self._numbers[self._names.pop()]
            self._media.pop(len(self._names), None)
            self._reasoned.pop(len(self._names), None)

    def agrees(self, records: Sequence[Record]) -> bool:
        """Whether the records of a replayed event are what the tape says happened then."""
        event = records[0].event
        if event > len(self) or any(record.time_us != self._times[event - 1] for record in records):
            return False
        return self.kind(event) == next((one for one in records if one.shown.own_event), records[0]).kind

    def code(self, word: str) -> int:
        """The number that stands for a kind of record on this tape."""
        code = self._codes.setdefault(word, len(self._words))
        if code == len(self._words):
            self._words.append(word)
            if described(word).ends == "lost":
                self._lost.append(code)
        return code

    def add_request(self, name: str) -> None:
        """Number the next request."""
        self._numbers[name] = len(self._names)
        self._names.append(name)
        self._lives.append(array("q"))

    def add(self, record: Record, code: int, instance: int, subject: int) -> None:
        """Give an event its row: its name is that of its first record that can give it one."""
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
        if not own and not isinstance(record, _COUNTED):
            self._note_beside(record)

    def add_step(self, record: StepFinished, figures: Iterable[int], work: int) -> None:
        """Give a step its row and keep its figures; ``work``: how many more events it is worth (see ``work``)."""
        self.add(record, STEP, record.instance, len(self._steps) // _STEP_WIDTH)
        self._steps.extend(figures)
        self._work += work

    def add_stop(self, event: int, number: int, stop: StopRow) -> None:
        """Why the step of that number, planned in an event, leaves requests in the queue."""
        self._stop_events.append(event)
        code = self._cause_codes.setdefault(stop.cause, len(self._causes))
        if code == len(self._causes):
            self._causes.append(stop.cause)
        self._stops.extend((number, code, *stop[1:]))

    def note(self, number: int, event: int, code: int, first: int = -1, second: int = -1) -> None:
        """Something happened to a request."""
        self._lives[number].extend((event, code, first, second))

    def note_media(self, number: int, tokens: tuple[int, int, int]) -> None:
        """A request's prompt has media."""
        self._media[number] = tokens

    def note_reasoning(self, number: int, tokens: int) -> None:
        """A request has reasoned."""
        self._reasoned[number] = tokens

    def keep_reason(self, event: int, reason: str) -> None:
        """Why an event turned out as it did."""
        self._reasons[event] = reason

    def keep_figures(self, event: int, figures: Iterable[int]) -> None:
        """The figures of an event that is not about a request."""
        self._figures[event] = tuple(figures)

    def _note_beside(self, record: Record) -> None:
        events = self._beside.setdefault(record.kind, array("q"))
        if not events or events[-1] != record.event:
            events.append(record.event)


def text_fields(kind: str) -> frozenset[str]:
    """The fields of a kind of record that hold texts."""
    known = RECORD_KINDS.get(kind)
    return frozenset() if known is None else frozenset(one.name for one in fields(known) if one.type in ("str", str))
