"""Which arrival process a sequence of arrivals is like."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.engine.portable_math import exp, gamma, power
from blis_tui.traffic.curves import distance, gamma_cdf, rounded
from blis_tui.traffic.figures import spread
from blis_tui.traffic.lengths import Chosen
from blis_tui.workload.arrivals import weibull_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.spec.source import Json

_LEAST_CV: Final = 0.01
_MOST_CV: Final = 10.0
"""Burstier gamma arrivals would be drawn as Poisson ones."""
_SIMPLER: Final = 0.005
"""Poisson arrivals, which need no figure, are taken where others are nearer by less."""


def choose_gaps(arrivals_us: Sequence[float]) -> Chosen:
    """The process that is nearest to the gaps between these times, at their rate and coefficient of variation.

    Args:
        arrivals_us: at least three, ascending, not all the same.
    """
    gaps = sorted(max(1, int(later - earlier)) for earlier, later in pairwise(arrivals_us))
    scaled_total, scaled_variance = spread(gaps)
    n = len(gaps)
    mean, cv = scaled_total / (n * n), rounded(sqrt(scaled_variance) * n / scaled_total, 4)
    found = list(_processes(gaps, mean, cv))
    best = min(found, key=lambda one: one.ks)
    poisson = next((one for one in found if one.kind == "poisson"), best)
    return poisson if poisson.ks <= best.ks + _SIMPLER else best


def _processes(gaps: Sequence[int], mean: float, cv: float) -> Iterator[Chosen]:
    # A gap is cut to whole microseconds: at most k is whatever is shorter than k + 1.
    def judged(kind: str, cdf: Callable[[float], float], cv: float | None = None) -> Chosen:
        data: dict[str, Json] = {"kind": kind} if cv is None else {"kind": kind, "cv": cv}
        return Chosen(data=data, ks=distance(gaps, lambda gap: cdf(gap + 1.0) if gap >= 1 else 0.0))

    if cv < _LEAST_CV:
        yield judged("constant", lambda x: 1.0 if x > mean else 0.0)
        return
    yield judged("poisson", lambda x: 1.0 - exp(-x / mean))
    bounded = min(cv, _MOST_CV)
    shape = 1.0 / (bounded * bounded)
    yield judged("gamma", lambda x: gamma_cdf(shape, x * shape / mean), bounded)
    k = weibull_shape(bounded)
    scale = mean / gamma(1.0 + 1.0 / k)
    yield judged("weibull", lambda x: 1.0 - exp(-power(x / scale, k)) if x > 0 else 0.0, bounded)
