"""Coefficients that are known, found again: from what clients of simulated servers measure."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from blis_tui.live.calibration.fitting.calibrate import fit, statements
from blis_tui.live.calibration.fitting.collect import measured
from blis_tui.live.calibration.measured import Data
from blis_tui.live.calibration.other_loads import Load, with_load
from blis_tui.live.calibration.simulated_load import with_latency
from tests.live.calibration.servers import BASE, TRUTH, measure, served, with_coefficients

if TYPE_CHECKING:
    from blis_tui.engine.latency.fitted import FittedSettings
    from blis_tui.live.calibration.document import Coefficient
    from blis_tui.live.calibration.fitting.fit import Problem
    from blis_tui.model import Experiment


def held(one: Coefficient, truth: FittedSettings) -> bool:
    return bool(one.low <= getattr(truth, one.name) <= one.high)


def means(experiment: Experiment) -> np.ndarray:
    """Of TTFT, TPOT and E2E."""
    rows = measure(experiment).requests
    gaps = [(row.e2e_us - row.ttft_us) / (row.output_tokens - 1) for row in rows if row.output_tokens > 1]
    return np.array([np.mean([row.ttft_us for row in rows]), np.mean(gaps), np.mean([row.e2e_us for row in rows])])


def test_from_any_base_to_the_same_server() -> None:
    """The load of a server is followed from bases that are far off."""
    one = served("llama-3.1-8b-instruct", 6.0, 1500, requests=60)
    recording = measure(with_coefficients(one, TRUTH))
    fits = [
        fit([Data(recording, with_coefficients(one, replace(BASE, weights=weights)))], "fitted", advise=False)
        for weights in (1.0, 2.2)
    ]
    for found in fits:
        assert found.followed > 0.99
        by_name = {it.name: it for it in found.found}
        assert by_name["flops"].value == pytest.approx(TRUTH.flops, rel=0.01)
        # All steps of one model read its weights and launch its layers: what each of these takes is not told.
        assert by_name["weights"].told == "together"
        assert any("weights" in it and "cannot be separated by these loads" in it for it in found.statements)
        assert all(held(it, TRUTH) for it in by_name.values())
    runs = [means(with_latency(one, found.latency)) for found in fits]
    assert runs[0] == pytest.approx(runs[1], rel=0.01)
    assert runs[0] == pytest.approx(means(with_coefficients(one, TRUTH)), rel=0.01)


def test_a_blackbox_knows_what_it_was_measured_with() -> None:
    one = served("llama-3.1-8b-instruct", 6.0, 1500, requests=60)
    truth = {"alpha": (8000.0, 1.0, 0.0), "beta": (9000.0, 18.0, 120.0)}
    box = replace(one.pools[0].latency, kind="blackbox", settings=truth)
    found = fit([Data(measure(with_latency(one, box), 0.002), one)], "blackbox", advise=False)
    values = [*truth["beta"], *truth["alpha"][:2]]
    assert [it.name for it in found.found] == ["beta0", "beta1", "beta2", "alpha0", "alpha1"]
    assert sum(it.low <= value <= it.high for it, value in zip(found.found, values, strict=True)) >= 4
    assert found.found[0].value == pytest.approx(9000.0, rel=0.02)


@pytest.mark.slow
def test_more_noise_tells_less() -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 1500, requests=25)
    widths = []
    for noise in (0.0, 0.01):
        recording = measure(with_coefficients(one, TRUTH), noise)
        found = {it.name: it for it in fit([Data(recording, one)], "fitted", advise=False).found}
        widths.append([found[name].high - found[name].low for name in ("weights", "flops", "layer_us")])
    assert all(noisy > exact for exact, noisy in zip(*widths, strict=True))


def test_cached_prompts_tell_nothing_of_prefill() -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 1500, requests=40)
    prompts = replace(one.workload.clients[0], repeated_prompts=4)
    one = replace(one, workload=replace(one.workload, clients=(prompts,)))
    recording = measure(with_coefficients(one, TRUTH), 0.01)
    found = {it.name: it for it in fit([Data(recording, one, repeated=True)], "fitted", advise=False).found}
    assert all(found[name].told != "measured" for name in ("flops", "prefill_attention") if name in found)


@pytest.mark.slow
def test_a_load_that_is_advised_tells_what_was_not_told() -> None:
    """The advice is followed: with its load, the coefficients are known at least twice as well."""
    one = served("llama-3.1-8b-instruct", 1.0, 1500, requests=20)
    truth = with_coefficients(one, TRUTH)
    first = Data(measure(truth, 0.005), one)
    found = fit([first], "fitted")
    (advice,) = [it for it in found.statements if "should tell them" in it][:1]
    names = advice.partition(" cannot")[0].replace(" and ", ", ").split(", ")
    many = "one user" not in advice
    users = int(advice.partition("a run with ")[2].split()[0]) if many else 1
    tokens = int(advice.partition("of about ")[2].split()[0].replace(",", ""))
    second = measured(with_load(truth, Load(users, tokens)))
    assert second is not None
    second = replace(second, requests=second.requests[:60])
    both = {it.name: it for it in fit([first, Data(second, one)], "fitted", advise=False).found}
    before = {it.name: it for it in found.found}
    for name in names:
        assert both[name].high - both[name].low < 0.6 * (before[name].high - before[name].low), advice


@pytest.mark.slow
def test_a_server_of_other_limits_is_not_followed() -> None:
    """Where the engine's limits are not the server's, that is said, and intervals reach farther."""
    one = served("llama-3.1-8b-instruct", 30.0, 1500, requests=40)
    (pool,) = one.pools
    small = replace(one, pools=(replace(pool, engine=replace(pool.engine, max_num_seqs=4)),))
    recording = measure(with_coefficients(small, TRUTH))
    right, wrong = (fit([Data(recording, it)], "fitted", advise=False) for it in (small, one))
    assert right.followed > 0.985 > wrong.followed
    assert any("came at other times" in it for it in wrong.statements)
    assert not any("came at other times" in it for it in right.statements)


def test_what_is_expected_of_other_loads_is_too_small_where_tokens_came_at_other_times() -> None:
    problem = cast("Problem", SimpleNamespace(requests=[None]))
    (statement,) = statements((), 0.9, problem, None, ())
    assert statement.startswith("10 % of the first and last tokens came at other times")
    assert "intervals, and errors expected of other loads, may be too small" in statement
    assert statements((), 0.99, problem, None, ()) == ()
