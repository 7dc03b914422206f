"""When bytes came: the time at which the kernel took them from the network, where it says so, else the time of reading.

A client that is busy with two hundred streams reads late what came in time. Linux writes the time of receipt beside the
bytes (``SO_TIMESTAMPNS``), so what the client is busy with does not count. What has come since the last reading has one
time, that of its last byte: who reads too late for that sees chunks together (``Answer.merged``).

Source: Linux, ``Documentation/networking/timestamping.rst``; TCP sockets since 4.13.
"""

from __future__ import annotations

import platform
import socket
import sys
import time
from struct import Struct
from typing import Final

_SO_TIMESTAMPNS: Final = 35
"""``SO_TIMESTAMPNS_OLD`` of the generic headers; Python's ``socket`` does not name it."""
_GENERIC: Final = frozenset({"x86_64", "aarch64", "riscv64", "s390x", "ppc64le"})
_TIMESPEC: Final = Struct("@qq")
_NS_PER_S: Final = 1_000_000_000
_ANCILLARY_BYTES: Final = 128
_APART_NS: Final = 20_000
_READINGS: Final = 5


def stamp_receipts(sock: socket.socket) -> bool:
    """Ask the kernel for times of receipt; False where it has none.

    It begins a moment after the first socket of the machine asks: connections are opened before they are needed.
    """
    if sys.platform != "linux" or platform.machine() not in _GENERIC:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def receive(sock: socket.socket, most: int) -> tuple[bytes, int]:
    """What has come, at most so many bytes, and when the last of it did, in nanoseconds of ``time.monotonic_ns``.

    Raises:
        BlockingIOError: nothing has.
        OSError: the connection is broken.
    """
    data, ancillary, _, _ = sock.recvmsg(most, _ANCILLARY_BYTES)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(content) >= _TIMESPEC.size:
            seconds, rest = _TIMESPEC.unpack_from(content)
            # The kernel's time is that of the wall clock, which may be set: only the time since then is of use.
            now_ns, wall_ns = _both_clocks()
            return data, now_ns - max(wall_ns - (seconds * _NS_PER_S + rest), 0)
    return data, time.monotonic_ns()


def _both_clocks() -> tuple[int, int]:
    """Both clocks at one moment: read again where other programs had the processor in between."""
    for _ in range(_READINGS):
        before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if after_ns - before_ns < _APART_NS:
            break
    return (before_ns + after_ns) // 2, wall_ns
