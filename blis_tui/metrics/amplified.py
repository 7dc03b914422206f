"""By how much an error of step times grows under a load that does not wait for its answers.

Where requests come whatever becomes of others, longer steps mean more requests at a time, and more requests make longer
steps still. Let a step take ``s D(N) + s λ T p``: the decode of ``N`` requests, and the prompts that come while it
lasts, all of it in error by the factor ``s``. By Little's law ``N`` is proportional to the step's duration ``T``, so

    d ln T / d ln s = 1 / ((1 - λ p) (1 - ε)),    ε = d ln D / d ln N

``λ p`` is the share of the time that goes to prompts; all that is in the formula is known after a run. Users of a
closed loop wait: their number is given, and errors do not grow. ``benchmarks/amplified.py`` compares the formula with
runs of faster and slower steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.model import StepLoad
from blis_tui.engine.portable_math import ln

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepTimeModel

_APART: Final = 1.25
"""Batches so many times larger and smaller show how a step's duration grows."""
MOST: Final = 99.0
"""What is said where there is no end to it."""


def amplification(
    model: StepTimeModel, *, steps: int, busy_us: int, decoded_tokens: int, context_tokens: float
) -> float:
    """How many times a small relative error of steps is in the mean inter-token latency; at least 1.

    Args:
        model: of the steps.
        steps: how many there were.
        busy_us: what they took.
        decoded_tokens: what they generated, first tokens apart.
        context_tokens: of a request that decodes, in the mean.
    """
    if not steps or not busy_us or not decoded_tokens:
        return 1.0
    batch = max(1.0, decoded_tokens / steps)
    larger, smaller = _APART * batch, max(1.0, batch / _APART)
    decode_us, longer_us, shorter_us = (_decode_us(model, size, context_tokens) for size in (batch, larger, smaller))
    prompts = min(1.0, max(0.0, 1.0 - steps * decode_us / busy_us))
    growth = max(0.0, ln(longer_us / shorter_us) / ln(larger / smaller))
    left = (1.0 - prompts) * (1.0 - growth)
    return MOST if left * MOST <= 1.0 else 1.0 / left


def _decode_us(model: StepTimeModel, requests: float, context_tokens: float) -> float:
    """What a step takes that decodes for a mean number of requests."""
    below = int(requests)
    share = requests - below
    ends = [model.step_time_us(StepLoad([], size, int(size * context_tokens))) for size in (below, below + 1)]
    return (1.0 - share) * ends[0] + share * ends[1]
