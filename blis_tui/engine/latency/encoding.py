"""A step-time model of engines that turn images, audio and video into tokens before they compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.encoder.items import items_of
from blis_tui.engine.latency.model import Around
from blis_tui.engine.request import NO_MEDIA

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import Chunk, StepLoad, StepTimeModel


def encoded_tokens(chunk: Chunk) -> int:
    """How many tokens of media are encoded for a chunk, where nothing is kept of what was encoded before.

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


class Encoding(Around):
    """Steps take ``token_us`` longer for each token of media that is encoded for them, rounded down in all.

    The encoder runs before the model and is not overlapped with it, as in vLLM
    (``v1/worker/gpu_model_runner.py``, ``_execute_mm_encoder``). What the prefix cache has is not encoded; what is
    computed again, is, unless steps schedule the encoder and its cache has it.

    Args:
        model: what the rest of a step takes.
        token_us: of the encoder.
        scheduled: whether steps schedule it (``engine.encoder``).
    """

    __slots__ = ("_scheduled", "_token_us")

    def __init__(self, model: StepTimeModel, token_us: float, *, scheduled: bool) -> None:
        super().__init__(model)
        self._token_us = token_us
        self._scheduled = scheduled

    def step_time_us(self, load: StepLoad) -> int:
        """What the other model says, and what the encoder takes before."""
        tokens = 0
        for chunk in load.chunks:
            tokens += chunk.encoded if self._scheduled else encoded_tokens(chunk)
        return self.model.step_time_us(load) + int(self._token_us * tokens)
