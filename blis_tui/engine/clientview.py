"""What a request's client measures: the engine's times plus the overheads outside steps.

Each output token is detokenized and streamed once (``output_token_overhead_us``): once in the time to first token and
once in each gap after it. ``post_decode_overhead_us`` is added once, after the last token. If the client's network is
modelled, its round trip is added once, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.request import Request


def client_ttft_us(request: Request, latency: StepTimeModel) -> int:
    """Time to first token, in microseconds; the first token must have been produced.

    ``latency`` is the model of the request's current instance. For a request on two instances, the first token came
    from the instance that computed its prompt last.
    """
    way, network = request.handover, request.network
    overhead_us = latency.output_token_overhead_us if way is None else way.first_token_overhead_us
    wire_us = 0 if network is None else network.ttft_us(request.input_tokens)
    return request.first_token_us - request.arrival_us + overhead_us + wire_us


def client_ttfat_us(request: Request, latency: StepTimeModel) -> int:
    """Time to the first token of the answer itself, which must have been produced; ``latency`` as above.

    Without reasoning this is the time to first token. Otherwise it counts like the time to a last token, without the
    overheads that are added once at the end.
    """
    reasoning, network = request.reasoning, request.network
    assert reasoning is not None  # noqa: S101  (only requests with reasoning have this figure)
    if not reasoning.tokens:
        return client_ttft_us(request, latency)
    tokens = reasoning.tokens + 1
    gaps = tokens - (request.handover is not None)
    wire_us = 0 if network is None else network.e2e_us(request.input_tokens, tokens)
    return reasoning.first_answer_us - request.arrival_us + gaps * latency.output_token_overhead_us + wire_us


def client_times_us(request: Request, latency: StepTimeModel) -> tuple[int, int]:
    """``client_ttft_us`` and ``client_e2e_us`` of a request that has completed."""
    if request.handover is not None or request.network is not None or not request.generated_tokens:
        return client_ttft_us(request, latency), client_e2e_us(request, latency)
    overhead_us = latency.output_token_overhead_us
    rest_us = request.completed_us - request.arrival_us + latency.post_decode_overhead_us
    return (
        request.first_token_us - request.arrival_us + overhead_us,
        rest_us + request.generated_tokens * overhead_us,
    )


def client_e2e_us(request: Request, latency: StepTimeModel) -> int:
    """Time from arrival to last token, in microseconds; the request must have completed."""
    # With two instances, the first token comes from the prefill instance, so it adds no gap here.
    tokens = max(request.generated_tokens - (request.handover is not None), 1)
    post = latency.post_decode_overhead_us if request.generated_tokens else 0
    network = request.network
    post += 0 if network is None else network.e2e_us(request.input_tokens, request.generated_tokens)
    return request.completed_us - request.arrival_us + tokens * latency.output_token_overhead_us + post
