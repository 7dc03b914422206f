"""What Ctrl-C, SIGTERM and SIGHUP do to a command that computes: it ends in good order, or at once.

To all others they are a ``KeyboardInterrupt`` (see :mod:`blis_tui.interrupted`).
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from blis_tui.cli.failures import ExitCode
from blis_tui.interrupted import Interrupted, numbers, raise_what_was_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_PATIENCE_S: Final = 0.5
"""How long work that was asked to stop may go on until it is broken off."""
_ECHO_S: Final = 0.1
"""`timeout` and terminals may send a signal twice, to the process and to its group: that is still one."""


class OverdueError(Interrupted):
    """Work that was asked to stop went on for too long: it is broken off wherever it is."""


class Signals:
    """Turns signals into ``KeyboardInterrupt``, at once or (see :meth:`stopping`) where work can be left whole."""

    def __init__(self) -> None:
        self._asked = False
        self._stop: Callable[[], None] | None = None
        self._raised = False
        self._latest_s = -_ECHO_S

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within the block the first signal calls ``stop``, which should end the block soon.

        Raises:
            OverdueError: it did not within half a second.
            KeyboardInterrupt: another signal came, or one before whose exception was lost on its way.
        """
        if self._raised:
            raise Interrupted
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None
            _set_alarm(0.0)

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  (a handler's signature)
        """A signal to end has come."""
        now_s = time.monotonic()
        if now_s - self._latest_s < _ECHO_S:
            return
        self._latest_s = now_s
        if self._raised:  # it does not even clean up
            os._exit(ExitCode.INTERRUPTED)
        if self._stop is not None and not self._asked:
            self._asked = True
            self._stop()
            _set_alarm(_PATIENCE_S)
        else:
            self._raised = True
            raise Interrupted

    def break_off(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  (as above)
        """Patience has run out."""
        if self._stop is not None:
            raise OverdueError

    def install(self) -> dict[int, signal.Handlers | Callable[[int, FrameType | None], object] | int | None]:
        """Take over the signals that are not ignored (`nohup` ignores one); returns the handlers they had."""
        previous = {number: signal.signal(number, self.handle) for number in numbers()}
        if hasattr(signal, "SIGALRM"):
            previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self.break_off)
        return previous


def _set_alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):  # elsewhere work that does not stop is broken off by the second signal
        signal.setitimer(signal.ITIMER_REAL, seconds)


@contextmanager
def ending_on_signals() -> Iterator[Signals]:
    """Within the block signals that ask the process to end raise ``KeyboardInterrupt``."""
    raise_what_was_lost()
    signals = Signals()
    previous = signals.install()
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Told:
    """What the first signal does to a program that serves or loads: it is told, and ends in good order.

    Attributes:
        tell: what the first signal calls, wherever the program is; None = it is an exception.
    """

    def __init__(self) -> None:
        self.tell: Callable[[], object] | None = None
        self._first_s: float | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  (a handler's signature)
        """A signal to end has come."""
        now_s = time.monotonic()
        if self._first_s is None and self.tell is not None:
            self._first_s = now_s
            self.tell()
        elif self._first_s is None or now_s - self._first_s >= _ECHO_S:
            raise Interrupted


@contextmanager
def told_on_signals() -> Iterator[Told]:
    """Within the block the first signal is told, its echo is none, and another one is a ``KeyboardInterrupt``.

    An event loop's own handlers are gone when it has ended, and results are written after that. Ctrl-C counts even
    where it was ignored: shells do that for what they start in the background, where it has to end a server, too.
    """
    told = Told()
    heeded = dict.fromkeys([*numbers(), signal.SIGINT])
    previous = {number: signal.signal(number, told.handle) for number in heeded}
    try:
        yield told
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
