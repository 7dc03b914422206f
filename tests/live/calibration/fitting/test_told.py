"""What is said of coefficients that the measurements tell together only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from blis_tui.live.calibration.fitting.calibrate import BestSide, coefficients, combinations
from blis_tui.live.calibration.fitting.laws import Term
from blis_tui.live.calibration.fitting.posterior import INTERVAL_COST_RISE, Posterior

if TYPE_CHECKING:
    from blis_tui.live.calibration.fitting.laws import Law

LAYERS = 32
STEP_US, LAYER_US = 900.0, 30.0
TERMS = (
    Term(name="step_us", base=500.0, spread=250.0, lowest=0.0),
    Term(name="layer_us", base=15.0, spread=7.5, lowest=0.0),
)


@pytest.mark.parametrize("seed", range(4))
def test_coefficients_that_always_occur_together_are_given_as_their_sum(seed: int) -> None:
    """Each step has one ``step_us`` and 32 ``layer_us``: only 900 + 32 x 30 is known, and to 1 %."""
    stream = np.random.default_rng(seed)
    whole = STEP_US + LAYERS * LAYER_US
    measured = whole * (1.0 + 0.05 * stream.standard_normal(100))
    scale = 1.0 / (0.05 * whole)
    rows = np.tile([1.0, LAYERS], (100, 1)) * scale
    posterior = Posterior(TERMS, rows, measured * scale, np.zeros((100, 0)), [])
    at, cost = posterior.best(np.zeros(2))
    sides = [BestSide(posterior.values(at), posterior, cost)]
    law = cast("Law", SimpleNamespace(terms=TERMS))
    found = coefficients(law, sides)
    assert {one.told for one in found} == {"together"}
    (told,) = combinations(law, sides, found)
    assert told.names == ("step_us", "layer_us")
    assert told.text.startswith("step_us + 3")
    assert told.weights[1] == pytest.approx(LAYERS, rel=0.02)
    assert told.low < STEP_US + told.weights[1] * LAYER_US < told.high
    assert told.words == "measured"
    assert (told.high - told.low) / 2 == pytest.approx(1.645 * 0.05 * whole / 10, rel=0.3)
    far = np.array([500.0, 15.0])
    (wider,) = combinations(law, sides, found, [far])
    assert wider.low == pytest.approx(500.0 + 15.0 * told.weights[1], rel=1e-3)
    assert wider.high == told.high
    assert combinations(law, sides, found, [0.0 * far]) == (), "which would be known to no better than its size"


@pytest.mark.parametrize(("share", "value"), [(0.0, 700.0), (0.5, 700.0), (0.95, 700.0), (1.0, 700.0), (1.5, 1100.0)])
def test_another_side_of_a_maximum_widens_an_interval_as_far_as_it_is_plausible(share: float, value: float) -> None:
    """What a side costs more than the best one is no longer there for its interval; by hand, as both are normal."""
    rows = np.full((100, 1), 0.01)
    sides, ends = [], []
    for middle, cost in ((900.0, 3.0), (value, 3.0 + share * INTERVAL_COST_RISE)):
        posterior = Posterior(TERMS[:1], rows, rows[:, 0] * middle, np.zeros((100, 0)), [])
        at, _ = posterior.best(np.zeros(1))
        sides.append(BestSide(posterior.values(at), posterior, cost))
        deviation = (100 * 0.01**2 + TERMS[0].spread ** -2.0) ** -0.5
        wide = deviation * (2.0 * INTERVAL_COST_RISE * max(0.0, 1.0 - (cost - 3.0) / INTERVAL_COST_RISE)) ** 0.5
        if wide:
            ends += [float(sides[-1].values[0]) - wide, float(sides[-1].values[0]) + wide]
    (found,) = coefficients(cast("Law", SimpleNamespace(terms=TERMS[:1])), sides)
    assert (found.low, found.high) == pytest.approx((min(ends), max(ends)), abs=0.5)
