"""The rows of a trace that is a CSV file.

A block of rows is read twice at most. The fast way takes whole columns and gives up (``Suspicious``) at the first
sign of trouble; only then is it walked row by row, to say what is wrong and where.
"""

from __future__ import annotations

import csv
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Final

from blis_tui.workload.trace_text import Suspicious

if TYPE_CHECKING:
    from _csv import Reader
    from collections.abc import Iterator, Sequence

    from blis_tui.workload.trace_text import Problems


_QUOTES: Final = 'put text with commas or quotes in double quotes, and double its own quotes: "a ""b"", c"'
_MISSING: Final = "leave cells without a value empty, but keep their commas"


def read_columns(text: str, width: int, most: int) -> tuple[Sequence[Sequence[str]], int]:
    """The cells of ``width`` columns, the fast way, and in how many lines they are: one row in each.

    Args:
        text: whole rows.
        width: how many columns there must be.
        most: rows that are read.

    Raises:
        Suspicious: rows differ in length or span lines, quoting is broken, or there are no rows.
    """
    rows = _reader(text)
    try:
        columns = tuple(zip(*islice(rows, most), strict=True))
    except (csv.Error, ValueError) as error:
        raise Suspicious from error
    if len(columns) != width or len(columns[0]) != rows.line_num:
        raise Suspicious
    return columns, rows.line_num


def read_header(text: str, problems: Problems) -> tuple[tuple[str, ...], str, int]:
    """The column names in the first line, without blanks around them, what follows, and how many lines they take.

    Raises:
        TraceError: the line cannot be read.
    """
    stream = StringIO(text, newline="")
    rows = csv.reader(stream, strict=True, skipinitialspace=True)
    try:
        header = tuple(name.strip() for name in next(rows))
    except csv.Error as error:
        problems.fail(1, "", f"the header cannot be read: {error}", _QUOTES)
    return header, stream.read(), rows.line_num


def first_row(text: str, width: int) -> tuple[str, ...]:
    """The cells of the first row. Where it cannot be read, they are empty: it is told when the rows are read."""
    nothing = ("",) * width
    try:
        first = tuple(next(filter(None, _reader(text)), nothing))
    except csv.Error:
        return nothing
    return first if len(first) == width else nothing


def first_cell(text: str, place: int) -> tuple[str, int]:
    """The first cell of a column that is not empty, and its line; an empty one where there is none."""
    rows = _reader(text)
    try:
        for row in rows:
            if len(row) > place and row[place].strip():
                return row[place], rows.line_num
    except csv.Error:  # found again, and told, when the rows are read
        pass
    return "", 1


def read_rows(text: str, first_line: int, width: int, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """Rows of the right length with the number of their line, noting the others; blank lines are skipped.

    Args:
        text: whole rows.
        first_line: number of the first line.
        width: how many cells a row must have.
        problems: where to note what is wrong.
    """
    rows = _reader(text)
    line = first_line
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            problems.add(line, "", f"the line cannot be read: {error}", _QUOTES)
            return
        if row is None:
            return
        if row:
            if len(row) == width:
                yield line, row
            else:
                advice = "put cells that contain commas in double quotes" if len(row) > width else _MISSING
                problems.add(line, "", f"the line has {len(row)} fields, the header {width}", advice)
        line = first_line + rows.line_num


def _reader(text: str) -> Reader:
    """Records by RFC 4180, but spaces after commas are ignored."""
    return csv.reader(StringIO(text, newline=""), strict=True, skipinitialspace=True)
