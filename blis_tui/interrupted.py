"""What a signal that asks the process to end does: by itself, and to a command that runs.

Imported before anything else, for it says what Ctrl-C does to all that is imported after it.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all that is here
if TYPE_CHECKING:
    from collections.abc import Callable
    from sys import UnraisableHookArgs
    from types import FrameType

_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
INTERRUPTED = 130
"""As ``ExitCode.INTERRUPTED``."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to end.

    Not ``KeyboardInterrupt`` itself: where that passes through ``exec`` of a text (as it may in any import, for data
    classes are made so), Python ends itself with SIGINT at last, whatever exit code it was given.
    """


def numbers() -> list[int]:
    """The signals that ask a process to end and that are not ignored (`nohup` ignores one)."""
    known = [getattr(signal, name) for name in _ENDING if hasattr(signal, name)]  # Windows has no SIGHUP
    return [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]


def heed_from_the_start() -> None:
    """From now on such a signal ends the process at once, until a command begins: there is nothing to leave in order.

    An exception would not do: what Python calls by itself during an import may swallow it, or make another one of it.
    At the very end, when all has been written and the exit code is known, signals are ignored: Python would give them
    back to the system, which answers with another exit code.
    """
    _heed(_end_at_once)
    sys.unraisablehook = _kept_back
    atexit.register(_heed, signal.SIG_IGN)


def command_begins() -> None:
    """The first signal from now on is an exception, so that a command leaves in good order.

    Does nothing where signals were not taken over: in a program that uses the command line as a library.
    """
    if any(signal.getsignal(number) is _end_at_once for number in numbers()):
        _heed(_end)


def raise_what_was_lost() -> None:
    """What calls Python code from C may drop its exception without a word: a signal that has come counts all the same.

    Raises:
        Interrupted: this command has had its first signal.
    """
    if any(signal.getsignal(number) is _end_at_once for number in numbers()):
        raise Interrupted


def command_ended() -> None:
    """Nothing is left to put in order."""
    _heed(_end_at_once)


def by_a_signal(error: BaseException | None) -> bool:
    """Whether this error is a signal's, or was made of one: Python 3.11 does that where a class is being made."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__cause__
    return error is not None


def _end(_number: int, _frame: FrameType | None) -> None:
    """The first signal."""
    _heed(_end_at_once)
    raise Interrupted


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    """Another one, or one outside a command: it does not even clean up."""
    os._exit(INTERRUPTED)


def _kept_back(found: UnraisableHookArgs) -> None:
    """What is raised in a finalizer or a weak reference's callback (each import has one) goes no further.

    Were it a signal's, it would be lost, and a run would go on to its end.
    """
    if by_a_signal(found.exc_value):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(found)


def _heed(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in numbers():
        signal.signal(number, handler)
