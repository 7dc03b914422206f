"""Step times of engines that encode images, audio and video before the model computes their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.encoder.items import items_of
from blis_tui.engine.latency.model import ModelWrapper
from blis_tui.engine.request import NO_MEDIA

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import Chunk, StepLoad, StepTimeModel


def encoded_tokens(chunk: Chunk) -> int:
    """Number of media tokens encoded for a chunk when no earlier encoder output is kept.

    An item is encoded whole, for the first chunk of a prefill that has any of its tokens.
    """
    request = chunk.request
    if request.media == NO_MEDIA:
        return 0
    end, tokens = chunk.computed + chunk.new, 0
    first = chunk.computed == chunk.cached
    for offset, length, _ in items_of(request):
        if offset < end and offset + length > chunk.computed and (first or offset >= chunk.computed):
            tokens += length
    return tokens


class Encoding(ModelWrapper):
    """Lengthens steps by ``token_us`` for each media token encoded in them; the total is rounded down.

    The encoder runs before the model and does not overlap with it, as in vLLM (``v1/worker/gpu_model_runner.py``,
    ``_execute_mm_encoder``). Content found in the prefix cache is not encoded. Recomputed content is encoded again,
    unless steps schedule the encoder and its cache has it.

    Args:
        model: the step-time model for the rest of a step.
        token_us: microseconds per encoded token.
        scheduled: whether steps schedule the encoder (``engine.encoder``).
    """

    __slots__ = ("_scheduled", "_token_us")

    def __init__(self, model: StepTimeModel, token_us: float, *, scheduled: bool) -> None:
        super().__init__(model)
        self._token_us = token_us
        self._scheduled = scheduled

    def step_time_us(self, load: StepLoad) -> int:
        """Return the wrapped model's time plus the encoder's."""
        tokens = 0
        for chunk in load.chunks:
            tokens += chunk.encoded if self._scheduled else encoded_tokens(chunk)
        return self.model.step_time_us(load) + int(self._token_us * tokens)
