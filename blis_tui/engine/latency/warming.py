"""A step-time model of an instance that is not warm yet: everything takes longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.latency.model import Around
from blis_tui.engine.latency.pausing import Pausing

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel


class Warming(Around):
    """Steps take ``factor`` times as long as another model says, rounded down."""

    __slots__ = ("_factor",)

    def __init__(self, model: StepTimeModel, factor: float) -> None:
        super().__init__(model)
        self._factor = factor

    def step_time_us(self, load: StepLoad) -> int:
        """The multiple of what the other model says."""
        return int(self.model.step_time_us(load) * self._factor)


def slowed_down(model: StepTimeModel, factor: float) -> StepTimeModel:
    """The same model, but with steps that take so many times as long as it says when it is warm; 1 = as long."""
    outer = model if isinstance(model, Pausing) else None
    warm = model if outer is None else outer.model
    warm = warm.model if isinstance(warm, Warming) else warm
    slow = warm if factor == 1.0 else Warming(warm, factor)
    if outer is None:
        return slow
    outer.model = slow
    return outer
