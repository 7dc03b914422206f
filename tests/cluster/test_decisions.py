"""What a router weighed: its record against what the other records say, and that telling it changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.cluster.decisions import ALTERNATIVES, LOAD, PPM
from blis_tui.cluster.records import RoutingDecision
from blis_tui.engine.records import Queued, Record, Routed, StepFinished
from blis_tui.runs.simulation import Simulation
from tests.cluster.fleets import WEIGHTED, fleet

if TYPE_CHECKING:
    from blis_tui.model import Experiment


def listened(made: Experiment) -> tuple[Simulation, list[Record]]:
    """A run with all its records, decisions included."""
    simulation = Simulation(made)
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    simulation.subscribe(RoutingDecision, records.append)
    simulation.run()
    return simulation, records


@cache
def stale_loads() -> tuple[Record, ...]:
    """Six instances under load, routed by figures that are up to 300 ms old."""
    changes = {
        **WEIGHTED,
        "workload.requests": 200,
        "engine.max_num_seqs": 6,
        "cluster.instances": 6,
        "policy.routing": {"kind": "least-loaded"},
        "policy.batching": {"kind": "blis"},
        "cluster.signals": {"refresh_interval_us": 300_000},
    }
    return tuple(listened(blis_tui.load("quickstart", set=changes))[1])


def decisions(records: tuple[Record, ...] | list[Record]) -> list[RoutingDecision]:
    return [record for record in records if isinstance(record, RoutingDecision)]


@pytest.mark.parametrize("name", ["WEIGHTED", "GATEWAY", "SPLIT"])
def test_telling_decisions_changes_nothing(name: str) -> None:
    alone = Simulation(fleet(name))
    plain: list[Record] = []
    alone.subscribe("all", plain.append)
    alone.run()
    heard, records = listened(fleet(name))
    assert heard.digest() == alone.digest()
    assert [record for record in records if not isinstance(record, RoutingDecision)] == plain
    routed = [
        (record.event, record.request_id, record.instance, record.policy)
        for record in plain
        if isinstance(record, Routed)
    ]
    assert [
        (decision.event, decision.request_id, decision.instance, decision.policy) for decision in decisions(records)
    ] == routed


def test_in_the_middle_of_a_run_the_digest_does_not_tell_who_listens() -> None:
    alone, heard = Simulation(fleet("WEIGHTED")), Simulation(fleet("WEIGHTED"))
    heard.subscribe(RoutingDecision, lambda _: None)
    for until in range(500, 5000, 500):
        alone.run(max_events=until)
        heard.run(max_events=until)
        assert heard.digest() == alone.digest()


def test_weighted_routing_takes_the_best_and_shows_the_best_few() -> None:
    found = decisions(listened(fleet("WEIGHTED"))[1])
    for decision in found:
        chosen = next(each for each in decision.top if each.instance == decision.instance)
        assert (decision.candidates, len(decision.top), decision.regret_ppm) == (12, ALTERNATIVES + 1, 0)
        assert chosen.score_ppm == max(each.score_ppm for each in decision.top)
        assert [each.score_ppm for each in decision.top] == sorted(
            (each.score_ppm for each in decision.top), reverse=True
        )
        assert decision.scorers == ("prefix-affinity", "queue-depth", "kv-utilization")
        assert decision.shares_ppm == (PPM // 2, PPM // 4, PPM // 4)
        for each in decision.top:
            weighed = (
                sum(share * score for share, score in zip(decision.shares_ppm, each.scores_ppm, strict=True)) / PPM
            )
            assert abs(weighed - each.score_ppm) <= 2
            assert abs(each.scores_ppm[2] - PPM * (1 - each.kv_used_blocks / each.kv_total_blocks)) <= 1
    assert any(decision.true_regret_ppm for decision in found)
    assert {each.age_us for decision in found for each in decision.top} > {0}


def test_with_fresh_signals_nothing_is_to_be_regretted() -> None:
    changes = {**WEIGHTED, "workload.requests": 100, "cluster.signals": {}}
    for decision in decisions(listened(blis_tui.load("quickstart", set=changes))[1]):
        assert (decision.regret_ppm, decision.true_regret_ppm) == (0, 0)
        assert all(each.score_ppm == each.true_score_ppm and not each.age_us for each in decision.top)


def test_the_chosen_one_is_told_even_if_it_is_the_worst() -> None:
    changes = {**WEIGHTED, "workload.requests": 100, "policy.routing": {"kind": "always-busiest"}}
    last = decisions(listened(blis_tui.load("quickstart", set=changes))[1])[-1]
    assert (len(last.top), last.top[-1].instance) == (ALTERNATIVES + 1, last.instance)
    assert last.top[0].score_ppm > last.top[-1].score_ppm


@pytest.mark.parametrize(
    ("policy", "scored"),
    [("weighted", True), ("least-loaded", True), ("round-robin", False), ("power-of-two", False)],
)
def test_there_is_regret_only_by_a_policy_s_own_scores(policy: str, *, scored: bool) -> None:
    """Round-robin that follows its turn has nothing to regret, however busy the instance is."""
    changes = {**WEIGHTED, "workload.requests": 40, "policy.routing": {"kind": policy}}
    for decision in decisions(listened(blis_tui.load("quickstart", set=changes))[1]):
        assert (decision.regret_ppm is None, decision.true_regret_ppm is None) == (not scored, not scored)


@dataclass
class Truth:
    """What the records say of the instances at a decision: those of steps are known when the step is over."""

    waiting: Counter[int]
    running: Counter[int]
    in_flight: Counter[int]

    def score(self, instance: int) -> int:
        load = self.waiting[instance] + self.running[instance] + self.in_flight[instance]
        return round(PPM / (1 + load))


def truth(records: tuple[Record, ...], decision: RoutingDecision) -> Truth:
    waiting, running, in_flight = Counter[int](), Counter[int](), Counter[int]()
    for record in records:
        if record.event >= decision.event:
            break
        if isinstance(record, Routed):
            in_flight[record.instance] += 1
        elif isinstance(record, Queued):
            waiting[record.instance] += 1
        elif isinstance(record, StepFinished):
            waiting[record.instance] -= len(record.admitted)
            running[record.instance] += len(record.admitted)
            if record.time_us + record.duration_us <= decision.time_us:
                running[record.instance] -= len(record.completed)
                in_flight[record.instance] -= len(record.completed)
    return Truth(waiting, running, in_flight)


def test_regret_against_the_true_state_follows_from_the_other_records() -> None:
    records = stale_loads()
    for decision in decisions(records):
        now = truth(records, decision)
        assert decision.scorers == (LOAD,)
        best = max(now.score(index) for index in range(6))
        assert {each.instance: each.true_score_ppm for each in decision.top} == {i: now.score(i) for i in range(6)}
        assert decision.true_regret_ppm is not None
        assert abs(decision.true_regret_ppm - (best - now.score(decision.instance))) <= 1
        assert {each.instance: each.in_flight for each in decision.top} == {i: now.in_flight[i] for i in range(6)}
    assert max(decision.true_regret_ppm or 0 for decision in decisions(records)) > PPM // 50


def test_what_the_router_saw_is_as_old_as_the_record_says() -> None:
    records = stale_loads()
    seen, since = Truth(Counter(), Counter(), Counter()), 0
    ages = set()
    for decision in decisions(records):
        age = decision.top[0].age_us
        ages.add(age)
        if not age:
            seen, since = truth(records, decision), decision.time_us
        assert decision.time_us - age == since
        for each in decision.top:
            assert (each.waiting, each.running) == (seen.waiting[each.instance], seen.running[each.instance])
            assert each.score_ppm == round(PPM / (1 + each.waiting + each.running + each.in_flight))
    assert 0 < max(ages) < 300_000


STALE = {
    **WEIGHTED,
    "workload.requests": 120,
    "cluster.instances": 6,
    "cluster.signals": {"refresh_interval_us": 300_000},
}


def exact(regrets: list[int], percent: int) -> Fraction:
    """The percentile of shares that are given in parts per million, by the definition of reports."""
    ordered = sorted(regrets)
    rank = Fraction(percent * (len(ordered) - 1), 100)
    low = int(rank)
    high = ordered[min(low + 1, len(ordered) - 1)]
    return (ordered[low] + (rank - low) * (high - ordered[low])) / PPM


@pytest.mark.parametrize("policy", ["weighted", "least-loaded"])
def test_regret_in_the_report_is_that_of_the_records(policy: str) -> None:
    changes = {**STALE, "policy.routing": {"kind": policy}}
    records = decisions(listened(blis_tui.load("quickstart", set=changes))[1])
    report = blis_tui.run(blis_tui.load("quickstart", set={**changes, "counterfactual": 2})).to_dict()
    reported = json.loads(json.dumps(report["routing"]))
    true = [record.true_regret_ppm or 0 for record in records]
    assert max(true) > 0
    counts = (len(records), len(records), len([one for one in true if one]))
    assert (reported["decisions"], reported["scored"], reported["regretted"]) == counts
    for name, regrets in (("seen", [record.regret_ppm or 0 for record in records]), ("true", true)):
        expected = {f"p{percent}": float(exact(regrets, percent)) for percent in (50, 90, 95, 99)}
        expected |= {"mean": float(Fraction(sum(regrets), len(regrets) * PPM))}
        assert reported["regret"][name] == {**expected, "min": min(regrets) / PPM, "max": max(regrets) / PPM}


@pytest.mark.parametrize("name", ["WEIGHTED", "GATEWAY", "SPLIT"])
def test_a_run_that_is_weighed_is_the_same_run(name: str) -> None:
    made = fleet(name)
    plain, weighed = Simulation(made), Simulation(replace(made, counterfactual=1))
    for simulation in (plain, weighed):
        simulation.run()
    reports = [simulation.report().to_dict() for simulation in (plain, weighed)]
    routing = reports[1].pop("routing")
    assert isinstance(routing, dict)
    assert routing["decisions"] == len(decisions(listened(made)[1]))
    for report in reports:
        report.pop("meta")
    assert reports[0] == reports[1]


def test_policies_without_scores_have_decisions_and_no_regret() -> None:
    changes = {**STALE, "policy.routing": {"kind": "round-robin"}, "counterfactual": 4}
    changes |= {"expect": [{"metric": "routing.regret.true.mean", "max": 1}]}
    report = blis_tui.run(blis_tui.load("quickstart", set=changes))
    assert report.routing is not None
    assert (report.routing.decisions, report.routing.scored, report.routing.regretted) == (120, 0, 0)
    assert report.routing.regret.true.mean is None
    assert not report.ok  # a figure that is not there is never as expected


@pytest.mark.parametrize("most", [1, 3, 20])
def test_a_decision_tells_of_as_many_alternatives_as_asked_for(most: int) -> None:
    changes = {**STALE, "policy.routing": {"kind": "always-busiest"}, "workload.requests": 40}
    whole = decisions(listened(blis_tui.load("quickstart", set={**changes, "counterfactual": 20}))[1])
    for decision, every in zip(
        decisions(listened(blis_tui.load("quickstart", set={**changes, "counterfactual": most}))[1]), whole, strict=True
    ):
        assert len(every.top) == 6
        others = [each for each in every.top if each.instance != decision.instance][:most]
        assert [each for each in decision.top if each.instance != decision.instance] == others
        assert len(decision.top) == len(others) + 1


def test_expectations_and_studies_know_regret() -> None:
    changes = {**STALE, "counterfactual": 1, "expect": [{"metric": "routing.regret.true.max", "max": 0.001}]}
    (verdict,) = blis_tui.run(blis_tui.load("quickstart", set=changes)).expectations
    assert not verdict.ok
    assert isinstance(verdict.value, float)
    measured = ["routing.regretted", "routing.regret.true.max"]
    axes = {"cluster.signals.refresh_interval_us": [0, 300_000]}
    settings = {**STALE, "counterfactual": 1}
    fresh, stale = blis_tui.sweep("quickstart", axes=axes, objectives=measured, set=settings).rows
    assert [fresh.figures[metric] for metric in measured] == [0, 0]
    assert all(stale.figures[metric] for metric in measured)
