"""Requests' books by columns, a few thousand rows at a time: one call per block instead of several per row."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

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


class Block(NamedTuple):
    """Some rows, by column: the fields of ``PackedRequest``, each with one number per row."""

    number: tuple[int, ...]
    arrival_us: tuple[int, ...]
    queued_us: tuple[int, ...]
    scheduled_us: tuple[int, ...]
    first_token_us: tuple[int, ...]
    completed_us: tuple[int, ...]
    ttft_us: tuple[int, ...]
    e2e_us: tuple[int, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    cached_tokens: tuple[int, ...]
    instance: tuple[int, ...]
    preemptions: tuple[int, ...]
    group: tuple[int, ...]
    state: tuple[int, ...]
    length_capped: tuple[int, ...]


class DetourColumns(NamedTuple):
    """The ways of some requests, by column: the fields of ``Way``."""

    prefill_instance: tuple[int, ...]
    transfer_start_us: tuple[int, ...]
    transfer_us: tuple[int, ...]
    gateway_us: tuple[int, ...]


def split(block: Block, names: Sequence[_Name]) -> Iterator[tuple[_Name, Block]]:
    """Group the rows by name, given the name of each row."""
    if names.count(names[0]) == len(names):
        yield names[0], block
        return
    rows: dict[_Name, list[tuple[int, ...]]] = {name: [] for name in names}
    for name, row in zip(names, zip(*block, strict=True), strict=True):
        rows[name].append(row)
    for name, of_name in rows.items():
        yield name, Block._make(zip(*of_name, strict=True))


def where(block: Block, moments: Sequence[int]) -> Block:
    """Return the rows in which something happened, given a time for each row; negative = never."""
    if min(moments, default=0) >= 0:
        return block
    rows = [row for row, at in zip(zip(*block, strict=True), moments, strict=True) if at >= 0]
    return Block._make(zip(*rows, strict=True) if rows else [()] * len(Block._fields))


def happened(moments: Sequence[int]) -> Sequence[int]:
    """Return the times that are not negative, which means never."""
    return moments if min(moments, default=0) >= 0 else [at for at in moments if at >= 0]


class RequestColumns:
    """Provides the columns of a request table for some of its rows.

    Args:
        book: facts about requests that have ended.
        page: facts about the other requests, and all groups.
    """

    def __init__(self, book: RequestBook, page: RequestBook) -> None:
        self._book = book
        self._page = page

    def column(self, name: str, block: Block, ways: DetourColumns | None) -> Cells:
        """Return the cells of a column; None where something never happened."""
        if name in _PLAIN:
            numbers: tuple[int, ...] = getattr(block, name)
            return numbers
        if name in _MOMENTS:
            return _happened(getattr(block, name))
        if name in DetourColumns._fields:
            return [None] * len(block.number) if ways is None else _happened(getattr(ways, name))
        if name in _OF_GROUPS:
            of_group = [*map(_OF_GROUPS[name], self._page.groups)]
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
        timeouts = [group.timeout_us for group in self._page.groups]
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
        ended: Mapping[int, _T] = getattr(self._book, what)
        others: Mapping[int, _T] = getattr(self._page, what)
        if not ended and not others:
            return [nothing] * len(block.number)
        return [ended[one] if one in ended else others.get(one, nothing) for one in block.number]


_AS_GENERATED: Final = (-2, False)
"""The budget of requests that declare exactly what they generate."""


def _happened(moments: tuple[int, ...]) -> Cells:
    return moments if min(moments) >= 0 else [None if one < 0 else one for one in moments]


_PLAIN: Final = frozenset(("arrival_us", "input_tokens", "output_tokens", "cached_tokens", "preemptions"))
_MOMENTS: Final = frozenset(
    ("instance", "queued_us", "scheduled_us", "first_token_us", "completed_us", "ttft_us", "e2e_us")
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
