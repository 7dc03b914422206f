"""What an engine prints at an interval while it serves: prompt and generated tokens of its latest iterations."""

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
    """Steps that are added up by the interval in which they end; one that ends with an interval belongs to it.

    Prompt tokens are counted as the engine does, those found in the cache with the chunk that follows them.

    Source: LLMServingSim, ``main.py`` (``--log-interval``) and ``add_done`` of its schedulers. That looks at the clock
    between iterations, so that the one that ends behind an interval still counts in it.

    Attributes:
        intervals: of each interval in which any step ended, by its number: steps, prompt tokens, generated tokens.
    """

    __slots__ = ("_interval_us", "intervals")

    def __init__(self, index: int, batch: Batch, parts: Parts) -> None:
        super().__init__(index, batch, parts)
        self._interval_us = parts.rule.traits.log_interval_us
        self.intervals: dict[int, tuple[int, int, int]] = {}

    def take(self, latency: StepTimeModel) -> None:
        """From now on steps take as long as this model says, and each is seen: none are taken in one go."""
        super().take(latency)
        self.timed = None

    def decode(self, now: int) -> int:
        """Every running request gets its token."""
        generated = self.batch.load.decode_requests
        end = super().decode(now)
        self._log(end, 0, generated)
        return end

    def run(self, plan: Plan, epoch: int, now: int) -> int:
        """Execute what was scheduled."""
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
