"""The log of all requests by columns, about 140 bytes each, in order of their ends; and its tables.

Its books are read a few thousand rows at a time: one call per block instead of several per row.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import sha256
from itertools import chain, compress, islice
from operator import itemgetter
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast, overload

from blis_tui.base.classes import NamedTuple
from blis_tui.engine.client_times import client_ttft_us
from blis_tui.engine.request import Media, RequestState
from blis_tui.results.request_book import NO_EXTRAS, Group, RequestBook, contradicts
from blis_tui.workload.traces.cells import items_cell, segments_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.request import Request, Segments
    from blis_tui.results.request_book import Extras

    Cell = int | str | None
    Cells = Sequence[Cell]

N = TypeVar("N")
_T = TypeVar("_T")
_Name = TypeVar("_Name")

BLOCK: Final = 4096
"""Rows per block."""

_STATE_NAMES: Final[Mapping[int, str]] = MappingProxyType(
    {
        RequestState.CREATED: "in-transit",
        RequestState.WAITING: "waiting",
        RequestState.RUNNING: "running",
        RequestState.COMPLETED: "completed",
        RequestState.REJECTED: "rejected",
        RequestState.DROPPED_UNSERVABLE: "dropped-unservable",
        RequestState.TIMED_OUT: "timed-out",
        RequestState.LOST: "lost",
    }
)
"""Name of each request state in files and tables."""


class Numbers(NamedTuple, Generic[N]):
    """A request's books as integers, or the columns of many; times in microseconds, -1 = never happened."""

    number: N
    """The request's ``index``."""
    arrival_us: N
    queued_us: N
    scheduled_us: N
    first_token_us: N
    completed_us: N
    ttft_us: N
    e2e_us: N
    input_tokens: N
    output_tokens: N
    cached_tokens: N
    instance: N
    preemptions: N
    group: N
    """Number of the facts that it shares with other requests; see ``RequestTable.group``."""
    state: N
    length_capped: N
    prefill_instance: N
    """The first of its way through gateway and transfer."""
    transfer_start_us: N
    transfer_us: N
    gateway_us: N


RequestNumbers = Numbers[int]
"""One request."""
if TYPE_CHECKING:
    Block = Numbers[Sequence[int]]
    """Some requests, by column."""
    Columns = Numbers[array[int]]

WAYS: Final = Numbers._fields[Numbers._fields.index("prefill_instance") :]
"""The columns of a request's way through gateway and transfer."""


def is_split(row: RequestNumbers) -> bool:
    """Whether prefill and decode were to run on two instances, and the prefill instance was chosen."""
    return row.prefill_instance >= 0


def split(block: Block, names: Sequence[_Name]) -> Iterator[tuple[_Name, Block]]:
    """Group the rows by name, given the name of each row."""
    if names.count(names[0]) == len(names):
        yield names[0], block
        return
    rows: dict[_Name, list[tuple[int, ...]]] = {name: [] for name in names}
    for name, row in zip(names, zip(*block, strict=True), strict=True):
        rows[name].append(row)
    for name, of_name in rows.items():
        yield name, Numbers._make(zip(*of_name, strict=True))


def where(block: Block, moments: Sequence[int]) -> Block:
    """Return the rows in which something happened, given a time for each row; negative = never."""
    if min(moments, default=0) >= 0:
        return block
    rows = [row for row, at in zip(zip(*block, strict=True), moments, strict=True) if at >= 0]
    return Numbers._make(zip(*rows, strict=True) if rows else [()] * len(Numbers._fields))


def happened(moments: Sequence[int]) -> Sequence[int]:
    """Return the times that are not negative, which means never."""
    return moments if min(moments, default=0) >= 0 else [at for at in moments if at >= 0]


class RequestColumns:
    """Provides the columns of a request table for some of its rows.

    Args:
        book: facts about requests that have ended.
        page: facts about the other requests.
        groups: what requests share.
    """

    def __init__(self, book: RequestBook, page: RequestBook, groups: Sequence[Group]) -> None:
        self._book = book
        self._page = page
        self._groups = groups

    def column(self, name: str, block: Block) -> Cells:
        """Return the cells of a column; None where something never happened."""
        if name in _PLAIN:
            numbers: Sequence[int] = getattr(block, name)
            return numbers
        if name in _MOMENTS:
            return _happened(getattr(block, name))
        if name in _OF_GROUPS:
            of_group = [*map(_OF_GROUPS[name], self._groups)]
            return [of_group[group] for group in block.group]
        return _OTHERS[name](self, block)

    def names(self, block: Block) -> list[str]:
        """Return the requests' names."""
        names = self._noted("names", "", block)
        return [name or f"request_{number}" for name, number in zip(names, block.number, strict=True)]

    def states(self, block: Block) -> Cells:
        """Return the names of the requests' states."""
        return [_STATE_NAMES[state] for state in block.state]

    def deadlines(self, block: Block) -> Cells:
        """Return the requests' deadlines."""
        timeouts = [group.timeout_us for group in self._groups]
        if not any(timeouts):
            return [None] * len(block.number)
        return [
            arrival + timeouts[group] if timeouts[group] else None
            for arrival, group in zip(block.arrival_us, block.group, strict=True)
        ]

    def session_ids(self, block: Block) -> Cells:
        """Return the requests' sessions."""
        return ["" if note is None else note[0] for note in self._noted("sessions", None, block)]

    def rounds(self, block: Block) -> Cells:
        """Return each request's call number within its session."""
        return [None if note is None else note[1] for note in self._noted("sessions", None, block)]

    def requested(self, block: Block) -> Cells:
        """Return the output tokens that the requests asked for."""
        noted = self._noted("requested", None, block)
        return [got if asked is None else asked for asked, got in zip(noted, block.output_tokens, strict=True)]

    def budgets(self, block: Block) -> Cells:
        """Return the output budgets that the requests declared; 0 = none."""
        noted = zip(self._noted("budgets", _AS_GENERATED, block), self.requested(block), strict=True)
        return [asked if note is _AS_GENERATED else max(0, note[0]) for note, asked in noted]

    def endless(self, block: Block) -> Cells:
        """Return whether only the budget ends each answer."""
        return [int(ignores) for _, ignores in self._noted("budgets", _AS_GENERATED, block)]

    def retries(self, block: Block) -> Cells:
        """Return how often the requests had to restart."""
        return self._noted("retries", 0, block)

    def parts(self, block: Block) -> list[Segments]:
        """Return the shared prompt prefixes that consist of several segments."""
        return self._noted("parts", (), block)

    def extras(self, block: Block) -> list[Extras]:
        """Return the requests' reasoning and media."""
        return self._noted("extras", NO_EXTRAS, block)

    def _noted(self, what: str, nothing: _T, block: Block) -> list[_T]:
        """Return what either book has noted of each request."""
        ended = cast("Mapping[int, _T]", self._book.noted[what])
        others = cast("Mapping[int, _T]", self._page.noted[what])
        if not ended and not others:
            return [nothing] * len(block.number)
        return [ended[number] if number in ended else others.get(number, nothing) for number in block.number]


_AS_GENERATED: Final = (-2, False)
"""The budget of requests that declare exactly what they generate."""


def _happened(moments: Sequence[int]) -> Cells:
    return moments if min(moments) >= 0 else [None if moment < 0 else moment for moment in moments]


_PLAIN: Final = frozenset(("arrival_us", "input_tokens", "output_tokens", "cached_tokens", "preemptions"))
_MOMENTS: Final = frozenset(
    ("instance", "queued_us", "scheduled_us", "first_token_us", "completed_us", "ttft_us", "e2e_us", *WAYS)
)
_OF_GROUPS: Final[Mapping[str, Callable[[Group], Cell]]] = MappingProxyType(
    {
        "slo_class": lambda group: group.slo_class,
        "tenant_id": lambda group: group.tenant,
        "prefix_group": lambda group: group.segments[0][0] if group.segments else "",
        "prefix_tokens": lambda group: group.segments[0][1] if group.segments else 0,
        "model": lambda group: group.model,
        "adapter": lambda group: group.adapter,
    }
)
"""Column -> the value shared by all requests of a group."""
_OTHERS: Final[Mapping[str, Callable[[RequestColumns, Block], Cells]]] = MappingProxyType(
    {
        "request_id": RequestColumns.names,
        "state": RequestColumns.states,
        "session_id": RequestColumns.session_ids,
        "round_index": RequestColumns.rounds,
        "requested_output_tokens": RequestColumns.requested,
        "deadline_us": RequestColumns.deadlines,
        "max_output_tokens": RequestColumns.budgets,
        "ignore_eos": RequestColumns.endless,
        "retries": RequestColumns.retries,
        "prefix_segments": lambda table, block: [segments_cell(part) for part in table.parts(block)],
        "reasoning_tokens": lambda table, block: [max(0, extras.reasoning_tokens) for extras in table.extras(block)],
        "first_answer_us": lambda table, block: _happened(
            tuple(extras.first_answer_us for extras in table.extras(block))
        ),
        "ttfat_us": lambda table, block: _happened(tuple(extras.ttfat_us for extras in table.extras(block))),
        "image_tokens": lambda table, block: [extras.media.image_tokens for extras in table.extras(block)],
        "audio_tokens": lambda table, block: [extras.media.audio_tokens for extras in table.extras(block)],
        "video_tokens": lambda table, block: [extras.media.video_tokens for extras in table.extras(block)],
        "media_items": lambda table, block: [items_cell(extras.items) for extras in table.extras(block)],
    }
)
"""Column -> how its cells are computed."""


_CODES: Final = "qqqqqqqqqqqiiiBBiqqq"
"""The type code of each column."""
_RECORD: Final = Struct("<qqqqqqqqqqqiiiBB")
_WAY: Final = Struct("<iqqq")
"""The bytes of a request, and of its way, of which digests are made."""
_NO_ROWS: Final[Block] = Numbers._make([()] * len(Numbers._fields))


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

PLAIN_COLUMNS: Final = RequestRow._fields[: RequestRow._fields.index(WAYS[0])]
"""The columns of every request file."""


_BUDGETS: Final = ("max_output_tokens", "ignore_eos")
_REASONING: Final = ("reasoning_tokens", "first_answer_us", "ttfat_us")


class LogMark(NamedTuple):
    """The state of a log at a mark: its rows, groups and contradictions, and the digests of its rows."""

    rows: int
    groups: int
    contradictions: int
    digests: RowDigests


class RowDigests:
    """Digests of the first rows of a log: rows never change, so each is hashed once.

    Ways have a separate hash, so that a log's digest does not depend on when it was computed before.
    """

    __slots__ = ("_rows", "_values", "_ways")

    def __init__(self) -> None:
        self._rows = 0
        self._values, self._ways = sha256(), sha256()

    def copy(self) -> RowDigests:
        """Return digests of the same rows, which go on separately."""
        other = RowDigests()
        other._rows, other._values, other._ways = self._rows, self._values.copy(), self._ways.copy()
        return other

    def up_to_now(self, columns: Columns, *, detours: bool) -> str:
        """Hash the rows that are new since the last call; return the digest of all."""
        new = [column[self._rows :] for column in columns]
        self._rows = len(columns.number)
        self._values.update(b"".join(map(_RECORD.pack, *new[: -len(WAYS)])))
        if not detours:
            return self._values.hexdigest()
        self._ways.update(b"".join(map(_WAY.pack, *new[-len(WAYS) :])))
        return self._values.hexdigest() + self._ways.hexdigest()


class RequestLog:
    """The log behind reports and request files.

    Args:
        detours: whether a gateway may hold requests or two instances may share one (``Experiment.has_detours``), so
            that their ways are part of tables and digests.
        facts: further columns that its tables have (``Experiment.request_facts``).

    Attributes:
        columns: the numbers of the requests that have a row.
        book: what is known of them besides.
    """

    def __init__(self, *, detours: bool = False, facts: tuple[str, ...] = ()) -> None:
        self.detours = detours
        self.facts = facts
        self.columns: Columns = Numbers._make([array(code) for code in _CODES])
        self.book = RequestBook()
        self._contradictions: list[str] = []
        self._ended: list[tuple[Request, int, int]] = []
        """Ended requests without a row yet; writing rows in a separate loop is faster than one at a time."""
        self._digests = RowDigests()

    def __getstate__(self) -> tuple[bool, tuple[str, ...], Columns, RequestBook, list[str]]:
        self.flush()
        return (self.detours, self.facts, self.columns, self.book, self._contradictions)

    def __setstate__(self, state: tuple[bool, tuple[str, ...], Columns, RequestBook, list[str]]) -> None:
        self.detours, self.facts, self.columns, self.book, self._contradictions = state
        self._ended = []
        self._digests = RowDigests()

    def __len__(self) -> int:
        return len(self.columns.number) + len(self._ended)

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
            OverflowError: a time is too large for its column.
        """
        if not self._ended:
            return
        for request, _, _ in self._ended:
            ordered = request.queued_us <= request.scheduled_us <= request.first_token_us <= request.completed_us
            if not (ordered and request.arrival_us <= request.queued_us) and contradicts(request):
                self._contradictions.append(f"the times of request {request.request_id} contradict each other")
        row = self.book.row
        rows = [row(request, ttft_us, e2e_us, request.answer_tokens) for request, ttft_us, e2e_us in self._ended]
        for column, cells in zip(self.columns, zip(*rows, strict=True), strict=True):
            column.fromlist([*cells])  # a third of the time of ``extend``
        self._ended.clear()

    def mark(self) -> LogMark:
        """Return a mark of the log's current state."""
        self.flush()
        return LogMark(len(self), len(self.book.groups), len(self._contradictions), self._digests.copy())

    def up_to(self, mark: LogMark) -> RequestLog:
        """Return a log that ends where this one (or one that this one continues) was marked."""
        self.flush()
        if mark.rows > len(self):
            raise ValueError(f"the log has {len(self)} rows, not {mark.rows}")
        other = RequestLog(detours=self.detours, facts=self.facts)
        other.columns = Numbers._make([column[: mark.rows] for column in self.columns])
        other.book = RequestBook(islice(self.book.groups, mark.groups), self.book.noted)  # facts never change
        other._contradictions += self._contradictions[: mark.contradictions]
        other._digests = mark.digests.copy()
        return other

    def take_over(self, other: RequestLog) -> None:
        """Add the requests of another process of the same run, without the rejected ones, which every process has."""
        other.flush()
        self.flush()
        numbers = self.book.take_over(other.book)
        self._contradictions += other._contradictions
        more = other.columns._replace(group=array("i", map(numbers.__getitem__, other.columns.group)))
        kept = [state != RequestState.REJECTED for state in more.state]
        for column, cells in zip(self.columns, more, strict=True):
            column.extend(compress(cells, kept))

    def table(self, cluster: Cluster, now_us: int | None = None) -> RequestTable:
        """Return all requests that have arrived; live ones in their current state.

        Args:
            cluster: the cluster that serves them.
            now_us: ignore first tokens and ends of steps that end later, and first tokens that a preemption discarded;
                None = take them as the simulation has them.
        """
        self.flush()
        page = RequestBook(self.book.groups)
        closed = len(self) if now_us is None else self._count_ended_by(now_us)
        live: list[Sequence[int]] = []
        if now_us is not None:
            live += [row if row.completed_us <= now_us else _row_before_end(row, now_us) for row in self.rows(closed)]
        for request in cluster.in_transit():
            # A request between two instances already has its first token.
            started = _has_first_token(request, now_us)
            ttft = client_ttft_us(request, cluster.instances[request.instance].latency) if started else -1
            live.append(page.row(request, ttft, -1, request.generated_tokens))
        for instance in cluster.instances:
            batch, cohort = instance.batch, instance.batch.cohort
            for request in batch.of_clients((*instance.waiting.ordered(), *batch.running.values())):
                generated = cohort.generated_tokens(request)
                started = _has_first_token(request, now_us) and (now_us is None or generated > 0)
                ttft = client_ttft_us(request, instance.latency) if started else -1
                live.append(page.row(request, ttft, -1, generated))
        table = RequestTable(self, closed, page, Numbers._make(zip(*live, strict=True)) if live else _NO_ROWS)
        table.post_decode_us = tuple(instance.latency.post_decode_overhead_us for instance in cluster.instances)
        return table

    def _count_ended_by(self, now_us: int) -> int:
        """Return how many rows come before the first request that completes later."""
        ends = enumerate(self.columns.completed_us)
        return next((number for number, end_us in ends if end_us > now_us), len(self))

    def rows(self, start: int) -> list[RequestNumbers]:
        """Return the rows of the ended requests from the ``start``-th on."""
        self.flush()
        return [*map(Numbers._make, zip(*[column[start:] for column in self.columns], strict=True))]

    def groups(self) -> list[tuple[str, str]]:
        """Return the SLO class and tenant of each group of requests."""
        self.flush()
        return [group[:2] for group in self.book.groups]

    def name(self, index: int) -> str:
        """Return the name of a request that has ended."""
        self.flush()
        return str(self.book.noted["names"].get(index) or f"request_{index}")

    def fingerprint(self) -> str:
        """Return a digest of all rows of ended requests, in order of their ends."""
        self.flush()
        return self._digests.up_to_now(self.columns, detours=self.detours)


class RequestTable(Sequence["RequestRow"]):
    """All requests at one moment, in order of arrival: a sequence that builds each row on demand.

    It stays valid while the simulation goes on, because a log only grows.

    Attributes:
        post_decode_us: time that clients of each instance wait after their last token.
    """

    def __init__(self, log: RequestLog, closed: int, page: RequestBook, live: Block) -> None:
        self._log = log
        self._closed = closed
        self._page = page
        self._live = live
        self._groups = [*map(Group._make, page.groups)]
        self._order: array[int] | None = None
        self.post_decode_us: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self._closed + len(self._live.number)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the request file, including the optional ones that apply."""
        numbers = [row.number for row in self.plain()] if self._has("parts") or self._has("extras") else []
        segments = ("prefix_segments",) if any(self._noted("parts", number, ()) for number in numbers) else ()
        adapters = ("adapter",) if self.has_adapters else ()
        extras = [self.extras(number) for number in numbers]
        reasoning = _REASONING if any(extra.reasoning_tokens >= 0 for extra in extras) else ()
        media = Media._fields if any(any(extra.media) for extra in extras) else ()
        items = ("media_items",) if any(extra.items for extra in extras) else ()
        budgets = _BUDGETS if self._has("budgets") else ()
        ways = WAYS if self._log.detours else ()
        return (*PLAIN_COLUMNS, *ways, *self._log.facts, *segments, *adapters, *reasoning, *media, *items, *budgets)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows by columns, a few thousand at a time, in the order of ``plain``."""
        for columns, rows in ((self._log.columns, self._closed), (self._live, len(self._live.number))):
            for start in range(0, rows, BLOCK):
                yield Numbers._make([column[start : min(start + BLOCK, rows)] for column in columns])

    def in_columns(self, names: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[list[Cells]]:
        """Yield the rows from the ``start``-th to arrive up to, but without, the ``stop``-th, a few thousand at a time.

        Args:
            names: fields of ``RequestRow``, each of which gives a column of cells.
            start: index of the first row.
            stop: index after the last row; None = all.
        """
        table = RequestColumns(self._log.book, self._page, self._groups)
        order, stop = self._in_order(), len(self) if stop is None else stop
        for first in range(start, stop, BLOCK):
            block = self._at(order[first : min(first + BLOCK, stop)])
            yield [table.column(name, block) for name in names]

    def __iter__(self) -> Iterator[RequestRow]:
        return self._rows(0, len(self))

    def _rows(self, start: int, stop: int) -> Iterator[RequestRow]:
        for columns in self.in_columns(RequestRow._fields, start, stop):
            yield from map(RequestRow._make, zip(*columns, strict=True))

    def _in_order(self) -> Sequence[int]:
        """Return the positions of the rows in ``plain``, in order of arrival."""
        if self._order is None:
            numbers = self._log.columns.number[: self._closed] + array("q", self._live.number)
            self._order = array("q", sorted(range(len(numbers)), key=numbers.__getitem__))
        return self._order

    @overload
    def __getitem__(self, number: int) -> RequestRow: ...

    @overload
    def __getitem__(self, number: slice) -> list[RequestRow]: ...

    def __getitem__(self, number: int | slice) -> RequestRow | list[RequestRow]:
        if isinstance(number, slice):
            start, stop, step = number.indices(len(self))
            return [*self._rows(start, stop)] if step == 1 else [self[place] for place in range(start, stop, step)]
        at = range(len(self))[number]
        return next(self._rows(at, at + 1))

    def _at(self, places: Sequence[int]) -> Block:
        """Return the rows at positions in ``plain``, by columns."""
        closed = self._closed
        if len(places) > 1 and max(places) < closed:
            return Numbers._make(map(itemgetter(*places), self._log.columns))
        both = zip(self._log.columns, self._live, strict=True)
        return Numbers._make(
            [[ended[at] if at < closed else live[at - closed] for at in places] for ended, live in both]
        )

    def plain(self) -> Iterator[RequestNumbers]:
        """Yield the rows as integers, in order of their ends; live requests last."""
        for block in self.blocks():
            yield from map(Numbers._make, zip(*block, strict=True))

    def group_names(self) -> list[tuple[str, str]]:
        """Return the SLO class and tenant of each group of rows."""
        return [group[:2] for group in self._groups]

    def group(self, row: RequestNumbers) -> tuple[str, str]:
        """Return the SLO class and tenant of a row."""
        return self._groups[row.group][:2]

    @property
    def has_adapters(self) -> bool:
        """Whether any request asks for a LoRA adapter."""
        return any(group.adapter for group in self._groups)

    @property
    def has_media(self) -> bool:
        """Whether any prompt has images, audio or video."""
        known = chain(self._log.book.noted["extras"].values(), self._page.noted["extras"].values())
        return any(any(cast("Extras", extra).media) for extra in known)

    def adapter(self, row: RequestNumbers) -> str:
        """Return the LoRA adapter that a row's request asks for; empty = none."""
        return self._groups[row.group].adapter

    def extras(self, number: int) -> Extras:
        """Return the reasoning and media of the request with a number."""
        return self._noted("extras", number, NO_EXTRAS)

    def deadline_us(self, row: RequestNumbers) -> int:
        """Return the deadline of a row's request, which must have one."""
        return row.arrival_us + self._groups[row.group].timeout_us

    def name(self, number: int) -> str:
        """Return the name of the request with a number."""
        return self._noted("names", number, "") or f"request_{number}"

    def session(self, number: int) -> tuple[str, int] | None:
        """Return the session of the request with a number, and its call number; None if it has none."""
        return self._noted("sessions", number, None)

    def _has(self, what: str) -> bool:
        """Whether something (a name of ``NOTED``) is noted of any request."""
        return bool(self._log.book.noted[what] or self._page.noted[what])

    def _noted(self, what: str, number: int, nothing: _T) -> _T:
        """Return what is noted of the request with a number."""
        then, since = self._page.noted[what], self._log.book.noted[what]
        return cast("_T", then[number] if number in then else since.get(number, nothing))


def _row_before_end(row: RequestNumbers, now_us: int) -> RequestNumbers:
    """Return the row of a request whose last token is being computed."""
    ttft_us = row.ttft_us if row.first_token_us <= now_us else -1
    return row._replace(completed_us=-1, e2e_us=-1, ttft_us=ttft_us, state=RequestState.RUNNING, length_capped=0)


def _has_first_token(request: Request, now_us: int | None) -> bool:
    return request.first_token_us >= 0 and (now_us is None or request.first_token_us <= now_us)
