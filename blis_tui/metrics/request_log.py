"""What is remembered of every request: one packed row each, about 110 bytes, in order of their ends.

Where requests can be held by a gateway or run on two instances, 28 bytes more tell how that went.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import sha256
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Final, overload

from blis_tui.classes import NamedTuple
from blis_tui.engine.clientview import client_ttft_us
from blis_tui.engine.request import Media, RequestState
from blis_tui.metrics.request_book import NO_EXTRAS, PACKED, RequestBook, contradicts
from blis_tui.metrics.request_columns import BLOCK, Block, RequestColumns, Ways

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.request import Request, Segments
    from blis_tui.metrics.request_book import Extras
    from blis_tui.metrics.request_columns import Cells

_WAY: Final = Struct("<iqqq")
_NUMBERS: Final = Struct(f"<q{PACKED.size - 8}x")
"""Of a row, only whose it is."""


class Row(NamedTuple):
    """A request's books as plain integers; times in microseconds, -1 = never happened."""

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
    """Number of what it has in common with others; see ``RequestTable.group``."""
    state: int
    length_capped: int


_COMPLETED: Final = Row._fields.index("completed_us")


class Way(NamedTuple):
    """A request's way through gateway and transfer as plain integers; times in microseconds, -1 = never happened."""

    prefill_instance: int
    transfer_start_us: int
    transfer_us: int
    gateway_us: int

    @property
    def split(self) -> bool:
        """Whether prefill and decode were to run on two instances, and the first of them was chosen."""
        return self.prefill_instance >= 0


_STRAIGHT: Final = Way(-1, -1, -1, -1)


class RequestRow(NamedTuple):
    """One request, as a row of ``--requests`` files and data frames; None where it never happened."""

    request_id: str
    """The request's name: that of the trace, or ``request_N``, N counting arrivals from 0."""
    state: str
    """Its outcome: ``completed``, ``rejected``, ``dropped-unservable``, ``timed-out``, ``lost``; at the end of a
    run that was cut also ``in-transit``, ``waiting`` or ``running``."""
    instance: int | None
    """Index of the instance that served it last; of a split request, the one that decodes."""
    arrival_us: int
    """When it reached the cluster. All moments are microseconds of simulated time."""
    queued_us: int | None
    """When it entered an instance's waiting queue: after admission, gateway, routing and the time in front of the
    engine."""
    scheduled_us: int | None
    """When a step first worked on it; what a preemption changes it does not."""
    first_token_us: int | None
    """When its first token was generated, at the engine."""
    completed_us: int | None
    """When its last token was generated, at the engine."""
    ttft_us: int | None
    """Time to first token, from arrival, as its client sees it: ``first_token_us - arrival_us`` and the overheads
    behind the step."""
    e2e_us: int | None
    """Time from arrival to the last token, as its client sees it; None where it did not complete."""
    input_tokens: int
    """Tokens of its whole prompt, cached ones included."""
    output_tokens: int
    """Output tokens generated; ``requested_output_tokens`` is what it would generate."""
    cached_tokens: int
    """Prompt tokens found in the prefix cache when it was first scheduled."""
    preemptions: int
    """How often it was preempted since it was sent to its instance."""
    slo_class: str
    """Its SLO class."""
    tenant_id: str
    """Its tenant; empty = none."""
    session_id: str
    """The session that it belongs to; empty = none."""
    round_index: int | None
    """Which call of its session it is, from 0; None = it belongs to none."""
    requested_output_tokens: int
    """Output tokens that its answer would have if nothing cut it short; ``output_tokens`` is what it got."""
    prefix_group: str
    """The group of requests that share the head of their prompts with it; empty = none."""
    prefix_tokens: int
    """How many of the ``input_tokens`` its group shares."""
    deadline_us: int | None
    """When it times out, in microseconds of simulated time; None = never."""
    prefill_instance: int | None = None
    """Index of the instance that computed its prompt, if another one. In files where requests can be split or held by a
    gateway (``Experiment.has_detours``)."""
    transfer_start_us: int | None = None
    """When its KV blocks started on their way to the instance that decodes. In the same files as
    ``prefill_instance``."""
    transfer_us: int | None = None
    """How long its KV blocks took to the instance that decodes. In the same files as ``prefill_instance``."""
    gateway_us: int | None = None
    """How long the gateway held it before it dispatched it. In the same files as ``prefill_instance``."""
    model: str = ""
    """The model that it asks for; empty = any. In files where the cluster serves several."""
    retries: int = 0
    """How often it had to start again on another instance. In files where instances come and go."""
    prefix_segments: str = ""
    """The shared head of its prompt in parts, of which group and tokens tell the first: names and tokens as JSON. In
    files where a head has several."""
    adapter: str = ""
    """The LoRA adapter that it asks for. In files where any request does."""
    reasoning_tokens: int = 0
    """How many of the output tokens that it asks for are reasoning; they come first. In files where clients or the
    trace say so."""
    first_answer_us: int | None = None
    """When the first token behind its reasoning was generated. In the same files as ``reasoning_tokens``."""
    ttfat_us: int | None = None
    """Time to first answer token: from arrival to that token, as its client sees it. In the same files as
    ``reasoning_tokens``."""
    image_tokens: int = 0
    """How many of the ``input_tokens`` stand for images. In files where any token stands for media."""
    audio_tokens: int = 0
    """How many of the ``input_tokens`` stand for audio. In files where any token stands for media."""
    video_tokens: int = 0
    """How many of the ``input_tokens`` stand for video. In files where any token stands for media."""
    max_output_tokens: int = 0
    """The budget that it declared for its answer; 0 = none. In files where any request declares something else than it
    would generate."""
    ignore_eos: int = 0
    """1 = nothing but the budget ends its answer. In the same files as ``max_output_tokens``."""


_AT_ONCE: Final = 64
"""How many requests get their rows in one go."""

PLAIN_COLUMNS: Final = RequestRow._fields[: RequestRow._fields.index(Way._fields[0])]
"""The columns of every request file."""


_BUDGETS: Final = ("max_output_tokens", "ignore_eos")
_REASONING: Final = ("reasoning_tokens", "first_answer_us", "ttfat_us")


class LogMark(NamedTuple):
    """How far a log had got: its rows, groups and complaints."""

    rows: int
    groups: int
    contradictions: int


class RequestLog:
    """The ledger behind reports and request files.

    Args:
        detours: whether requests may be held by a gateway or run on two instances (``Experiment.has_detours``), and
            their ways are to be remembered.
        facts: further columns that its tables have (``Experiment.request_facts``).

    Attributes:
        contradictions: requests whose times contradict each other (INV-5), in words.
    """

    def __init__(self, *, detours: bool = False, facts: tuple[str, ...] = ()) -> None:
        self.facts = facts
        self._packed = bytearray()
        self._ways: bytearray | None = bytearray() if detours else None
        self._book = RequestBook()
        self._contradictions: list[str] = []
        self._ended: list[tuple[Request, int, int]] = []
        """Those that have no row yet: in a loop of their own writing them takes less time than among all else."""
        self._hasher, self._way_hasher = sha256(), sha256()
        self._hashed = 0

    def __getstate__(self) -> tuple[bytearray, bytearray | None, RequestBook, list[str], tuple[str, ...]]:
        self.settle()
        return (self._packed, self._ways, self._book, self._contradictions, self.facts)

    def __setstate__(self, state: tuple[bytearray, bytearray | None, RequestBook, list[str], tuple[str, ...]]) -> None:
        self._packed, self._ways, self._book, self._contradictions, self.facts = state
        self._ended = []
        self._hasher, self._way_hasher = sha256(), sha256()
        self._hashed = 0

    def __len__(self) -> int:
        return len(self._packed) // PACKED.size + len(self._ended)

    @property
    def contradictions(self) -> list[str]:
        """See above."""
        self.settle()
        return self._contradictions

    def close(self, request: Request, ttft_us: int = -1, e2e_us: int = -1) -> None:
        """Remember a request that has come to its end."""
        self._ended.append((request, ttft_us, e2e_us))
        if len(self._ended) == _AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """No request that has ended is without a row any more.

        Raises:
            struct.error: a time of one is too large for its row.
        """
        pack, packed = self._book.pack, self._packed
        for request, ttft_us, e2e_us in self._ended:
            if contradicts(request):
                self._contradictions.append(f"the times of request {request.request_id} contradict each other")
            packed += pack(request, ttft_us, e2e_us, request.generated_tokens)
            if self._ways is not None:
                self._ways += _pack_way(request)
        self._ended.clear()

    def mark(self) -> LogMark:
        """How far it has got."""
        self.settle()
        return LogMark(len(self), len(self._book.groups), len(self._contradictions))

    def up_to(self, mark: LogMark) -> RequestLog:
        """A log that ends where this one (or one that this one continues) was marked."""
        self.settle()
        if mark.rows > len(self):
            raise ValueError(f"the log has {len(self)} rows, not {mark.rows}")
        other = RequestLog(detours=self._ways is not None, facts=self.facts)
        if other._ways is not None and self._ways is not None:
            other._ways += memoryview(self._ways)[: mark.rows * _WAY.size]
        other._packed += memoryview(self._packed)[: mark.rows * PACKED.size]
        other._book = self._book.up_to(mark.groups)
        other._contradictions += self._contradictions[: mark.contradictions]
        return other

    def table(self, cluster: Cluster, now_us: int | None = None) -> RequestTable:
        """All requests that have arrived; those still on their way as they stand now.

        Args:
            cluster: what serves them.
            now_us: what steps bring that end later does not count yet, neither first tokens nor ends; first tokens that
                a preemption took back count no longer. None = as the simulation has them.
        """
        self.settle()
        page = self._book.page()
        closed = len(self) if now_us is None else self._closed_by(now_us)
        live, ways = bytearray(), None if self._ways is None else bytearray()
        if now_us is not None:
            for row in self.rows(closed):
                live += PACKED.pack(*(row if row.completed_us <= now_us else _before_its_end(row, now_us)))
            if ways is not None and self._ways is not None:
                ways += self._ways[closed * _WAY.size :]
        for request in cluster.in_transit():
            # Between two instances it has its first token already.
            started = _has_first_token(request, now_us)
            ttft = client_ttft_us(request, cluster.instances[request.instance].latency) if started else -1
            live += page.pack(request, ttft, -1, request.generated_tokens)
            if ways is not None:
                ways += _pack_way(request)
        for instance in cluster.instances:
            cohort = instance.batch.cohort
            for request in (*instance.waiting.ordered(), *instance.batch.running.values()):
                generated = cohort.generated_tokens(request)
                started = _has_first_token(request, now_us) and (now_us is None or generated > 0)
                ttft = client_ttft_us(request, instance.latency) if started else -1
                live += page.pack(request, ttft, -1, generated)
                if ways is not None:
                    ways += _pack_way(request)
        table = RequestTable(self, self._book, closed, page, bytes(live), None if ways is None else bytes(ways))
        table.post_decode_us = tuple(instance.latency.post_decode_overhead_us for instance in cluster.instances)
        return table

    def _closed_by(self, now_us: int) -> int:
        """How many rows come before the first whose request completes later."""
        ends = (row[_COMPLETED] for row in PACKED.iter_unpack(bytes(self._packed)))
        return next((number for number, end_us in enumerate(ends) if end_us > now_us), len(self))

    def piece(self, start: int, stop: int) -> bytearray:
        """The rows of the ``start``-th request to end and those after it, before the ``stop``-th, as they are kept."""
        self.settle()
        return self._packed[start * PACKED.size : stop * PACKED.size]

    def packed(self) -> memoryview:
        """The rows of all requests that have ended, as they are kept; no other one may end before it is released."""
        self.settle()
        return memoryview(self._packed)

    def way(self, number: int) -> Way:
        """The way of the ``number``-th request to end."""
        self.settle()
        return _STRAIGHT if self._ways is None else Way._make(_WAY.unpack_from(self._ways, number * _WAY.size))

    def rows(self, start: int) -> list[Row]:
        """Those of the requests that have ended, from the ``start``-th on."""
        self.settle()
        with memoryview(self._packed) as packed:
            return list(map(Row._make, PACKED.iter_unpack(packed[start * PACKED.size :])))

    def groups(self) -> list[tuple[str, str]]:
        """SLO class and tenant of each group of requests."""
        self.settle()
        return [group[:2] for group in self._book.groups]

    def name(self, index: int) -> str:
        """The name of a request that has ended."""
        self.settle()
        return self._book.names.get(index) or f"request_{index}"

    def fingerprint(self) -> str:
        """A digest of all closed rows, in order of their ends."""
        self.settle()
        # Rows never change, so each is hashed once; ways apart, or the digest would depend on who asked when.
        done, self._hashed = self._hashed, len(self)
        with memoryview(self._packed) as rows:
            self._hasher.update(rows[done * PACKED.size :])
        if self._ways is None:
            return self._hasher.hexdigest()
        with memoryview(self._ways) as ways:
            self._way_hasher.update(ways[done * _WAY.size :])
        return self._hasher.hexdigest() + self._way_hasher.hexdigest()


class RequestTable(Sequence["RequestRow"]):
    """All requests at one moment, in order of arrival: a sequence that builds each row when it is asked for.

    It stays as it is while the simulation goes on: a log only ever grows.

    Attributes:
        post_decode_us: what clients of each instance wait beyond their last token.
    """

    def __init__(
        self, log: RequestLog, book: RequestBook, closed: int, page: RequestBook, live: bytes, ways: bytes | None = None
    ) -> None:
        self._log = log
        self._book = book
        self._closed = closed
        self._page = page
        self._live = live
        self._ways = ways
        self._order: array[int] | None = None
        self.post_decode_us: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self._closed + len(self._live) // PACKED.size

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the request file: those about gateway, transfers, models and so on where there are such."""
        parted = bool(self._book.parts or self._page.parts) and any(self._parts(row.number) for row in self.plain())
        segments = ("prefix_segments",) if parted else ()
        adapters = ("adapter",) if self.has_adapters else ()
        extras = [self.extras(row.number) for row in self.plain()] if self._book.extras or self._page.extras else []
        reasoning = _REASONING if any(one.reasoning_tokens >= 0 for one in extras) else ()
        media = Media._fields if any(any(one.media) for one in extras) else ()
        budgets = _BUDGETS if self._book.budgets or self._page.budgets else ()
        ways = () if self._ways is None else Way._fields
        return (*PLAIN_COLUMNS, *ways, *self._log.facts, *segments, *adapters, *reasoning, *media, *budgets)

    def blocks(self) -> Iterator[Block]:
        """The rows by columns, some thousand at a time, in the order of ``plain``."""
        for piece in self._pieces():
            yield Block._make(zip(*PACKED.iter_unpack(piece), strict=True))

    def in_columns(self, names: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[list[Cells]]:
        """The rows from the ``start``-th to arrive on and before the ``stop``-th, some thousand at a time.

        Args:
            names: of fields of ``RequestRow``; there is a column of cells for each.
            start: as above.
            stop: likewise; None = all.
        """
        table = RequestColumns(self._book, self._page)
        detours = any(name in Ways._fields for name in names)
        order, stop = self._in_order(), len(self) if stop is None else stop
        for first in range(start, stop, BLOCK):
            places = order[first : min(first + BLOCK, stop)]
            block = Block._make(zip(*self._unpacked(places), strict=True))
            ways = Ways._make(zip(*map(self._way, places), strict=True)) if detours else None
            yield [table.column(name, block, ways) for name in names]

    def __iter__(self) -> Iterator[RequestRow]:
        return self._rows(0, len(self))

    def _rows(self, start: int, stop: int) -> Iterator[RequestRow]:
        for columns in self.in_columns(RequestRow._fields, start, stop):
            yield from map(RequestRow._make, zip(*columns, strict=True))

    def _in_order(self) -> Sequence[int]:
        """The places of the rows in ``plain``, in order of arrival."""
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

    def plain(self) -> Iterator[Row]:
        """The rows as plain integers, in order of their ends; the live ones last."""
        for piece in self._pieces():
            yield from map(Row._make, PACKED.iter_unpack(piece))

    def _pieces(self) -> Iterator[bytes | bytearray]:
        """The rows as they are kept, some thousand at a time, in the order of ``plain``."""
        for start in range(0, self._closed, BLOCK):
            yield self._log.piece(start, min(start + BLOCK, self._closed))
        size = BLOCK * PACKED.size
        for start in range(0, len(self._live), size):
            yield self._live[start : start + size]

    def ways(self) -> Iterator[Way]:
        """The ways, in the order of ``plain``."""
        for place in range(len(self)):
            yield self._way(place)

    def group_names(self) -> list[tuple[str, str]]:
        """The SLO class and the tenant of each group of rows."""
        return [group[:2] for group in self._page.groups]

    def group(self, row: Row) -> tuple[str, str]:
        """The SLO class and the tenant of a row."""
        return self._page.groups[row.group][:2]

    @property
    def has_adapters(self) -> bool:
        """Whether any request asks for a LoRA adapter."""
        return any(group.adapter for group in self._page.groups)

    def adapter(self, row: Row) -> str:
        """The LoRA adapter that the request of a row asks for; empty = none."""
        return self._page.groups[row.group].adapter

    def extras(self, number: int) -> Extras:
        """What the request of that number thinks, and what its prompt has beside text."""
        return self._page.extras.get(number) or self._book.extras.get(number) or NO_EXTRAS

    def _parts(self, number: int) -> Segments:
        """The shared head of a prompt, where it has several parts."""
        return self._book.parts.get(number) or self._page.parts.get(number) or ()

    def deadline_us(self, row: Row) -> int:
        """When the request of a row that has a deadline times out."""
        return row.arrival_us + self._page.groups[row.group].timeout_us

    def name(self, number: int) -> str:
        """The name of the request of that number."""
        return self._book.names.get(number) or self._page.names.get(number) or f"request_{number}"

    def session(self, number: int) -> tuple[str, int] | None:
        """The session of the request of that number, and which of its calls it is; None = it has none."""
        return self._book.sessions.get(number) or self._page.sessions.get(number)

    def _way(self, place: int) -> Way:
        if self._ways is None:
            return _STRAIGHT
        if place < self._closed:
            return self._log.way(place)
        return Way._make(_WAY.unpack_from(self._ways, (place - self._closed) * _WAY.size))

    def _unpacked(self, places: Sequence[int]) -> list[tuple[int, ...]]:
        closed, size, unpack = self._closed, PACKED.size, PACKED.unpack_from
        live = self._live
        with self._log.packed() as packed:
            return [
                unpack(packed, place * size) if place < closed else unpack(live, (place - closed) * size)
                for place in places
            ]


def _before_its_end(row: Row, now_us: int) -> Row:
    """The row of a request whose last token is being computed."""
    ttft_us = row.ttft_us if row.first_token_us <= now_us else -1
    return row._replace(completed_us=-1, e2e_us=-1, ttft_us=ttft_us, state=RequestState.RUNNING, length_capped=0)


def _has_first_token(request: Request, now_us: int | None) -> bool:
    return request.first_token_us >= 0 and (now_us is None or request.first_token_us <= now_us)


def _pack_way(request: Request) -> bytes:
    way = request.handover
    gateway_us = request.gateway_us
    if way is None:
        return _WAY.pack(-1, -1, -1, gateway_us)
    return _WAY.pack(way.prefill_instance, way.transfer_start_us, way.transfer_us, gateway_us)
