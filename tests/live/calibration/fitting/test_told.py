"""What is said of coefficients that the measurements tell together only."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from blis_tui.live.calibration.document import Coefficient
from blis_tui.live.calibration.fitting.calibrate import (
    BestSide,
    absent,
    coefficients,
    combinations,
    groups_of,
    statements,
)
from blis_tui.live.calibration.fitting.fit import FOLLOWED, NOT_FOLLOWED
from blis_tui.live.calibration.fitting.laws import FITTED_TERMS, Term
from blis_tui.live.calibration.fitting.posterior import INTERVAL_COST_RISE, Posterior
from blis_tui.live.calibration.other_loads import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.live.calibration.fitting.fit import Problem
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
    (combined,) = combinations(law, sides, found)
    assert combined.names == ("step_us", "layer_us")
    assert combined.text.startswith("step_us + 3")
    assert combined.weights[1] == pytest.approx(LAYERS, rel=0.02)
    assert combined.low < STEP_US + combined.weights[1] * LAYER_US < combined.high
    assert combined.words == "measured"
    assert (combined.high - combined.low) / 2 == pytest.approx(1.645 * 0.05 * whole / 10, rel=0.3)
    far = np.array([500.0, 15.0])
    (wider,) = combinations(law, sides, found, [far])
    assert wider.low == pytest.approx(500.0 + 15.0 * combined.weights[1], rel=1e-3)
    assert wider.high == combined.high
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


# ---- sentences ----


def coefficient(name: str, rating: str, *together: str, pressed: bool = False) -> Coefficient:
    return Coefficient(name, 3.0, 2.0, 1.0, 5.0, rating, together, pressed=pressed)


KNOWN = (coefficient("a", "measured"), coefficient("b", "hardly", "a"), coefficient("alone", "together", "gone"))
TWO_GROUPS = (
    coefficient("a", "together", "c"),
    coefficient("b", "together", "d"),
    coefficient("c", "together"),
    coefficient("d", "together", "e"),
    coefficient("e", "together"),
    coefficient("f", "roughly", "a"),
)
REQUESTS_AND_STEPS = SimpleNamespace(requests=[1])
STEPS_ALONE = SimpleNamespace(requests=[])


def advising(load: Load | None) -> Callable[[Sequence[str]], Load | None]:
    """Knows a load for the first group alone."""
    return lambda names: load if "a" in names else None


@pytest.mark.parametrize(
    ("found", "groups"),
    [(KNOWN, []), (TWO_GROUPS, [["a", "c"], ["b", "d", "e"]]), (TWO_GROUPS[1:3], []), ((), [])],
)
def test_a_group_is_what_is_told_together_directly_or_by_others(
    found: tuple[Coefficient, ...], groups: list[list[str]]
) -> None:
    assert groups_of(found) == groups
    assert sorted(map(sorted, groups_of(found[::-1]))) == sorted(groups)


def test_what_is_said_of_a_fit(file_regression: FileRegressionFixture) -> None:
    """Groups with and without a load that tells them apart, bounds, and how well the server was followed."""
    tried = [Load(1, 17), Load(64, 5), Load(8, 9000)]
    advices = {"nobody": None, "no load": advising(None), "a load": advising(Load(1, 1200))}
    lines = []
    for name, found in {"known": KNOWN, "two groups": TWO_GROUPS}.items():
        for adviser, advice in advices.items():
            for loads in ([], tried[:1], tried):
                sentences = statements(found, 1.0, cast("Problem", REQUESTS_AND_STEPS), advice, loads)
                lines += [f"{name}, {adviser}, {len(loads)} tried:", *(f"    {one}" for one in sentences)]
    for followed in (0.0, 0.5, NOT_FOLLOWED - 1e-9, NOT_FOLLOWED, 0.9, FOLLOWED - 1e-9, FOLLOWED, 1.0):
        for problem in (REQUESTS_AND_STEPS, STEPS_ALONE):
            bound = (*KNOWN, coefficient("g", "roughly", pressed=True))
            sentences = statements(bound, followed, cast("Problem", problem), None, [])
            lines += [f"{len(problem.requests)}, {followed:.10g} followed:", *(f"    {one}" for one in sentences)]
    file_regression.check("\n".join(lines), encoding="utf-8")


def test_why_a_coefficient_is_in_no_measurement(file_regression: FileRegressionFixture) -> None:
    """Of every name: with requests and steps, prompts or none, experts or none, weights of 8 bits or 16."""
    names = (*FITTED_TERMS, *("alpha0", "alpha1", "beta0", "sampler_us", "all_reduce", "other"))
    lines = []
    for requests, prompts, experts, weights, fp8 in product((0, 1), (0, 1), (0, 8), (1.0, 2.0), (0, 1979)):
        pool = SimpleNamespace(
            model=SimpleNamespace(num_experts=experts, weight_bytes=weights),
            hardware=SimpleNamespace(peak_tflops_fp8=fp8),
        )
        problem = SimpleNamespace(pools=[pool], has_prompts=bool(prompts), requests=[1] * requests)
        lines.append(f"{requests} runs, prompts {prompts}, {experts} experts, {weights:g} bytes, fp8 {fp8}:")
        why: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            why.setdefault(absent(name, cast("Problem", problem)), []).append(name)
        lines += [f"    {reason}: {', '.join(of)}" for reason, of in why.items()]
    file_regression.check("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ((900.0, 900.0), 0.0, 2000.0),
        ((0.0, 0.0), 0.0, 1.0),
        ((123.456789, 123.456789), 123.4, 123.5),
    ],
)
def test_ends_of_other_starts_are_rounded_outwards(values: tuple[float, float], low: float, high: float) -> None:
    """To four digits, so that an interval covers what it was rounded from."""
    rows = np.full((100, 1), 100.0)
    posterior = Posterior(TERMS[:1], rows, rows[:, 0] * values[0], np.zeros((100, 0)), [])
    at, cost = posterior.best(np.zeros(1))
    sides = [BestSide(posterior.values(at), posterior, cost)]
    law = cast("Law", SimpleNamespace(terms=TERMS[:1]))
    (found,) = coefficients(law, sides, [np.array([values[0]])])
    assert low <= found.low <= values[0] <= found.high <= high
    assert float(f"{found.low:.4g}") == found.low
    assert float(f"{found.high:.4g}") == found.high
    (wider,) = coefficients(law, sides, [np.array([12.34567]), np.array([4567.891])])
    assert (wider.low, wider.high) == (min(found.low, 12.34), 4568.0)
