"""``least-estimated-ttft``: to where the first token will come first, by the step-time model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.policy import ROUTING, pick

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest
    from blis_tui.registry import NoSettings


@ROUTING.plugin("least-estimated-ttft", "The instance whose step-time model predicts the earliest first token.")
class LeastEstimatedTtft:
    """Predicts how long the prompts in the queue and then this one take beside the batch that is there.

    A prompt in a queue counts as an average one of those routed so far; of its own prompt what the instance has cached
    is left out. It looks at every instance.
    """

    rule = (
        "Predicts with each instance's step-time model how long its queue and this prompt take, and takes the shortest;"
        " a queued prompt counts as an average one."
    )

    def __init__(self, settings: NoSettings) -> None:
        del settings
        self._requests = 0
        self._tokens = 0

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """The shortest prediction; ties are drawn."""
        self._requests += 1
        self._tokens += request.input_tokens
        cached = fleet.cached_blocks(request.segments) if request.segments else [0] * len(fleet)
        predictions = []
        for place, waiting in enumerate(fleet.column("waiting")):
            queued = int(waiting) * self._tokens // self._requests
            own = max(1, request.input_tokens - cached[place] * fleet.block_size_tokens)
            predictions.append(fleet.prefill_us(place, queued + own))
        least = min(predictions)
        places = [place for place, prediction in enumerate(predictions) if prediction == least]
        return pick(places, context), f"first token in about {least} us"

    def state(self) -> tuple[object, ...]:
        """How many requests it has seen, and their prompt tokens."""
        return (self._requests, self._tokens)
