"""The text of a trace, numbers in it, and the collection of its problems."""

from __future__ import annotations

import re
from codecs import BOM_UTF8, getincrementaldecoder
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import MOST_TRACE_PROBLEMS, TraceProblem
from blis_tui.base.errors import InputError, TraceError
from blis_tui.base.input_files import MAX_TRACE_BYTES, DamagedError, input_digest, open_input, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import NoReturn

LARGEST_NUMBER: Final = 2**53
"""Larger times and token counts would lose digits in step-time formulas."""
_WHOLE: Final = re.compile(r"([0-9]+)(?:\.0*)?")
_BLOCK: Final = 1 << 20
"""Bytes processed together: some ten thousand rows of numbers."""
_LONGEST_LINE: Final = 1 << 26
_LONGEST_CELL: Final = 1 << 20
"""Maximum length of a CSV cell: what the parser accepts, with a margin."""
_LARGEST_WHOLE: Final = 1 << 28
_HEAD: Final = 4096
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
"""Bytes that occur in no text of any encoding, except those with two bytes per letter."""
_SHOWN: Final = 40
_LISTED: Final = 12


class NeedsSlowPath(Exception):  # noqa: N818  (not an error yet)
    """The fast way found something it does not understand."""


class Problems:
    """The problems of one file, sorted by line, up to fifty.

    Args:
        file: the path to report.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._problems: list[TraceProblem] = []

    def add(self, line: int, column: str, message: str, advice: str | None = None, *, cell: str = "") -> None:
        """Note one problem; an empty ``column`` means the whole line; ``cell`` is the quoted beginning of the message.

        Raises:
            TraceError: this was the fiftieth.
        """
        self._problems.append(
            TraceProblem(file=self._file, line=line, column=column, message=message, help=advice, cell=cell)
        )
        if len(self._problems) >= MOST_TRACE_PROBLEMS:
            raise TraceError(self._problems)

    def fail(self, line: int, column: str, message: str, advice: str | None = None) -> NoReturn:
        """Note one problem that prevents further reading.

        Raises:
            TraceError: always, with all that was noted.
        """
        self.add(line, column, message, advice)
        raise TraceError(sorted(self._problems, key=lambda problem: problem.line))

    def check(self) -> None:
        """Raise ``TraceError`` if there are any problems."""
        if self._problems:
            raise TraceError(sorted(self._problems, key=lambda problem: problem.line))


class TraceText:
    """The text of a trace in pieces, so that a file need never be in memory as a whole.

    Args:
        chunks: its bytes, in any pieces.
        problems: collects what is wrong.
        most: for a longer text, read only the whole lines within this number of bytes; None = all.

    Attributes:
        problems: the problems noted so far.
        cut: whether there was more than ``most``, once it has been read.
    """

    def __init__(self, chunks: Iterable[bytes], problems: Problems, most: int | None = None) -> None:
        self.problems = problems
        self.cut = False
        self._chunks: Iterator[bytes] = iter(chunks)
        self._most = most
        self._line = 1

    def blocks(self) -> Iterator[str]:
        """Iterate over pieces of about a MiB that end with a line, but not within a quoted cell of several lines.

        Raises:
            TraceError: it is not UTF-8 text, or empty.
        """
        nothing = True
        for piece in self._pieces(quotes=True):
            text = self._decoded(piece)
            if not nothing or text.strip():
                nothing = False
                yield text
        self._check_empty(nothing)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Iterate over the non-blank lines, with their numbers. Raises as :meth:`blocks`."""
        nothing = True
        for piece in self._pieces(quotes=False):
            first = self._line
            for number, line in enumerate(self._decoded(piece).split("\n"), first):
                if line and not line.isspace():
                    nothing = False
                    yield number, line
        self._check_empty(nothing)

    def head(self) -> str:
        """Return the beginning without leading blanks, to detect the format; nothing is consumed."""
        start = b""
        try:
            while len(start) < _HEAD and (chunk := next(self._chunks, b"")):
                start += chunk
        except DamagedError as error:
            self.problems.fail(1, "", error.message, error.advice)
        self._chunks = chain([start], self._chunks)
        return start[:_HEAD].removeprefix(BOM_UTF8).decode("utf-8", "replace").lstrip()

    def pieces(self) -> Iterator[str]:
        """Iterate over the text in arbitrary pieces. Raises as :meth:`blocks`."""
        decoder = getincrementaldecoder("utf-8-sig")()
        left = self._most
        try:
            for chunk in self._expanded():
                if left is not None and len(chunk) > left:
                    self.cut = True
                    return
                left = None if left is None else left - len(chunk)
                text = decoder.decode(chunk)
                yield text
                self._line += text.count("\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            self._fail_to_decode(error)

    def whole(self) -> str:
        """Return the whole text, regardless of ``most``.

        Raises:
            TraceError: it is not UTF-8 text, empty, or larger than what is read at once.
        """
        data = bytearray()
        for chunk in self._expanded():
            data += chunk
            if len(data) > _LARGEST_WHOLE:
                message = f"the file is larger than {_LARGEST_WHOLE >> 20} MiB, and is not a list of lines"
                self.problems.fail(1, "", message, "split it")
        text = self._decoded(bytes(data))
        self._check_empty(not text.strip())
        return text

    def _check_empty(self, nothing: bool) -> None:
        if nothing and not self.cut:
            self.problems.fail(1, "", "the file is empty", "is it the right one?")

    def _pieces(self, *, quotes: bool) -> Iterator[bytes]:
        rest = b""
        left = self._most
        for chunk in self._expanded():
            if left is not None and len(chunk) > left:
                self.cut = True
                rest += chunk[:left]
                if end := _end(rest, quotes=quotes):
                    yield rest[:end]
                return
            left = None if left is None else left - len(chunk)
            rest += chunk
            if len(rest) >= _BLOCK and (end := _end(rest, quotes=quotes)):
                yield rest[:end]
                rest = rest[end:]
            elif len(rest) > _LONGEST_LINE:
                message = f"the line is longer than {_LONGEST_LINE >> 20} MiB"
                self.problems.fail(
                    self._line, "", message, "is it a trace? in a trace, each request has a line of its own"
                )
        if rest:
            yield rest

    def _expanded(self) -> Iterator[bytes]:
        try:
            yield from self._chunks
        except DamagedError as error:
            self.problems.fail(self._line, "", error.message, error.advice)

    def _decoded(self, data: bytes) -> str:
        try:
            text = data.decode("utf-8-sig" if self._line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            self._fail_to_decode(error)
        nul = text.find("\0")
        if nul >= 0:
            self.problems.fail(
                self._line + text.count("\n", 0, nul),
                "",
                "there is a NUL character in the line",
                "is it a text file, and complete?",
            )
        self._line += text.count("\n")
        return text

    def _fail_to_decode(self, error: UnicodeDecodeError) -> NoReturn:
        """Report undecodable bytes; a file that is not text at all gets no line and no advice about its encoding."""
        data = error.object
        if self._line == 1 and _CONTROL.search(data, 0, _HEAD):
            self.problems.fail(0, "", "the file is not text", "is it the right one? traces are CSV or JSON, in UTF-8")
        line = self._line + data.count(b"\n", 0, error.start)
        self.problems.fail(line, "", f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8")


def _end(data: bytes, *, quotes: bool) -> int:
    """Return the end of the last whole line or, with ``quotes``, of the last line that ends outside a quoted cell."""
    last = end = _line_end(data, len(data))
    while quotes and data.count(b'"', 0, end) % 2:
        end = _line_end(data, data.rindex(b'"', 0, end))
        if last - end > _LONGEST_CELL:  # no cell is that long, so these are not quotes
            return last
    return end


def _line_end(data: bytes, before: int) -> int:
    # A trailing carriage return may be half of a line end.
    return (data.rfind(b"\n", 0, before) + 1) or (data.rfind(b"\r", 0, min(before, len(data) - 1)) + 1)


@contextmanager
def open_trace(path: str, problems: Problems, digest: str = "", most: int | None = None) -> Iterator[TraceText]:
    """Open a file's text, decompressing it if necessary.

    Args:
        path: the file.
        problems: collects what is wrong.
        digest: the required SHA-256; empty = any.
        most: as for :class:`TraceText`.

    Raises:
        InputError: the file cannot be read, or has another digest.
    """
    name = f"the trace {path}"
    with open_input(path, name, limit=MAX_TRACE_BYTES) as file:
        if digest and input_digest(path, limit=MAX_TRACE_BYTES) != digest:
            raise InputError(f"{name} has changed since the experiment was loaded", help="load it again")
        yield TraceText(unpacked(file, name, limit=MAX_TRACE_BYTES), problems, most)


def whole_numbers(cells: Sequence[str]) -> list[int]:
    """Convert all cells to numbers, the fast way.

    Raises:
        NeedsSlowPath: a cell is anything but digits (``.0`` may follow them), or too large.
    """
    digits = "".join(cells)
    if "." in digits:
        cells = [cell.removesuffix(".0") for cell in cells]
        digits = "".join(cells)
    if not (digits.isascii() and digits.isdigit()) or "" in cells:
        raise NeedsSlowPath
    try:
        numbers = list(map(int, cells))
    except ValueError as error:  # more digits than int() accepts
        raise NeedsSlowPath from error
    if max(numbers) > LARGEST_NUMBER:
        raise NeedsSlowPath
    return numbers


def whole_number(cell: str, line: int, column: str, problems: Problems) -> int | None:
    """Convert one cell to a number; note an invalid cell, and return ``None``."""
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
    problems.add(line, column, f"{shown(text)} {wrong}", "write a whole number", cell=shown(text))
    return None


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Suggest the closest existing name; other names are not quoted, as the file may be any file."""
    from difflib import get_close_matches  # noqa: PLC0415  (only for advice)

    close = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else None


def shown(text: str) -> str:
    """Format a cell for a message, shortened."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def listed(names: Sequence[str]) -> str:
    """Format column names for a message; of many, the first dozen."""
    first = ", ".join(shown(name) for name in names[:_LISTED])
    return first if len(names) <= _LISTED else f"{first} and {len(names) - _LISTED} more"
