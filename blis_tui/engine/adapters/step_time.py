"""A step-time model of batches with LoRA adapters: each different one adds its share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.latency.model import Around

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel


class Adapted(Around):
    """Steps take (1 + ``overhead`` x different adapters) times as long as another model says, rounded down.

    Source: BLIS (its LoRA factor); vLLM's kernels go through the adapters of a batch one by one, too.
    """

    __slots__ = ("_overhead",)

    def __init__(self, model: StepTimeModel, overhead: float) -> None:
        super().__init__(model)
        self._overhead = overhead

    def step_time_us(self, load: StepLoad) -> int:
        """What the other model says, and what adapters add."""
        duration = self.model.step_time_us(load)
        return int(duration * (1.0 + self._overhead * load.adapters)) if load.adapters else duration
