"""A recorded workload in memory: columns of numbers, with repeated texts stored once."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice, repeat
from operator import le
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast, overload

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import NO_MEDIA, Media, MediaItem, Reasoning, Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.engine.request import Segments

_Value = TypeVar("_Value", bound="Hashable")
_Cell = TypeVar("_Cell")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Parts of a file that are valid but not replayed as requests."""

    count: int
    what: str
    """The kind of part, such as ``request``."""
    why: str
    """The reason, as words that follow it, such as ``without an answer``."""

    def __str__(self) -> str:
        return f"{self.count:,} {self.what}{'' if self.count == 1 else 's'} {self.why}"


def omissions(*known: LeftOut) -> tuple[LeftOut, ...]:
    """Return those that occur in a file."""
    return tuple(omission for omission in known if omission.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceColumns:
    """The columns that a format reads from a file, in file order; ``None`` = the file has no such column."""

    arrival_us: Sequence[int] | None
    """``None``: the file does not say when requests arrive."""
    since_start_us: Sequence[int] | None = None
    """Where ``arrival_us`` is ``None``: times since the request's session began, as far as the file says them."""
    input_tokens: Sequence[int]
    """Whole prompts, shared prefix included."""
    output_tokens: Sequence[int]
    max_output_tokens: Sequence[int] | None = None
    """Declared budgets; 0 = undeclared. Without this column requests declare exactly what they generate."""
    ignore_eos: Sequence[int] | None = None
    """1 = the request uses its whole declared budget."""
    request_id: Sequence[str] | None = None
    segments: Sequence[Segments] | None = None
    answer: Sequence[str] | None = None
    """The segment that later prompts use for its answer; empty = unknown."""
    slo_class: Sequence[str] | None = None
    tenant: Sequence[str] | None = None
    deadline_us: Sequence[int] | None = None
    session_id: Sequence[str] | None = None
    round_index: Sequence[int] | None = None
    model: Sequence[str] | None = None
    adapter: Sequence[str] | None = None
    reasoning_tokens: Sequence[int] | None = None
    """Reasoning tokens at the beginning of the answer; with this column all requests report reasoning."""
    media: Sequence[Media] | None = None
    media_items: Sequence[tuple[MediaItem, ...]] | None = None
    """The media of each prompt by item; empty = one item of each kind."""
    e2e_us: Sequence[int] | None = None
    """Time from request to complete answer in the trace; -1 = unknown."""
    left_out: tuple[LeftOut, ...] = ()
    """Parts that are not replayed; only kinds that occur."""


class _Column(Sequence[_Cell]):
    """A sequence that only supports its length and access to cells."""

    def cell(self, row: int) -> _Cell:
        """Return the cell of a row."""
        raise NotImplementedError

    @overload
    def __getitem__(self, row: int) -> _Cell: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[_Cell]: ...
    def __getitem__(self, row: int | slice) -> _Cell | Sequence[_Cell]:
        if isinstance(row, slice):
            return [self.cell(number) for number in range(*row.indices(len(self)))]
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.cell(row)


class Interned(_Column[_Value], Generic[_Value]):
    """A column with few different values: each stored once, rows as numbers of four bytes."""

    def __init__(self, values: Iterable[_Value] = ()) -> None:
        self._known: dict[_Value, int] = {}
        self._values: list[_Value] = []
        self._codes = array("i")
        self.extend(values)

    def extend(self, values: Iterable[_Value]) -> None:
        """Add rows."""
        known = self._known
        self._codes.extend([known.setdefault(value, len(known)) for value in values])
        self._values.extend(islice(known, len(self._values), None))

    def cell(self, row: int) -> _Value:
        """Return the value of a row."""
        return self._values[self._codes[row]]

    def __len__(self) -> int:
        return len(self._codes)


class Texts(_Column[str]):
    """A column of different texts, stored as one text."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])
        self.extend(values)

    def extend(self, values: Iterable[str]) -> None:
        """Add rows."""
        parts = [value.encode("utf-8", "surrogatepass") for value in values]
        ends = accumulate(map(len, parts), initial=self._ends[-1])
        self._ends.extend(islice(ends, 1, None))
        self._bytes += b"".join(parts)

    def cell(self, row: int) -> str:
        """Return the text of a row."""
        return self._bytes[self._ends[row] : self._ends[row + 1]].decode("utf-8", "surrogatepass")

    def __len__(self) -> int:
        return len(self._ends) - 1


def _integers(values: Iterable[int] = ()) -> array[int]:
    return array("q", values)


class _Growing(Protocol):
    """A column that can be extended."""

    def extend(self, values: Iterable[object], /) -> None: ...


_KINDS: Final[Mapping[str, tuple[Callable[..., object], object]]] = MappingProxyType(
    {
        "arrival_us": (_integers, 0),
        "input_tokens": (_integers, 0),
        "output_tokens": (_integers, 0),
        "request_id": (Texts, ""),
        "segments": (Interned, ()),
        "answer": (Texts, ""),
        "slo_class": (Interned, "standard"),
        "tenant": (Interned, ""),
        "deadline_us": (_integers, 0),
        "session_id": (Interned, ""),
        "round_index": (_integers, 0),
        "model": (Interned, ""),
        "adapter": (Interned, ""),
        "reasoning_tokens": (_integers, 0),
        "media": (Interned, NO_MEDIA),
        "media_items": (Interned, ()),
        "e2e_us": (_integers, -1),
        "max_output_tokens": (_integers, 0),
        "ignore_eos": (Interned, 0),
    }
)
"""Column -> how it is stored, and the default if a file does not have it."""


_ASKED: Final = tuple(name for name in _KINDS if name not in ("arrival_us", "input_tokens", "output_tokens", "e2e_us"))
"""The columns of request attributes besides arrival and length; most files have few of these."""


class GrowingColumns:
    """Columns to which blocks of rows are added.

    A row takes 8 bytes for each number, 4 for each repeated text, and for an id its length plus 8 bytes.

    Attributes:
        rows: number of rows.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, _Growing] = {}

    def add(self, block: TraceColumns) -> None:
        """Add rows; a column that only some blocks have gets its default in the others."""
        rows = len(block.input_tokens)
        for name, (make, nothing) in _KINDS.items():
            cells = getattr(block, name)
            if name not in self._columns:
                if cells is None:
                    continue
                self._columns[name] = cast("_Growing", make(repeat(nothing, self.rows)))
            self._columns[name].extend(repeat(nothing, rows) if cells is None else cells)
        self.rows += rows

    def columns(self) -> TraceColumns:
        """Return all rows so far."""
        made = TraceColumns(arrival_us=None, input_tokens=(), output_tokens=())
        return replace(made, **cast("dict[str, Sequence[int]]", self._columns))  # type: ignore[arg-type]  # each its own


class TraceTable:
    """The requests of a trace, in order of arrival; rows that arrive together keep the file's order.

    It is never changed after construction, so sources and checkpoints may share one.

    Args:
        columns: the columns, in any order.
        limit: use only the first ``limit`` rows of the file; None = all.
        window_us: use only arrivals from the first time on and before the second, counted from the first.
        scale: divisor of arrival times; deadlines keep their distance from the arrival.

    Attributes:
        left_out: parts of the file that its format leaves out.
        plain: arrivals, input and output tokens, if the file has nothing else; otherwise ``None``.
    """

    def __init__(
        self,
        columns: TraceColumns,
        *,
        limit: int | None = None,
        window_us: tuple[int, int | None] | None = None,
        scale: float = 1.0,
    ) -> None:
        self.left_out = columns.left_out
        self._scale = scale
        arrivals: Sequence[int] = columns.arrival_us or ()
        order = _order(arrivals, len(arrivals) if limit is None else min(limit, len(arrivals)))
        start = 0
        if window_us is not None:
            start, end = window_us
            rows = range(len(arrivals)) if order is None else order
            order = [row for row in rows if start <= arrivals[row] and (end is None or arrivals[row] < end)]
        for name, (make, nothing) in _KINDS.items():
            cells = getattr(columns, name)
            kept: object
            if cells is None:
                kept = _Same(nothing)
            elif order is not None:
                kept = make(map(cells.__getitem__, order))
            else:
                kept = cells if isinstance(cells, Interned | Texts | array) else make(cells)
            setattr(self, f"_{name}", kept)
        if start or scale != 1.0:
            self._move(start, scale)
        self._asked = {name: getattr(self, f"_{name}") for name in _ASKED if self.has_column(name)}
        self.plain = None if self._asked else (self._arrival_us, self._input_tokens, self._output_tokens)

    _arrival_us: array[int]
    _input_tokens: Sequence[int]
    _output_tokens: Sequence[int]
    _request_id: Sequence[str]
    _segments: Sequence[Segments]
    _answer: Sequence[str]
    _slo_class: Sequence[str]
    _tenant: Sequence[str]
    _deadline_us: Sequence[int]
    _session_id: Sequence[str]
    _round_index: Sequence[int]
    _model: Sequence[str]
    _adapter: Sequence[str]
    _reasoning_tokens: Sequence[int]
    _media: Sequence[Media]
    _media_items: Sequence[tuple[MediaItem, ...]]
    _e2e_us: Sequence[int]
    _max_output_tokens: Sequence[int]
    _ignore_eos: Sequence[int]

    def _move(self, start: int, scale: float) -> None:
        """Count arrivals from ``start`` and compress them; deadlines move with them."""
        before = self._arrival_us
        self._arrival_us = array("q", (int((time - start) / scale) for time in before))
        if not isinstance(self._deadline_us, _Same):
            pairs = zip(before, self._arrival_us, self._deadline_us, strict=True)
            self._deadline_us = array("q", (end and now + end - was for was, now, end in pairs))

    def __len__(self) -> int:
        return len(self._arrival_us)

    def session(self, row: int) -> str:
        """Return the session of a request; empty = none."""
        return self._session_id[row]

    def round(self, row: int) -> int:
        """Return the request's position in its session, if the file gives it."""
        return self._round_index[row]

    def arrival_us(self, row: int) -> int:
        """Return the request's arrival time."""
        return self._arrival_us[row]

    def recorded_us(self, row: int) -> int:
        """Return the arrival time before arrivals were divided by ``scale``."""
        return self._arrival_us[row] if self._scale == 1.0 else int(self._arrival_us[row] * self._scale + 0.5)

    def took_us(self, row: int) -> int:
        """Return the duration of its answer; -1 = unknown."""
        return self._e2e_us[row]

    def answered_us(self, row: int) -> int:
        """Return when its answer was complete, on the recorded clock; -1 = unknown."""
        return -1 if self._e2e_us[row] < 0 else self.recorded_us(row) + self._e2e_us[row]

    def request(self, row: int, index: int | None = None) -> Request:
        """Create the request of a row; ``index`` defaults to the row."""
        index = row if index is None else index
        arrival_us, input_tokens, output_tokens = (
            self._arrival_us[row],
            self._input_tokens[row],
            self._output_tokens[row],
        )
        values = {name: column[row] for name, column in self._asked.items()}
        name, answer = values.pop("request_id", ""), values.pop("answer", "")
        tokens, media = values.pop("reasoning_tokens", None), values.pop("media", NO_MEDIA)
        items = values.pop("media_items", ())
        budget, endless = values.pop("max_output_tokens", None), values.pop("ignore_eos", 0)
        request = Request(index, name, arrival_us, input_tokens, output_tokens, **values)
        if budget is not None:
            request.declare(budget or None)
        if endless:
            request.ignore_eos = True
            request.output_tokens = budget or output_tokens
        if answer:
            request.content = _with_answer(request, answer)
        if tokens is not None:
            request.reasoning = Reasoning(tokens)
        if any(media):
            request.media = media
        if items:
            request.media_items = items
        return request

    def has_column(self, column: str) -> bool:
        """Whether the file has this column."""
        return not isinstance(getattr(self, f"_{column}"), _Same)


def _with_answer(request: Request, answer: str) -> Segments:
    """Return the eventual content of a request's KV blocks.

    It includes the answer if that is named and the whole prompt is shareable.
    """
    shared = whole_sum([tokens for _, tokens in request.segments])
    whole = shared == request.input_tokens and request.output_tokens
    return (*request.segments, (answer, request.output_tokens)) if whole else request.segments


class _Same(_Column[_Cell]):
    """A column with the same value in every row."""

    def __init__(self, value: _Cell) -> None:
        self._value = value

    def cell(self, row: int) -> _Cell:  # noqa: ARG002  (the same for any row)
        """Return the value."""
        return self._value

    def __len__(self) -> int:
        return sys.maxsize


def _order(arrivals: Sequence[int], rows: int) -> list[int] | None:
    """Return the first ``rows`` rows in order of arrival; ``None`` = the file is already in that order."""
    if all(map(le, arrivals, islice(arrivals, 1, None))):
        return None if rows == len(arrivals) else list(range(rows))
    return sorted(range(rows), key=arrivals.__getitem__)
