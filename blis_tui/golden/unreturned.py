"""Code of users that does not return: it is broken off, in its own line, so that its place is told.

A decision of a policy takes microseconds, and what computes for half a minute within one is a loop without an end.
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
"""How long one call of a user's code may take."""
_LOOKS: Final = 3
"""How often a call has to be seen under way, evenly over that time, until it is broken off."""
_PACKAGE: Final = str(Path(__file__).resolve().parents[1])


class Returning:
    """Within its context, a call of code of others that takes ``limit_s`` raises ``TimeoutError`` where it is.

    Nothing is watched outside of the main thread, and where the system has no interval timers (Windows).
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._owner: FrameType | None = None
        self._call: FrameType | None = None
        self._seen = 0

    def __enter__(self) -> Self:
        if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
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
        """The timer: is the same call still under way?"""
        call = self._foreign(frame)
        self._seen = self._seen + 1 if call is not None and call is self._call else 0
        self._call = call
        if call is not None and self._seen >= _LOOKS:
            raise TimeoutError(f"`{call.f_code.co_name}` has not returned for {self._limit_s:g} s")

    def _foreign(self, frame: FrameType | None) -> FrameType | None:
        """The call of code of others that this package waits for: the outermost one."""
        found = None
        while frame is not None and frame is not self._owner:
            # A generator keeps its frame from one value to the next, so that it tells nothing.
            code = frame.f_code
            if not code.co_flags & inspect.CO_GENERATOR and not code.co_filename.startswith((_PACKAGE, "<frozen")):
                found = frame
            frame = frame.f_back
        return found
