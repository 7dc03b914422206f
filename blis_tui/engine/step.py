"""The event that an instance's next step is."""

from __future__ import annotations

from typing import Final, Protocol

IDLE: Final = -1
"""A step's answer: nothing is left to do."""
NO_STEP: Final = -2
"""A step's answer: all its requests timed out meanwhile, so there was nothing to do; it did not happen."""


class Stepping(Protocol):
    """What runs in steps: an instance."""

    index: int
    step_pending: bool

    @property
    def has_work(self) -> bool:
        """Whether somebody waits or runs."""

    def step(self, now: int) -> int:
        """Run one; returns when the next one starts, IDLE or NO_STEP."""


class Step:
    """The next step of an instance; the event loop runs it itself (``happen`` is for nobody in a hurry)."""

    __slots__ = ("instance", "instance_index")

    kind = "step"
    request = None

    def __init__(self, instance: Stepping) -> None:
        self.instance = instance
        self.instance_index = instance.index

    @property
    def stale(self) -> bool:
        """Whether the instance has nothing to do."""
        return not self.instance.has_work

    def happen(self, now: int) -> bool:
        """Run the step."""
        return self.instance.step(now) != NO_STEP

    def drop(self) -> None:
        """No step is pending any more."""
        self.instance.step_pending = False
