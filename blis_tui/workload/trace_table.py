"""A recorded workload in memory: columns of numbers, repeated texts stored once."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import islice
from operator import le
from typing import TYPE_CHECKING, Generic, TypeVar

from blis_tui.engine.request import Request

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from blis_tui.engine.request import Segments

_Value = TypeVar("_Value", bound="Hashable")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceColumns:
    """What a format reads from a file, in the file's order; ``None`` = the file has no such column."""

    arrival_us: Sequence[int]
    input_tokens: Sequence[int]
    """Whole prompts, shared prefix included."""
    output_tokens: Sequence[int]
    request_id: Sequence[str] | None = None
    segments: Sequence[Segments] | None = None
    slo_class: Sequence[str] | None = None
    tenant: Sequence[str] | None = None
    deadline_us: Sequence[int] | None = None
    session_id: Sequence[str] | None = None
    round_index: Sequence[int] | None = None
    model: Sequence[str] | None = None


class _Interned(Generic[_Value]):
    """A column of few different values: each stored once, rows as numbers of four bytes."""

    __slots__ = ("_codes", "_values")

    def __init__(self, column: Sequence[_Value] | None, default: _Value, rows: int) -> None:
        codes: dict[_Value, int] = {}
        if column is None:
            codes[default] = 0
            self._codes = array("i", bytes(4 * rows))
        else:
            self._codes = array("i", [codes.setdefault(value, len(codes)) for value in column])
        self._values = tuple(codes)

    def __getitem__(self, row: int) -> _Value:
        return self._values[self._codes[row]]


class TraceTable:
    """The requests of a trace, in order of arrival; rows that arrive together keep the file's order.

    Never changed after construction, so sources and checkpoints may share one.

    Args:
        columns: what was read, in any order.
    """

    __slots__ = (
        "_arrival_us",
        "_deadline_us",
        "_input_tokens",
        "_model",
        "_output_tokens",
        "_request_id",
        "_round_index",
        "_segments",
        "_session_id",
        "_slo_class",
        "_tenant",
    )

    def __init__(self, columns: TraceColumns) -> None:
        rows = len(columns.arrival_us)
        order = _order(columns.arrival_us)
        self._arrival_us = _numbers(columns.arrival_us, order, rows)
        self._input_tokens = _numbers(columns.input_tokens, order, rows)
        self._output_tokens = _numbers(columns.output_tokens, order, rows)
        self._deadline_us = _numbers(columns.deadline_us, order, rows)
        self._round_index = _numbers(columns.round_index, order, rows)
        identifiers = _sorted(columns.request_id, order)
        self._request_id = None if identifiers is None else tuple(identifiers)
        no_segments: Segments = ()
        self._segments = _Interned(_sorted(columns.segments, order), no_segments, rows)
        self._slo_class = _Interned(_sorted(columns.slo_class, order), "standard", rows)
        self._tenant = _Interned(_sorted(columns.tenant, order), "", rows)
        self._model = _Interned(_sorted(columns.model, order), "", rows)
        self._session_id = _Interned(_sorted(columns.session_id, order), "", rows)

    def __len__(self) -> int:
        return len(self._arrival_us)

    def request(self, row: int) -> Request:
        """A new request from row ``row``, which becomes its index."""
        return Request(
            row,
            f"request_{row}" if self._request_id is None else self._request_id[row],
            self._arrival_us[row],
            self._input_tokens[row],
            self._output_tokens[row],
            self._segments[row],
            self._slo_class[row],
            self._tenant[row],
            self._deadline_us[row],
            self._session_id[row],
            self._round_index[row],
            self._model[row],
        )


def _order(arrivals: Sequence[int]) -> list[int] | None:
    """The rows in order of arrival; ``None`` when they already are."""
    if all(map(le, arrivals, islice(arrivals, 1, None))):
        return None
    return sorted(range(len(arrivals)), key=arrivals.__getitem__)


def _sorted(column: Sequence[_Value] | None, order: Sequence[int] | None) -> Sequence[_Value] | None:
    """The column in the given order of rows."""
    if column is None or order is None:
        return column
    return [column[row] for row in order]


def _numbers(column: Sequence[int] | None, order: Sequence[int] | None, rows: int) -> array[int]:
    """The column as 64-bit numbers; zeros when there is none."""
    if column is None:
        return array("q", bytes(8 * rows))
    return array("q", _sorted(column, order) or ())
