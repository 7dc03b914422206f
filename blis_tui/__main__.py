"""The process: ``python -m blis_tui`` and the console script."""

from __future__ import annotations

import os
import signal
import sys

from blis_tui.interrupted import Interrupted

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all that is here
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_INTERRUPTED = 130
"""As ``ExitCode.INTERRUPTED``."""


def main() -> None:
    """Run the command line. A signal to end is an exit code from the first moment on, and no traceback."""
    _heed(_end)
    try:
        from blis_tui.cli.main import main as command_line  # noqa: PLC0415  (so that the import is guarded)

        command_line()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _end(_number: int, _frame: FrameType | None) -> None:
    """The first signal: the command leaves in good order."""
    _heed(_end_at_once)
    raise Interrupted


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    """Another one: it does not even clean up."""
    os._exit(_INTERRUPTED)


def _heed(handler: Callable[[int, FrameType | None], None]) -> None:
    """Take over the signals that ask a process to end and that are not ignored (`nohup` ignores one)."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


if __name__ == "__main__":
    main()
