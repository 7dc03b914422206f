"""Whether requests are those of one server: those that run beside each other share its steps."""

from __future__ import annotations

from itertools import pairwise
from math import fsum, sqrt
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.measured import Recording

_FEWEST_TOKENS: Final = 8
"""Of shorter answers, single steps decide how long a token takes."""
_FEWEST: Final = 20
_BESIDE: Final = 0.5
"""A request ran beside another when it did for this share of the other's answer."""
_MOST_BESIDE: Final = 32
_SMALLEST_GROUP: Final = 0.15
_APART: Final = 0.2
"""Groups differ by so much at least, as a share."""
_CLEAR: Final = 5.0
"""And by so many standard deviations."""


def mixed(recording: Recording) -> str | None:
    """A sentence if its requests seem to be those of several servers; None = they may be of one.

    Each step gives a token to all who run, so that tokens of requests at the same time take equally long, whatever
    steps take. Where they fall into two groups, each alike in itself, there were two servers.
    """
    answers = [
        (
            one.arrival_us + one.ttft_us,
            one.arrival_us + one.e2e_us,
            (one.e2e_us - one.ttft_us) / (one.output_tokens - 1),
        )
        for one in recording.requests
        if one.output_tokens >= _FEWEST_TOKENS and one.e2e_us > one.ttft_us
    ]
    answers.sort()
    ratios = sorted(ratio for at in range(len(answers)) if (ratio := _beside(answers, at)) is not None)
    split = _two_groups(ratios)
    if split is None:
        return None
    low, high = ratios[:split], ratios[split:]
    more = (fsum(high) / len(high)) / (fsum(low) / len(low)) - 1.0
    return (
        f"{len(high):,} of {len(ratios):,} requests took {more:.0%} longer for a token than the others at the same"
        " times: this seems to be a mixture of two servers, or of instances behind a router; give each a file of its"
        " own."
    )


def _beside(answers: Sequence[tuple[float, float, float]], at: int) -> float | None:
    """What a token of an answer took, as a multiple of what it took for the fastest beside it."""
    begin, end, each = answers[at]
    others: list[float] = []
    for number in range(max(0, at - _MOST_BESIDE), min(len(answers), at + _MOST_BESIDE + 1)):
        start, stop, other = answers[number]
        if number != at and min(stop, end) - max(start, begin) >= _BESIDE * max(end - begin, stop - start):
            others.append(other)
    return each / min(others) if len(others) > 1 else None


def _two_groups(ratios: Sequence[float]) -> int | None:
    """Where the second of two clear groups begins, in order; None = there are none."""
    count = len(ratios)
    if count < _FEWEST:
        return None
    least = max(2, int(_SMALLEST_GROUP * count))
    # The widest gap that leaves enough on both sides.
    gaps = [(after - before, number + 1) for number, (before, after) in enumerate(pairwise(ratios))]
    _, split = max(gaps[least - 1 : count - least])
    low, high = ratios[:split], ratios[split:]
    centre = [median(one) for one in (low, high)]
    within = sqrt((fsum((one - centre[0]) ** 2 for one in low) + fsum((one - centre[1]) ** 2 for one in high)) / count)
    apart = centre[1] - centre[0]
    return split if apart > _APART * centre[0] and apart > _CLEAR * within else None
