"""What a plan says of those it leaves in the queue."""

from __future__ import annotations

from typing import NamedTuple


class Stop(NamedTuple):
    """Why a plan left requests in the queue: what was short for whom, how much of it was needed, and was there."""

    cause: str
    need: int = 0
    had: int = 0
    name: str = ""
    kept: int = 0
    also: str = ""
    """What was short at the same time."""
