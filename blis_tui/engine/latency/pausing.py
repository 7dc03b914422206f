"""A step-time model that calls back just before each step is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.latency.model import Around

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.latency.model import StepLoad, StepTimeModel


class Pausing(Around):
    """Asks another model, after a call to ``look``: then the batch is formed, and nothing of it is computed yet."""

    __slots__ = ("_look",)

    def __init__(self, model: StepTimeModel, look: Callable[[], None]) -> None:
        super().__init__(model)
        self._look = look

    @property
    def pure(self) -> bool:
        """Each step is looked at."""
        return False

    def step_time_us(self, load: StepLoad) -> int:
        """What the other model says, after the call."""
        self._look()
        return self.model.step_time_us(load)
