"""The rows of a trace: of CSV files, and of JSON in lines, lists and large values.

A block of rows is read at most twice. The fast way takes whole columns and gives up (``NeedsSlowPath``) at the first
sign of trouble. Only then is the block read row by row, to report what is wrong and where.
"""

from __future__ import annotations

import csv
import json
import re
from io import StringIO
from itertools import chain, islice
from math import isnan
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.workload.traces.trace_text import LARGEST_NUMBER, NeedsSlowPath, nearest, shown

if TYPE_CHECKING:
    from _csv import Reader
    from collections.abc import Iterator, Mapping, Sequence

    from blis_tui.model import Trace
    from blis_tui.workload.traces.trace_text import Problems, TraceText


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


_BLANK: Final = re.compile(r"[ \t\r\n]*")
_LARGEST_VALUE: Final = 1 << 26
"""Maximum number of characters of one value in a list."""
_TOO_DEEP: Final = "the value is nested too deeply"
_SHALLOW: Final = "is it a trace? a request has few levels"


def csv_only(trace: Trace, problems: Problems) -> None:
    """Reject settings that only apply to CSV files.

    Raises:
        TraceError: the workload has such a setting for a file of another format.
    """
    for key, setting in (("columns", trace.columns), ("time_unit", trace.time_unit)):
        if setting:
            message = f"`{key}` does not apply to files of the format `{trace.format}`"
            problems.fail(1, "", message, f"remove `{key}`, or set `format: requests` if it is a CSV file")


def json_lines(text: TraceText) -> Iterator[tuple[int, object]]:
    """Iterate over the values of a file with one per line, with line numbers, noting invalid lines."""
    for number, line in text.lines():
        try:
            value: object = json.loads(line)
        except RecursionError:
            text.problems.add(number, "", _TOO_DEEP, _SHALLOW)
        except ValueError as error:
            _note(text.problems, number, "the line is not JSON", error)
        else:
            yield number, value


def json_values(text: TraceText) -> Iterator[tuple[int, object]]:
    """Iterate over the values of a list, or of a sequence of values, with the lines where they begin.

    They are read one by one, so the file may be larger than memory.

    Raises:
        TraceError: it is not JSON.
    """
    in_list = text.head()[:1] == "["
    decoder = json.JSONDecoder()
    failure = None
    before, rest, line = "[" if in_list else "", "", 1
    for piece in chain(text.pieces(), [""]):
        buffer, place = rest + piece, 0
        while (start := _skip(buffer, place)) < len(buffer):
            if in_list and buffer[start] == "]" and before != "[":
                return
            if before and buffer[start] != before:
                failure = json.JSONDecodeError(f"Expecting '{before}'", buffer, start)
                break
            start = _skip(buffer, start + len(before))
            if buffer[start : start + 1] == "]" and before == "[":
                return
            try:
                value, end = decoder.raw_decode(buffer, start)
            except RecursionError:
                text.problems.fail(line + buffer.count("\n", place, start), "", _TOO_DEEP, _SHALLOW)
            except ValueError as error:  # or the value continues in the next piece
                failure = (
                    error
                    if isinstance(error, json.JSONDecodeError)
                    else json.JSONDecodeError(str(error), buffer, start)
                )
                break
            if end == len(buffer) and piece:
                break
            line += buffer.count("\n", place, start)
            yield line, value
            line += buffer.count("\n", start, end)
            place, failure, before = end, None, "," if in_list else ""
        rest = buffer[place:]
        if len(rest) > _LARGEST_VALUE:
            break
    if not text.cut and (failure is not None or in_list):
        reason = f"the file is not JSON: {failure.msg}" if failure is not None else "the list does not end"
        where = 0 if failure is None else buffer.count("\n", place, failure.pos)
        text.problems.fail(line + where, "", reason, "is the file complete?")


def json_document(text: TraceText) -> object:
    """Return the one value of a file.

    Raises:
        TraceError: it is not JSON.
    """
    try:
        value: object = json.loads(text.whole())
    except RecursionError:
        text.problems.fail(1, "", _TOO_DEEP, _SHALLOW)
    except json.JSONDecodeError as error:
        advice = "the file holds one result after the other: split it" if error.msg == "Extra data" else None
        text.problems.fail(error.lineno, "", f"the file is not JSON: {error.msg}, at column {error.colno}", advice)
    except ValueError as error:
        text.problems.fail(1, "", f"the file is not JSON: {error}", "is the file complete?")
    return value


@dataclass(frozen=True, slots=True)
class JsonRow:
    """One object of a trace; its accessors note invalid values."""

    line: int
    data: Mapping[str, object]
    problems: Problems
    where: str = ""
    """Its path within the value that begins in that line, such as ``[7]``; empty = it is that value."""

    @classmethod
    def of(cls, line: int, value: object, problems: Problems, where: str = "") -> JsonRow | None:
        """Wrap a value in a row; note a value that is not an object, and return None."""
        if isinstance(value, dict):
            return cls(line, value, problems, where)
        problems.add(line, where, f"{brief(value)} is not an object", "each request is an object: {…}")
        return None

    def at(self, key: str) -> str:
        """Return the path of a key, for messages."""
        return f"{self.where}.{key}" if self.where and key else self.where or key

    def note(self, key: str, message: str, advice: str | None = None, *, cell: str = "") -> None:
        """Note a problem with a key."""
        self.problems.add(self.line, self.at(key), message, advice, cell=cell)

    def whole(self, key: str, *, least: int = 0) -> int | None:
        """Return a count; None = it is invalid, which is noted."""
        value = self.data.get(key)
        if key not in self.data:
            self.note(key, f"there is no `{key}`", nearest(key, list(self.data)))
            return None
        return count_of(value, self.line, self.at(key), self.problems, least=least)

    def time_us(self, key: str, us: int) -> int | None:
        """Return a time in microseconds, from a number of units of ``us`` each; None = invalid, which is noted."""
        value = self.data.get(key)
        not_a_number = isinstance(value, float) and isnan(value)
        if key not in self.data:
            self.note(key, f"there is no `{key}`", "it says when the request arrives")
        elif not_a_number or isinstance(value, bool) or not isinstance(value, int | float):
            self.note(key, f"{brief(value)} is not a number", "it says when the request arrives", cell=brief(value))
        elif not 0 <= value * us <= LARGEST_NUMBER:
            wrong = "is negative" if value < 0 else "is too large for a time"
            self.note(key, f"{brief(value)} {wrong}", "times count from the start of the trace", cell=brief(value))
        else:
            return round(value * us)
        return None

    def text(self, key: str) -> str:
        """Return text; empty if there is none."""
        value = self.data.get(key)
        return value if isinstance(value, str) else ""


def count_of(value: object, line: int, column: str, problems: Problems, *, least: int = 0) -> int | None:
    """Return a value as a count; note an invalid value, and return ``None``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        wrong = "is not a whole number"
    elif value < 0:
        wrong = "is negative"
    elif value < least:
        wrong = f"is less than {least}"
    elif value > LARGEST_NUMBER:
        wrong = f"is larger than {LARGEST_NUMBER}"
    else:
        return value
    problems.add(line, column, f"{brief(value)} {wrong}", f"write a whole number from {least} on", cell=brief(value))
    return None


def brief(value: object) -> str:
    """Format a value for a message: as JSON, shortened."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, str):
        return shown(value)
    return json.dumps(value)[:40]


def _skip(text: str, place: int) -> int:
    """Return the next position that is not blank."""
    match = _BLANK.match(text, place)
    return place if match is None else match.end()


def _note(problems: Problems, line: int, what: str, error: ValueError) -> None:
    reason = f"{error.msg}, at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
    problems.add(line, "", f"{what}: {reason}", "is the file complete?")
