"""What tests do to the processes that they start."""

from __future__ import annotations

import signal


def heed_ctrl_c() -> None:
    """In a new process: let Ctrl-C do what it does, even where whoever started the tests ignores it.

    A shell makes what a script starts in the background ignore it, and that is inherited.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
