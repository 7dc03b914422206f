"""Why a plan leaves requests in the queue."""

from __future__ import annotations

from typing import NamedTuple


class Stop(NamedTuple):
    """Why a plan left requests in the queue: what was short for whom, how much was needed, and how much was there."""

    cause: str
    need: int = 0
    had: int = 0
    name: str = ""
    kept: int = 0
    also: str = ""
    """What else was short."""
