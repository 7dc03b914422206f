"""Intervals, where they can be worked out in another way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from blis_tui.live.calibration.document import LEVEL
from blis_tui.live.calibration.fitting.calibrate import BestSide, coefficients
from blis_tui.live.calibration.fitting.laws import Term
from blis_tui.live.calibration.fitting.posterior import Posterior

if TYPE_CHECKING:
    from blis_tui.live.calibration.fitting.laws import Law

TERMS = (Term("a", 1.0, 0.5, -10.0), Term("b", 40.0, 20.0, -1e3), Term("c", 0.0, 5.0, -1e3))


def posterior(rows: np.ndarray, aims: np.ndarray, terms: tuple[Term, ...] = TERMS) -> Posterior:
    return Posterior(terms, rows, aims, np.zeros((len(rows), 0)), [])


def test_intervals_are_those_of_normal_distributions() -> None:
    stream = np.random.default_rng(2)
    rows = stream.normal(size=(30, 3)) * [3.0, 0.1, 1.0]
    found = posterior(rows, rows @ [1.2, 35.0, 2.0] + stream.normal(size=30))
    at, _ = found.best(np.zeros(3))
    spread = np.array([term.spread for term in TERMS])
    deviations = np.sqrt(np.diag(np.linalg.inv(rows.T @ rows + np.diag(spread**-2.0))))
    for place in range(3):
        low, high = found.interval(at, place)
        expected = 1.645 * deviations[place] / spread[place]
        assert (at[place] - low, high - at[place]) == pytest.approx((expected, expected), rel=0.03)


def test_intervals_hold_as_often_as_they_say() -> None:
    held, drawn = 0, 60
    stream = np.random.default_rng(3)
    for _ in range(drawn):
        truth = np.array([stream.normal(term.base, term.spread) for term in TERMS])
        rows = stream.normal(size=(6, 3)) * [2.0, 0.05, 0.3]
        found = posterior(rows, rows @ truth + stream.normal(size=6))
        at, _ = found.best(np.zeros(3))
        for place, term in enumerate(TERMS):
            low, high = found.interval(at, place)
            held += term.base + term.spread * low <= truth[place] <= term.base + term.spread * high
    assert held / (3 * drawn) == pytest.approx(LEVEL, abs=0.05)


def test_a_coefficient_at_its_bound() -> None:
    terms = (Term("a", 1.0, 0.5, 0.0), Term("b", 1.0, 0.5, 0.0))
    rows = np.array([[1.0, 0.0], [0.0, 1.0]]) * 20.0
    found = posterior(rows, rows @ [-0.7, 1.3], terms)
    at, _ = found.best(np.zeros(2))
    assert found.values(at)[0] == 0.0
    assert found.is_significant(at).tolist() == [True, False]
    low, high = found.interval(at, 0)
    assert low == found.lowest[0]
    assert found.lowest[0] < high < found.lowest[0] + 0.5


def test_equations_that_do_not_tell_two_apart_leave_their_sum_alone_known() -> None:
    rows = np.array([[32.0, 1.0]]) * np.ones((40, 1))
    terms = (Term("layer_us", 40.0, 20.0, 0.0), Term("step_us", 0.0, 500.0, 0.0))
    found = posterior(rows, rows @ [40.0, 100.0], terms)
    at, _ = found.best(np.zeros(2))
    low, high = found.interval(at, 1)
    assert high - low > 0.5
    assert rows[0] @ found.values(at) == pytest.approx(1380.0, abs=1.0)


def test_draws_vary_as_the_posterior_does() -> None:
    stream = np.random.default_rng(4)
    rows = stream.normal(size=(30, 3)) * [3.0, 0.1, 1.0]
    found = posterior(rows, rows @ [1.2, 35.0, 2.0] + stream.normal(size=30))
    at, _ = found.best(np.zeros(3))
    drawn = np.array(found.draws(found.values(at), 4000))
    spread = np.array([term.spread for term in TERMS])
    covariance = np.linalg.inv(rows.T @ rows + np.diag(spread**-2.0))
    assert drawn.mean(axis=0) == pytest.approx(found.values(at), abs=0.05 * float(np.sqrt(covariance.max())))
    assert np.cov(drawn.T) == pytest.approx(covariance, rel=0.15, abs=0.02 * float(np.abs(covariance).max()))
    assert np.array_equal(found.draws(found.values(at), 5), drawn[:5])


def test_draws_at_a_bound_keep_what_is_known_of_sums() -> None:
    """Of layers and steps only the sum is known: where a draw has no time per step, layers take all of it."""
    rows = np.array([[32.0, 1.0]]) * np.ones((40, 1))
    terms = (Term("layer_us", 40.0, 20.0, 0.0), Term("step_us", 0.0, 500.0, 0.0))
    found = posterior(rows, rows @ [40.0, 0.0], terms)
    at, _ = found.best(np.zeros(2))
    drawn = np.array(found.draws(found.values(at), 200))
    assert np.all(drawn >= 0.0)
    assert 0.2 < np.mean(drawn[:, 1] == 0.0) < 0.8
    assert drawn @ rows[0] == pytest.approx(1280.0, abs=1.0)


def test_an_interval_that_reaches_the_bound_ends_there() -> None:
    """Not at the next number that a computer has."""
    terms = (Term("a", 0.3, 0.6, 0.0),)
    found = posterior(np.array([[0.1]]), np.array([0.05]), terms)
    at, cost = found.best(np.zeros(1))
    (coefficient,) = coefficients(cast("Law", SimpleNamespace(terms=terms)), [BestSide(found.values(at), found, cost)])
    assert coefficient.low == 0.0
