"""A run as tracks for Perfetto: the subset of its packets that is needed, lanes, counters, instances.

The subset of Perfetto's trace packets that a simulation needs: tracks, slices, instants, counters, flows.

The numbers are the field numbers in ``protos/perfetto/trace`` of Perfetto's sources, which never change. Packets may be
written in any order: Perfetto sorts them by time, keeping the file order of simultaneous ones.

A run as tracks: a process for the cluster, each pool and each instance.

An instance has lanes for its steps (as many as overlap) and for its requests: the times in which each was queued, in
prefill, in decode, or preempted. A request's whole life is a slice of the cluster, with nested waits at the gateway or
for a KV transfer; arrows lead from it to the router and to the instances. Only requests in progress take memory.
"""

from __future__ import annotations

from dataclasses import field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.base.classes import dataclass
from blis_tui.cluster.records import (
    Dispatched,
    GatewayTick,
    Held,
    InstanceChanged,
    Lost,
    Retried,
    ScalingDecided,
    TransferBrokenOff,
    TransferFinished,
    TransferStarted,
)
from blis_tui.engine.records import (
    AnswerBegun,
    Arrived,
    Completed,
    Dropped,
    FirstToken,
    Preempted,
    Prefilled,
    Queued,
    Rejected,
    Routed,
    Scheduled,
    StepFinished,
    TimedOut,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment, Pool


Argument: TypeAlias = int | str | tuple[str, ...]
"""Types of event arguments."""

REQUEST: Final = "request"
"""The category of events with individual names; other categories have few different names."""

_NS_PER_US: Final = 1000
_BY_RANK: Final = 3
_BEGIN, _END, _INSTANT, _COUNTER = range(1, 5)


def varint(value: int) -> bytes:
    """Encode a non-negative integer, seven bits per byte, lowest first."""
    if value < 0x80:
        return _BYTES[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """Encode an integer field; negative values as 64-bit two's complement."""
    return _KEYS[field][0] + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def data(field: int, value: bytes | str) -> bytes:
    """Encode a text or message field."""
    content = value.encode(errors="replace") if isinstance(value, str) else value
    return _KEYS[field][2] + varint(len(content)) + content


def fixed64(field: int, value: int) -> bytes:
    """Encode a field of eight bytes."""
    return _KEYS[field][1] + value.to_bytes(8, "little")


_BYTES: Final = tuple(bytes((value,)) for value in range(0x80))
_KEYS: Final = tuple(tuple(varint(field << 3 | kind) for kind in range(3)) for field in range(64))
"""The encoded key of each field: its number and its wire type (integer, eight bytes, or length-delimited)."""
_NEEDS_STATE: Final = number(13, 2)
_ON_SEQUENCE: Final = number(10, 1)


class _Interned:
    """Strings that are written once and then referenced by number."""

    def __init__(self, field: int) -> None:
        self._field = field
        self._numbers: dict[str, int] = {}
        self.news = b""

    def number(self, text: str) -> int:
        """Return the number of a string; a new one is added to ``news``."""
        known = self._numbers.get(text)
        if known is None:
            known = self._numbers[text] = len(self._numbers) + 1
            self.news += data(self._field, number(1, known) + data(2, text))
        return known


class Packets:
    """Writes packets to a file.

    Args:
        out: the file.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._tracks = 0
        self._categories, self._names, self._arguments = _Interned(1), _Interned(2), _Interned(3)
        self._tables = (self._categories, self._names, self._arguments)
        self._write(number(13, 1))  # the interned strings begin here

    # ---- tracks ----

    def process(self, pid: int, name: str, labels: tuple[str, ...] = ()) -> int:
        """Write a process, which holds tracks; return its track."""
        about = number(1, pid) + data(6, name) + b"".join([data(8, label) for label in labels])
        return self._track(data(3, about) + number(11, _BY_RANK))

    def track(self, parent: int, name: str, rank: int = 0) -> int:
        """Write a track of slices in a process; tracks with the same name are merged. ``rank`` orders them."""
        return self._track(data(2, name) + number(5, parent) + number(12, rank))

    def counter(self, parent: int, name: str, unit: str, rank: int = 0) -> int:
        """Write a counter track in a process."""
        return self._track(data(2, name) + number(5, parent) + data(8, data(6, unit)) + number(12, rank))

    def _track(self, description: bytes) -> int:
        self._tracks += 1
        self._write(data(60, number(1, self._tracks) + description))
        return self._tracks

    # ---- events ----

    def begin(
        self, track: int, time_us: int, category: str, name: str, arguments: Mapping[str, Argument], flow: int = 0
    ) -> None:
        """Begin a slice, nested in any open slices of the track.

        ``flow`` connects it by arrows with all events of that flow, in order of time; 0 = none.
        """
        self._event(_BEGIN, track, time_us, self._head(category, name, flow), arguments)

    def end(self, track: int, time_us: int, arguments: Mapping[str, Argument] = {}) -> None:
        """End the latest open slice of the track, adding arguments known only now."""
        self._event(_END, track, time_us, b"", arguments)

    def instant(
        self, track: int, time_us: int, category: str, name: str, arguments: Mapping[str, Argument], flow: int = 0
    ) -> None:
        """Write an instant event."""
        self._event(_INSTANT, track, time_us, self._head(category, name, flow), arguments)

    def count(self, track: int, time_us: int, value: int) -> None:
        """Write a new value of a counter."""
        self._event(_COUNTER, track, time_us, number(30, value), {})

    def _head(self, category: str, name: str, flow: int) -> bytes:
        head = number(3, self._categories.number(category))
        head += data(23, name) if category == REQUEST else number(10, self._names.number(name))
        return head + fixed64(47, flow) if flow else head

    def _event(self, kind: int, track: int, time_us: int, about: bytes, arguments: Mapping[str, Argument]) -> None:
        event = number(9, kind) + number(11, track) + about
        for name, value in arguments.items():
            event += data(4, number(1, self._arguments.number(name)) + _value(value))
        packet = number(8, time_us * _NS_PER_US) + data(11, event)
        news = b""
        for table in self._tables:
            if table.news:
                news += table.news
                table.news = b""
        if news:
            packet += data(12, news)  # as one field, because Perfetto keeps only the last field of a number
        self._write(packet + _NEEDS_STATE)

    def _write(self, packet: bytes) -> None:
        self._out.write(data(1, packet + _ON_SEQUENCE))


def _value(value: Argument) -> bytes:
    if isinstance(value, int):
        return number(4, value)
    if isinstance(value, str):
        return data(6, value)
    return b"".join([data(12, data(6, element)) for element in value])


class Lanes:
    """Tracks with the same name, as many as are in use at once."""

    def __init__(self, packets: Packets, process: int, name: str, rank: int) -> None:
        self._new: Callable[[], int] = lambda: packets.track(process, name, rank)
        self._free: list[int] = []

    def take(self) -> int:
        """Return a free track, or a new one."""
        return heappop(self._free) if self._free else self._new()

    def release(self, track: int) -> None:
        """Mark a track as free again."""
        heappush(self._free, track)


class Counter:
    """A number over time, written when it changes."""

    def __init__(self, packets: Packets, process: int, name: str, unit: str) -> None:
        self._packets = packets
        self._track = packets.counter(process, name, unit, rank=-1)
        self._written = -1
        self.value = 0

    def write(self, time_us: int) -> None:
        """Write the value if it has changed."""
        if self.value != self._written:
            self._packets.count(self._track, time_us, self.value)
            self._written = self.value


class Load:
    """Counters of running requests, waiting requests, and KV blocks in use, of an instance or a pool."""

    def __init__(self, packets: Packets, process: int, above: Load | None) -> None:
        self._above = above
        self._running = Counter(packets, process, "running", "requests")
        self._waiting = Counter(packets, process, "waiting", "requests")
        self._kv = Counter(packets, process, "KV blocks used", "blocks")

    def add(self, *, running: int = 0, waiting: int = 0) -> None:
        """Change the numbers of requests."""
        self._running.value += running
        self._waiting.value += waiting
        if self._above is not None:
            self._above.add(running=running, waiting=waiting)

    def use(self, blocks: int, time_us: int) -> None:
        """Set the number of KV blocks in use from then on."""
        self._use_more(blocks - self._kv.value, time_us)

    def _use_more(self, blocks: int, time_us: int) -> None:
        self._kv.value += blocks
        self._kv.write(time_us)
        if self._above is not None:
            self._above._use_more(blocks, time_us)  # noqa: SLF001  (an object of the same class)

    def write(self, time_us: int) -> None:
        """Write the numbers of running and waiting requests."""
        self._running.write(time_us)
        self._waiting.write(time_us)
        if self._above is not None:
            self._above.write(time_us)


class Instance:
    """The tracks of an instance."""

    def __init__(self, packets: Packets, pid: int, name: str, pool: Pool, above: Load) -> None:
        self.process = packets.process(pid, name, (pool.name, pool.model.name, pool.hardware.name))
        self.load = Load(packets, self.process, above)
        self.requests = Lanes(packets, self.process, "requests", 2)
        self.steps: list[list[int]] = []
        """The lanes of steps: each lane's track, and when it becomes free."""
        self.state = 0
        """The track of its state, if instances come and go."""


_RUNNING: Final = "running"
_GONE: Final = ("terminated", "failed")


@dataclass(slots=True)
class _Visit:
    """A request's stay at an instance."""

    lane: int
    phase: str
    since_us: int
    prefill_end_us: int = -1


@dataclass(slots=True)
class _Life:
    """A request that has arrived and not ended."""

    flow: int
    lane: int
    ttft_us: int = -1
    ttfat_us: int = -1
    visits: dict[int, _Visit] = field(default_factory=dict)
    inner: int = 0
    """Number of open slices within the request's own: the gateway's, a transfer's."""


class Timeline:
    """Writes the trace while the run proceeds; :meth:`observe` must get every record, in order.

    Args:
        out: the file.
        experiment: the experiment that runs.
    """

    def __init__(self, out: BinaryIO, experiment: Experiment) -> None:
        self._packets = packets = Packets(out)
        self._cluster = packets.process(1, f"cluster {experiment.name}")
        self._router = packets.track(self._cluster, "router", 1)
        self._requests = Lanes(packets, self._cluster, "requests", 2)
        self._scaling = 0
        self._held = Counter(packets, self._cluster, "gateway queue", "requests") if experiment.has_detours else None
        self._pools = {pool.name: pool for pool in experiment.pools}
        self._loads = {
            name: Load(packets, packets.process(number, f"pool {name}"), None)
            for number, name in enumerate(self._pools, 2)
        }
        self._instances: dict[int, Instance] = {}
        for pool in experiment.pools:
            for _ in range(pool.instances):
                self._instance(len(self._instances), pool.name)
        self._lives: dict[str, _Life] = {}
        self._arrived = 0
        self._now = 0
        self._changed: dict[int, None] = {}
        self._kv_due: list[tuple[int, int, int, int]] = []
        """KV blocks in use at ends of steps: time, event, instance, number of blocks."""
        self._tell: dict[type[Record], Callable[..., None]] = {
            Arrived: self._arrive,
            Rejected: self._reject,
            Routed: self._route,
            Queued: self._queue,
            Dropped: self._drop,
            Scheduled: self._schedule,
            Preempted: self._preempt,
            StepFinished: self._step,
            FirstToken: self._first_token,
            AnswerBegun: self._answer,
            Completed: self._complete,
            Prefilled: self._prefilled,
            TimedOut: self._time_out,
            Held: self._hold,
            Dispatched: self._dispatch,
            GatewayTick: self._tick,
            TransferStarted: self._start_transfer,
            TransferFinished: self._finish_transfer,
            TransferBrokenOff: self._break_transfer_off,
            InstanceChanged: self._change,
            Retried: self._retry,
            Lost: self._lose,
            ScalingDecided: self._scale,
        }

    def observe(self, record: Record) -> None:
        """Write what a record says; skip records that no track shows."""
        if record.time_us != self._now:
            self._write_counters(record.time_us)
            self._now = record.time_us
        tell = self._tell.get(type(record))
        if tell is not None:
            tell(record)

    def finish(self) -> None:
        """Write requests in progress as slices that begin and do not end."""
        self._write_counters(None)
        for name, life in self._lives.items():
            for visit in life.visits.values():
                self._end_phase(visit, name, None)
        self._lives.clear()

    def _write_counters(self, until_us: int | None) -> None:
        for index in self._changed:
            self._instances[index].load.write(self._now)
        self._changed.clear()
        while self._kv_due and (until_us is None or self._kv_due[0][0] < until_us):
            time_us, _, index, blocks = heappop(self._kv_due)
            self._instances[index].load.use(blocks, time_us)

    # ---- tracks ----

    def _instance(self, index: int, pool: str) -> Instance:
        known = self._instances.get(index)
        if known is None:
            pid = 2 + len(self._pools) + index
            above = self._loads[pool]
            known = Instance(self._packets, pid, f"instance {index}", self._pools[pool], above)
            self._instances[index] = known
        return known

    def _count(self, index: int, *, running: int = 0, waiting: int = 0) -> None:
        self._instances[index].load.add(running=running, waiting=waiting)
        self._changed[index] = None

    # ---- requests at instances ----

    def _enter(self, name: str, index: int, phase: str) -> None:
        life = self._lives[name]
        lane = self._instances[index].requests.take()
        self._packets.begin(lane, self._now, REQUEST, name, {"request_id": name}, life.flow)
        life.visits[index] = _Visit(lane, phase, self._now)
        self._count(index, waiting=1)

    def _turn(self, name: str, index: int, phase: str) -> None:
        """Begin another phase of a request."""
        visit = self._lives[name].visits[index]
        before = visit.phase
        self._end_phase(visit, name, self._now)
        visit.phase, visit.since_us, visit.prefill_end_us = phase, self._now, -1
        runs, ran = phase == _RUNNING, before == _RUNNING
        self._count(index, running=runs - ran, waiting=ran - runs)

    def _leave(self, name: str, index: int, outcome: str) -> None:
        life = self._lives.get(name)
        visit = None if life is None else life.visits.pop(index, None)
        if visit is None:
            return
        self._end_phase(visit, name, self._now)
        self._packets.end(visit.lane, self._now, {"outcome": outcome})
        self._instances[index].requests.release(visit.lane)
        ran = visit.phase == _RUNNING
        self._count(index, running=-ran, waiting=ran - 1)

    def _end_phase(self, visit: _Visit, name: str, end_us: int | None) -> None:
        """Write the current phase of a request, which ends at ``end_us``; None = it is still open."""
        if visit.phase != _RUNNING:
            self._slice(visit.lane, visit.since_us, end_us, visit.phase, name)
            return
        begin_us, prefill_end_us = visit.since_us, visit.prefill_end_us
        if prefill_end_us >= 0:
            through = end_us is None or prefill_end_us <= end_us
            self._slice(visit.lane, begin_us, prefill_end_us if through else end_us, "prefill", name)
            begin_us = prefill_end_us
        if end_us is None or begin_us < end_us:
            self._slice(visit.lane, begin_us, end_us, "decode", name)

    def _slice(self, lane: int, begin_us: int, end_us: int | None, name: str, request: str) -> None:
        self._packets.begin(lane, begin_us, "phase", name, {"request_id": request})
        if end_us is not None:
            self._packets.end(lane, end_us)

    # ---- a request's life ----

    def _arrive(self, record: Arrived) -> None:
        self._arrived += 1
        life = self._lives[record.request_id] = _Life(self._arrived, self._requests.take())
        arguments: dict[str, Argument] = {
            "request_id": record.request_id,
            "input_tokens": record.input_tokens,
            "max_output_tokens": record.max_output_tokens,
            "slo_class": record.slo_class,
            "tenant_id": record.tenant_id,
        }
        self._packets.begin(life.lane, self._now, REQUEST, record.request_id, arguments, life.flow)

    def _end(self, name: str, arguments: dict[str, Argument]) -> None:
        # If transfers start with the step that computes the prompt, a request can end before that step does.
        for index in tuple(self._lives[name].visits):
            self._leave(name, index, "prefilled")
        life = self._lives.pop(name)
        for _ in range(life.inner):
            self._packets.end(life.lane, self._now)
        if life.ttft_us >= 0:
            arguments = {**arguments, "ttft_us": life.ttft_us}
        if life.ttfat_us >= 0:
            arguments = {**arguments, "ttfat_us": life.ttfat_us}
        self._packets.end(life.lane, self._now, arguments)
        self._requests.release(life.lane)

    def _reject(self, record: Rejected) -> None:
        self._end(record.request_id, {"outcome": "rejected", "by": record.policy, "reason": record.reason})

    def _route(self, record: Routed) -> None:
        arguments: dict[str, Argument] = {
            "request_id": record.request_id,
            "instance": record.instance,
            "reason": record.reason,
        }
        flow = self._lives[record.request_id].flow
        self._packets.instant(self._router, self._now, "router", f"to instance {record.instance}", arguments, flow)

    def _queue(self, record: Queued) -> None:
        self._enter(record.request_id, record.instance, "queued")

    def _drop(self, record: Dropped) -> None:
        self._leave(record.request_id, record.instance, "dropped")
        self._end(record.request_id, {"outcome": "dropped", "reason": record.reason})

    def _schedule(self, record: Scheduled) -> None:
        self._turn(record.request_id, record.instance, _RUNNING)

    def _preempt(self, record: Preempted) -> None:
        self._turn(record.request_id, record.instance, record.shown.label)

    def _first_token(self, record: FirstToken) -> None:
        self._lives[record.request_id].ttft_us = record.ttft_us

    def _answer(self, record: AnswerBegun) -> None:
        self._lives[record.request_id].ttfat_us = record.ttfat_us

    def _complete(self, record: Completed) -> None:
        self._leave(record.request_id, record.instance, "completed")
        self._lives[record.request_id].ttft_us = record.ttft_us
        arguments: dict[str, Argument] = {"outcome": "completed", "output_tokens": record.output_tokens}
        self._end(record.request_id, {**arguments, "e2e_us": record.e2e_us})

    def _prefilled(self, record: Prefilled) -> None:
        self._leave(record.request_id, record.instance, "prefilled")

    def _time_out(self, record: TimedOut) -> None:
        self._leave(record.request_id, record.instance, "timed out")
        self._end(record.request_id, {"outcome": "timed out", "output_tokens": record.output_tokens})

    def _retry(self, record: Retried) -> None:
        self._leave(record.request_id, record.instance, "retried")
        self._lives[record.request_id].ttft_us = self._lives[record.request_id].ttfat_us = -1

    def _lose(self, record: Lost) -> None:
        self._leave(record.request_id, record.instance, "lost")
        self._end(record.request_id, {"outcome": "lost", "reason": record.reason})

    # ---- gateway and transfers ----

    def _hold(self, record: Held) -> None:
        self._begin_inner(record.request_id, "gateway queue", {"priority": record.priority})
        self._set_held(record.waiting)

    def _dispatch(self, record: Dispatched) -> None:
        self._end_inner(record.request_id)
        self._set_held(record.waiting)

    def _tick(self, record: GatewayTick) -> None:
        self._set_held(record.waiting)

    def _set_held(self, waiting: int) -> None:
        if self._held is not None:
            self._held.value = waiting
            self._held.write(self._now)

    def _start_transfer(self, record: TransferStarted) -> None:
        arguments: dict[str, Argument] = {"bytes": record.bytes, "from_instance": record.instance}
        self._begin_inner(record.request_id, "KV transfer", arguments, flows=True)

    def _finish_transfer(self, record: TransferFinished) -> None:
        self._end_inner(record.request_id)

    def _break_transfer_off(self, record: TransferBrokenOff) -> None:
        self._end_inner(record.request_id)

    def _begin_inner(self, name: str, what: str, arguments: dict[str, Argument], *, flows: bool = False) -> None:
        life = self._lives[name]
        life.inner += 1
        flow = life.flow if flows else 0
        self._packets.begin(life.lane, self._now, "phase", what, {"request_id": name, **arguments}, flow)

    def _end_inner(self, name: str) -> None:
        life = self._lives.get(name)
        if life is not None and life.inner:
            life.inner -= 1
            self._packets.end(life.lane, self._now)

    # ---- instances ----

    def _step(self, record: StepFinished) -> None:
        instance = self._instances[record.instance]
        end_us = self._now + record.duration_us
        tokens = 0
        for chunk in record.chunks:
            tokens += chunk.new_tokens
            life = self._lives.get(chunk.request_id)
            if life is not None and (visit := life.visits.get(record.instance)) is not None:
                visit.prefill_end_us = end_us
        chunks = tuple(f"{chunk.request_id}: {chunk.computed_tokens} + {chunk.new_tokens}" for chunk in record.chunks)
        names = {
            "chunks": chunks,
            "admitted": record.admitted,
            "preempted": record.preempted,
            "stalled": record.stalled,
        }
        arguments: dict[str, Argument] = {
            "step": record.step,
            "prefill_tokens": tokens,
            "decode_requests": record.decode_requests,
            "decode_context_tokens": record.decode_context_tokens,
            "waiting": record.waiting,
            **{what: which for what, which in names.items() if which},
        }
        kinds = [name for name, any_of in (("prefill", tokens), ("decode", record.decode_requests)) if any_of]
        lane = next((lane for lane in instance.steps if lane[1] <= self._now), None)
        if lane is None:
            lane = [self._packets.track(instance.process, "steps", 1), 0]
            instance.steps.append(lane)
        lane[1] = end_us
        self._packets.begin(lane[0], self._now, "step", " + ".join(kinds) or "nothing", arguments)
        self._packets.end(lane[0], end_us)
        heappush(self._kv_due, (end_us, record.event, record.instance, record.kv_used_blocks))

    def _change(self, record: InstanceChanged) -> None:
        instance = self._instance(record.instance, record.pool)
        if not instance.state:
            instance.state = self._packets.track(instance.process, "state")
        elif record.before not in ("", *_GONE):
            self._packets.end(instance.state, self._now)
        if record.state not in _GONE:
            self._packets.begin(instance.state, self._now, "state", record.state, {"reason": record.reason})
        else:
            self._packets.instant(instance.state, self._now, "state", record.state, {"reason": record.reason})
            heappush(self._kv_due, (self._now, record.event, record.instance, 0))

    def _scale(self, record: ScalingDecided) -> None:
        if not self._scaling:
            self._scaling = self._packets.track(self._cluster, "autoscaler")
        arguments: dict[str, Argument] = {
            "pool": record.pool,
            "instances": record.instances,
            "demand_tokens": record.demand_tokens,
            "supply_tokens": record.supply_tokens,
            "reason": record.reason,
        }
        self._packets.instant(self._scaling, self._now, "autoscaler", record.verdict, arguments)
