"""Kubernetes' autoscaler: by hand, and against an oracle that follows its controller's own bookkeeping."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blis_tui
from blis_tui.cluster.policies.scaling import HorizontalPodAutoscaler, HpaSettings
from blis_tui.cluster.policy import ScaledGroup
from blis_tui.cluster.records import ScalingDecided

if TYPE_CHECKING:
    from blis_tui.model import Autoscaler

S = 1_000_000


def autoscaler(up_us: int, down_us: int) -> Autoscaler:
    own = blis_tui.load("autoscaling", set={"expect": []}).cluster.autoscaler
    assert own is not None
    return replace(own, scale_up_window_us=up_us, scale_down_window_us=down_us)


def group(instances: int, *, waiting: int = 0, running: int = 0, kv: float = 0.0, starting: int = 0) -> ScaledGroup:
    serving = instances - starting
    return ScaledGroup("default", instances, serving, running, waiting, outside=0, kv_utilization=kv)


def hpa(
    target: float,
    up_us: int = 0,
    down_us: int = 0,
    *,
    metric: str = "num_requests_waiting",
    source: str = "External",
    tolerance: float = 0.1,
) -> HorizontalPodAutoscaler:
    settings = HpaSettings(target=target, metric=metric, source=source, tolerance=tolerance)
    return HorizontalPodAutoscaler(settings, autoscaler(up_us, down_us))


@pytest.mark.parametrize(
    ("settings", "at", "wanted"),
    [
        ({}, group(2, waiting=14), 3),
        ({}, group(3, waiting=16), 3),  # 1.07 of the target
        ({}, group(3, waiting=17), 4),  # 1.13
        ({}, group(4, waiting=0), 0),
        ({}, group(2, waiting=15, starting=1), 3),  # a sum does not ask who serves
        ({"source": "Pods"}, group(2, waiting=15, starting=1), 3),  # 15 / 2 with the one that starts
        ({"source": "Pods"}, group(4, waiting=12, starting=3), 4),  # 12 of 5 in the mean, but 3 with those that start
        ({"source": "Pods"}, group(4, waiting=2, starting=2), 1),
        ({"source": "Pods"}, group(1, waiting=0, starting=1), 1),  # nobody serves
        ({"tolerance": 0.5}, group(2, waiting=14), 2),
        ({"metric": "num_requests_running"}, group(2, waiting=99, running=21), 5),
    ],
)
def test_by_hand(settings: dict[str, Any], at: ScaledGroup, wanted: int) -> None:
    assert hpa(5, **settings).wanted(at, 15 * S)[0] == wanted


def test_a_share_of_the_cache() -> None:
    rule = hpa(0.6, metric="kv_cache_usage_perc")
    assert rule.wanted(group(3, kv=2.7), 15 * S)[0] == 5
    assert (
        "kv_cache_usage_perc is 2.70 in total, target 0.6 per instance: 5 instances"
        in rule.wanted(group(3, kv=2.7), 16 * S)[1]
    )


def test_windows_and_limits_are_named() -> None:
    rule = hpa(5, down_us=300 * S)
    assert rule.wanted(group(2, waiting=1000), 15 * S) == (
        6,
        "num_requests_waiting is 1,000 in total, target 5 per instance: 200 instances, limited to 6 within 15 s",
    )
    number, reason = rule.wanted(group(6, waiting=0), 30 * S)
    assert (number, reason.rpartition(", ")[2]) == (6, "held at 6 by the window of 300 s")


class Recommendation(NamedTuple):
    replicas: int
    at_s: int


class Controller:
    """``horizontal.go`` in its own words: lists of recommendations and of scale events."""

    def __init__(self, target: float, up_s: int, down_s: int) -> None:
        self.target, self.up_s, self.down_s = target, up_s, down_s
        self.recommendations: list[Recommendation] = []
        self.events: list[tuple[int, int]] = []

    def reconcile(self, current: int, waiting: int, now_s: int) -> int:
        if not self.recommendations:
            self.recommendations.append(Recommendation(current, now_s))
        ratio = waiting / (self.target * current) if current else 99.0
        desired = current if abs(ratio - 1) <= 0.1 else ceil(waiting / self.target)
        up = down = desired
        for recommendation in self.recommendations:
            if recommendation.at_s > now_s - self.up_s:
                up = min(up, recommendation.replicas)
            if recommendation.at_s > now_s - self.down_s:
                down = max(down, recommendation.replicas)
        self.recommendations.append(Recommendation(desired, now_s))
        stabilized = current
        if stabilized < up:
            stabilized = up
        if stabilized > down:
            stabilized = down
        if stabilized > current:
            changed = sum(change for at_s, change in self.events if at_s > now_s - 15)
            begun = current - changed
            stabilized = min(stabilized, max(begun + 4, ceil(begun * 2.0), current))
        if stabilized != current:
            self.events.append((now_s, stabilized - current))
        return stabilized


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=60),
    st.sampled_from([0, 20, 60]),
    st.sampled_from([0, 30, 300]),
    st.sampled_from([1, 5, 15, 40]),
)
def test_it_decides_as_the_controller(load: list[int], up_s: int, down_s: int, every_s: int) -> None:
    rule, controller = hpa(5, up_s * S, down_s * S), Controller(5, up_s, down_s)
    replicas = 2
    for number, waiting in enumerate(load):
        now_s = every_s * (1 + number)
        wanted, _ = rule.wanted(group(replicas, waiting=waiting), now_s * S)
        assert wanted == controller.reconcile(replicas, waiting, now_s)
        replicas = min(max(wanted, 1), 50)
        if replicas != wanted:
            controller.events.append((now_s, replicas - wanted))


def test_without_a_behavior_it_goes_to_four_or_twice_as_many() -> None:
    rule = HorizontalPodAutoscaler(HpaSettings(target=5, behavior=False), autoscaler(60 * S, 300 * S))
    assert rule.wanted(group(1, waiting=1000), 15 * S) == (
        4,
        "num_requests_waiting is 1,000 in total, target 5 per instance: 200 instances, limited to 4 at once",
    )
    assert rule.wanted(group(4, waiting=1000), 16 * S)[0] == 8  # no period has to pass
    number, reason = rule.wanted(group(8, waiting=0), 300 * S)
    assert (number, reason.rpartition(", ")[2]) == (16, "limited to 16 at once")  # by what was recommended before
    assert rule.wanted(group(8, waiting=15), 320 * S)[0] == 3  # and is now too old
    assert len(rule.state()) == 1


def test_policies_by_hand() -> None:
    settings = HpaSettings(target=5, scale_up_pods={"value": 2, "period_s": 60}, scale_down_select="Disabled")
    rule = HorizontalPodAutoscaler(settings, autoscaler(0, 0))
    number, reason = rule.wanted(group(1, waiting=1000), 15 * S)
    assert (number, reason.rpartition(", ")[2]) == (3, "limited to 3 within 60 s")
    assert rule.wanted(group(3, waiting=1000), 74 * S)[0] == 3
    assert rule.wanted(group(3, waiting=1000), 75 * S)[0] == 5  # the first is a minute ago
    number, reason = rule.wanted(group(5, waiting=0), 150 * S)
    assert (number, reason.partition(", held")[2]) == (5, " at 5, as instances never go")


class Policy(NamedTuple):
    kind: str
    value: int
    period_s: int


class WithPolicies(Controller):
    """The rates of ``horizontal.go``, with policies of both types and directions."""

    def __init__(self, up: list[Policy], down: list[Policy], up_select: str, down_select: str) -> None:
        super().__init__(5, 0, 0)
        self.policies = {1: (up, up_select), -1: (down, down_select)}

    def limit(self, current: int, direction: int, now_s: int) -> int:
        policies, select = self.policies[direction]
        if select == "Disabled":
            return current
        proposals = []
        for policy in policies:
            begun = current - sum(change for at_s, change in self.events if at_s > now_s - policy.period_s)
            if policy.kind == "Pods":
                proposals.append(begun + direction * policy.value)
            elif direction > 0:
                proposals.append(ceil(begun * (1 + policy.value / 100)))
            else:
                proposals.append(int(begun * (1 - policy.value / 100)))
        if direction > 0:
            return max(current, min(proposals) if select == "Min" else max(proposals))
        return min(current, max(proposals) if select == "Min" else min(proposals))

    def reconcile(self, current: int, waiting: int, now_s: int) -> int:
        desired = ceil(waiting / self.target)
        if current and abs(waiting / (self.target * current) - 1) <= 0.1:
            desired = current
        if desired > current:
            desired = min(desired, self.limit(current, 1, now_s))
        elif desired < current:
            desired = max(desired, self.limit(current, -1, now_s))
        if desired != current:
            self.events.append((now_s, desired - current))
        return desired


POLICIES = st.lists(
    st.builds(Policy, st.sampled_from(["Pods", "Percent"]), st.sampled_from([1, 3, 10, 50]), st.sampled_from([5, 40])),
    min_size=1,
    max_size=2,
    unique_by=lambda policy: policy.kind,
)
SELECTS = st.sampled_from(["Max", "Min", "Disabled"])


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=60),
    POLICIES,
    POLICIES,
    SELECTS,
    SELECTS,
    st.sampled_from([1, 5, 15]),
)
def test_policies_as_the_controller(
    load: list[int], up: list[Policy], down: list[Policy], up_select: str, down_select: str, every_s: int
) -> None:
    named = {
        f"scale_{way}_{policy.kind.lower()}": {"value": policy.value, "period_s": policy.period_s}
        for way, policies in (("up", up), ("down", down))
        for policy in policies
    }
    settings: dict[str, Any] = {**named, "scale_up_select": up_select, "scale_down_select": down_select}
    rule = HorizontalPodAutoscaler(HpaSettings(target=5, **settings), autoscaler(0, 0))
    controller, replicas = WithPolicies(up, down, up_select, down_select), 2
    for number, waiting in enumerate(load):
        now_s = every_s * (1 + number)
        wanted, _ = rule.wanted(group(replicas, waiting=waiting), now_s * S)
        assert wanted == controller.reconcile(replicas, waiting, now_s)
        replicas = wanted


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 400)), min_size=1, max_size=60))
def test_without_a_behavior_as_the_controller(looks: list[tuple[int, int]]) -> None:
    """``stabilizeRecommendation`` and ``convertDesiredReplicasWithRules``, with replicas from 1 to 50."""
    rule = HorizontalPodAutoscaler(HpaSettings(target=5, behavior=False), autoscaler(60 * S, 30 * S))
    replicas, now_s, recommendations = 2, 0, list[tuple[int, int]]()
    for passed_s, waiting in looks:
        now_s += passed_s
        if not recommendations:
            recommendations.append((now_s, replicas))
        desired = ceil(waiting / 5) if abs(waiting / (5 * replicas) - 1) > 0.1 else replicas
        stable = max([desired, *(value for at_s, value in recommendations if not at_s < now_s - 30)])
        recommendations.append((now_s, desired))
        wanted, _ = rule.wanted(group(replicas, waiting=waiting), now_s * S)
        assert wanted == min(stable, max(2 * replicas, 4))
        replicas = min(max(wanted, 1), 50)


def test_in_a_cluster() -> None:
    """Instances come by the queues and go after the window, and each decision says what it saw."""
    rule = {"kind": "hpa", "target": 5}
    scaler = {"max_instances": 4, "interval_us": 5 * S, "scale_down_stabilization_window_us": 20 * S, "rule": rule}
    experiment = blis_tui.load("autoscaling", set={"cluster.autoscaler": scaler, "expect": []})
    simulation = blis_tui.Simulation(experiment)
    decided: list[ScalingDecided] = []
    simulation.subscribe(ScalingDecided, decided.append)
    simulation.run()
    report = json.loads(simulation.report().to_json())
    changes = [entry["change"] for entry in report["lifecycle"]["scaling"]]
    assert max(changes) > 0 > min(changes)
    assert {record.verdict for record in decided} >= {"scale-up", "scale-down", "hold"}
    assert all(record.required_tokens == record.spare_tokens == 0 for record in decided)
    up = next(record for record in decided if record.verdict == "scale-up")
    assert up.reason.startswith("num_requests_waiting is ")
