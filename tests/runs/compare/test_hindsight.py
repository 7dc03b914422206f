"""True regret: what is said of each decision is what two whole runs say, one with the decision and one without."""

from __future__ import annotations

import json
from functools import cache

import pytest

import blis_tui
from blis_tui.base.canonical import to_json
from blis_tui.base.errors import RouteError
from blis_tui.cluster.decisions import Reroute
from blis_tui.cluster.records import RoutingDecision
from blis_tui.runs.reroute import Hindsight, JudgedDecision, true_regret
from blis_tui.runs.reroute_text import hindsight_text
from blis_tui.runs.simulation import Simulation
from tests.cluster.fleets import fleet
from tests.results.clusters import experiment

STALE = {
    "latency": "roofline",
    "policy": "blis",
    "workload.requests": 60,
    "workload.rate_per_s": 60,
    "engine.max_num_seqs": 6,
    "cluster.instances": 3,
    "cluster.signals": {"refresh_interval_us": 300_000},
    "policy.routing": {"kind": "least-loaded"},
}


@cache
def made(name: str) -> blis_tui.Experiment:
    return blis_tui.load("quickstart", set=STALE) if name == "stale" else experiment(name)


@cache
def judged(name: str) -> Hindsight:
    return true_regret(made(name), every=13)


def report(name: str, routes: dict[str, Reroute]) -> blis_tui.Report:
    """Of a whole run, from its start."""
    simulation = Simulation(made(name), routes=routes)
    simulation.run()
    assert not simulation.unused_routes
    return simulation.report()


@cache
def as_it_was(name: str) -> blis_tui.Report:
    return report(name, {})


@pytest.mark.parametrize("name", ["stale", "split", "gateway"])
def test_each_alternative_is_a_run_of_its_own(name: str) -> None:
    before = {row.request_id: row for row in as_it_was(name).rows}
    changed = 0
    for decision in judged(name).judged:
        assert decision.state == before[decision.request_id].state
        for alternative in decision.alternatives:
            assert alternative.instance != decision.chosen
            other = report(name, {decision.request_id: Reroute(alternative.instance, decision.event)})
            after = {row.request_id: row for row in other.rows}
            gaps = {
                figure: {
                    who: getattr(after[who], figure) - getattr(row, figure)
                    for who, row in before.items()
                    if None not in (getattr(row, figure), getattr(after[who], figure))
                }
                for figure in ("ttft_us", "e2e_us")
            }
            assert alternative.state == after[decision.request_id].state
            assert alternative.ttft_change_us == gaps["ttft_us"].get(decision.request_id)
            assert alternative.e2e_change_us == gaps["e2e_us"].get(decision.request_id)
            assert alternative.run_ttft_change_us == sum(gaps["ttft_us"].values())
            assert alternative.run_e2e_change_us == sum(gaps["e2e_us"].values())
            assert alternative.completed_change == other.requests.completed - as_it_was(name).requests.completed
            changed += bool(alternative.run_e2e_change_us)
    assert changed


def test_decisions_are_those_of_the_records_and_each_has_all_its_alternatives() -> None:
    simulation = Simulation(made("stale"))
    records: list[RoutingDecision] = []
    simulation.subscribe(RoutingDecision, records.append)
    simulation.run()
    hindsight = judged("stale")
    assert (hindsight.decisions, hindsight.requests) == (len(records), 60)
    assert [(decision.event, decision.request_id, decision.chosen) for decision in hindsight.judged] == [
        (decision.event, decision.request_id, decision.instance) for decision in records[::13]
    ]
    for decision, record in zip(hindsight.judged, records[::13], strict=True):
        assert sorted([decision.chosen, *(other.instance for other in decision.alternatives)]) == [0, 1, 2]
        assert (decision.regret, decision.true_regret) == (
            (record.regret_ppm or 0) / 1e6,
            (record.true_regret_ppm or 0) / 1e6,
        )
    assert hindsight.replays == 2 * len(hindsight.judged)


def lost(decision: JudgedDecision) -> int:
    """What the request could have been spared, in microseconds."""
    return max([0, *(-(other.e2e_change_us or 0) for other in decision.alternatives)])


def test_regret_is_never_negative_and_is_that_of_the_best() -> None:
    hindsight = judged("stale")
    assert {decision.state for decision in hindsight.judged} == {"completed"}
    for decision in hindsight.judged:
        assert -(decision.best_for_request.e2e_change_us or 0) == lost(decision)
        assert -decision.best_for_run.run_e2e_change_us == max(
            [0, *(-other.run_e2e_change_us for other in decision.alternatives if not other.completed_change)]
        )
    total = sum(map(lost, hindsight.judged))
    assert total > 0
    assert hindsight.lost_by_requests.mean == total / (1000 * len(hindsight.judged))
    assert hindsight.to_dict()["better_for_request"] == len(
        [decision for decision in hindsight.judged if lost(decision)]
    )


def test_the_best_alternatives_are_those_with_the_best_scores() -> None:
    every = judged("stale").judged
    few = true_regret(made("stale"), every=13, alternatives=1).judged
    assert [decision.alternatives for decision in few] == [decision.alternatives[:1] for decision in every]


def test_the_same_question_has_the_same_bytes_for_an_answer() -> None:
    texts = [to_json(true_regret(made("stale"), every=30).to_dict()) for _ in range(2)]
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["replays"] == 4


def test_more_replays_than_allowed_are_refused_and_the_hint_is_right() -> None:
    with pytest.raises(RouteError, match=r"120 replays .* more than 50") as refused:
        true_regret(made("stale"), most=50)
    assert refused.value.help is not None
    assert "--every 3" in refused.value.help
    assert true_regret(made("stale"), every=3, most=50, alternatives=2).replays == 40
    with pytest.raises(ValueError, match="at least 1"):
        true_regret(made("stale"), every=0)


def test_instances_that_come_and_go() -> None:
    growing = fleet("GROWING")
    hindsight = true_regret(growing, every=60)
    for decision in hindsight.judged:
        assert len(decision.alternatives) == decision.candidates - 1


def test_the_table_says_what_was_done_and_fits() -> None:
    text = hindsight_text(judged("stale"))
    assert "5 of 60 routing decisions replayed, 10 replays" in text
    assert max(map(len, text.splitlines())) <= 100
    whole = hindsight_text(judged("stale"), everything=True)
    assert all(decision.request_id in whole for decision in judged("stale").judged)
    alone = blis_tui.load("quickstart", set={**STALE, "cluster.instances": 1, "workload.requests": 5})
    assert "no decision had an alternative" in hindsight_text(true_regret(alone))


def test_the_listed_decisions_are_those_that_cost_all_requests_most() -> None:
    hindsight = judged("stale")
    better = [
        decision
        for decision in hindsight.judged
        if decision.chosen != decision.best_for_run.instance or decision.chosen != decision.best_for_request.instance
    ]
    costs = {f"{decision.event:,}": decision.best_for_run.for_run for decision in better}
    lines = hindsight_text(hindsight).rpartition("\n\n")[2].splitlines()[2:]
    listed = [line.split()[0] for line in lines if line.split()[0] in costs]
    assert len(listed) == min(20, len(better)) > 3
    assert [costs[event] for event in listed] == sorted(costs.values())[: len(listed)]


def test_calls_of_sessions_are_compared_with_themselves() -> None:
    """In a replay they come in another order, and their numbers follow that order."""
    client = {
        "id": "chat",
        "input_tokens": 500,
        "output_tokens": {"kind": "uniform", "min": 1, "max": 200},
        "session": {"turns": 3, "think_time_ms": 500},
    }
    sessions = {"sessions": 20, "rate_per_s": 40, "clients": [client]}
    changes = {"workload": sessions, "cluster.instances": 2, "engine.max_num_seqs": 4}
    started = blis_tui.load("quickstart", set=changes)
    hindsight = true_regret(started, every=20)
    before = {(row.session_id, row.round_index): row for row in blis_tui.run(started).rows}
    swapped = 0
    for decision in hindsight.judged:
        (alternative,) = decision.alternatives
        simulation = Simulation(started, routes={decision.request_id: Reroute(alternative.instance, decision.event)})
        simulation.run()
        after = {(row.session_id, row.round_index): row for row in simulation.report().rows}
        pairs = [(row, after[call]) for call, row in before.items()]
        swapped += sum(row.request_id != other.request_id for row, other in pairs)
        assert alternative.run_e2e_change_us == sum((other.e2e_us or 0) - (row.e2e_us or 0) for row, other in pairs)
    assert swapped
