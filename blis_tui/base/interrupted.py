"""Handling of termination signals, outside and within a running command.

This module is imported first, so that Ctrl-C is handled during all other imports.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than this whole module
if TYPE_CHECKING:
    from collections.abc import Callable
    from sys import UnraisableHookArgs
    from types import FrameType

_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
INTERRUPTED = 130
"""The same as ``ExitCode.INTERRUPTED``."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to terminate.

    It is a subclass because of a Python behaviour: if ``KeyboardInterrupt`` itself passes through ``exec`` of a text
    (as it may in any import, because data classes use it), Python finally kills itself with SIGINT, whatever exit code
    it was given.
    """


def numbers() -> list[int]:
    """Return the termination signals that are not ignored (`nohup` ignores one)."""
    known = [getattr(signal, name) for name in _ENDING if hasattr(signal, name)]  # Windows has no SIGHUP
    return [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]


def exit_on_signals() -> None:
    """From now on, terminate the process at once on such a signal, until a command begins.

    Nothing needs cleaning up yet. An exception would be unreliable, because code that Python calls during an import may
    swallow or replace it. At the very end, when everything is written and the exit code is known, signals are ignored:
    Python would restore their default handlers, which lead to another exit code.
    """
    _install_handlers(_end_at_once)
    sys.unraisablehook = _on_unraisable
    atexit.register(_install_handlers, signal.SIG_IGN)


def raise_on_signals() -> None:
    """From now on, raise an exception on the first signal, so that the command can clean up.

    Has no effect if signals were not taken over, which is the case in a program that uses the command line as a
    library.
    """
    if any(signal.getsignal(number) is _end_at_once for number in numbers()):
        _install_handlers(_end)


def raise_lost_interrupt() -> None:
    """Raise the exception of an earlier signal that was lost, as C code that calls Python may drop exceptions.

    Raises:
        Interrupted: this command has had its first signal.
    """
    if any(signal.getsignal(number) is _end_at_once for number in numbers()):
        raise Interrupted


def command_ended() -> None:
    """Terminate at once on a signal again, because the command has cleaned up."""
    _install_handlers(_end_at_once)


def caused_by_signal(error: BaseException | None) -> bool:
    """Whether an error was caused by a signal, directly or as Python 3.11 wraps it during the creation of a class."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__cause__
    return error is not None


def _end(_number: int, _frame: FrameType | None) -> None:
    """Handle the first signal."""
    _install_handlers(_end_at_once)
    raise Interrupted


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    """Handle a further signal, or one outside a command, without cleaning up."""
    os._exit(INTERRUPTED)


def _on_unraisable(unraisable: UnraisableHookArgs) -> None:
    """Handle exceptions raised in finalizers and weak-reference callbacks (each import has one), which Python drops.

    If the exception comes from a signal, exit; otherwise it would be lost, and the run would continue to its end.
    """
    if caused_by_signal(unraisable.exc_value):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


def _install_handlers(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in numbers():
        signal.signal(number, handler)
