"""The clock of a run: microseconds since the start of its schedule."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Counts from a value of ``time.monotonic_ns``."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns

    def us(self, stamp_ns: int) -> int:
        """Return a ``monotonic_ns`` time in microseconds since the start."""
        return (stamp_ns - self.start_ns) // 1000

    def now_us(self) -> int:
        """Return the current time."""
        return self.us(time.monotonic_ns())

    async def until(self, time_us: int) -> None:
        """Wait until a time; asyncio is up to a millisecond late."""
        left_us = time_us - self.now_us()
        await asyncio.sleep(max(left_us, 0) / 1e6)
