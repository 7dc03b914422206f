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
from typing import TYPE_CHECKING, Final

from blis_tui.errors import InputError, TraceError, TraceProblem
from blis_tui.inputs import MAX_TRACE_BYTES, read_input

if TYPE_CHECKING:
    from _csv import Reader
    from collections.abc import Iterator, Sequence

_MOST_PROBLEMS: Final = 50
LARGEST_NUMBER: Final = 2**53
"""Times and token counts beyond it would lose digits in step-time formulas."""
_DIGITS: Final = re.compile(r"[0-9]+")
_SHOWN: Final = 40


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

    def add(self, line: int, column: str, message: str, advice: str | None = None) -> None:
        """Note one problem; an empty ``column`` means the whole line.

        Raises:
            TraceError: this was the fiftieth.
        """
        self._found.append(TraceProblem(file=self._file, line=line, column=column, message=message, help=advice))
        if len(self._found) >= _MOST_PROBLEMS:
            raise TraceError(self._found)

    def check(self) -> None:
        """Raise ``TraceError`` if there are any problems."""
        if self._found:
            raise TraceError(self._found)


def read_text(path: str, problems: Problems, digest: str = "") -> str:
    """The file's content.

    Args:
        path: the file.
        problems: where to note what is wrong with it.
        digest: the SHA-256 it must have; empty = any.

    Raises:
        InputError: the file cannot be read, or is not the one that was meant.
        TraceError: it is not UTF-8 text, or empty.
    """
    data = read_input(path, f"the trace {path}", limit=MAX_TRACE_BYTES)
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


def read_columns(text: str) -> dict[str, tuple[str, ...]]:
    """All cells by column name, the fast way.

    Raises:
        Suspicious: rows differ in length, quoting is broken, or there are no rows.
    """
    rows = _reader(text)
    try:
        header = next(rows)
        columns = tuple(zip(*rows, strict=True))
    except (csv.Error, ValueError) as error:
        raise Suspicious from error
    if not columns or len(columns) != len(header):
        raise Suspicious
    return dict(zip(header, columns, strict=True))


def read_header(
    text: str, problems: Problems, required: Sequence[str], optional: Sequence[str] = ()
) -> tuple[str, ...]:
    """The column names of the first line, checked.

    Raises:
        TraceError: columns are missing, unknown or doubled.
    """
    try:
        header = tuple(next(_reader(text)))
    except csv.Error as error:
        problems.add(1, "", f"the header cannot be read: {error}")
        problems.check()
        raise
    known = (*required, *optional)
    for position, name in enumerate(header):
        if name not in known:
            problems.add(1, name, f"there is no column {_shown(name)}", nearest(name, known, "the columns are"))
        elif name in header[:position]:
            problems.add(1, name, f"column {name!r} appears twice")
    for name in required:
        if name not in header:
            problems.add(1, name, f"column {name!r} is missing", f"the header must name {', '.join(required)}")
    problems.check()
    return header


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
        Suspicious: a cell is anything but digits, or too large.
    """
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
    if _DIGITS.fullmatch(text):
        significant = text.lstrip("0") or "0"
        if len(significant) <= len(str(LARGEST_NUMBER)) and int(significant) <= LARGEST_NUMBER:
            return int(significant)
        problems.add(line, column, f"{_shown(text)} is larger than {LARGEST_NUMBER}")
    elif not text:
        problems.add(line, column, "the cell is empty", "write a whole number")
    elif text.startswith("-") and _DIGITS.fullmatch(text[1:]):
        problems.add(line, column, f"{_shown(text)} is negative")
    else:
        problems.add(line, column, f"{_shown(text)} is not a whole number")
    return None


def nearest(name: str, known: Sequence[str], otherwise: str) -> str:
    """Advice for a misspelt name: the closest known one, or all of them."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"{otherwise} {', '.join(known)}"


def _shown(text: str) -> str:
    """A cell for a message, shortened."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def _reader(text: str) -> Reader:
    """Records by RFC 4180, but spaces after commas are ignored."""
    return csv.reader(StringIO(text, newline=""), strict=True, skipinitialspace=True)
