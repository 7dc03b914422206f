"""The tape: what every event so far did, a few whole numbers each, so that a million events take tens of megabytes.

A simulation is deterministic, so what was once recorded stays true when the reader goes back: the tape grows at the
frontier only, and knows the future of every earlier position.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from heapq import nlargest
from operator import add
from typing import TYPE_CHECKING, Final

from blis_tui.debugger.overview import Bucket, Overview
from blis_tui.debugger.rows import KINDS, MOMENTS, EventRow, Happening, StepRow
from blis_tui.engine.records import (
    Admitted,
    Arrived,
    Completed,
    Dropped,
    FirstToken,
    Preempted,
    Queued,
    Rejected,
    Routed,
    Scheduled,
    StepFinished,
    TimedOut,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.engine.profile import Profile
    from blis_tui.engine.records import Record
    from blis_tui.simulation import Simulation

_CODE: Final = {name: code for code, name in enumerate(KINDS)}
_STEP: Final = _CODE["step"]

_MOMENT: Final = {name: code for code, name in enumerate(MOMENTS)}
_RESULTS: Final = frozenset({"chunk", "first-token", "last-token"})
"""What of it is a step's result: in the middle of the step it is still to come."""

_WORK_BITS: Final = 8
"""Work is remembered at every 256th event."""
_BUSY_BATCH: Final = 32
"""Requests that a step under memory pressure looks at for the work of one ordinary event (measured, roughly)."""


class Tape:
    """What every event so far did.

    Args:
        profiles: what each instance is like.

    Attributes:
        profiles: what each instance is like.
        keeps_output: whether preempted requests keep the tokens they have generated; else a preemption takes also a
            first token back.
        overview: figures of the whole run in a fixed number of buckets of time.
    """

    __slots__ = (
        "_done",
        "_done_events",
        "_e2es",
        "_instances",
        "_kinds",
        "_latest",
        "_lives",
        "_names",
        "_numbers",
        "_reasons",
        "_stalled",
        "_steps",
        "_subjects",
        "_times",
        "_totals",
        "_ttft_events",
        "_ttft_places",
        "_ttft_times",
        "_ttfts",
        "_ttfts_lost",
        "_work",
        "_work_marks",
        "keeps_output",
        "overview",
        "profiles",
    )

    def __init__(self, profiles: Sequence[Profile]) -> None:
        instances = len(profiles)
        self.profiles = profiles
        self.keeps_output = profiles[0].traits.keeps_output
        self._times = array("q")
        self._kinds = array("B")
        self._instances = array("h")
        self._subjects = array("i")
        self._steps = array("q")
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._lives: list[array[int]] = []
        self._reasons: dict[int, str] = {}
        self._ttft_events = array("q")
        self._ttfts = array("q")
        self._ttfts_lost = array("q")
        self._ttft_times = array("q")
        self._ttft_places: dict[int, int] = {}
        self._done_events = array("q")
        self._done = array("i")
        self._e2es = array("q")
        self.overview = Overview(instances)
        self._latest = [(0, 0, 0)] * instances
        self._stalled: list[frozenset[str]] = [frozenset()] * instances
        self._totals = (0, 0, 0)
        self._work = 0
        self._work_marks = array("q", [0])

    # ---- events ----

    @property
    def instances(self) -> int:
        """How many instances there are."""
        return len(self._latest)

    def __len__(self) -> int:
        return len(self._times)

    def time_us(self, event: int) -> int:
        """Simulated time of an event, in microseconds; 0 before the first."""
        return self._times[event - 1] if event > 0 else 0

    def kind(self, event: int) -> str:
        """What an event is called."""
        return KINDS[self._kinds[event - 1]]

    def row(self, event: int) -> EventRow:
        """An event, from 1."""
        place = event - 1
        code = self._kinds[place]
        subject = self._subjects[place]
        step = code == _STEP
        return EventRow(
            event,
            self._times[place],
            KINDS[code],
            self._instances[place],
            -1 if step else subject,
            subject if step else -1,
        )

    def step(self, number: int) -> StepRow:
        """A step's figures, by ``EventRow.step``."""
        width = len(StepRow._fields)
        return StepRow._make(self._steps[number * width : (number + 1) * width])

    def work(self, event: int) -> int:
        """How much work the events up to this one were, in ordinary events; under memory pressure steps count more."""
        return self._work_marks[event >> _WORK_BITS] + (event & (1 << _WORK_BITS) - 1)

    def between(self, first: int, last: int, now_us: int | None = None) -> Bucket:
        """The figures of the events from one to another, as a bucket of the overview that holds just these has them.

        ``now_us``: first tokens of steps that end later do not count yet.
        """
        kinds = self._kinds[first - 1 : last]
        bucket = Bucket(
            arrivals=kinds.count(_CODE["arrived"]),
            completions=kinds.count(_CODE["completed"]),
            losses=sum(kinds.count(_CODE[kind]) for kind in ("rejected", "dropped", "timed-out")),
        )
        last_step = self.next_step(last + 1, back=True)
        if last_step >= first:
            rows = self._step_rows(self.row(self.next_step(first - 1)).step, self.row(last_step).step)
            batch_tokens = list(map(add, rows["prefill_tokens"], rows["decode_requests"]))
            bucket.steps = len(batch_tokens)
            bucket.tokens, bucket.batch_tokens_max = sum(batch_tokens), max(batch_tokens)
            bucket.preemptions = sum(rows["preempted"])
            bucket.step_us, bucket.step_us_max = sum(rows["duration_us"]), max(rows["duration_us"])
            bucket.waiting_max = max(rows["all_waiting"])
            bucket.running_max = max(rows["all_running"])
            bucket.kv_used_max = max(rows["all_kv_used_blocks"])
        before = self.next_step(first, back=True)
        if before:
            held = self.step(self.row(before).step)
            bucket.waiting_max = max(bucket.waiting_max, held.all_waiting)
            bucket.running_max = max(bucket.running_max, held.all_running)
            bucket.kv_used_max = max(bucket.kv_used_max, held.all_kv_used_blocks)
        places = range(bisect_left(self._ttft_events, first), bisect_right(self._ttft_events, last))
        ttfts = [self._ttfts[place] for place in places if now_us is None or self._ttft_times[place] <= now_us]
        bucket.first_tokens, bucket.ttft_us, bucket.ttft_us_max = len(ttfts), sum(ttfts), max(ttfts, default=0)
        return bucket

    def _step_rows(self, first: int, last: int) -> dict[str, array[int]]:
        """The figures of some steps in a row, by name."""
        width = len(StepRow._fields)
        return {
            name: self._steps[first * width + column : (last + 1) * width : width]
            for column, name in enumerate(StepRow._fields)
        }

    def at_time(self, time_us: int) -> int:
        """The last event not later than a time; 0 when there is none."""
        return bisect_right(self._times, time_us)

    def reason(self, event: int) -> str:
        """Why the request of an event was rejected, dropped or routed as it was; empty when nothing was said."""
        return self._reasons.get(event, "")

    def find(self, matches: Callable[[EventRow], bool], start: int, *, back: bool = False) -> Iterator[int | None]:
        """Search from ``start`` on (exclusive); yields None now and then, and at last the event, or 0 if none matches.

        Whoever searches may stop between two looks.
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
        return self._kinds[event - 1] == _STEP

    def next_step(self, event: int, *, back: bool = False) -> int:
        """The nearest step after (or before) an event; 0 when the tape has none."""
        move = -1 if back else 1
        event += move
        while 0 < event <= len(self):
            if self._kinds[event - 1] == _STEP:
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

    def life(self, name: str, until: int | None = None, settled: int | None = None) -> tuple[Happening, ...]:
        """What happened to a request, up to and including an event (None = all that is known).

        ``settled``: the last event whose results are past, where that is not ``until`` (see ``Moment.settled``).
        """
        number = self._numbers.get(name)
        if number is None:
            return ()
        flat = self._lives[number]
        found: list[Happening] = []
        for i in range(0, len(flat), 4):
            event = flat[i]
            if until is not None and event > until:
                break
            what = MOMENTS[flat[i + 1]]
            if settled is not None and event > settled and what in _RESULTS:
                continue
            found.append(Happening(event, self._times[event - 1], what, flat[i + 2], flat[i + 3]))
        return tuple(found)

    def latest(self, number: int, what: str, until: int) -> Happening | None:
        """The last time that something happened to a request, up to an event; cheap for what ends a life."""
        flat = self._lives[number]
        code = _MOMENT[what]
        for i in range(len(flat) - 4, -1, -4):
            if flat[i + 1] == code and flat[i] <= until:
                return Happening(flat[i], self._times[flat[i] - 1], what, flat[i + 2], flat[i + 3])
        return None

    def chunks(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Every prefill chunk of the steps from one event to another: event, number of the request, tokens."""
        code = _MOMENT["chunk"]
        for number, flat in enumerate(self._lives):
            if not flat or flat[0] > last or flat[-4] < first:
                continue
            for place in range(0, len(flat), 4):
                if flat[place + 1] == code and first <= flat[place] <= last:
                    yield flat[place], number, flat[place + 3]

    def first_event_of(self, name: str) -> int:
        """The event at which a request arrived; 0 when it has not."""
        number = self._numbers.get(name)
        return 0 if number is None else self._lives[number][0]

    def ttfts_us(self, until: int, count: int, settled: int | None = None, now_us: int | None = None) -> list[int]:
        """The latest ``count`` times to first token up to an event, oldest first, in microseconds.

        First tokens that a preemption had taken back by then do not count. ``settled``: as for ``life``.
        ``now_us``: tokens of steps that end later do not count yet, either.
        """
        found: list[int] = []
        for place in range(bisect_right(self._ttft_events, until if settled is None else settled) - 1, -1, -1):
            if len(found) == count:
                break
            out = now_us is None or self._ttft_times[place] <= now_us
            if out and not 0 < self._ttfts_lost[place] <= until:
                found.append(self._ttfts[place])
        return found[::-1]

    def slowest(self, until: int, count: int) -> list[tuple[str, int]]:
        """The requests that took longest of those completed up to an event, with their end-to-end times in us."""
        end = bisect_right(self._done_events, until)
        order = nlargest(count, range(end), key=self._e2es.__getitem__)
        return [(self._names[self._done[place]], self._e2es[place]) for place in order]

    # ---- recording ----

    def listen(self, simulation: Simulation) -> Callable[[], None]:
        """Record what a simulation does from now on; it must stand at the tape's end. Returns what stops it."""
        stops = [
            simulation.subscribe(Arrived, self._arrived),
            simulation.subscribe(Admitted, self._admitted),
            simulation.subscribe(Rejected, self._rejected),
            simulation.subscribe(Routed, self._routed),
            simulation.subscribe(Queued, self._queued),
            simulation.subscribe(Dropped, self._dropped),
            simulation.subscribe(Scheduled, self._scheduled),
            simulation.subscribe(Preempted, self._preempted),
            simulation.subscribe(StepFinished, self._step_finished),
            simulation.subscribe(FirstToken, self._first_token),
            simulation.subscribe(Completed, self._completed),
            simulation.subscribe(TimedOut, self._timed_out),
        ]

        def stop() -> None:
            for one in stops:
                one()

        return stop

    def cut(self, event: int) -> None:
        """Forget what stands behind an event: an exception interrupted the one after it."""
        del self._times[event:]
        del self._kinds[event:]
        del self._instances[event:]
        del self._subjects[event:]
        del self._work_marks[(event >> _WORK_BITS) + 1 :]
        keep = bisect_right(self._ttft_events, event)
        del self._ttft_events[keep:]
        del self._ttfts[keep:]
        del self._ttfts_lost[keep:]
        del self._ttft_times[keep:]
        for place, lost in enumerate(self._ttfts_lost):
            if lost > event:
                self._ttfts_lost[place] = 0
        done = bisect_right(self._done_events, event)
        del self._done_events[done:]
        del self._done[done:]
        del self._e2es[done:]
        for life in self._lives:
            while life and life[-4] > event:
                del life[-4:]
        while self._lives and not self._lives[-1]:
            self._lives.pop()
            del self._numbers[self._names.pop()]

    def agrees(self, record: Record) -> bool:
        """Whether a record of a replayed event is what the tape says happened then."""
        if record.event > len(self) or self._times[record.event - 1] != record.time_us:
            return False
        kind = record.kind
        return kind not in _CODE or KINDS[self._kinds[record.event - 1]] == kind

    def _add(self, record: Record, code: int, instance: int, subject: int) -> None:
        self._times.append(record.time_us)
        self._kinds.append(code)
        self._instances.append(instance)
        self._subjects.append(subject)
        self._work += 1
        if not len(self._times) & (1 << _WORK_BITS) - 1:
            self._work_marks.append(self._work)

    def _note(self, number: int, event: int, what: str, first: int = -1, second: int = -1) -> None:
        self._lives[number].extend((event, _MOMENT[what], first, second))

    def _about(self, record: Record, request_id: str, instance: int, first: int = -1, second: int = -1) -> None:
        """An event that is about one request."""
        number = self._numbers[request_id]
        self._add(record, _CODE[record.kind], instance, number)
        self._note(number, record.event, record.kind, first, second)

    def _arrived(self, record: Arrived) -> None:
        self._numbers[record.request_id] = len(self._names)
        self._names.append(record.request_id)
        self._lives.append(array("q"))
        self._about(record, record.request_id, -1, record.input_tokens, record.max_output_tokens)
        self.overview.arrival(record.time_us)

    def _admitted(self, record: Admitted) -> None:
        self._about(record, record.request_id, -1)

    def _rejected(self, record: Rejected) -> None:
        self._about(record, record.request_id, -1)
        self._reasons[record.event] = record.reason
        self.overview.loss(record.time_us)

    def _routed(self, record: Routed) -> None:
        self._about(record, record.request_id, record.instance, record.instance)
        self._reasons[record.event] = record.reason

    def _queued(self, record: Queued) -> None:
        self._about(record, record.request_id, record.instance, record.instance, record.position)

    def _dropped(self, record: Dropped) -> None:
        self._about(record, record.request_id, record.instance)
        self._reasons[record.event] = record.reason
        self.overview.loss(record.time_us)

    def _completed(self, record: Completed) -> None:
        self._about(record, record.request_id, record.instance, record.output_tokens, record.e2e_us)
        self._done_events.append(record.event)
        self._done.append(self._numbers[record.request_id])
        self._e2es.append(record.e2e_us)
        self.overview.completion(record.time_us)

    def _note_stalls(self, record: StepFinished, before: frozenset[str]) -> None:
        """Who got no token from this step on, and who got one again."""
        if not record.stalled and not before:
            return
        stalled = frozenset(record.stalled)
        for name in record.stalled:
            if name not in before:
                self._note(self._numbers[name], record.event, "stalled")
        for name in sorted(before - stalled - frozenset(record.preempted)):
            self._note(self._numbers[name], record.event, "resumed")
        self._stalled[record.instance] = stalled

    def _timed_out(self, record: TimedOut) -> None:
        self._stalled[record.instance] -= {record.request_id}
        self._about(record, record.request_id, record.instance, record.output_tokens, int(record.was_running))
        self.overview.loss(record.time_us)

    def _scheduled(self, record: Scheduled) -> None:
        number = self._numbers[record.request_id]
        self._note(number, record.event, "scheduled", record.cached_tokens, record.new_tokens)

    def _preempted(self, record: Preempted) -> None:
        beneficiary = self._numbers[record.for_request]
        number = self._numbers[record.request_id]
        self._note(number, record.event, "preempted", record.lost_tokens, beneficiary)
        place = None if self.keeps_output else self._ttft_places.pop(number, None)
        if place is not None:
            self._ttfts_lost[place] = record.event

    def _first_token(self, record: FirstToken) -> None:
        number = self._numbers[record.request_id]
        self._note(number, record.event, "first-token", record.first_token_us, record.ttft_us)
        self._ttft_events.append(record.event)
        self._ttft_places[number] = len(self._ttfts)
        self._ttfts.append(record.ttft_us)
        self._ttfts_lost.append(0)
        self._ttft_times.append(record.first_token_us)
        self.overview.first_token(record.time_us, record.ttft_us)

    def _step_finished(self, record: StepFinished) -> None:
        self._add(record, _STEP, record.instance, len(self._steps) // len(StepRow._fields))
        prefill = 0
        for chunk in record.chunks:
            prefill += chunk.new_tokens
            self._note(self._numbers[chunk.request_id], record.event, "chunk", chunk.computed_tokens, chunk.new_tokens)
        index = record.instance
        self._note_stalls(record, self._stalled[index])
        for name in record.completed:
            self._note(self._numbers[name], record.event, "last-token", record.time_us + record.duration_us)
        old, new = self._latest[index], (record.waiting, record.running, record.kv_used_blocks)
        self._latest[index] = new
        waiting, running, kv = self._totals
        self._totals = (waiting + new[0] - old[0], running + new[1] - old[1], kv + new[2] - old[2])
        self._steps.extend(
            (
                record.duration_us,
                len(record.admitted),
                len(record.preempted),
                prefill,
                record.decode_requests,
                len(record.stalled),
                len(record.first_tokens),
                len(record.completed),
                record.waiting,
                record.running,
                record.kv_used_blocks,
                record.step,
                *self._totals,
            )
        )
        if record.stalled or record.preempted:
            self._work += record.running // _BUSY_BATCH
        self.overview.step(record, prefill + record.decode_requests, self._totals)
