"""Captures what is printed, mainly by plug-ins, while the terminal is in use; the last lines are kept."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import contextmanager
from io import RawIOBase, TextIOBase
from threading import Lock
from typing import TYPE_CHECKING, Final, TextIO, cast

from blis_tui.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
                said = part.rstrip("\r\n")
                if self._open:
                    said = self._lines.pop() + said
                else:
                    self.total += 1
                self._lines.append(said[:_LONG])
                self._open = not part.endswith(("\r", "\n"))

    def lines(self) -> tuple[str, ...]:
        """Return the lines kept, the oldest first, sanitized for a terminal."""
        with self._lock:
            return tuple(printable(one) for one in self._lines)

    def take(self) -> str:
        """Return the lines kept, as one text, and clear them."""
        lines = self.lines()
        with self._lock:
            self._lines.clear()
            self._open = False
        return "".join(f"{one}\n" for one in lines)


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
