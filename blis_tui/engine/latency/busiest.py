"""How many tokens the busiest of several GPUs has, where each has some of the experts whole and the others wait for it.

Each of ``T`` tokens chooses ``k`` of ``E`` experts, of which each of ``N`` GPUs has ``E / N``. Where all are chosen
alike, the tokens of a GPU are a sum of ``T`` hypergeometric draws: by chance they vary by
``(N - 1) (E - k) / ((E - 1) T k)`` (relative variance). Popularity of experts with the squared coefficient of variation
``s`` lasts from step to step; what a GPU's experts have together of it varies by ``(1 - 1 / N) s N / E``.

The largest of ``N`` normal values that vary independently around a mean is ``e(N)`` standard deviations above it
(L. H. C. Tippett, Biometrika 17, 1925); of values whose sum is fixed, as here, ``sqrt(N / (N - 1))`` times that. Each
layer has a busiest GPU of its own, so that over a step's layers the expectation counts.
"""

from __future__ import annotations

from bisect import bisect_right
from math import sqrt
from typing import Final

from blis_tui.classes import dataclass
from blis_tui.engine.portable_math import ln

_LARGEST: Final = (0.0, 0.5642, 1.0294, 1.4236, 1.7660, 2.0697, 2.3437, 2.5946, 2.8269, 3.0439, 3.2482)
"""Expected largest of 1, 2, 4, ... 1024 standard normal values."""


def expected_largest(number: int) -> float:
    """Of so many independent standard normal values, within 1.5 %; from 1,024 on as of 1,024."""
    sizes = [1 << power for power in range(len(_LARGEST))]
    at = bisect_right(sizes, number) - 1
    if at == len(sizes) - 1:
        return _LARGEST[-1]
    return _LARGEST[at] + (_LARGEST[at + 1] - _LARGEST[at]) * ln(number / sizes[at]) / ln(2.0)


def popular(gpus: int, experts: int, spread: float) -> float:
    """How much more than the mean the busiest GPU has in the long run.

    Args:
        gpus: over how many the experts are spread.
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
    """How much more than the mean it has however many tokens there are: ``popular``, or what is known of a balancer."""

    def share(self, tokens: float) -> float:
        """Of so many tokens, at least 1, relative to the mean; nearer to ``1 + lasting`` the more they are.

        ``tokens * share`` never falls.
        """
        if self.gpus == 1:
            return 1.0
        varies = self.gpus * (self.experts - self.top_k) / ((self.experts - 1) * self.top_k * tokens)
        largest = expected_largest(self.gpus)
        return 1.0 + sqrt(self.lasting * self.lasting + largest * largest * varies)
