"""Ranks that take their steps together, followed by hand; steps take 100 + prompt tokens + 10 * decodes us."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blis_tui
from blis_tui.engine.records import Completed, Preempted, Scheduled, StepFinished
from blis_tui.model import PluginConfig
from tests.builders import VLLM, Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.model import Experiment


STEADY = PluginConfig(kind="blackbox", settings={"alpha": (0.0, 0.0, 0.0), "beta": (100.0, 0.0, 0.0)})
"""All steps take 100 us."""


def replicas(count: int = 1, *, ranks: int = 2, ahead: bool = False, shares: bool = True) -> Experiment:
    """One pool of them; requests take turns."""
    rule = {**VLLM, "async_scheduling": ahead}
    made = experiment(instances=ranks * count, batching="vllm-v1", settings=rule)
    (pool,) = made.pools
    engine = replace(pool.engine, data_parallel=ranks, expert_parallel=shares)
    return replace(made, pools=(replace(pool, engine=engine),))


def steps(outcome: Outcome) -> list[tuple[int, int, int]]:
    """Instance, start and duration of each."""
    found = [record for record in outcome.records if isinstance(record, StepFinished)]
    return [(step.instance, step.time_us, step.duration_us) for step in found]


def ends(outcome: Outcome) -> dict[str, int]:
    """When each request was completed."""
    return {record.request_id: record.time_us for record in outcome.records if isinstance(record, Completed)}


@pytest.mark.parametrize("ahead", [False, True])
def test_the_slowest_rank_sets_the_pace_and_an_idle_one_runs_dummy_batches(ahead: bool) -> None:
    outcome = Outcome(replicas(ahead=ahead), [request(0, 0, 40, 3), request(1, 0, 10, 2)])
    assert sorted(steps(outcome)) == [(0, 0, 140), (0, 140, 110), (0, 250, 110), (1, 0, 140), (1, 140, 110)]
    assert ends(outcome) == {"1": 250, "0": 360}


def test_each_replica_has_a_pace_of_its_own() -> None:
    prompts = (40, 10, 5, 20)
    outcome = Outcome(replicas(2), [request(at, 0, prompt, 1) for at, prompt in enumerate(prompts)])
    assert sorted(steps(outcome)) == [(0, 0, 140), (1, 0, 140), (2, 0, 120), (3, 0, 120)]


def test_a_request_that_comes_during_a_step_of_the_others_waits_for_its_end() -> None:
    outcome = Outcome(replicas(), [request(0, 0, 40, 3), request(1, 141, 64, 1)])
    assert sorted(steps(outcome)) == [(0, 0, 140), (0, 140, 110), (0, 250, 164), (1, 250, 164)]


@pytest.mark.parametrize(
    ("arrival_us", "start_us"), [(361, 470), (470, 470), (471, 580), (3549, 3550), (3550, 3550), (3551, 3551)]
)
def test_dummy_batches_go_on_until_the_ranks_ask_each_other(arrival_us: int, start_us: int) -> None:
    """Three steps until 360 us; the ranks pause after 32, that is after 29 dummy batches of 110 us."""
    there = [request(0, 0, 40, 3), request(1, 0, 10, 2), request(2, arrival_us, 5, 1)]
    assert steps(Outcome(replicas(), there))[-1] == (0, start_us, 110)


def test_ranks_of_a_dense_model_are_engines_of_their_own() -> None:
    there = [(0, 0, 40, 3), (1, 0, 10, 2), (2, 100, 30, 4), (3, 120, 5, 1)]
    alone = replace(replicas(shares=False), pools=experiment(instances=2, batching="vllm-v1").pools)
    apart, ranks = (Outcome(made, [request(*one) for one in there]) for made in (alone, replicas(shares=False)))
    assert steps(ranks) == steps(apart)
    assert len({duration for _, _, duration in steps(ranks)}) > 2


@pytest.mark.parametrize("ahead", [False, True])
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 120), st.integers(1, 50)), min_size=4, max_size=20))
def test_each_rank_has_groups_of_layers_of_its_own(ahead: bool, drawn: list[tuple[int, int, int]]) -> None:
    """Where all steps take 100 us and requests come at their starts, ranks do what engines of their own would do."""
    there = [(number, at * 100, *tokens) for number, (at, *tokens) in enumerate(sorted(drawn))]
    found = []
    for made in (replicas(ahead=ahead), replicas(ahead=ahead, ranks=1, count=2)):
        (pool,) = made.pools
        engine = replace(pool.engine, kv_blocks=70, disable_hybrid_kv_cache_manager=False)
        model = replace(pool.model, num_hidden_layers=2, sliding_window_layers=1, sliding_window=16)
        pool = replace(pool, engine=engine, model=model, latency=STEADY)
        outcome = Outcome(replace(made, pools=(pool,)), [request(*one) for one in there])
        records = [record for record in outcome.records if isinstance(record, Preempted | Scheduled | Completed)]
        found.append(sorted((replace(one, event=0) for one in records), key=lambda one: (one.time_us, one.instance)))
    assert found[0] == found[1]


def test_one_rank_is_no_rank() -> None:
    found = []
    for settings in ({}, {"engine.data_parallel": 1}):
        outcome = blis_tui.run(blis_tui.load("quickstart", set={"workload.requests": 40, **settings})).to_dict()
        outcome.pop("meta")
        found.append(outcome)
    assert found[0] == found[1]
