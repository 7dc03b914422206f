"""A step-time model of engines that turn images, audio and video into tokens before they compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.latency.model import Around
from blis_tui.engine.request import declared_segments

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import Chunk, StepLoad, StepTimeModel


def media_tokens(chunk: Chunk) -> int:
    """How many tokens of a chunk are no text.

    Where in a prompt its media are is not known: they count as spread evenly over what follows the shared head, or over
    the whole prompt where they do not fit behind it (as where all of it may be shared). Over all chunks that adds up.
    """
    request = chunk.request
    media = request.media.tokens
    if not media:
        return 0
    start = 0
    for _, tokens in declared_segments(request):
        start += tokens
    if request.input_tokens - start < media:
        start = 0
    length = request.input_tokens - start
    first, last = max(chunk.computed, start), min(chunk.computed + chunk.new, request.input_tokens)
    return media * (last - start) // length - media * (first - start) // length if last > first else 0


class Encoding(Around):
    """Steps take ``token_us`` longer for each token of media that they compute, rounded down in all.

    The encoder runs before the model and is not overlapped with it, as in vLLM
    (``v1/worker/gpu_model_runner.py``, ``_execute_mm_encoder``). What the prefix cache has is not encoded; what is
    computed again, is.
    """

    __slots__ = ("_token_us",)

    def __init__(self, model: StepTimeModel, token_us: float) -> None:
        super().__init__(model)
        self._token_us = token_us

    def step_time_us(self, load: StepLoad) -> int:
        """What the other model says, and what the encoder takes before."""
        tokens = 0
        for chunk in load.chunks:
            tokens += media_tokens(chunk)
        return self.model.step_time_us(load) + int(self._token_us * tokens)
