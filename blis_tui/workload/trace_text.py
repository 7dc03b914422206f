"""The text of a trace, numbers in it, and the collecting of everything that is wrong with it."""

from __future__ import annotations

import re
from codecs import BOM_UTF8, getincrementaldecoder
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Final

from blis_tui.errors import InputError, TraceError
from blis_tui.inputs import MAX_TRACE_BYTES, input_digest, open_input
from blis_tui.spec.diagnostics import MOST_TRACE_PROBLEMS, TraceProblem
from blis_tui.unpack import DamagedError, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import NoReturn

LARGEST_NUMBER: Final = 2**53
"""Times and token counts beyond it would lose digits in step-time formulas."""
_WHOLE: Final = re.compile(r"([0-9]+)(?:\.0*)?")
_BLOCK: Final = 1 << 20
"""Bytes that are looked at together: some ten thousand rows of numbers."""
_LONGEST_LINE: Final = 1 << 26
_LONGEST_CELL: Final = 1 << 20
"""Of a CSV file: what its parser takes, with a margin."""
_LARGEST_WHOLE: Final = 1 << 28
_HEAD: Final = 4096
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
"""Bytes that are in no text, whatever its encoding, but for those of two bytes to a letter."""
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

    def fail(self, line: int, column: str, message: str, advice: str | None = None) -> NoReturn:
        """Note one problem after which nothing more can be read.

        Raises:
            TraceError: always, with all that was noted.
        """
        self.add(line, column, message, advice)
        raise TraceError(sorted(self._found, key=lambda problem: problem.line))

    def check(self) -> None:
        """Raise ``TraceError`` if there are any problems."""
        if self._found:
            raise TraceError(sorted(self._found, key=lambda problem: problem.line))


class TraceText:
    """The text of a trace, piece by piece, so that no file need ever be in memory as a whole.

    Args:
        chunks: its bytes, in any pieces.
        problems: where to note what is wrong with it.
        most: of a longer text, only the whole lines within so many bytes; None = all.

    Attributes:
        problems: what is wrong with it.
        cut: whether there was more than ``most``, once it has been read.
    """

    def __init__(self, chunks: Iterable[bytes], problems: Problems, most: int | None = None) -> None:
        self.problems = problems
        self.cut = False
        self._chunks: Iterator[bytes] = iter(chunks)
        self._most = most
        self._line = 1

    def blocks(self) -> Iterator[str]:
        """Pieces of some MiB that end with a line, and not within a quoted cell that has several.

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
        """The lines that are not blank, with their numbers. Raises as :meth:`blocks`."""
        nothing = True
        for piece in self._pieces(quotes=False):
            first = self._line
            for number, line in enumerate(self._decoded(piece).split("\n"), first):
                if line and not line.isspace():
                    nothing = False
                    yield number, line
        self._check_empty(nothing)

    def head(self) -> str:
        """How it begins, blanks left out, for a look at what it is; it is read all the same."""
        start = b""
        try:
            while len(start) < _HEAD and (chunk := next(self._chunks, b"")):
                start += chunk
        except DamagedError as error:
            self.problems.fail(1, "", error.message, error.advice)
        self._chunks = chain([start], self._chunks)
        return start[:_HEAD].removeprefix(BOM_UTF8).decode("utf-8", "replace").lstrip()

    def pieces(self) -> Iterator[str]:
        """The text in pieces that end anywhere. Raises as :meth:`blocks`."""
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
        """All of it, whatever ``most`` says.

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
        """What is no text at all has no line, and no encoding to save it in."""
        data = error.object
        if self._line == 1 and _CONTROL.search(data, 0, _HEAD):
            self.problems.fail(0, "", "the file is not text", "is it the right one? traces are CSV or JSON, in UTF-8")
        line = self._line + data.count(b"\n", 0, error.start)
        self.problems.fail(line, "", f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8")


def _end(data: bytes, *, quotes: bool) -> int:
    """Behind the last whole line of these, or, with ``quotes``, behind the last that does not end in a quoted cell."""
    last = end = _line_end(data, len(data))
    while quotes and data.count(b'"', 0, end) % 2:
        end = _line_end(data, data.rindex(b'"', 0, end))
        if last - end > _LONGEST_CELL:  # no cell is that long: the quotes are none
            return last
    return end


def _line_end(data: bytes, before: int) -> int:
    # A carriage return that comes last may be half of a line's end.
    return (data.rfind(b"\n", 0, before) + 1) or (data.rfind(b"\r", 0, min(before, len(data) - 1)) + 1)


@contextmanager
def open_trace(path: str, problems: Problems, digest: str = "", most: int | None = None) -> Iterator[TraceText]:
    """The text of a file, expanded where it is compressed.

    Args:
        path: the file.
        problems: where to note what is wrong with it.
        digest: the SHA-256 it must have; empty = any.
        most: as for :class:`TraceText`.

    Raises:
        InputError: the file cannot be read, or is not the one that was meant.
    """
    name = f"the trace {path}"
    with open_input(path, name, limit=MAX_TRACE_BYTES) as file:
        if digest and input_digest(path, limit=MAX_TRACE_BYTES) != digest:
            raise InputError(f"{name} has changed since the experiment was loaded", help="load it again")
        yield TraceText(unpacked(file, name, limit=MAX_TRACE_BYTES), problems, most)


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
    problems.add(line, column, f"{shown(text)} {wrong}", "write a whole number", cell=shown(text))
    return None


def nearest(name: str, found: Sequence[str]) -> str | None:
    """Advice for a name that is not there: the closest one that is. The others may be those of any file."""
    from difflib import get_close_matches  # noqa: PLC0415  (for advice alone)

    close = get_close_matches(name, found, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else None


def shown(text: str) -> str:
    """A cell for a message, shortened."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def listed(names: Sequence[str]) -> str:
    """Names of columns for a message; of many, the first dozen."""
    first = ", ".join(shown(name) for name in names[:_LISTED])
    return first if len(names) <= _LISTED else f"{first} and {len(names) - _LISTED} more"
