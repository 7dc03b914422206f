"""The next step of an instance as an event, and what a step answers beside the time of the next one."""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from blis_tui.classes import mypyc_attr
from blis_tui.kept import Kept

IDLE: Final = -1
"""A step's answer: nothing is left to do."""
NO_STEP: Final = -2
"""A step's answer: there was nothing to do, or nothing can be done before KV blocks arrive; it did not happen."""


class Stepper(Protocol):
    """What takes the steps of an instance."""

    index: int
    step_pending: bool

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs."""

    def step(self, now: int) -> int:
        """Run one step from ``now``; returns when the next one starts, IDLE or NO_STEP."""

    def advance(self, now: int, bar: int, turn: int, most: int) -> tuple[int, int, int]:
        """Run that step, and those after it as far as nothing can come between (see ``Flow``)."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Step(Kept):
    """The next step of an instance; the event loop runs it itself (``happen`` is the slow way)."""

    __slots__ = ("flow", "instance_index")

    kind: ClassVar[str] = "step"
    request: ClassVar[None] = None

    def __init__(self, flow: Stepper) -> None:
        self.flow = flow
        self.instance_index = flow.index

    @property
    def stale(self) -> bool:
        """Whether the instance has nothing to do."""
        return not self.flow.has_work

    def happen(self, now: int) -> bool:
        """Run the step."""
        return self.flow.step(now) != NO_STEP

    def drop(self) -> None:
        """No step is pending any more."""
        self.flow.step_pending = False
