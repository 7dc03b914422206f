"""What equations say of coefficients: the most likely ones, and the intervals in which they lie."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import lsq_linear
from scipy.special import log_ndtr, ndtr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.fitting.equations import Windows
    from blis_tui.calibration.fitting.laws import Array, Term

LEVEL: Final = 0.9
_RISE: Final = 2.7055 / 2.0
"""How much less likely the ends of an interval of that level are: half of the quantile of chi-squared."""
_NEWTON: Final = 8
_SURPRISE: Final = 3.0


@dataclass(frozen=True, slots=True)
class Jitter:
    """Windows, and how exact arrivals are."""

    windows: Windows
    deviation_us: float

    def cost(self, values: Array) -> float:
        """Minus the logarithm of the likelihood of coefficients."""
        return float(np.sum(_window(self, values)[0])) if len(self.windows.slopes) else 0.0


def likeliest_jitter(windows: Windows, values: Array, otherwise_us: float) -> float:
    """How exact arrivals are, as the windows say it."""
    if not len(windows.slopes):
        return otherwise_us
    least = max(1.0, 0.02 * float(np.median(windows.until_us - windows.after_us)))
    tried = np.geomspace(least, 1000.0 * least, 25)
    costs = [Jitter(windows, one).cost(values) for one in tried.tolist()]
    return float(tried[int(np.argmin(costs))])


class Posterior:
    """Minus the logarithm of the likelihood of coefficients, and of what was expected of them: near their best values.

    Args:
        terms: the coefficients.
        rows: equations whose errors are independent and of variance one: slopes, and what they are to add up to.
        jitters: between which times requests came to stand in the queue.
    """

    def __init__(self, terms: Sequence[Term], rows: Array, aims: Array, jitters: Sequence[Jitter]) -> None:
        self.base = np.array([one.base for one in terms])
        self.spread = np.array([one.spread for one in terms])
        self._lowest = np.array([one.lowest for one in terms])
        self.lowest = (self._lowest - self.base) / self.spread
        left = np.column_stack([rows * self.spread, aims - rows @ self.base])
        full = np.linalg.qr(left, mode="r")
        self._rows, self._aims = full[:, :-1], full[:, -1]
        self._jitters = [one for one in jitters if len(one.windows.slopes)]

    def values(self, at: Array) -> Array:
        """Coefficients, from how many spreads they are from their base."""
        return np.maximum(self.base + self.spread * at, self._lowest)

    def cost(self, at: Array) -> float:
        """Of coefficients, in spreads from their base."""
        off = self._rows @ at - self._aims
        total = 0.5 * float(off @ off) + 0.5 * float(at @ at)
        for one in self._jitters:
            total += one.cost(self.values(at))
        return total

    def best(self, start: Array, fixed: int = -1, value: float = 0.0) -> tuple[Array, float]:
        """The most likely coefficients (one of them fixed), and their cost."""
        at = np.maximum(start, self.lowest)
        free = np.arange(len(at)) != fixed
        if fixed >= 0:
            at[fixed] = value
        cost = self.cost(at)
        for _ in range(_NEWTON):
            step = self._newton(at, free) - at
            if not self._jitters:
                at = at + step
                return at, self.cost(at)
            share = 1.0
            while share > 1e-3:
                trial = at + share * step
                new = self.cost(trial)
                if new < cost:
                    break
                share *= 0.4
            else:
                break
            gained = cost - new
            at, cost = trial, new
            if gained < 1e-3:
                break
        return at, cost

    def _newton(self, at: Array, free: Array) -> Array:
        rows, aims = [self._rows, np.eye(len(at))], [self._aims, np.zeros(len(at))]
        for one in self._jitters:
            _, pull, bend = _window(one, self.values(at))
            root = np.sqrt(np.maximum(bend, 1e-12))
            slopes = root[:, None] * one.windows.slopes * self.spread
            full = np.linalg.qr(np.column_stack([slopes, slopes @ at - pull / root]), mode="r")
            rows.append(full[:, :-1])
            aims.append(full[:, -1])
        left, right = np.vstack(rows), np.concatenate(aims)
        found = at.copy()
        right = right - left[:, ~free] @ at[~free]
        found[free] = lsq_linear(left[:, free], right, bounds=(self.lowest[free], np.inf), method="bvls").x
        return found

    def curvature(self, at: Array) -> Array:
        """Second derivatives, in spreads."""
        rows = [self._rows, np.eye(len(at))]
        for one in self._jitters:
            _, _, bend = _window(one, self.values(at))
            rows.append(np.sqrt(np.maximum(bend, 0.0))[:, None] * one.windows.slopes * self.spread)
        left = np.vstack(rows)
        return left.T @ left

    def interval(self, best: Array, place: int, deviation: float) -> tuple[float, float]:
        """Where a coefficient lies, whatever the others are: of less likely ones the likelihood is less than a quarter.

        Args:
            best: the most likely coefficients.
            place: which one.
            deviation: about what its standard deviation is.
        """
        _, least = self.best(best)
        ends = []
        for side in (-1.0, 1.0):
            inner, outer, step = 0.0, 0.0, 1.645 * deviation
            limit = best[place] - self.lowest[place] if side < 0.0 else np.inf
            at = best
            rises = 0.0
            for _ in range(30):  # out, until it is unlikely enough
                outer = min(inner + step, limit)
                at, cost = self.best(at, place, best[place] + side * outer)
                rises = cost - least
                if rises >= _RISE or outer >= limit:
                    break
                inner, step = outer, step * (1.6 if rises > 0.3 * _RISE else 3.0)
            if rises >= _RISE:
                for _ in range(12):
                    middle = 0.5 * (inner + outer)
                    at, cost = self.best(at, place, best[place] + side * middle)
                    inner, outer = (middle, outer) if cost - least < _RISE else (inner, middle)
                    if outer - inner < 0.02 * outer:
                        break
                outer = 0.5 * (inner + outer)
            ends.append(best[place] + side * outer)
        return ends[0], ends[1]


def _window(one: Jitter, values: Array) -> tuple[Array, Array, Array]:
    """Cost of each window, its slope and its curvature, by the wait before the queue."""
    waits = one.windows.slopes @ values
    scale = one.deviation_us
    left, right = (one.windows.after_us - waits) / scale, (one.windows.until_us - waits) / scale
    # On the side where probabilities are small, for exactness.
    flip = left > 0.0
    low, high = np.where(flip, -right, left), np.where(flip, -left, right)
    upper, lower = log_ndtr(high), log_ndtr(low)
    cost = -(upper + np.log1p(-np.exp(np.minimum(lower - upper, -1e-12))))
    density = np.exp(-0.5 * low * low + cost) / sqrt(2.0 * np.pi), np.exp(-0.5 * high * high + cost) / sqrt(2.0 * np.pi)
    pull = np.where(flip, -1.0, 1.0) * (density[1] - density[0]) / scale
    bend = ((high * density[1] - low * density[0]) / scale**2) + pull * pull
    # Those far outside count less and less.
    outside = np.maximum(np.maximum(left, -right), 0.0)
    limit = _SURPRISE**2
    weight = np.where(outside > _SURPRISE, (1.0 + limit) / (1.0 + outside * outside), 1.0)
    bounded = np.where(
        outside > _SURPRISE,
        0.5 * limit + 0.5 * (1.0 + limit) * np.log((1.0 + outside * outside) / (1.0 + limit)) + 1.0,
        cost,
    )
    return np.minimum(cost, bounded), weight * pull, weight * np.maximum(bend, 0.0)
