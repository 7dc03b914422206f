"""Standard output: reserved for results, perhaps closed or full, and captured while a screen is drawn."""

from __future__ import annotations

import errno
import os
import sys
from collections import deque
from contextlib import contextmanager
from io import RawIOBase, TextIOBase
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO, cast

from blis_tui.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blis_tui.base.errors import InputError


class _PluginOutput(TextIOBase):
    """Replaces standard output for plug-ins: what they print goes to standard error, if there is one."""

    def __init__(self, results: TextIO | None) -> None:
        self.results = results

    def write(self, text: str, /) -> int:
        return len(text) if sys.stderr is None else sys.stderr.write(text)

    def flush(self) -> None:
        if sys.stderr is not None:
            sys.stderr.flush()

    @property
    def buffer(self) -> BinaryIO:
        return sys.stderr.buffer


@contextmanager
def reserved_for_results() -> Iterator[None]:
    """Within the block, reserve standard output for :func:`write_standard_output`; plug-ins' output is redirected."""
    results = sys.stdout
    sys.stdout = others = cast("TextIO", _PluginOutput(standard_output()))
    try:
        yield
    finally:
        if sys.stdout is others:
            sys.stdout = results


def standard_output() -> TextIO | None:
    """Return the stream for results; None = there is no standard output."""
    return sys.stdout.results if isinstance(sys.stdout, _PluginOutput) else sys.stdout


def write_standard_output(text: str) -> None:
    """Write exactly this text, and flush.

    Raises:
        InputError: there is no standard output, or it cannot be written.
    """
    stream = standard_output()
    if stream is None:
        raise _unwritable("there is no standard output", help="`-o` writes to a file, where a command has it")
    try:
        _write_whole(stream.buffer, text.encode(errors="replace"))
        stream.buffer.flush()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as error:
        error.add_note("standard output is cut short")
        raise
    except OSError as error:
        raise _unwritable(f"cannot write standard output: {error.strerror or error}") from error


def _write_whole(out: BinaryIO, content: bytes) -> None:
    """Write everything, also if the stream has no buffer (``python -u``): then one write may take only a part."""
    left = memoryview(content)
    while left:
        written: int | None = out.write(left)
        if written is None:  # a stream that does not wait, and has no room
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        left = left[written:]


def _unwritable(message: str, help: str | None = None) -> InputError:  # noqa: A002  (as in InputError)
    from blis_tui.base.errors import InputError  # noqa: PLC0415  (imported by every command, needed by few)

    return InputError(message, help=help)


LINES: Final = 1_000
"""Maximum number of lines kept."""
_LONG: Final = 2_000
"""Maximum number of characters kept per line."""


class Printed:
    """The last lines printed, from any thread.

    Attributes:
        total: number of lines begun so far.
    """

    def __init__(self) -> None:
        self.total = 0
        self._lines: deque[str] = deque(maxlen=LINES)
        self._open = False
        self._lock = Lock()

    def write(self, text: str) -> None:
        """Add printed text, which may be part of a line, or several lines."""
        with self._lock:
            for part in text.splitlines(keepends=True):
                line = part.rstrip("\r\n")
                if self._open:
                    line = self._lines.pop() + line
                else:
                    self.total += 1
                self._lines.append(line[:_LONG])
                self._open = not part.endswith(("\r", "\n"))

    def lines(self) -> tuple[str, ...]:
        """Return the lines kept, the oldest first, sanitized for a terminal."""
        with self._lock:
            return tuple(printable(line) for line in self._lines)

    def take(self) -> str:
        """Return the lines kept, as one text, and clear them."""
        lines = self.lines()
        with self._lock:
            self._lines.clear()
            self._open = False
        return "".join(f"{line}\n" for line in lines)


class Stream(TextIOBase):
    """Replaces standard output or standard error, and passes on what is written to it, text or bytes."""

    def __init__(self, take: Callable[[str], object]) -> None:
        self._take = take
        self.buffer = _Bytes(take)

    def write(self, text: str, /) -> int:
        """Pass a text on."""
        self._take(text)
        return len(text)

    def writable(self) -> bool:
        """Return True."""
        return True


class _Bytes(RawIOBase):
    def __init__(self, take: Callable[[str], object]) -> None:
        self._take = take

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        self._take(bytes(data).decode(errors="replace"))
        return len(data)

    def writable(self) -> bool:
        return True


class _LateBoundStderr:
    """Proxy for standard error that looks up ``sys.stderr`` at each write, for code that keeps it (log handlers)."""

    def __init__(self, before: TextIO) -> None:
        self._before = before

    def __getattr__(self, name: str) -> object:
        return getattr(self._before if sys.stderr is cast("TextIO", self) else sys.stderr or self._before, name)


@contextmanager
def late_bound_stderr() -> Iterator[None]:
    """Within the block, let code that keeps ``sys.stderr`` write to whatever replaces it later."""
    before = sys.stderr
    late = cast("TextIO", _LateBoundStderr(before))
    sys.stderr = before if before is None else late
    try:
        yield
    finally:
        if sys.stderr is late:
            sys.stderr = before
