"""What a command does while it computes: a progress line, log lines, and a graceful end at a signal.

Handling of Ctrl-C, SIGTERM and SIGHUP in computing commands: a graceful end, or an immediate one.

Elsewhere these signals raise ``KeyboardInterrupt`` (see :mod:`blis_tui.base.interrupted`).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from blis_tui.base.interrupted import Interrupted, numbers, raise_lost_interrupt
from blis_tui.cli.standard_streams import ExitCode, columns, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


_EVERY_S: Final = 0.2
_MOST_COLUMNS: Final = 101
"""One column stays free, because a cursor past the last column is on the next line."""


class ProgressLine:
    """A line that is rewritten a few times a second, and cleared at the end.

    Args:
        wanted: whether to show it; None = only if standard error is a terminal.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty() if wanted is None else wanted
        self._start_s = time.monotonic()
        self._next_s = 0.0
        self._number = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since its creation."""
        return time.monotonic() - self._start_s

    def show(self, text: Callable[[], str]) -> None:
        """Rewrite the line, unless that was done very recently."""
        now_s = time.monotonic()
        if self._shown and now_s >= self._next_s:
            self._next_s = now_s + _EVERY_S
            tell(text()[: columns(_MOST_COLUMNS, sys.stderr) - 1], nl=False, afresh=True)

    def show_next(self, text: Callable[[int], str]) -> None:
        """Do so with the number of this call, from 1."""
        self._number += 1
        self.show(lambda: text(self._number))

    def clear(self) -> None:
        """Clear the line."""
        if self._next_s:
            tell("", nl=False, afresh=True)


class OneLineFormatter(logging.Formatter):
    """Formats log records as one line that clients cannot break or colour."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the level, the message, and the exception's text."""
        text = record.getMessage()
        if record.exc_info and (error := record.exc_info[1]) is not None:
            text += f": {error or type(error).__name__}"
        line = " ".join(text.split())
        return f"{record.levelname.lower()}: " + "".join(char if char.isprintable() else "\ufffd" for char in line)


def log_in_lines() -> None:
    """Print warnings and errors of libraries without tracebacks: what a client sends cannot fill the screen."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


_PATIENCE_S: Final = 0.5
"""How long work may continue after it was asked to stop, before it is interrupted."""
_ECHO_S: Final = 0.1
"""`timeout` and terminals may send a signal twice, to the process and to its group; within this time it counts once."""


class OverdueError(Interrupted):
    """Work did not stop in time and is interrupted wherever it is."""


class Signals:
    """Turns signals into ``KeyboardInterrupt``, at once or (see :meth:`stopping`) at a point where work is complete."""

    def __init__(self) -> None:
        self._asked = False
        self._stop: Callable[[], None] | None = None
        self._raised = False
        self._latest_s = -_ECHO_S

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within the block, the first signal calls ``stop``, which should end the block soon.

        Raises:
            OverdueError: it did not end within half a second.
            KeyboardInterrupt: another signal arrived, or the exception of an earlier one was lost.
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
        """Handle a signal to end."""
        now_s = time.monotonic()
        if now_s - self._latest_s < _ECHO_S:
            return
        self._latest_s = now_s
        if self._raised:  # exits without any cleanup
            os._exit(ExitCode.INTERRUPTED)
        if self._stop is not None and not self._asked:
            self._asked = True
            self._stop()
            _set_alarm(_PATIENCE_S)
        else:
            self._raised = True
            raise Interrupted

    def interrupt_overdue(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  (as above)
        """Interrupt overdue work."""
        if self._stop is not None:
            raise OverdueError

    def install(self) -> dict[int, signal.Handlers | Callable[[int, FrameType | None], object] | int | None]:
        """Install handlers for the signals that are not ignored (`nohup` ignores one); return the previous handlers."""
        previous = {number: signal.signal(number, self.handle) for number in numbers()}
        if hasattr(signal, "SIGALRM"):
            previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self.interrupt_overdue)
        return previous


def _set_alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):  # without it, the second signal interrupts work that does not stop
        signal.setitimer(signal.ITIMER_REAL, seconds)


@contextmanager
def interrupting_on_signals() -> Iterator[Signals]:
    """Within the block, signals to end raise ``KeyboardInterrupt``."""
    raise_lost_interrupt()
    signals = Signals()
    previous = signals.install()
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class GracefulStop:
    """Handles signals for programs that serve or load: the first one lets them end gracefully.

    Attributes:
        tell: called by the first signal, wherever the program is; None = the signal raises an exception.
    """

    def __init__(self) -> None:
        self.tell: Callable[[], object] | None = None
        self._first_s: float | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  (a handler's signature)
        """Handle a signal to end."""
        now_s = time.monotonic()
        if self._first_s is None and self.tell is not None:
            self._first_s = now_s
            self.tell()
        elif self._first_s is None or now_s - self._first_s >= _ECHO_S:
            raise Interrupted


@contextmanager
def graceful_stop() -> Iterator[GracefulStop]:
    """Within the block, the first signal is passed on, its echo ignored, and another one raises ``KeyboardInterrupt``.

    An event loop removes its own handlers when it ends, but results are written after that. Ctrl-C is handled even if
    it was ignored: shells ignore it for background processes, where it must end a server, too.
    """
    stop = GracefulStop()
    heeded = dict.fromkeys([*numbers(), signal.SIGINT])
    previous = {number: signal.signal(number, stop.handle) for number in heeded}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
