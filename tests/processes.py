"""Helpers for processes that tests start."""

from __future__ import annotations

import signal


def heed_ctrl_c() -> None:
    """Restore the default action of Ctrl-C in a new process.

    A shell makes background processes of a script ignore it, and their children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
