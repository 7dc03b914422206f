"""The accuracy of measured times, and its effect on equations between them.

The server's clock at the end of a step is its previous value plus the step's duration, so its errors accumulate.
Clients see it with an error of their own, which does not accumulate. Measured times are therefore not independent:
concurrent requests share the errors of their steps. The filter converts their equations to ones with independent errors
of unit variance, each of which only adds new information.
"""

from __future__ import annotations

from dataclasses import fields
from math import exp, log, pi, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import minimize

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.live.calibration.fitting.laws import Array
    from blis_tui.live.calibration.measured import Measured

_ROUNDING: Final = 1.0 / 12.0
"""Variance of a time rounded to microseconds."""
_SURPRISE: Final = 3.0
"""Errors beyond this many standard deviations count less and less: they are hiccups of the server or the client."""


_LEAST_STEP: Final = 1e-7
_LEAST_STAMP_US: Final = 0.1
_LEAST_SHARE: Final = 1e-7


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of measurement errors."""

    step: float = 0.05
    """Error of a step's duration, relative to it."""
    stamp_us: float = 1000.0
    """Error of a client's clock, for an arrival or a token, in microseconds."""
    first: float = 0.02
    """Error of a TTFT, relative to it."""
    answer: float = 0.01
    """Error of the time from the first to the last token, relative to it."""

    @property
    def arrival(self) -> float:
        """Variance of a request's queue entry time."""
        return self.stamp_us**2 + _ROUNDING

    def of_step(self, duration_us: float) -> float:
        """Return the variance of a step's duration."""
        return (self.step * duration_us) ** 2 + _ROUNDING

    def of_token(self, kind: int, request: Measured) -> float:
        """Return the variance of a client's time of a first token (0) or a last token (1)."""
        variance = self.stamp_us**2 + (self.first * request.ttft_us) ** 2 + _ROUNDING
        return variance + (self.answer * (request.e2e_us - request.ttft_us)) ** 2 if kind else variance


@dataclass(frozen=True, slots=True)
class Times:
    """Measured ends of steps in order; each list has one entry per end."""

    fresh: list[bool]
    """Whether it is the first one after a pause."""
    squares: list[float]
    """Sum of the squared durations of the steps since the previous entry, or since the pause."""
    steps: list[int]
    """Number of these steps."""
    first_us: list[float]
    """TTFT of its request."""
    answer_us: list[float]
    """For a last token, the time since the first; otherwise 0."""


@dataclass(frozen=True, slots=True)
class Gains:
    """Result of the filter: the share of each error due to the clock, and its standard deviation."""

    shares: list[float]
    deviations: list[float]
    cost: float
    """Negative log-likelihood."""


def filtered(noise: Noise, times: Times, late_us: list[float]) -> Gains:
    """Apply the filter to errors."""
    step, stamp = noise.step**2, noise.stamp_us**2 + _ROUNDING
    first, answer = noise.first**2, noise.answer**2
    shares: list[float] = []
    deviations: list[float] = []
    clock = doubt = cost = 0.0
    limit, around, rounding = _SURPRISE**2, 2.0 * pi, _ROUNDING
    columns = (times.fresh, times.squares, times.steps, times.first_us, times.answer_us, late_us)
    for fresh, squares, steps, first_us, answer_us, late in zip(*columns, strict=True):
        if fresh:
            clock, doubt = 0.0, stamp
        doubt += step * squares + steps * rounding
        total = doubt + stamp + first * first_us * first_us + answer * answer_us * answer_us
        new = late - clock
        size = new * new / total
        cost += 0.5 * log(around * total)
        if size > limit:  # a hiccup: the clock may have jumped
            cost += 0.5 * limit + 0.5 * (1.0 + limit) * log((1.0 + size) / (1.0 + limit))
            wider = total * (1.0 + size) / (1.0 + limit)
            doubt += wider - total
            total = wider
        else:
            cost += 0.5 * size
        share = doubt / total
        clock += share * new
        doubt *= 1.0 - share
        shares.append(share)
        deviations.append(sqrt(total))
    return Gains(shares, deviations, cost)


def whitened(times: Times, gains: Gains, columns: Array) -> Array:
    """Return equations with independent errors of unit variance, from those of measured times."""
    white = np.empty_like(columns)
    clock = np.zeros(columns.shape[1])
    for number, (fresh, share, deviation) in enumerate(zip(times.fresh, gains.shares, gains.deviations, strict=True)):
        if fresh:
            clock = np.zeros_like(clock)
        new = columns[number] - clock
        clock = clock + share * new
        white[number] = new / deviation
    return white


def estimated(start: Noise, times: Times, late_us: list[float]) -> Noise:
    """Return the noise with the maximum likelihood for these errors."""
    lowest = np.log([_LEAST_STEP, _LEAST_STAMP_US, _LEAST_SHARE, _LEAST_SHARE])

    def noise(logs: Array) -> Noise:
        return Noise(*(exp(level) for level in np.maximum(logs, lowest)))

    def cost(logs: Array) -> float:
        below = np.maximum(lowest - logs, 0.0)
        return filtered(noise(logs), times, late_us).cost + float(below @ below)

    at = np.log([getattr(start, field.name) for field in fields(Noise)])
    simplex = np.vstack([at, at - 1.5 * np.eye(len(at))])
    result = minimize(
        cost, at, method="Nelder-Mead", options={"initial_simplex": simplex, "xatol": 0.1, "fatol": 0.2, "maxfev": 120}
    )
    return noise(result.x)
