"""CSV text to columns, and the collecting of everything that is wrong with it.

A trace is read twice at most. The fast way takes whole columns and gives up (``Suspicious``) at the first
sign of trouble; only then is the file walked row by row, to say what is wrong and where.
"""

from __future__ import annotations

import csv
import re
from difflib import get_close_matches
from hashlib import sha256
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Final

from blis_tui.errors import InputError, TraceError
from blis_tui.inputs import MAX_TRACE_BYTES, open_input
from blis_tui.spec.diagnostics import MOST_TRACE_PROBLEMS, TraceProblem

if TYPE_CHECKING:
    from _csv import Reader
    from collections.abc import Iterator, Sequence

LARGEST_NUMBER: Final = 2**53
"""Times and token counts beyond it would lose digits in step-time formulas."""
_WHOLE: Final = re.compile(r"([0-9]+)(?:\.0*)?")
_SHOWN: Final = 40
_LISTED: Final = 12


class Suspicious(Exception):  # noqa: N818  (not an error yet)
    """The fast way found something it does not understand."""


class Problems:
    """What is wrong with one file, in order of lines, up to fifty entries.

    Args:
        file: the path to report.
    """

    __slots__ = ("_file", "_found")

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: list[TraceProblem] = []

    def add(self, line: int, column: str, message: str, advice: str | None = None, *, cell: str = "") -> None:
        """Note one problem; an empty ``column`` means the whole line; ``cell`` is how the message begins.

        Raises:
            TraceError: this was the fiftieth.
        """
        self._found.append(
            TraceProblem(file=self._file, line=line, column=column, message=message, help=advice, cell=cell)
        )
        if len(self._found) >= MOST_TRACE_PROBLEMS:
            raise TraceError(self._found)

    def check(self) -> None:
        """Raise ``TraceError`` if there are any problems."""
        if self._found:
            raise TraceError(sorted(self._found, key=lambda problem: problem.line))


def read_text(path: str, problems: Problems, digest: str = "", most: int = MAX_TRACE_BYTES) -> str:
    """The file's content.

    Args:
        path: the file.
        problems: where to note what is wrong with it.
        digest: the SHA-256 it must have; empty = any.
        most: of a longer file, only the whole rows within so many bytes.

    Raises:
        InputError: the file cannot be read, or is not the one that was meant.
        TraceError: it is not UTF-8 text, or empty.
    """
    with open_input(path, f"the trace {path}", limit=MAX_TRACE_BYTES) as file:
        data = file.read(most + 1)
    if len(data) > most:
        whole = data if data.count(b'"') % 2 == 0 else data[: data.rindex(b'"')]  # a quoted cell may span lines
        data = whole.rpartition(b"\n")[0]
    if digest and sha256(data).hexdigest() != digest:
        raise InputError(f"the trace {path} has changed since the experiment was loaded", help="load it again")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.add(line, "", f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8")
        problems.check()
        raise
    nul = text.find("\0")
    if nul >= 0:
        problems.add(text.count("\n", 0, nul) + 1, "", "there is a NUL character in the line")
    elif not text.strip():
        problems.add(1, "", "the file is empty")
    problems.check()
    return text


def first_cell(text: str, place: int) -> tuple[str, int]:
    """The first cell of a column that is not empty, and its line; an empty one where there is none."""
    rows = _reader(text)
    try:
        for row in islice(rows, 1, None):
            if len(row) > place and row[place].strip():
                return row[place], rows.line_num
    except csv.Error:  # found again, and told, when the rows are read
        pass
    return "", 1


def read_columns(text: str, header: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """All cells by column name, the fast way.

    Raises:
        Suspicious: rows differ in length, quoting is broken, or there are no rows.
    """
    rows = _reader(text)
    try:
        next(rows)
        columns = tuple(zip(*rows, strict=True))
    except (csv.Error, ValueError) as error:
        raise Suspicious from error
    if not columns or len(columns) != len(header):
        raise Suspicious
    return dict(zip(header, columns, strict=True))


def read_header(text: str, problems: Problems) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The column names in the first line, without blanks around them, and the cells of the first row below.

    Where that row cannot be read, its cells are empty: it is found again, and told, when the rows are read.

    Raises:
        TraceError: the line cannot be read.
    """
    rows = _reader(text)
    try:
        header = tuple(name.strip() for name in next(rows))
    except csv.Error as error:
        problems.add(1, "", f"the header cannot be read: {error}")
        problems.check()
        raise
    nothing = ("",) * len(header)
    try:
        first = tuple(next(filter(None, rows), nothing))
    except csv.Error:
        first = nothing
    return header, first if len(first) == len(header) else nothing


def read_rows(text: str, problems: Problems, header: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of the right length with the number of their line, noting the others; blank lines are skipped."""
    rows = _reader(text)
    width = len(header)
    line = 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            problems.add(line, "", f"the line cannot be read: {error}")
            return
        if row is None:
            return
        if line > 1 and row:
            if len(row) == width:
                yield line, dict(zip(header, row, strict=True))
            else:
                problems.add(line, "", f"the line has {len(row)} fields, the header {width}")
        line = rows.line_num + 1


def whole_numbers(cells: Sequence[str]) -> list[int]:
    """All cells as numbers, the fast way.

    Raises:
        Suspicious: a cell is anything but digits (``.0`` may follow them), or too large.
    """
    digits = "".join(cells)
    if "." in digits:
        cells = [cell.removesuffix(".0") for cell in cells]
        digits = "".join(cells)
    if not (digits.isascii() and digits.isdigit()) or "" in cells:
        raise Suspicious
    try:
        numbers = list(map(int, cells))
    except ValueError as error:  # more digits than int() takes
        raise Suspicious from error
    if max(numbers) > LARGEST_NUMBER:
        raise Suspicious
    return numbers


def whole_number(cell: str, line: int, column: str, problems: Problems) -> int | None:
    """One cell as a number; what is wrong with it is noted, and ``None`` returned."""
    text = cell.strip()
    if not text:
        problems.add(line, column, "the cell is empty", "write a whole number")
        return None
    match = _WHOLE.fullmatch(text)
    if match is not None:
        significant = match[1].lstrip("0") or "0"
        if len(significant) <= len(str(LARGEST_NUMBER)) and int(significant) <= LARGEST_NUMBER:
            return int(significant)
        wrong = f"is larger than {LARGEST_NUMBER}"
    elif text.startswith("-") and _WHOLE.fullmatch(text[1:]):
        wrong = "is negative"
    else:
        wrong = "is not a whole number"
    problems.add(line, column, f"{shown(text)} {wrong}", cell=shown(text))
    return None


def nearest(name: str, known: Sequence[str], otherwise: str) -> str:
    """Advice for a misspelt name: the closest known one, or all of them."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"{otherwise} {', '.join(known)}"


def shown(text: str) -> str:
    """A cell for a message, shortened."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def listed(names: Sequence[str]) -> str:
    """Names of columns for a message; of many, the first dozen."""
    first = ", ".join(shown(name) for name in names[:_LISTED])
    return first if len(names) <= _LISTED else f"{first} and {len(names) - _LISTED} more"


def _reader(text: str) -> Reader:
    """Records by RFC 4180, but spaces after commas are ignored."""
    return csv.reader(StringIO(text, newline=""), strict=True, skipinitialspace=True)
