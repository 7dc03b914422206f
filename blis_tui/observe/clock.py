"""The clock of a run: microseconds since its schedule began."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Counts from a moment of ``time.monotonic_ns``."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns

    def us(self, stamp_ns: int) -> int:
        """A moment, in microseconds since the start."""
        return (stamp_ns - self.start_ns) // 1000

    def now_us(self) -> int:
        """This moment."""
        return self.us(time.monotonic_ns())

    async def until(self, time_us: int) -> None:
        """Wait until then; asyncio is up to a millisecond late."""
        left_us = time_us - self.now_us()
        await asyncio.sleep(max(left_us, 0) / 1e6)
