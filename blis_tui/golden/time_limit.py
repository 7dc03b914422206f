"""Interrupts users' code that does not return, at its current line, so that the place can be reported.

A policy decision takes microseconds; one that computes for half a minute is in an endless loop.
"""

from __future__ import annotations

import inspect
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Self

LIMIT_S: Final = 30.0
"""Maximum duration of one call of a user's code, in seconds."""
_LOOKS: Final = 3
"""A call is interrupted if it is seen this many times, evenly over that time."""
_PACKAGE: Final = str(Path(__file__).resolve().parents[1])


class TimeLimit:
    """Within its context, a call of foreign code that takes ``limit_s`` raises ``TimeoutError`` at its current line.

    Nothing is watched outside of the main thread, on systems without interval timers (Windows), or when another timer
    is running already, such as that of pytest-timeout.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._owner: FrameType | None = None
        self._call: FrameType | None = None
        self._seen = 0

    def __enter__(self) -> Self:
        free = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        if free and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0):
            here = inspect.currentframe()
            self._owner = here and here.f_back
            self._before = signal.signal(signal.SIGALRM, self._look)
            signal.setitimer(signal.ITIMER_REAL, self._limit_s / _LOOKS, self._limit_s / _LOOKS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._owner is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._before)
        self._owner = self._call = None

    def _look(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  (a handler's signature)
        """Check, on each timer signal, whether the same call is still running."""
        call = self._foreign(frame)
        self._seen = self._seen + 1 if call is not None and call is self._call else 0
        self._call = call
        if call is not None and self._seen >= _LOOKS:
            raise TimeoutError(f"`{call.f_code.co_name}` has not returned for {self._limit_s:g} s")

    def _foreign(self, frame: FrameType | None) -> FrameType | None:
        """Return the outermost call of foreign code that this package waits for."""
        found = None
        while frame is not None and frame is not self._owner:
            # Ignore generators: they keep one frame across values, so a frame seen again proves nothing.
            code = frame.f_code
            if not code.co_flags & inspect.CO_GENERATOR and not code.co_filename.startswith((_PACKAGE, "<frozen")):
                found = frame
            frame = frame.f_back
        return found
