"""The rows of a CSV trace.

A block of rows is read at most twice. The fast way takes whole columns and gives up (``NeedsSlowPath``) at the first
sign of trouble. Only then is the block read row by row, to report what is wrong and where.
"""

from __future__ import annotations

import csv
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Final

from blis_tui.workload.trace_text import NeedsSlowPath

if TYPE_CHECKING:
    from _csv import Reader
    from collections.abc import Iterator, Sequence

    from blis_tui.workload.trace_text import Problems


_QUOTES: Final = 'put text with commas or quotes in double quotes, and double its own quotes: "a ""b"", c"'
_MISSING: Final = "leave cells without a value empty, but keep their commas"


def read_columns(text: str, width: int, most: int) -> tuple[Sequence[Sequence[str]], int]:
    """Read ``width`` columns the fast way; return their cells and the number of lines, one row in each.

    Args:
        text: whole rows.
        width: the required number of columns.
        most: maximum number of rows to read.

    Raises:
        NeedsSlowPath: rows differ in length or span lines, quoting is broken, or there are no rows.
    """
    rows = _reader(text)
    try:
        columns = tuple(zip(*islice(rows, most), strict=True))
    except (csv.Error, ValueError) as error:
        raise NeedsSlowPath from error
    if len(columns) != width or len(columns[0]) != rows.line_num:
        raise NeedsSlowPath
    return columns, rows.line_num


def read_header(text: str, problems: Problems) -> tuple[tuple[str, ...], str, int]:
    """Return the column names in the first line, stripped, the text that follows, and the header's number of lines.

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
    """Return the cells of the first row; empty if it cannot be read, which is reported when the rows are read."""
    nothing = ("",) * width
    try:
        first = tuple(next(filter(None, _reader(text)), nothing))
    except csv.Error:
        return nothing
    return first if len(first) == width else nothing


def first_cell(text: str, place: int) -> tuple[str, int]:
    """Return the first non-empty cell of a column and its line; an empty cell if there is none."""
    rows = _reader(text)
    try:
        for row in rows:
            if len(row) > place and row[place].strip():
                return row[place], rows.line_num
    except csv.Error:  # found again and reported when the rows are read
        pass
    return "", 1


def read_rows(text: str, first_line: int, width: int, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """Iterate over rows of the right length with their line numbers, noting others; blank lines are skipped.

    Args:
        text: whole rows.
        first_line: number of the first line.
        width: the required number of cells of a row.
        problems: collects what is wrong.
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
    """Create a reader by RFC 4180 that ignores spaces after commas."""
    return csv.reader(StringIO(text, newline=""), strict=True, skipinitialspace=True)
