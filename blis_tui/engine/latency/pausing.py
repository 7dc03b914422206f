"""A step-time model that calls back just before each step is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request


class Pausing:
    """Asks another model, after a call to ``look``: then the batch is formed, and nothing of it is computed yet."""

    __slots__ = ("_look", "model", "output_token_overhead_us", "post_decode_overhead_us")

    def __init__(self, model: StepTimeModel, look: Callable[[], None]) -> None:
        self.model = model
        self.output_token_overhead_us = model.output_token_overhead_us
        self.post_decode_overhead_us = model.post_decode_overhead_us
        self._look = look

    def step_time_us(self, load: StepLoad) -> int:
        """What the other model says, after the call."""
        self._look()
        return self.model.step_time_us(load)

    def queueing_time_us(self, request: Request) -> int:
        """What the other model says."""
        return self.model.queueing_time_us(request)
