"""``nano``, ``llm-serving-sim``, ``tensorrt-llm``: engine and oracle agree on random runs, and every run ends."""

from __future__ import annotations

from random import Random

from hypothesis import given

from blis_tui.cluster.cluster import Cluster
from blis_tui.engine.records import Observers
from blis_tui.results.request_log import RequestLog

from .draws import Draw, at_random, drawn
from .runs import check_many, examples, source_of
from .strategies import Scenario, draw_scenario, draw_tensorrt_llm, draw_two_phases
from .test_against_oracle import check, check_every_event


def _draw(draw: Draw) -> Scenario:
    return draw_scenario(draw, running_first=False)


@examples(25)
@given(drawn(_draw))
def test_they_agree(scenario: Scenario) -> None:
    check(scenario)


def test_they_agree_at_length() -> None:
    check_many(200, _draw, lambda scenario, _: check(scenario))


@examples(15)
@given(drawn(_draw))
def test_the_books_are_right_after_every_event(scenario: Scenario) -> None:
    check_every_event(scenario)


@examples(12)
@given(drawn(draw_tensorrt_llm))
def test_they_agree_on_tensorrt_llm(scenario: Scenario) -> None:
    check(scenario)


@examples(20)
@given(drawn(draw_two_phases))
def test_they_agree_on_two_phases(scenario: Scenario) -> None:
    check(scenario)


def test_they_agree_on_two_phases_at_length() -> None:
    check_many(84, draw_two_phases, lambda scenario, _: check(scenario), part=7)


def test_with_room_for_whole_answers_tensorrt_llm_evicts_nobody() -> None:
    guaranteed = 0
    for seed in range(60):
        scenario = draw_tensorrt_llm(at_random(Random(seed)))  # noqa: S311  (no secret)
        if scenario.experiment.policy.batching.settings["capacity_scheduler_policy"] == "GUARANTEED_NO_EVICT":
            simulation = Cluster(scenario.experiment, source_of(scenario.requests(), 0), RequestLog(), Observers())
            simulation.run(1_000_000)
            assert all(not instance.tallies.preemptions for instance in simulation.instances), seed
            guaranteed += 1
    assert guaranteed > 30


def test_they_agree_on_tensorrt_llm_at_length() -> None:
    check_many(84, draw_tensorrt_llm, lambda scenario, _: check(scenario), part=6)
