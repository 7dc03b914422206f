"""The filter, against the density of all errors at once."""

from __future__ import annotations

from math import log, pi

import numpy as np
import pytest

from blis_tui.live.calibration.fitting.clock import Noise, Times, filtered, whitened

NOISE = Noise(step=0.02, stamp_us=300.0, first=0.004, answer=0.003)
TIMES = Times(
    fresh=[True, False, False, True, False],
    squares=[2e8, 9e8, 1e8, 4e8, 3e8],
    steps=[2, 9, 1, 4, 3],
    first_us=[20_000.0, 50_000.0, 31_000.0, 25_000.0, 60_000.0],
    answer_us=[0.0, 400_000.0, 0.0, 0.0, 100_000.0],
)


def covariance() -> np.ndarray:
    """Of errors: those of clients are their own, the clock's are shared since the last pause."""
    count, rounding = len(TIMES.fresh), 1.0 / 12.0
    clocks = np.zeros((count, count))
    doubts: list[float] = []
    for number in range(count):
        start = NOISE.stamp_us**2 + rounding if TIMES.fresh[number] else doubts[-1]
        doubts.append(start + NOISE.step**2 * TIMES.squares[number] + TIMES.steps[number] * rounding)
    groups = np.cumsum(TIMES.fresh)
    for one in range(count):
        for other in range(count):
            if groups[one] == groups[other]:
                clocks[one, other] = doubts[min(one, other)]
    own = [
        NOISE.stamp_us**2 + rounding + (NOISE.first * first) ** 2 + (NOISE.answer * answer) ** 2
        for first, answer in zip(TIMES.first_us, TIMES.answer_us, strict=True)
    ]
    return clocks + np.diag(own)


def test_the_cost_is_that_of_a_normal_distribution() -> None:
    late = np.array([200.0, -350.0, 100.0, 20.0, 400.0])
    full = covariance()
    expected = 0.5 * (late @ np.linalg.solve(full, late) + np.linalg.slogdet(full)[1] + len(late) * log(2.0 * pi))
    assert filtered(NOISE, TIMES, late.tolist()).cost == pytest.approx(expected, rel=1e-9)


def test_whitened_equations_say_the_same() -> None:
    rows = np.random.default_rng(1).normal(size=(5, 3))
    white = whitened(TIMES, filtered(NOISE, TIMES, [0.0] * 5), rows)
    assert white.T @ white == pytest.approx(rows.T @ np.linalg.solve(covariance(), rows))


def test_a_hiccup_counts_less_and_less() -> None:
    late = [200.0, -350.0, 100.0, 20.0, 400.0]
    costs = [filtered(NOISE, TIMES, [*late[:3], far, late[4]]).cost for far in (1e5, 1e6, 1e7)]
    assert costs[2] - costs[1] < 1.5 * (costs[1] - costs[0]) < 100.0
