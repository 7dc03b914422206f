"""Rates that change over time: piecewise linear, once or periodically, or in stages."""

from __future__ import annotations

import itertools
from math import sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.engine.portable_math import power

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.streams import Stream
    from blis_tui.spec.model import RateCurve, Stage
    from blis_tui.workload.arrivals import Gaps


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

    __slots__ = ("_at_s", "_end_s", "_gaps", "_last_us", "_pieces", "_rate_after", "_repeat_s", "_whole")

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

    __slots__ = ("_at_us", "_end_us", "_gaps", "_last_us", "_stage", "_stages")

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

    __slots__ = ("_at_us", "_end_us", "_last_us", "_left", "_stage", "_stages")

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
