"""From the text of a trace, a CSV file with a header and one request a line, to columns of numbers.

``prefix_group`` shares the head of the prompt: ``prefix_length`` tokens that come before the ``input_tokens``, or
``prefix_tokens`` of them; ``prefix_segments`` is such a head in parts. ``deadline_us`` is absolute, 0 or empty meaning
none.
"""

from __future__ import annotations

from operator import add, gt
from typing import TYPE_CHECKING, Final

from blis_tui.spec.model import SLO_CLASSES
from blis_tui.workload.trace_columns import resolve_columns
from blis_tui.workload.trace_segments import read_segments
from blis_tui.workload.trace_table import TraceColumns
from blis_tui.workload.trace_text import (
    LARGEST_NUMBER,
    Suspicious,
    first_cell,
    nearest,
    read_columns,
    read_header,
    read_rows,
    whole_number,
    whole_numbers,
)
from blis_tui.workload.trace_times import clock_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.engine.request import Segments
    from blis_tui.workload.trace_columns import Columns
    from blis_tui.workload.trace_text import Problems
    from blis_tui.workload.trace_times import Clock

_COUNTS: Final = ("input_tokens", "output_tokens")
_OPTIONAL_NUMBERS: Final = ("prefix_length", "prefix_tokens", "deadline", "round_index")


def read(text: str, given: Mapping[str, str], time_unit: str, problems: Problems) -> TraceColumns:
    """Parse a file's text.

    Args:
        text: the file.
        given: which column says what, where its name does not: field -> column.
        time_unit: unit of the arrivals where nothing else tells it; empty = not said.
        problems: of the file.

    Raises:
        TraceError: columns or rows are wrong.
    """
    header, first_row = read_header(text, problems)
    found = resolve_columns(header, first_row, given, time_unit, problems)
    arrival = found.names["arrival"]
    clock = clock_of(arrival, found.unit, *first_cell(text, header.index(arrival)), problems, native=found.native)
    try:
        cells = read_columns(text, header)
        columns = {what: cells[name] for what, name in found.names.items()}
        return _build(columns, clock.arrivals(clock.read_all(columns["arrival"]), problems))
    except Suspicious:
        return _inspect(text, header, found, clock, problems)


def _build(columns: Mapping[str, Sequence[str]], arrivals: Sequence[int]) -> TraceColumns:
    """Whole columns at once; ``Suspicious`` when any cell may be wrong."""
    prompts = whole_numbers(columns["input_tokens"])
    extra = _optional_numbers(columns, "prefix_length")
    within = _optional_numbers(columns, "prefix_tokens")
    lengths = within if extra is None else extra
    segments = None
    if lengths is not None and any(lengths):
        if extra is not None:
            prompts = list(map(add, prompts, extra))
        elif any(map(gt, lengths, prompts)):
            raise Suspicious
        segments = _segments(columns.get("prefix_group"), lengths)
    if (cells := columns.get("prefix_segments")) is not None and any(cells):
        segments = _parted(cells, prompts, segments)
    deadlines = _optional_numbers(columns, "deadline")
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
        model=columns.get("model"),
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


def _parted(cells: Sequence[str], prompts: Sequence[int], others: Sequence[Segments] | None) -> list[Segments]:
    """The shared heads that have several parts, and those of the other prompts."""
    heads = [()] * len(cells) if others is None else others
    try:
        found = [read_segments(cell, prompt) or head for cell, prompt, head in zip(cells, prompts, heads, strict=True)]
    except ValueError as error:
        raise Suspicious from error
    return found


def _slo_classes(cells: Sequence[str] | None) -> Sequence[str] | None:
    """Service classes, ``standard`` where the cell is empty."""
    if cells is None:
        return None
    different = dict.fromkeys(cells)
    if any(name and name not in SLO_CLASSES for name in different):
        raise Suspicious
    return [name or "standard" for name in cells] if "" in different else cells


class _Inspector:
    """Looks at one row after the other, notes what is wrong, and keeps the rows in plain form."""

    def __init__(self, names: Mapping[str, str], clock: Clock, problems: Problems) -> None:
        self.columns: dict[str, list[str]] = {what: [] for what in names}
        self.times: list[int] = []
        self._names = names
        self._clock = clock
        self._problems = problems
        self._lines_of_ids: dict[str, int] = {}
        self._deadlines: list[tuple[int, int, int]] = []

    def row(self, line: int, row: Mapping[str, str]) -> None:
        """Look at the next row."""
        cells = {what: row[name] for what, name in self._names.items()}
        time = self._clock.read(cells["arrival"], line, self._problems)
        numbers: dict[str, int | None] = {}
        for what, cell in cells.items():
            if what in _OPTIONAL_NUMBERS and not cell.strip():
                numbers[what] = 0
            elif what in _OPTIONAL_NUMBERS or what in _COUNTS:
                numbers[what] = whole_number(cell, line, self._names[what], self._problems)
        self._prompt(line, numbers, cells.get("prefix_group", ""))
        try:
            read_segments(cells.get("prefix_segments", ""), (numbers.get("input_tokens") or 0) or LARGEST_NUMBER)
        except ValueError as error:
            self._note(line, "prefix_segments", str(error), 'such as [["system", 512], ["manual", 64]]')
        self._slo_class(line, cells.get("slo_class", "").strip())
        if "request_id" in cells:
            self._request_id(line, cells["request_id"])
        if time is not None:
            self.times.append(time)
            if deadline := numbers.get("deadline"):
                self._deadlines.append((line, len(self.times) - 1, deadline))
        for what, cell in cells.items():
            plain = cell.strip() if what == "slo_class" else cell
            self.columns[what].append(str(numbers[what]) if what in numbers else plain)

    def finish(self) -> Sequence[int]:
        """All arrivals, in whole microseconds.

        Raises:
            TraceError: anything was wrong.
        """
        if not self.columns["arrival"]:
            self._problems.check()
            self._problems.add(1, "", "there are no requests below the header")
        arrivals = self._clock.arrivals(self.times, self._problems)
        for line, number, deadline in self._deadlines:
            if deadline < arrivals[number]:
                message = f"the deadline {deadline} is before the arrival {arrivals[number]}"
                self._note(line, "deadline", message, "deadlines are absolute; 0 = none")
        self._problems.check()
        return arrivals

    def _note(self, line: int, what: str, message: str, advice: str | None = None) -> None:
        self._problems.add(line, self._names.get(what, what), message, advice)

    def _prompt(self, line: int, numbers: Mapping[str, int | None], group: str) -> None:
        prompt, extra, within = (numbers.get(what, 0) for what in ("input_tokens", "prefix_length", "prefix_tokens"))
        if prompt == 0 and not extra:
            self._note(line, "input_tokens", "the prompt has no tokens", "a prompt has at least 1")
        for what in ("prefix_length", "prefix_tokens"):
            if numbers.get(what) and not group:
                message = f"{what} is {numbers[what]} but there is no group"
                self._note(line, "prefix_group", message, "name a prefix_group")
        if prompt is not None and within and within > prompt:
            self._note(line, "prefix_tokens", f"a prompt of {prompt} tokens cannot have {within} shared ones")

    def _slo_class(self, line: int, name: str) -> None:
        if name and name not in SLO_CLASSES:
            advice = nearest(name, SLO_CLASSES, "the service classes are")
            self._note(line, "slo_class", f"there is no service class {name!r}", advice)

    def _request_id(self, line: int, name: str) -> None:
        if not name:
            self._note(line, "request_id", "the cell is empty", "give every request an id or drop the column")
        elif name in self._lines_of_ids:
            self._note(line, "request_id", f"{name!r} is also the id on line {self._lines_of_ids[name]}")
        else:
            self._lines_of_ids[name] = line


def _inspect(text: str, header: Sequence[str], found: Columns, clock: Clock, problems: Problems) -> TraceColumns:
    """Walk the file row by row and note all problems; unusual but valid files are read here too."""
    inspector = _Inspector(found.names, clock, problems)
    for line, row in read_rows(text, problems, header):
        inspector.row(line, row)
    arrivals = inspector.finish()
    return _build(inspector.columns, arrivals)
