"""The naive encoder: a step asks token by token whether it is one of media."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.request import Request


def is_media(request: Request, place: int) -> bool:
    """Whether the token of a prompt at a place, from 0, is of media: these are spread evenly behind the shared head."""
    media = sum(request.media)
    head = sum(tokens for _, tokens in request.segments)
    if head + media > request.input_tokens:
        head = 0
    if not head <= place < request.input_tokens:
        return False
    length, nth = request.input_tokens - head, place - head
    return media * (nth + 1) // length > media * nth // length


class TokenByToken:
    """Another model's time, and that of the encoder."""

    def __init__(self, model: StepTimeModel, token_us: float) -> None:
        self.model = model
        self.token_us = token_us
        self.output_token_overhead_us = model.output_token_overhead_us
        self.post_decode_overhead_us = model.post_decode_overhead_us

    def step_time_us(self, load: StepLoad) -> int:
        tokens = 0
        for chunk in load.chunks:
            places = range(chunk.computed, chunk.computed + chunk.new)
            tokens += [is_media(chunk.request, place) for place in places].count(True)
        return self.model.step_time_us(load) + int(self.token_us * tokens)

    def queueing_time_us(self, request: Request) -> int:
        return self.model.queueing_time_us(request)
