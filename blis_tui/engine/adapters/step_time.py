"""A step-time model of batches with LoRA adapters: each different one adds its share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request


class Adapted:
    """Steps take (1 + ``overhead`` x different adapters) times as long as another model says, rounded down.

    Source: BLIS (its LoRA factor); vLLM's kernels go through the adapters of a batch one by one, too.
    """

    __slots__ = ("_overhead", "model", "output_token_overhead_us", "post_decode_overhead_us")

    def __init__(self, model: StepTimeModel, overhead: float) -> None:
        self.model = model
        self.output_token_overhead_us = model.output_token_overhead_us
        self.post_decode_overhead_us = model.post_decode_overhead_us
        self._overhead = overhead

    def step_time_us(self, load: StepLoad) -> int:
        """What the other model says, and what adapters add."""
        duration = self.model.step_time_us(load)
        return int(duration * (1.0 + self._overhead * load.adapters)) if load.adapters else duration

    def queueing_time_us(self, request: Request) -> int:
        """What the other model says."""
        return self.model.queueing_time_us(request)
