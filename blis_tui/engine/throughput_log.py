"""The throughput log that an engine prints at an interval: prompt and generated tokens of its latest iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import mypyc_attr
from blis_tui.engine.steps import Steps

if TYPE_CHECKING:
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.steps import Parts


@mypyc_attr(allow_interpreted_subclasses=True)
class LoggedSteps(Steps):
    """Steps with totals per interval, by when they end; a step that ends with an interval belongs to it.

    Prompt tokens are counted as the engine does; those found in the cache count with the chunk that follows them.

    Source: LLMServingSim, ``main.py`` (``--log-interval``) and ``add_done`` of its schedulers. It checks the clock
    between iterations, so the iteration that ends after an interval still counts in it.

    Attributes:
        intervals: number of each interval in which any step ended -> steps, prompt tokens, generated tokens.
    """

    __slots__ = ("_interval_us", "intervals")

    def __init__(self, index: int, batch: Batch, parts: Parts) -> None:
        super().__init__(index, batch, parts)
        self._interval_us = parts.rule.traits.log_interval_us
        self.intervals: dict[int, tuple[int, int, int]] = {}

    def take(self, latency: StepTimeModel) -> None:
        """Use this step-time model from now on, and run every step separately so that each is logged."""
        super().take(latency)
        self.timed = None

    def decode(self, now: int) -> int:
        """Run a plain decode and log it."""
        generated = self.batch.load.decode_requests
        end = super().decode(now)
        self._log(end, 0, generated)
        return end

    def run(self, plan: Plan, epoch: int, now: int) -> int:
        """Execute a plan and log it."""
        generated = self.batch.load.decode_requests if plan.decodes else 0
        end = super().run(plan, epoch, now)
        prompt = 0
        for chunk in plan.chunks:
            prompt += chunk.new + chunk.cached
            generated += chunk.request.joined_us == end and chunk.request.generated_tokens > 0
        self._log(end, prompt, generated)
        return end

    def _log(self, end: int, prompt: int, generated: int) -> None:
        number = max(0, end - 1) // self._interval_us
        before = self.intervals.get(number, (0, 0, 0))
        self.intervals[number] = (before[0] + 1, before[1] + prompt, before[2] + generated)
