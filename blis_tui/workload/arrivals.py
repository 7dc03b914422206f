"""Arrival processes in whole microseconds, and rates that change over time.

Arrival processes: the gaps between the requests of one client, in whole microseconds.

Gaps are truncated and at least 1 us, as in BLIS, so the actual rate is slightly above the declared one.
"""

from __future__ import annotations

import itertools
from math import sqrt
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import gamma, power
from blis_tui.model.plug_ins import PlugPoint, setting
from blis_tui.workload.distributions import counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.base.streams import Stream
    from blis_tui.model import PluginConfig, RateCurve, Stage
    from blis_tui.model.plug_ins import NoSettings, Registry


CLOSED_LOOP: Final = "closed-loop"
"""The arrival process without a rate: its users wait for their answers."""

_WEIBULL_SHAPES: Final = (0.1, 100.0)
_BISECTIONS: Final = 60


class Gaps(Protocol):
    """A distribution of interarrival gaps; it is called with their mean in microseconds."""

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1."""
        ...


ARRIVALS: Final = PlugPoint[[float], Gaps]("workload.clients.arrivals", "arrival process", Gaps)

_CV: Final = "Coefficient of variation of the gaps between requests: 1 = as irregular as Poisson, more = burstier."


@ARRIVALS.plugin("poisson", "Independent requests: exponential gaps.")
class PoissonGaps:
    """Independent, exponentially distributed gaps."""

    def __init__(self, settings: NoSettings | None, mean_us: float) -> None:  # noqa: ARG002  (there are none)
        self._mean_us = mean_us

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1."""
        return int(self._mean_us * stream.exponential()) or 1


@ARRIVALS.plugin("constant", "Equal gaps.")
class ConstantGaps:
    """Constant gaps."""

    def __init__(self, settings: NoSettings, mean_us: float) -> None:  # noqa: ARG002  (there are none)
        self._gap_us = int(mean_us) or 1

    def sample(self, stream: Stream) -> int:  # noqa: ARG002  (the protocol's signature)
        """Return the next gap in microseconds, at least 1."""
        return self._gap_us


@dataclass(frozen=True, slots=True, kw_only=True)
class GammaSettings:
    """Settings of gamma arrivals: beyond a cv of 10, most gaps would be rounded to nothing."""

    cv: float = setting(_CV, default=1.0, minimum=1e-6, maximum=10)


@ARRIVALS.plugin("gamma", "Gamma-distributed gaps.", GammaSettings)
class GammaGaps:
    """Gamma-distributed gaps: burstier than Poisson for a coefficient of variation above 1, calmer below."""

    def __init__(self, settings: GammaSettings, mean_us: float) -> None:
        cv = _positive("gamma", "cv", settings.cv)
        self._shape = 1.0 / (cv * cv)
        self._scale_us = mean_us * cv * cv

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1."""
        return int(self._scale_us * stream.gamma(self._shape)) or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WeibullSettings:
    """Settings of Weibull arrivals: shapes from 100 down to 0.1 reach a cv in about [0.013, 429]."""

    cv: float = setting(_CV, default=1.0, minimum=0.01, maximum=10.4)


@ARRIVALS.plugin("weibull", "Weibull-distributed gaps.", WeibullSettings)
class WeibullGaps:
    """Weibull-distributed gaps: heavier tails than gamma at the same coefficient of variation."""

    def __init__(self, settings: WeibullSettings, mean_us: float) -> None:
        shape = weibull_shape(_positive("weibull", "cv", settings.cv))
        self._inverse_shape = 1.0 / shape
        self._scale_us = mean_us / gamma(1.0 + 1.0 / shape)

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1."""
        return int(self._scale_us * power(stream.exponential(), self._inverse_shape)) or 1


def weibull_shape(cv: float) -> float:
    """Find the shape with the coefficient of variation ``cv`` by bisection, as cv decreases with the shape."""
    low, high = _WEIBULL_SHAPES
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        mean = gamma(1.0 + 1.0 / middle)
        if gamma(1.0 + 2.0 / middle) > (1.0 + cv * cv) * mean * mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _positive(kind: str, name: str, value: float) -> float:
    if not 0.0 < value < float("inf"):
        raise PolicyError(f"the {name} of {kind} arrivals is {value}", help="it must be positive")
    return value


def create_gaps(plugins: Registry, arrivals: PluginConfig, rate_per_s: float) -> Gaps:
    """Create the arrival process of a client that sends ``rate_per_s`` requests per second on average.

    Raises:
        PolicyError: no such process, or its rate or coefficient of variation is not positive and finite.
    """
    mean_us = 1e6 / _positive(arrivals.kind, "rate", rate_per_s)
    return counts(plugins.create(ARRIVALS, arrivals.kind, arrivals.settings, mean_us), arrivals.kind)


_END: Final = -1


class CurvedGaps:
    """Any arrival process whose clock runs at a rate that changes over time.

    The next request comes when the area below the curve reaches the next gap of the process at one request a second.
    For Poisson arrivals that is the inhomogeneous Poisson process (Cinlar, Introduction to Stochastic Processes, 4.7);
    other processes are equally irregular at every rate.

    Args:
        gaps: the process at one request a second.
        curve: factors of the rate over time.
        rate_per_s: the rate where the factor is 1.
    """

    def __init__(self, gaps: Gaps, curve: RateCurve, rate_per_s: float) -> None:
        self._gaps = gaps
        points = [(point.at_s, point.factor * rate_per_s) for point in curve.points]
        self._pieces = [(begin, end, before, after) for (begin, before), (end, after) in itertools.pairwise(points)]
        self._rate_after = points[-1][1]
        self._end_s = points[-1][0]
        self._repeat_s = self._end_s if curve.repeat else 0.0
        self._whole = 0.0
        for begin, end, before, after in self._pieces:
            self._whole += (before + after) / 2.0 * (end - begin)
        self._at_s = 0.0
        self._last_us = 0

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1; -1 = no more requests."""
        due = self._gaps.sample(stream) / 1e6
        at_s = self._next(due)
        if at_s < 0.0:
            return _END
        self._at_s = at_s
        gap = max(1, int(at_s * 1e6) - self._last_us)
        self._last_us += gap
        return gap

    def _next(self, due: float) -> float:
        """Return when ``due`` more requests have come, on average; negative = never."""
        period = self._repeat_s
        cycle = self._at_s // period * period if period else 0.0
        start = self._at_s - cycle
        while True:
            for begin, end, before, after in self._pieces:
                if end <= start:
                    continue
                slope = (after - before) / (end - begin)
                rate = before + slope * (max(start, begin) - begin)
                left = (rate + after) / 2.0 * (end - max(start, begin))
                if due <= left and left > 0.0:
                    # The root of rate x + slope x^2 / 2 = due, in the form without cancellation.
                    inside = max(0.0, rate * rate + 2.0 * slope * due)
                    return cycle + max(start, begin) + 2.0 * due / (rate + sqrt(inside))
                due -= left
            if not period:
                return max(start, self._end_s) + due / self._rate_after if self._rate_after > 0.0 else -1.0
            if self._whole <= 0.0:
                return -1.0
            periods = due // self._whole
            due -= periods * self._whole
            cycle += (periods + 1.0) * period
            start = 0.0


# Load in stages: one rate after the other, each for some time.


class DrawnStages:
    """Any arrival process whose clock runs at each stage's rate; a stage's number of requests is random.

    Args:
        gaps: the process at one request a second.
        stages: successive rates and durations.
        share: the client's share of each rate.
    """

    def __init__(self, gaps: Gaps, stages: Sequence[Stage], share: float) -> None:
        self._gaps = gaps
        self._stages = [(stage.rate_per_s * share, stage.duration_s * 1e6) for stage in stages]
        self._stage = 0
        self._at_us = 0.0
        self._end_us = self._stages[0][1]
        self._last_us = 0

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1; -1 after the last stage."""
        due = self._gaps.sample(stream) / 1e6
        while self._stage < len(self._stages):
            rate_per_s = self._stages[self._stage][0]
            within = (self._end_us - self._at_us) * rate_per_s / 1e6
            if due <= within:
                self._at_us += due / rate_per_s * 1e6
                gap = max(1, int(self._at_us) - self._last_us)
                self._last_us += gap
                return gap
            due -= within
            self._at_us = self._end_us
            self._stage += 1
            if self._stage < len(self._stages):
                self._end_us += self._stages[self._stage][1]
        return _END


class ExactStages:
    """Poisson arrivals with exactly rate x duration requests per stage, rounded, as inference-perf sends them.

    Given the number of arrivals of a Poisson process, their times are independent and uniformly distributed. Of ``k``
    such times in the rest of a stage, the first comes after the share ``1 - U^(1/k)`` of it (Devroye, Non-Uniform
    Random Variate Generation, V.3).

    Args:
        stages: successive rates and durations.
        share: the client's share of each rate.
    """

    def __init__(self, stages: Sequence[Stage], share: float) -> None:
        self._stages = [
            (int(stage.rate_per_s * share * stage.duration_s + 0.5), stage.duration_s * 1e6) for stage in stages
        ]
        self._stage = 0
        self._left, self._end_us = self._stages[0]
        self._at_us = 0.0
        self._last_us = 0

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1; -1 after the last stage."""
        while not self._left:
            self._stage += 1
            if self._stage == len(self._stages):
                self._stage -= 1
                return _END
            self._at_us = self._end_us
            self._left, duration_us = self._stages[self._stage]
            self._end_us += duration_us
        self._at_us += (self._end_us - self._at_us) * (1.0 - power(stream.uniform_open(), 1.0 / self._left))
        self._left -= 1
        gap = max(1, int(self._at_us) - self._last_us)
        self._last_us += gap
        return gap
