"""What to expect of other loads: by what the measurements leave open, simulated."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import exp, log

import numpy as np
import pytest

from blis_tui.engine.latency.fitted import FittedSettings
from blis_tui.live.calibration.other_loads import Load, expected_text, expected_under, other_loads, within
from blis_tui.live.calibration.simulated_load import with_latency
from blis_tui.model import Experiment, PluginConfig
from blis_tui.runs.simulation import Simulation
from tests.live.calibration.servers import served


def fitted(**changes: float) -> PluginConfig:
    return PluginConfig(kind="fitted", settings={**asdict(FittedSettings()), **changes})


def times(experiment: Experiment, latency: PluginConfig) -> np.ndarray:
    simulation = Simulation(with_latency(experiment, latency), check="off")
    simulation.run()
    rows = [one for one in simulation.report(verify=False).rows if one.ttft_us and one.e2e_us]
    gaps = [((one.e2e_us or 0) - (one.ttft_us or 0)) / (one.output_tokens - 1) for one in rows]
    return np.array(
        [np.mean([one.ttft_us or 0 for one in rows]), np.mean(gaps), np.mean([one.e2e_us or 0 for one in rows])]
    )


def test_what_is_left_open_is_what_other_coefficients_would_do() -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 800, requests=20)
    best, draws = fitted(), [fitted(layer_us=layer, first_token_us=first) for layer, first in ((36, 8e3), (50, 9.9e3))]
    aim, *others = (times(one, latency) for latency in (best, *draws))
    expected = [
        exp(1.2 * 1.75 * np.sqrt(1e-6 + np.mean([log(it[at] / aim[at]) ** 2 for it in others]))) - 1 for at in range(3)
    ]
    assert [*within(one, best, draws).values()] == pytest.approx(expected)
    assert [*within(one, best, [best, best]).values()] == pytest.approx([0.0021] * 3, rel=0.01)


def test_loads_are_of_one_user_and_of_as_many_as_there_is_room_for() -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 800)
    (pool,) = one.pools
    few = replace(one, pools=(replace(pool, engine=replace(pool.engine, max_num_seqs=4)),))
    assert other_loads(one, 259.4) == [Load(1, 259), Load(64, 259)]
    assert other_loads(few, 259.4) == [Load(1, 259), Load(4, 259)]


def test_loads_that_cannot_be_served_are_left_out_and_nothing_is_said_without_draws() -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 800)
    best = fitted()
    found = expected_under(one, best, [fitted(layer_us=60)], [Load(1, 100), Load(1, 500_000)])
    assert [it.load for it in found] == [Load(1, 100)]
    assert expected_text(found[0]).startswith("a run with one user at a time and prompts of about 100 tokens: TTFT ")
    assert expected_under(one, best, [], [Load(1, 100)]) == ()
