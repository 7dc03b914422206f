"""The posterior of coefficients: the most likely values, and their intervals."""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import lsq_linear
from scipy.special import ndtr

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from blis_tui.live.calibration.fitting.equations import Windows
    from blis_tui.live.calibration.fitting.laws import Array, Term

INTERVAL_COST_RISE: Final = 2.7055 / 2.0
"""Rise of the cost at the ends of an interval (``outcome.LEVEL``): half of the quantile of chi-squared."""
_NEWTON: Final = 8
_ANYWHERE: Final = 1e-3
"""Probability that a request came at any time, so that nothing is impossible."""
_ALIKE: Final = 0.25
"""Requests at nearly equal times enter by the same scheduling pass, so that four carry about as much information as
one."""
_SIGNIFICANT_DEVIATIONS: Final = 3.0
"""Number of standard deviations, with all other coefficients fixed, from which it is no chance."""
_SEED: Final = 1
_ROUNDING_US: Final = 0.3
"""Standard deviation of the rounding error, in microseconds, shared by steps with the same work."""


@dataclass(frozen=True, slots=True)
class Entrances:
    """Windows with standard deviations of the queue entry and of the first token's time."""

    windows: Windows
    jitter_us: float
    token_us: Array

    @property
    def weights(self) -> Array:
        """Return the likelihood of first tokens for each of the three windows; they add up to 1."""
        off, step = self.windows.off_us, self.windows.step_us
        sizes = np.stack([off + step, off, off - step], axis=1) / self.token_us[:, None]
        return _softmax(-0.5 * sizes * sizes)

    def cost(self, values: Array) -> Array:
        """Return the negative log-likelihood of coefficients for each request."""
        return self._likelihood(values)[0]

    def _likelihood(self, values: Array) -> tuple[Array, Array, Array]:
        """Return, for each request, the cost and its first and second derivatives by the wait before the queue."""
        waits = self.windows.slopes @ values
        edges = (self.windows.edges_us - waits[:, None]) / self.jitter_us
        weights = self.weights
        density = np.exp(-0.5 * edges * edges) / sqrt(2.0 * pi)
        likely = np.sum(weights * np.diff(ndtr(edges), axis=1), axis=1) + _ANYWHERE
        slope = -np.sum(weights * np.diff(density, axis=1), axis=1) / self.jitter_us
        bend = -np.sum(weights * np.diff(edges * density, axis=1), axis=1) / self.jitter_us**2
        return -_ALIKE * np.log(likely), -_ALIKE * slope / likely, _ALIKE * ((slope / likely) ** 2 - bend / likely)

    def newton(self, values: Array) -> tuple[Array, Array]:
        """Return rows with the same slope and curvature: slopes, and residuals."""
        _, pull, bend = self._likelihood(values)
        root = np.sqrt(np.maximum(bend, 1e-12))
        return root[:, None] * self.windows.slopes, -pull / root

    def best_windows(self, values: Array) -> Array:
        """Return the two scheduling passes between which each request most likely joined: two columns."""
        waits = self.windows.slopes @ values
        edges = (self.windows.edges_us - waits[:, None]) / self.jitter_us
        likely = self.weights * (np.diff(ndtr(edges), axis=1) + _ANYWHERE)
        best = np.argmax(likely, axis=1)
        rows = np.arange(len(best))
        return np.stack([self.windows.edges_us[rows, best], self.windows.edges_us[rows, best + 1]], axis=1)


def _triangle(rows: Array) -> Array:
    """Return a square matrix with the same Gram matrix."""
    return np.atleast_2d(np.linalg.qr(rows, mode="r"))


def _softmax(logs: Array) -> Array:
    likely = np.exp(logs - logs.max(axis=1, keepdims=True, initial=-np.inf))
    shares: Array = likely / likely.sum(axis=1, keepdims=True)
    return shares


def likeliest_jitter(windows: Windows, token_us: Array, values: Array, otherwise_us: float) -> float:
    """Return the most likely standard deviation of queue entries."""
    if not len(windows.requests):
        return otherwise_us
    least = max(1.0, 0.02 * float(np.median(windows.step_us)))
    tried = np.geomspace(least, 1000.0 * least, 25)
    costs = [float(np.sum(Entrances(windows, jitter, token_us).cost(values))) for jitter in tried.tolist()]
    return float(tried[int(np.argmin(costs))])


class Posterior:
    """Negative log-posterior of the coefficients, near their best values.

    Args:
        terms: the coefficients.
        rows: equations with independent errors of unit variance: slopes, and the right-hand sides.
        roundings: slopes of errors shared by many equations.
        entrances: the intervals in which requests joined the queue.
    """

    def __init__(
        self, terms: Sequence[Term], rows: Array, aims: Array, roundings: Array, entrances: Sequence[Entrances]
    ) -> None:
        self.base = np.array([term.base for term in terms])
        self.spread = np.array([term.spread for term in terms])
        self._lowest = np.array([term.lowest for term in terms])
        self.lowest = (self._lowest - self.base) / self.spread
        shared = roundings.shape[1]
        left = np.column_stack([_ROUNDING_US * roundings, rows * self.spread, aims - rows @ self.base])
        expected = np.zeros((shared, left.shape[1]))
        expected[:, :shared] = np.eye(shared)
        full = _triangle(np.vstack([left, expected]))[shared:, shared:]
        self._rows, self._aims = full[:, :-1], full[:, -1]
        self._entrances = [entrance for entrance in entrances if len(entrance.windows.requests)]

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Return, for each coefficient, whether any measurement contains it."""
        size = np.abs(self._rows).max(axis=0, initial=0.0)
        for entrances in self._entrances:
            size = np.maximum(size, np.abs(entrances.windows.slopes).max(axis=0, initial=0.0))
        contained: NDArray[np.bool_] = size > 0.0
        return contained

    def values(self, at: Array) -> Array:
        """Return coefficients, given their distances from the base in spreads."""
        values: Array = np.maximum(self.base + self.spread * at, self._lowest)
        return values

    def place(self, values: Array) -> Array:
        """Return the distances of coefficients from the base, in spreads."""
        place: Array = (values - self.base) / self.spread
        return place

    def cost(self, at: Array) -> float:
        """Return the cost of coefficients, given in spreads from their base."""
        off = self._rows @ at - self._aims
        total = 0.5 * float(off @ off) + 0.5 * float(at @ at)
        for entrances in self._entrances:
            total += float(np.sum(entrances.cost(self.base + self.spread * at)))
        return total

    def best(self, start: Array, fixed: int = -1, value: float = 0.0) -> tuple[Array, float]:
        """Return the most likely coefficients (with one of them fixed), and their cost."""
        at = np.maximum(start, self.lowest)
        free = np.arange(len(at)) != fixed
        if fixed >= 0:
            at[fixed] = value
        cost = self.cost(at)
        for _ in range(_NEWTON if self._entrances else 1):
            step = self._newton(at, free) - at
            share = 1.0
            while (new := self.cost(at + share * step)) > cost and share > 1e-3:
                share *= 0.4
            if new > cost:
                break
            at, gained, cost = at + share * step, cost - new, new
            if gained < 1e-3:
                break
        return at, cost

    def _newton(self, at: Array, free: NDArray[np.bool_]) -> Array:
        rows, aims = [self._rows, np.eye(len(at))], [self._aims, np.zeros(len(at))]
        for entrances in self._entrances:
            slopes, missing = entrances.newton(self.base + self.spread * at)
            slopes = slopes * self.spread
            full = _triangle(np.column_stack([slopes, slopes @ at + missing]))
            rows.append(full[:, :-1])
            aims.append(full[:, -1])
        left, right = np.vstack(rows), np.concatenate(aims)
        solution = at.copy()
        right = right - left[:, ~free] @ at[~free]
        solution[free] = lsq_linear(left[:, free], right, bounds=(self.lowest[free], np.inf), method="bvls").x
        return solution

    def curvature(self, at: Array) -> Array:
        """Return the second derivatives of the cost, in spreads."""
        rows = [self._rows, np.eye(len(at))]
        rows += [entrances.newton(self.base + self.spread * at)[0] * self.spread for entrances in self._entrances]
        left = np.vstack(rows)
        curvature: Array = left.T @ left
        return curvature

    def draws(self, values: Array, count: int) -> list[Array]:
        """Return draws from the posterior around the best values; each call returns the same draws.

        A coefficient below its bound is set to the bound, and correlated ones are adjusted accordingly.
        """
        at = self.place(values)
        covariance = np.linalg.inv(self.curvature(at))
        normal = np.random.default_rng(_SEED).standard_normal((count, len(at)))
        plausible = []
        for draw in at + normal @ np.linalg.cholesky(covariance).T:
            drawn, below = draw, np.zeros(len(at), dtype=bool)
            while np.any((drawn < self.lowest - 1e-9) & ~below):
                below |= drawn < self.lowest
                more = np.linalg.solve(covariance[np.ix_(below, below)], (self.lowest - draw)[below])
                drawn = draw + covariance[:, below] @ more
            plausible.append(self.values(drawn))
        return plausible

    def is_significant(self, at: Array) -> NDArray[np.bool_]:
        """Return, for each coefficient, whether the cost falls below it by more than chance explains."""
        slope = self._rows.T @ (self._rows @ at - self._aims) + at
        for entrances in self._entrances:
            rows, missing = entrances.newton(self.base + self.spread * at)
            slope = slope - (rows * self.spread).T @ missing
        significant: NDArray[np.bool_] = slope > _SIGNIFICANT_DEVIATIONS * np.sqrt(np.diag(self.curvature(at)))
        return significant

    def interval(self, best: Array, place: int, rise: float = INTERVAL_COST_RISE) -> tuple[float, float]:
        """Return the interval of a coefficient in spreads, with the others free: the cost rises by at most ``rise``.

        Args:
            best: the most likely coefficients.
            place: index of the coefficient.
            rise: the allowed rise of the cost.
        """
        deviation = sqrt(float(np.linalg.inv(self.curvature(best))[place, place]))
        _, least = self.best(best)
        return self._end(best, place, -deviation, least + rise), self._end(best, place, deviation, least + rise)

    def _end(self, best: Array, place: int, deviation: float, limit: float) -> float:
        """Return where the cost reaches a limit on one side."""
        nearest = float(best[place])
        side = -1.0 if deviation < 0.0 else 1.0
        farthest = nearest - float(self.lowest[place]) if side < 0.0 else np.inf
        inner, outer = 0.0, min(1.645 * abs(deviation), farthest)
        at = best
        for _ in range(30):  # expand until it is unlikely enough
            at, cost = self.best(at, place, nearest + side * outer)
            if cost >= limit or outer >= farthest:
                break
            inner, outer = outer, min(1.7 * outer, farthest)
        else:
            return nearest + side * outer
        if cost < limit:
            return nearest + side * farthest
        for _ in range(12):
            middle = 0.5 * (inner + outer)
            at, cost = self.best(at, place, nearest + side * middle)
            inner, outer = (middle, outer) if cost < limit else (inner, middle)
            if outer - inner < 0.02 * outer:
                break
        return nearest + side * 0.5 * (inner + outer)
