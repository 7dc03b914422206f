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
