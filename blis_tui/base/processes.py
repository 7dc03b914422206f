"""Worker processes: they start without threads or terminal, leave Ctrl-C to their parent, and end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess


def start_process(work: Callable[..., None], *arguments: object) -> tuple[SpawnProcess, Connection]:
    """Start a process that calls ``work`` with its end of a connection and the arguments; return it and our end."""
    context = multiprocessing.get_context("spawn")
    own, theirs = context.Pipe()
    process = context.Process(target=_work, args=(work, theirs, *arguments), daemon=True)
    with _deferred_ctrl_c():
        process.start()
    theirs.close()  # otherwise the end of the process would not close the pipe
    return process, own


def how_it_ended(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None or code >= 0:
        return f"exit code {code}"
    if code == -signal.SIGKILL:
        return "SIGKILL: was there too little memory?"
    return signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"


def _work(work: Callable[..., None], connection: Connection, *arguments: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # it may be inherited as ignored
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()
    work(connection, *arguments)


def _follow(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@contextmanager
def _deferred_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C here, and permanently in processes started within the block; the parent handles it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it unblocks all signals, including ours
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
