"""How many tokens the busiest GPU has under expert parallelism, for which the other GPUs wait.

Each of ``T`` tokens chooses ``k`` of ``E`` experts; each of ``N`` GPUs has ``E / N`` of them. If all experts are
equally likely, the tokens of a GPU are a sum of ``T`` hypergeometric draws, with relative variance ``(N - 1) (E - k) /
((E - 1) T k)``. If experts differ in popularity, with the squared coefficient of variation ``s``, that difference lasts
from step to step; the total popularity of a GPU's experts has the variance ``(1 - 1 / N) s N / E``.

The largest of ``N`` independent normal values is on average ``e(N)`` standard deviations above the mean (L. H. C.
Tippett, Biometrika 17, 1925); if the sum of the values is fixed, as here, ``sqrt(N / (N - 1))`` times that. Each layer
has its own busiest GPU, so over a step's layers the expectation counts.
"""

from __future__ import annotations

from bisect import bisect_right
from math import sqrt
from typing import Final

from blis_tui.classes import dataclass
from blis_tui.engine.portable_math import ln

_LARGEST: Final = (0.0, 0.5642, 1.0294, 1.4236, 1.7660, 2.0697, 2.3437, 2.5946, 2.8269, 3.0439, 3.2482)
"""Expected maximum of 1, 2, 4, ... 1024 standard normal values."""


def expected_largest(number: int) -> float:
    """Expected maximum of ``number`` independent standard normal values, within 1.5 %; constant from 1,024 on."""
    sizes = [1 << power for power in range(len(_LARGEST))]
    at = bisect_right(sizes, number) - 1
    if at == len(sizes) - 1:
        return _LARGEST[-1]
    return _LARGEST[at] + (_LARGEST[at + 1] - _LARGEST[at]) * ln(number / sizes[at]) / ln(2.0)


def popularity_excess(gpus: int, experts: int, spread: float) -> float:
    """Long-run excess of the busiest GPU's load over the mean, as a share of the mean.

    Args:
        gpus: number of GPUs that the experts are spread over.
        experts: of the model.
        spread: squared coefficient of variation of an expert's popularity.
    """
    return expected_largest(gpus) * sqrt(spread * gpus / experts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Busiest:
    """The GPU with the most tokens."""

    gpus: int
    experts: int
    top_k: int
    lasting: float
    """Excess over the mean at any number of tokens: ``popularity_excess``, or what is known of a balancer."""

    def share(self, tokens: float) -> float:
        """Load of the busiest GPU relative to the mean; it approaches ``1 + lasting`` as ``tokens`` grows.

        ``tokens``: at least 1. ``tokens * share`` never falls.
        """
        if self.gpus == 1:
            return 1.0
        varies = self.gpus * (self.experts - self.top_k) / ((self.experts - 1) * self.top_k * tokens)
        largest = expected_largest(self.gpus)
        return 1.0 + sqrt(self.lasting * self.lasting + largest * largest * varies)
