"""The ``requests`` trace format: a CSV file with a header, one request a line.

The prompt is ``prefix_length`` tokens that all requests of ``prefix_group`` share, followed by
``input_tokens`` of its own. Times are in microseconds; ``deadline_us`` is absolute, 0 or empty meaning none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import add
from typing import TYPE_CHECKING, Final

from blis_tui.spec.model import SLO_CLASSES
from blis_tui.workload.trace_table import TraceColumns
from blis_tui.workload.trace_text import (
    Suspicious,
    nearest,
    read_columns,
    read_header,
    read_rows,
    whole_number,
    whole_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.engine.request import Segments
    from blis_tui.workload.trace_text import Problems

_REQUIRED: Final = ("arrival_time_us", "input_tokens", "output_tokens")
_OPTIONAL_NUMBERS: Final = ("prefix_length", "deadline_us", "round_index")
_TEXTS: Final = ("request_id", "prefix_group", "slo_class", "tenant_id", "session_id")


def read(text: str, problems: Problems) -> TraceColumns:
    """Parse a file's text.

    Raises:
        TraceError: columns or rows are wrong.
    """
    header = read_header(text, problems, _REQUIRED, (*_TEXTS, *_OPTIONAL_NUMBERS))
    try:
        return _build(read_columns(text))
    except Suspicious:
        columns = _inspect(text, header, problems)
    problems.check()
    return _build(columns)


def _build(columns: Mapping[str, Sequence[str]]) -> TraceColumns:
    """Whole columns at once; ``Suspicious`` when any cell may be wrong."""
    arrivals = whole_numbers(columns["arrival_time_us"])
    prompts = whole_numbers(columns["input_tokens"])
    lengths = _optional_numbers(columns, "prefix_length")
    segments = None
    if lengths is not None and any(lengths):
        prompts = list(map(add, prompts, lengths))
        segments = _segments(columns.get("prefix_group"), lengths)
    deadlines = _optional_numbers(columns, "deadline_us")
    if deadlines is not None:
        if not any(deadlines):
            deadlines = None
        elif any(0 < deadline < arrival for deadline, arrival in zip(deadlines, arrivals, strict=True)):
            raise Suspicious
    identifiers = columns.get("request_id")
    if identifiers is not None and (len(dict.fromkeys(identifiers)) < len(identifiers) or "" in identifiers):
        raise Suspicious
    if not all(prompts):
        raise Suspicious
    return TraceColumns(
        arrival_us=arrivals,
        input_tokens=prompts,
        output_tokens=whole_numbers(columns["output_tokens"]),
        request_id=identifiers,
        segments=segments,
        slo_class=_slo_classes(columns.get("slo_class")),
        tenant=columns.get("tenant_id"),
        deadline_us=deadlines,
        session_id=columns.get("session_id"),
        round_index=_optional_numbers(columns, "round_index"),
    )


def _optional_numbers(columns: Mapping[str, Sequence[str]], name: str) -> list[int] | None:
    """A column that may be missing, whose empty cells mean 0."""
    cells = columns.get(name)
    if cells is None:
        return None
    return whole_numbers([cell or "0" for cell in cells] if "" in cells else cells)


def _segments(groups: Sequence[str] | None, lengths: Sequence[int]) -> list[Segments]:
    """The shared heads of the prompts, equal ones being one object."""
    if groups is None:
        raise Suspicious
    known: dict[tuple[str, int], Segments] = {}
    found: list[Segments] = []
    for key in zip(groups, lengths, strict=True):
        segments = known.get(key)
        if segments is None:
            group, length = key
            if length and not group:
                raise Suspicious
            segments = (key,) if length else ()
            known[key] = segments
        found.append(segments)
    return found


def _slo_classes(cells: Sequence[str] | None) -> Sequence[str] | None:
    """Service classes, ``standard`` where the cell is empty."""
    if cells is None:
        return None
    different = dict.fromkeys(cells)
    if any(name and name not in SLO_CLASSES for name in different):
        raise Suspicious
    return [name or "standard" for name in cells] if "" in different else cells


@dataclass(slots=True)
class _Inspector:
    """Looks at one row after the other and notes what is wrong."""

    problems: Problems
    lines_of_ids: dict[str, int] = field(default_factory=dict)

    def row(self, line: int, row: Mapping[str, str]) -> dict[str, str]:
        """The row with its numbers in plain form."""
        cells = dict(row)
        numbers: dict[str, int | None] = {}
        for name, cell in row.items():
            if name in _TEXTS:
                cells[name] = cell.strip() if name == "slo_class" else cell
                continue
            blank = name in _OPTIONAL_NUMBERS and not cell.strip()
            number = 0 if blank else whole_number(cell, line, name, self.problems)
            numbers[name] = number
            cells[name] = str(number)
        self._prompt(line, numbers, row.get("prefix_group", ""))
        self._deadline(line, numbers)
        self._slo_class(line, cells.get("slo_class", ""))
        if "request_id" in row:
            self._request_id(line, row["request_id"])
        return cells

    def _prompt(self, line: int, numbers: Mapping[str, int | None], group: str) -> None:
        own, shared = numbers["input_tokens"], numbers.get("prefix_length", 0)
        if own == 0 and shared == 0:
            self.problems.add(line, "input_tokens", "the prompt has no tokens", "a prompt has at least 1")
        if shared and not group:
            self.problems.add(
                line,
                "prefix_group",
                f"prefix_length is {shared} but no group is named",
                "name a prefix_group",
            )

    def _deadline(self, line: int, numbers: Mapping[str, int | None]) -> None:
        arrival, deadline = numbers["arrival_time_us"], numbers.get("deadline_us")
        if arrival is not None and deadline and deadline < arrival:
            self.problems.add(
                line,
                "deadline_us",
                f"the deadline {deadline} is before the arrival {arrival}",
                "deadlines are absolute; 0 = none",
            )

    def _slo_class(self, line: int, name: str) -> None:
        if name and name not in SLO_CLASSES:
            advice = nearest(name, SLO_CLASSES, "the service classes are")
            self.problems.add(line, "slo_class", f"there is no service class {name!r}", advice)

    def _request_id(self, line: int, name: str) -> None:
        if not name:
            self.problems.add(line, "request_id", "the cell is empty", "name all requests or drop the column")
        elif name in self.lines_of_ids:
            self.problems.add(line, "request_id", f"{name!r} is also the request of line {self.lines_of_ids[name]}")
        else:
            self.lines_of_ids[name] = line


def _inspect(text: str, header: Sequence[str], problems: Problems) -> dict[str, list[str]]:
    """Walk the file row by row, note all problems, and return the columns in plain form."""
    inspector = _Inspector(problems)
    columns: dict[str, list[str]] = {name: [] for name in header}
    empty = True
    for line, row in read_rows(text, problems, header):
        empty = False
        for name, cell in inspector.row(line, row).items():
            columns[name].append(cell)
    if empty:
        problems.check()
        problems.add(1, "", "there are no requests below the header")
    return columns
