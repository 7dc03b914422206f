"""Requests' books by columns, a few thousand rows at a time: one call per block instead of several per row."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from blis_tui.base.classes import NamedTuple
from blis_tui.engine.request import RequestState
from blis_tui.results.request_book import NO_EXTRAS
from blis_tui.workload.traces.cells import items_cell, segments_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from blis_tui.engine.request import Segments
    from blis_tui.results.request_book import Extras, Group, RequestBook

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
        return ["" if one is None else one[0] for one in self._noted("sessions", None, block)]

    def rounds(self, block: Block) -> Cells:
        """Return each request's call number within its session."""
        return [None if one is None else one[1] for one in self._noted("sessions", None, block)]

    def requested(self, block: Block) -> Cells:
        """Return the output tokens that the requests asked for."""
        noted = self._noted("requested", None, block)
        return [got if asked is None else asked for asked, got in zip(noted, block.output_tokens, strict=True)]

    def budgets(self, block: Block) -> Cells:
        """Return the output budgets that the requests declared; 0 = none."""
        noted = zip(self._noted("budgets", _AS_GENERATED, block), self.requested(block), strict=True)
        return [asked if one is _AS_GENERATED else max(0, one[0]) for one, asked in noted]

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
        return [ended[one] if one in ended else others.get(one, nothing) for one in block.number]


_AS_GENERATED: Final = (-2, False)
"""The budget of requests that declare exactly what they generate."""


def _happened(moments: Sequence[int]) -> Cells:
    return moments if min(moments) >= 0 else [None if one < 0 else one for one in moments]


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
        "prefix_segments": lambda table, block: [segments_cell(one) for one in table.parts(block)],
        "reasoning_tokens": lambda table, block: [max(0, one.reasoning_tokens) for one in table.extras(block)],
        "first_answer_us": lambda table, block: _happened(tuple(one.first_answer_us for one in table.extras(block))),
        "ttfat_us": lambda table, block: _happened(tuple(one.ttfat_us for one in table.extras(block))),
        "image_tokens": lambda table, block: [one.media.image_tokens for one in table.extras(block)],
        "audio_tokens": lambda table, block: [one.media.audio_tokens for one in table.extras(block)],
        "video_tokens": lambda table, block: [one.media.video_tokens for one in table.extras(block)],
        "media_items": lambda table, block: [items_cell(one.items) for one in table.extras(block)],
    }
)
"""Column -> how its cells are computed."""
