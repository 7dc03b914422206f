"""What to expect of other loads: by what the measurements leave open, simulated."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blis_tui.engine.latency.fitted import FittedSettings
from blis_tui.live.calibration.other_loads import (
    Load,
    candidate_loads,
    expected_text,
    expected_under,
    means,
    other_loads,
    with_load,
    within,
)
from blis_tui.live.calibration.simulated_load import with_latency
from blis_tui.model import Experiment, PluginConfig
from blis_tui.runs.simulation import Simulation
from tests.live.calibration.servers import served

ONE = served("llama-3.1-8b-instruct", 2.0, 800)


def fitted(**changes: float) -> PluginConfig:
    return PluginConfig(kind="fitted", settings={**asdict(FittedSettings()), **changes})


def times(experiment: Experiment, latency: PluginConfig) -> np.ndarray:
    simulation = Simulation(with_latency(experiment, latency), check="off")
    simulation.run()
    rows = [row for row in simulation.report(verify=False).rows if row.ttft_us and row.e2e_us]
    gaps = [((row.e2e_us or 0) - (row.ttft_us or 0)) / (row.output_tokens - 1) for row in rows]
    return np.array(
        [np.mean([row.ttft_us or 0 for row in rows]), np.mean(gaps), np.mean([row.e2e_us or 0 for row in rows])]
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


@pytest.mark.parametrize(
    ("prompt", "places", "longest", "loads"),
    [
        (1000, 256, None, ["1x128", "1x8000", "64x128", "256x128", "64x8000"]),
        (1000, 255, None, ["1x128", "1x8000", "64x128", "64x8000"]),
        (1000, 63, None, ["1x128", "1x8000"]),
        (1500, 64, None, ["1x128", "1x8192", "64x128", "64x8192"]),
        (1000, 64, 2048, ["1x128", "1x1952", "64x128", "64x1952"]),
        (400, 64, None, ["1x100", "1x3200", "64x100", "64x3200"]),
        (68, 64, None, ["1x17", "1x544", "64x17", "64x544"]),
        (10, 64, None, ["1x16", "1x80", "64x16", "64x80"]),
        (1, 1, None, ["1x16"]),
        (1000, 1, 100, ["1x128"]),
    ],
)
def test_loads_to_try_are_of_short_and_long_prompts_for_as_many_users_as_there_are_places(
    prompt: float, places: int, longest: int | None, loads: list[str]
) -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 800)
    (pool,) = one.pools
    engine = replace(pool.engine, max_num_seqs=places, max_model_len=longest)
    found = candidate_loads(replace(one, pools=(replace(pool, engine=engine),)), prompt)
    assert [f"{it.users}x{it.prompt_tokens}" for it in found] == loads


@given(users=st.integers(1, 300), prompt=st.integers(1, 5000), answer=st.integers(1, 300))
def test_the_document_and_the_simulation_of_a_load_are_the_same(users: int, prompt: int, answer: int) -> None:
    """Lengths vary from half to one and a half times the given ones, and are never 0."""
    asked = Load(users, prompt, answer)
    made = with_load(ONE, asked)
    (client,) = made.workload.clients
    written = asked.client
    assert written["arrivals"] == {"kind": "closed-loop", "users": users}
    assert client.arrivals.settings == {"users": users}
    for tokens, key, lengths in (
        (prompt, "input_tokens", client.input_tokens),
        (answer, "output_tokens", client.output_tokens),
    ):
        assert written[key] == {"kind": "uniform", **lengths.settings}
        least, most = lengths.settings["min"], lengths.settings["max"]
        assert least == max(1, tokens // 2)
        assert most == tokens * 3 // 2
    assert (made.workload.requests, made.horizon_us, made.warm_up_us, made.expect) == (asked.requests, None, 0, ())


def test_means_are_of_requests_that_end_and_of_gaps_where_there_are_any() -> None:
    one = served("llama-3.1-8b-instruct", 2.0, 80, requests=8)
    (client,) = one.workload.clients
    for answer in (1, 2):
        lengths = replace(client, output_tokens=PluginConfig(kind="constant", settings={"value": answer}))
        made = replace(one, workload=replace(one.workload, clients=(lengths,)))
        simulation = Simulation(made, check="off")
        simulation.run()
        rows = simulation.report(verify=False).rows
        ttft, e2e = np.mean([row.ttft_us or 0 for row in rows]), np.mean([row.e2e_us or 0 for row in rows])
        wanted = {"ttft": ttft, "tpot": e2e - ttft, "e2e": e2e} if answer == 2 else {"ttft": ttft, "e2e": e2e}
        assert means(made) == pytest.approx(wanted)
