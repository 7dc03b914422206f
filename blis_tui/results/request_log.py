"""The log of all requests: one packed row each, about 110 bytes, in order of their ends.

If a gateway can hold requests or two instances can share one, another 28 bytes describe that.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import sha256
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Final, overload

from blis_tui.base.classes import NamedTuple
from blis_tui.engine.client_times import client_ttft_us
from blis_tui.engine.request import Media, RequestState
from blis_tui.results.request_book import NO_EXTRAS, PACKED, RequestBook
from blis_tui.results.request_columns import BLOCK, Block, DetourColumns, RequestColumns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.request import Request, Segments
    from blis_tui.results.request_book import Extras
    from blis_tui.results.request_columns import Cells

_DETOUR: Final = Struct("<iqqq")
_NUMBERS: Final = Struct(f"<q{PACKED.size - 8}x")
"""Unpacks only the request number of a row."""
_STATE_BYTE: Final = PACKED.size - 2
"""Position of the state within a row."""


class PackedRequest(NamedTuple):
    """A request's books as integers; times in microseconds, -1 = never happened."""

    number: int
    """The request's ``index``."""
    arrival_us: int
    queued_us: int
    scheduled_us: int
    first_token_us: int
    completed_us: int
    ttft_us: int
    e2e_us: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    instance: int
    preemptions: int
    group: int
    """Number of the facts that it shares with other requests; see ``RequestTable.group``."""
    state: int
    length_capped: int


_COMPLETED: Final = PackedRequest._fields.index("completed_us")


class TransferTimes(NamedTuple):
    """A request's way through gateway and transfer as integers; times in microseconds, -1 = never happened."""

    prefill_instance: int
    transfer_start_us: int
    transfer_us: int
    gateway_us: int

    @property
    def split(self) -> bool:
        """Whether prefill and decode were to run on two instances, and the prefill instance was chosen."""
        return self.prefill_instance >= 0


_NO_DETOUR: Final = TransferTimes(-1, -1, -1, -1)


class RequestRow(NamedTuple):
    """One request, as a row of ``--requests`` files and data frames; None for what never happened."""

    request_id: str
    """The request's name: that of the trace, or ``request_N``, N counting arrivals from 0."""
    state: str
    """Its outcome: ``completed``, ``rejected``, ``dropped-unservable``, ``timed-out``, ``lost``; at the end of a
    run that was cut also ``in-transit``, ``waiting`` or ``running``."""
    instance: int | None
    """Index of the instance that served it last; for a split request, the decode instance."""
    arrival_us: int
    """When it reached the cluster. All times are microseconds of simulated time."""
    queued_us: int | None
    """When it entered an instance's waiting queue: after admission, gateway, routing and the time in front of the
    engine."""
    scheduled_us: int | None
    """When a step first worked on it; preemptions do not change it."""
    first_token_us: int | None
    """When its first token was generated, at the engine."""
    completed_us: int | None
    """When its last token was generated, at the engine."""
    ttft_us: int | None
    """Time to first token, from arrival, as its client sees it: ``first_token_us - arrival_us`` plus the overheads
    after the step."""
    e2e_us: int | None
    """Time from arrival to the last token, as its client sees it; None if it did not complete."""
    input_tokens: int
    """Tokens of its whole prompt, including cached ones."""
    output_tokens: int
    """Output tokens generated; ``requested_output_tokens`` is what it would generate without limits."""
    cached_tokens: int
    """Prompt tokens found in the prefix cache when it was first scheduled."""
    preemptions: int
    """How often it was preempted since it was sent to its current instance."""
    slo_class: str
    """Its SLO class."""
    tenant_id: str
    """Its tenant; empty = none."""
    session_id: str
    """The session that it belongs to; empty = none."""
    round_index: int | None
    """Its call number within its session, from 0; None = it belongs to none."""
    requested_output_tokens: int
    """Output tokens that its answer would have if nothing cut it short; ``output_tokens`` is the actual number."""
    prefix_group: str
    """The group of requests that share a prefix of their prompts with it; empty = none."""
    prefix_tokens: int
    """How many of the ``input_tokens`` its group shares."""
    deadline_us: int | None
    """When it times out, in microseconds of simulated time; None = never."""
    prefill_instance: int | None = None
    """Index of the instance that computed its prompt, if not ``instance``. Only in files where requests can be split or
    held by a gateway (``Experiment.has_detours``)."""
    transfer_start_us: int | None = None
    """When the transfer of its KV blocks to the decode instance started. Only in the same files as
    ``prefill_instance``."""
    transfer_us: int | None = None
    """How long the transfer of its KV blocks to the decode instance took. Only in the same files as
    ``prefill_instance``."""
    gateway_us: int | None = None
    """How long the gateway held it before dispatching it. Only in the same files as ``prefill_instance``."""
    model: str = ""
    """The model that it asks for; empty = any. Only in files where the cluster serves several."""
    retries: int = 0
    """How often it had to restart on another instance. Only in files where instances come and go."""
    prefix_segments: str = ""
    """The segments of its shared prefix, of which group and tokens give the first: names and tokens as JSON. Only in
    files where a prefix has several."""
    adapter: str = ""
    """The LoRA adapter that it asks for. Only in files where any request does."""
    reasoning_tokens: int = 0
    """How many of its requested output tokens are reasoning; they come first. Only in files where clients or the trace
    state it."""
    first_answer_us: int | None = None
    """When the first token after its reasoning was generated. Only in the same files as ``reasoning_tokens``."""
    ttfat_us: int | None = None
    """Time to first answer token: from arrival to that token, as its client sees it. Only in the same files as
    ``reasoning_tokens``."""
    image_tokens: int = 0
    """How many of the ``input_tokens`` stand for images. Only in files where any token stands for media."""
    audio_tokens: int = 0
    """How many of the ``input_tokens`` stand for audio. Only in files where any token stands for media."""
    video_tokens: int = 0
    """How many of the ``input_tokens`` stand for video. Only in files where any token stands for media."""
    media_items: str = ""
    """Its images, clips and videos in the order of the prompt, as JSON: for each the number of tokens before it, its
    tokens, and a name that equal ones share. Only in files where they are known."""
    max_output_tokens: int = 0
    """The budget that it declared for its answer; 0 = none. Only in files where a request declares a budget other than
    what it would generate."""
    ignore_eos: int = 0
    """1 = only the budget ends its answer. Only in the same files as ``max_output_tokens``."""


_AT_ONCE: Final = 64
"""Number of ended requests whose rows are written in one batch."""

PLAIN_COLUMNS: Final = RequestRow._fields[: RequestRow._fields.index(TransferTimes._fields[0])]
"""The columns of every request file."""


_BUDGETS: Final = ("max_output_tokens", "ignore_eos")
_REASONING: Final = ("reasoning_tokens", "first_answer_us", "ttfat_us")


class LogMark(NamedTuple):
    """The state of a log at a mark: its rows, groups and contradictions."""

    rows: int
    groups: int
    contradictions: int


class RequestLog:
    """The log behind reports and request files.

    Args:
        detours: whether a gateway may hold requests or two instances may share one (``Experiment.has_detours``), so
            that their ways must be recorded.
        facts: further columns that its tables have (``Experiment.request_facts``).

    Attributes:
        contradictions: requests whose times contradict each other (INV-5), in words.
    """

    def __init__(self, *, detours: bool = False, facts: tuple[str, ...] = ()) -> None:
        self.facts = facts
        self._packed = bytearray()
        self._detours: bytearray | None = bytearray() if detours else None
        self._book = RequestBook()
        self._contradictions: list[str] = []
        self._ended: list[tuple[Request, int, int]] = []
        """Ended requests without a row yet; writing rows in a separate loop is faster than one at a time."""
        self._hasher, self._way_hasher = sha256(), sha256()
        self._hashed = 0

    def __getstate__(self) -> tuple[bytearray, bytearray | None, RequestBook, list[str], tuple[str, ...]]:
        self.flush()
        return (self._packed, self._detours, self._book, self._contradictions, self.facts)

    def __setstate__(self, state: tuple[bytearray, bytearray | None, RequestBook, list[str], tuple[str, ...]]) -> None:
        self._packed, self._detours, self._book, self._contradictions, self.facts = state
        self._ended = []
        self._hasher, self._way_hasher = sha256(), sha256()
        self._hashed = 0

    def __len__(self) -> int:
        return len(self._packed) // PACKED.size + len(self._ended)

    @property
    def contradictions(self) -> list[str]:
        """Requests whose times contradict each other (INV-5), in words."""
        self.flush()
        return self._contradictions

    def close(self, request: Request, ttft_us: int = -1, e2e_us: int = -1) -> None:
        """Record a request that has ended."""
        self._ended.append((request, ttft_us, e2e_us))
        if len(self._ended) == _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write the rows of all ended requests.

        Raises:
            struct.error: a time is too large for its row.
        """
        self._book.write(self._ended, self._packed, self._contradictions)
        if self._detours is not None:
            for request, _, _ in self._ended:
                self._detours += _pack_detour(request)
        self._ended.clear()

    def mark(self) -> LogMark:
        """Return a mark of the log's current state."""
        self.flush()
        return LogMark(len(self), len(self._book.groups), len(self._contradictions))

    def up_to(self, mark: LogMark) -> RequestLog:
        """Return a log that ends where this one (or one that this one continues) was marked."""
        self.flush()
        if mark.rows > len(self):
            raise ValueError(f"the log has {len(self)} rows, not {mark.rows}")
        other = RequestLog(detours=self._detours is not None, facts=self.facts)
        if other._detours is not None and self._detours is not None:
            other._detours += memoryview(self._detours)[: mark.rows * _DETOUR.size]
        other._packed += memoryview(self._packed)[: mark.rows * PACKED.size]
        other._book = self._book.up_to(mark.groups)
        other._contradictions += self._contradictions[: mark.contradictions]
        return other

    def take_over(self, other: RequestLog) -> None:
        """Add the requests of another process of the same run, without the rejected ones, which every process has."""
        other.flush()
        self.flush()
        numbers = self._book.take_over(other._book)
        self._contradictions += other._contradictions
        states = other._packed[_STATE_BYTE :: PACKED.size]
        if numbers == [*range(len(numbers))] and RequestState.REJECTED not in states:
            self._packed += other._packed
            return
        for row in other.rows(0):
            if row.state != RequestState.REJECTED:
                self._packed += PACKED.pack(*row._replace(group=numbers[row.group]))

    def table(self, cluster: Cluster, now_us: int | None = None) -> RequestTable:
        """Return all requests that have arrived; live ones in their current state.

        Args:
            cluster: the cluster that serves them.
            now_us: ignore first tokens and ends of steps that end later, and first tokens that a preemption discarded;
                None = take them as the simulation has them.
        """
        self.flush()
        page = self._book.page()
        closed = len(self) if now_us is None else self._count_ended_by(now_us)
        live, ways = bytearray(), None if self._detours is None else bytearray()
        if now_us is not None:
            for row in self.rows(closed):
                live += PACKED.pack(*(row if row.completed_us <= now_us else _row_before_end(row, now_us)))
            if ways is not None and self._detours is not None:
                ways += self._detours[closed * _DETOUR.size :]
        for request in cluster.in_transit():
            # A request between two instances already has its first token.
            started = _has_first_token(request, now_us)
            ttft = client_ttft_us(request, cluster.instances[request.instance].latency) if started else -1
            live += page.pack(request, ttft, -1, request.generated_tokens)
            if ways is not None:
                ways += _pack_detour(request)
        for instance in cluster.instances:
            batch, cohort = instance.batch, instance.batch.cohort
            for request in batch.of_clients((*instance.waiting.ordered(), *batch.running.values())):
                generated = cohort.generated_tokens(request)
                started = _has_first_token(request, now_us) and (now_us is None or generated > 0)
                ttft = client_ttft_us(request, instance.latency) if started else -1
                live += page.pack(request, ttft, -1, generated)
                if ways is not None:
                    ways += _pack_detour(request)
        table = RequestTable(self, self._book, closed, page, bytes(live), None if ways is None else bytes(ways))
        table.post_decode_us = tuple(instance.latency.post_decode_overhead_us for instance in cluster.instances)
        return table

    def _count_ended_by(self, now_us: int) -> int:
        """Return how many rows come before the first request that completes later."""
        ends = (row[_COMPLETED] for row in PACKED.iter_unpack(bytes(self._packed)))
        return next((number for number, end_us in enumerate(ends) if end_us > now_us), len(self))

    def packed_slice(self, start: int, stop: int) -> bytearray:
        """Return the packed rows of the requests from the ``start``-th to end up to, but without, the ``stop``-th."""
        self.flush()
        return self._packed[start * PACKED.size : stop * PACKED.size]

    def packed(self) -> memoryview:
        """Return the packed rows of all ended requests; release it before another request ends."""
        self.flush()
        return memoryview(self._packed)

    def way(self, number: int) -> TransferTimes:
        """Return the way of the ``number``-th request to end."""
        self.flush()
        return (
            _NO_DETOUR
            if self._detours is None
            else TransferTimes._make(_DETOUR.unpack_from(self._detours, number * _DETOUR.size))
        )

    def rows(self, start: int) -> list[PackedRequest]:
        """Return the rows of the ended requests from the ``start``-th on."""
        self.flush()
        with memoryview(self._packed) as packed:
            return list(map(PackedRequest._make, PACKED.iter_unpack(packed[start * PACKED.size :])))

    def groups(self) -> list[tuple[str, str]]:
        """Return the SLO class and tenant of each group of requests."""
        self.flush()
        return [group[:2] for group in self._book.groups]

    def name(self, index: int) -> str:
        """Return the name of a request that has ended."""
        self.flush()
        return self._book.names.get(index) or f"request_{index}"

    def fingerprint(self) -> str:
        """Return a digest of all rows of ended requests, in order of their ends."""
        self.flush()
        # Rows never change, so each is hashed once. Ways have a separate hash, so that the digest does not depend on
        # when it was computed before.
        done, self._hashed = self._hashed, len(self)
        with memoryview(self._packed) as rows:
            self._hasher.update(rows[done * PACKED.size :])
        if self._detours is None:
            return self._hasher.hexdigest()
        with memoryview(self._detours) as ways:
            self._way_hasher.update(ways[done * _DETOUR.size :])
        return self._hasher.hexdigest() + self._way_hasher.hexdigest()


class RequestTable(Sequence["RequestRow"]):
    """All requests at one moment, in order of arrival: a sequence that builds each row on demand.

    It stays valid while the simulation goes on, because a log only grows.

    Attributes:
        post_decode_us: time that clients of each instance wait after their last token.
    """

    def __init__(
        self, log: RequestLog, book: RequestBook, closed: int, page: RequestBook, live: bytes, ways: bytes | None = None
    ) -> None:
        self._log = log
        self._book = book
        self._closed = closed
        self._page = page
        self._live = live
        self._detours = ways
        self._order: array[int] | None = None
        self.post_decode_us: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self._closed + len(self._live) // PACKED.size

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the request file, including the optional ones that apply."""
        parted = bool(self._book.parts or self._page.parts) and any(self._parts(row.number) for row in self.plain())
        segments = ("prefix_segments",) if parted else ()
        adapters = ("adapter",) if self.has_adapters else ()
        extras = [self.extras(row.number) for row in self.plain()] if self._book.extras or self._page.extras else []
        reasoning = _REASONING if any(one.reasoning_tokens >= 0 for one in extras) else ()
        media = Media._fields if any(any(one.media) for one in extras) else ()
        items = ("media_items",) if any(one.items for one in extras) else ()
        budgets = _BUDGETS if self._book.budgets or self._page.budgets else ()
        ways = () if self._detours is None else TransferTimes._fields
        return (*PLAIN_COLUMNS, *ways, *self._log.facts, *segments, *adapters, *reasoning, *media, *items, *budgets)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows by columns, a few thousand at a time, in the order of ``plain``."""
        for piece in self._pieces():
            yield Block._make(zip(*PACKED.iter_unpack(piece), strict=True))

    def in_columns(self, names: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[list[Cells]]:
        """Yield the rows from the ``start``-th to arrive up to, but without, the ``stop``-th, a few thousand at a time.

        Args:
            names: fields of ``RequestRow``, each of which gives a column of cells.
            start: index of the first row.
            stop: index after the last row; None = all.
        """
        table = RequestColumns(self._book, self._page)
        detours = any(name in DetourColumns._fields for name in names)
        order, stop = self._in_order(), len(self) if stop is None else stop
        for first in range(start, stop, BLOCK):
            places = order[first : min(first + BLOCK, stop)]
            block = Block._make(zip(*self._unpacked(places), strict=True))
            ways = DetourColumns._make(zip(*map(self._detour_of, places), strict=True)) if detours else None
            yield [table.column(name, block, ways) for name in names]

    def __iter__(self) -> Iterator[RequestRow]:
        return self._rows(0, len(self))

    def _rows(self, start: int, stop: int) -> Iterator[RequestRow]:
        for columns in self.in_columns(RequestRow._fields, start, stop):
            yield from map(RequestRow._make, zip(*columns, strict=True))

    def _in_order(self) -> Sequence[int]:
        """Return the positions of the rows in ``plain``, in order of arrival."""
        if self._order is None:
            numbers = array("q", chain.from_iterable(chain.from_iterable(map(_NUMBERS.iter_unpack, self._pieces()))))
            self._order = array("q", sorted(range(len(numbers)), key=numbers.__getitem__))
        return self._order

    @overload
    def __getitem__(self, number: int) -> RequestRow: ...

    @overload
    def __getitem__(self, number: slice) -> list[RequestRow]: ...

    def __getitem__(self, number: int | slice) -> RequestRow | list[RequestRow]:
        if isinstance(number, slice):
            start, stop, step = number.indices(len(self))
            return [*self._rows(start, stop)] if step == 1 else [self[one] for one in range(start, stop, step)]
        at = range(len(self))[number]
        return next(self._rows(at, at + 1))

    def plain(self) -> Iterator[PackedRequest]:
        """Yield the rows as integers, in order of their ends; live requests last."""
        for piece in self._pieces():
            yield from map(PackedRequest._make, PACKED.iter_unpack(piece))

    def _pieces(self) -> Iterator[bytes | bytearray]:
        """Yield the packed rows, a few thousand at a time, in the order of ``plain``."""
        for start in range(0, self._closed, BLOCK):
            yield self._log.packed_slice(start, min(start + BLOCK, self._closed))
        size = BLOCK * PACKED.size
        for start in range(0, len(self._live), size):
            yield self._live[start : start + size]

    def detours(self) -> Iterator[TransferTimes]:
        """Yield the ways, in the order of ``plain``."""
        for place in range(len(self)):
            yield self._detour_of(place)

    def group_names(self) -> list[tuple[str, str]]:
        """Return the SLO class and tenant of each group of rows."""
        return [group[:2] for group in self._page.groups]

    def group(self, row: PackedRequest) -> tuple[str, str]:
        """Return the SLO class and tenant of a row."""
        return self._page.groups[row.group][:2]

    @property
    def has_adapters(self) -> bool:
        """Whether any request asks for a LoRA adapter."""
        return any(group.adapter for group in self._page.groups)

    @property
    def has_media(self) -> bool:
        """Whether any prompt has images, audio or video."""
        known = (*self._book.extras.values(), *self._page.extras.values())
        return any(any(one.media) for one in known)

    def adapter(self, row: PackedRequest) -> str:
        """Return the LoRA adapter that a row's request asks for; empty = none."""
        return self._page.groups[row.group].adapter

    def extras(self, number: int) -> Extras:
        """Return the reasoning and media of the request with a number."""
        return self._page.extras.get(number) or self._book.extras.get(number) or NO_EXTRAS

    def _parts(self, number: int) -> Segments:
        """Return the shared prefix of a prompt if it has several segments."""
        return self._book.parts.get(number) or self._page.parts.get(number) or ()

    def deadline_us(self, row: PackedRequest) -> int:
        """Return the deadline of a row's request, which must have one."""
        return row.arrival_us + self._page.groups[row.group].timeout_us

    def name(self, number: int) -> str:
        """Return the name of the request with a number."""
        return self._book.names.get(number) or self._page.names.get(number) or f"request_{number}"

    def session(self, number: int) -> tuple[str, int] | None:
        """Return the session of the request with a number, and its call number; None if it has none."""
        return self._book.sessions.get(number) or self._page.sessions.get(number)

    def _detour_of(self, place: int) -> TransferTimes:
        if self._detours is None:
            return _NO_DETOUR
        if place < self._closed:
            return self._log.way(place)
        return TransferTimes._make(_DETOUR.unpack_from(self._detours, (place - self._closed) * _DETOUR.size))

    def _unpacked(self, places: Sequence[int]) -> list[tuple[int, ...]]:
        closed, size, unpack = self._closed, PACKED.size, PACKED.unpack_from
        live = self._live
        with self._log.packed() as packed:
            return [
                unpack(packed, place * size) if place < closed else unpack(live, (place - closed) * size)
                for place in places
            ]


def _row_before_end(row: PackedRequest, now_us: int) -> PackedRequest:
    """Return the row of a request whose last token is being computed."""
    ttft_us = row.ttft_us if row.first_token_us <= now_us else -1
    return row._replace(completed_us=-1, e2e_us=-1, ttft_us=ttft_us, state=RequestState.RUNNING, length_capped=0)


def _has_first_token(request: Request, now_us: int | None) -> bool:
    return request.first_token_us >= 0 and (now_us is None or request.first_token_us <= now_us)


def _pack_detour(request: Request) -> bytes:
    way = request.handover
    gateway_us = request.gateway_us
    if way is None:
        return _DETOUR.pack(-1, -1, -1, gateway_us)
    return _DETOUR.pack(way.prefill_instance, way.transfer_start_us, way.transfer_us, gateway_us)
