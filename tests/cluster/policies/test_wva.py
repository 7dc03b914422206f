"""The saturation analyzer of llm-d's autoscaler: by hand, and against an oracle after its source."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blis_tui
from blis_tui.cluster.policies.wva import WorkloadVariantAutoscaler, WvaSettings
from blis_tui.cluster.policy import InstanceLoad, ScaledGroup
from blis_tui.cluster.records import ScalingDecided

if TYPE_CHECKING:
    from blis_tui.model import Autoscaler

S = 1_000_000


def autoscaler(up_us: int = 0, down_us: int = 0) -> Autoscaler:
    own = blis_tui.load("autoscaling", set={"expect": []}).cluster.autoscaler
    assert own is not None
    return replace(own, scale_up_window_us=up_us, scale_down_window_us=down_us)


def load(kv: float, waiting: int) -> InstanceLoad:
    return InstanceLoad(4, waiting, kv, 1000, 0, 0, 0, 0)


def group(*loads: tuple[float, int], starting: int = 0, least: int = 1, most: int = 50) -> ScaledGroup:
    serving = tuple(load(*one) for one in loads)
    waiting = sum(one.waiting for one in serving)
    kv = sum(one.kv_utilization for one in serving)
    return ScaledGroup(
        "default", len(loads) + starting, len(loads), 0, waiting, 0, kv, least=least, most=most, loads=serving
    )


def wva(up_us: int = 0, down_us: int = 0) -> WorkloadVariantAutoscaler:
    return WorkloadVariantAutoscaler(WvaSettings(), autoscaler(up_us, down_us))


@pytest.mark.parametrize(
    ("at", "wanted", "reason"),
    [
        (group((0.65, 0), (0.72, 0)), 2, "2 of 2 not saturated, with 11.5 % KV cache and 5.0 waiting to spare"),
        (group((0.65, 0), (0.76, 0)), 3, "2 of 2 not saturated, with 9.5 % KV cache and 5.0 waiting to spare"),
        (group((0.1, 3), (0.1, 2)), 3, "2 of 2 not saturated, with 70.0 % KV cache and 2.5 waiting to spare"),
        (group((0.9, 0), (0.1, 7)), 3, "0 of 2 not saturated, with 0.0 % KV cache and 0.0 waiting to spare"),
        (group((0.9, 0), (0.1, 0)), 2, "1 of 2 not saturated, with 70.0 % KV cache and 5.0 waiting to spare"),
        (group((0.3, 0), (0.3, 0)), 1, "2 of 2 not saturated, with 50.0 % KV cache and 5.0 waiting to spare, 20.0 % "),
        (group((0.4, 0), (0.4, 0)), 2, "2 of 2 not saturated, with 40.0 % KV cache and 5.0 waiting to spare, 0.0 % "),
        (group((0.1, 1), (0.1, 1), (0.1, 1)), 2, "3 of 3 not saturated, with 70.0 % KV cache and 4.0 waiting"),
        (group((0.9, 9), (0.1, 0), (0.1, 0)), 2, "2 of 3 not saturated"),  # it goes by the others
        (group((0.9, 9), starting=1), 2, "1 of 2 instances serving"),
        (group((0.9, 9), most=1), 1, "0 of 1 not saturated"),
        (group(starting=2), 2, "0 of 2 instances serving"),
        (group(), 0, "no instance to measure"),
    ],
)
def test_by_hand(at: ScaledGroup, wanted: int, reason: str) -> None:
    number, why = wva().wanted(at._replace(least=0), 15 * S)
    assert number == wanted
    assert why.startswith(reason)


def test_it_holds_to_what_it_asked_for_until_the_window_lets_it_happen() -> None:
    rule = wva(down_us=60 * S)
    idle, busy = group((0.0, 0), (0.0, 0)), group((0.9, 9), (0.9, 9))
    number, reason = rule.wanted(idle, 30 * S)
    assert (number, reason.endswith("1 instance, held at 2 by the window of 60 s")) == (2, True)
    number, reason = rule.wanted(busy, 60 * S)
    assert (number, reason) == (2, "1 instance asked for, 2 there: 1 instance, held at 2 by the window of 60 s")
    assert rule.wanted(busy, 90 * S) == (1, "1 instance asked for, 2 there: 1 instance")
    assert rule.wanted(group((0.9, 9)), 120 * S)[0] == 2
    assert rule.state() == (("default", ((90 * S, 1), (120 * S, 2)), 2),)


class Pod(NamedTuple):
    usage: float
    queue: int


class Analyzer:
    """``analyzer.go`` for one variant: ``analyzeVariant``, the triggers, and the targets with their transitions."""

    kv_threshold, queue_threshold, kv_trigger, queue_trigger = 0.8, 5.0, 0.1, 3.0

    def __init__(self) -> None:
        self.desired = 0

    def target(self, pods: list[Pod], replicas: int) -> int:
        in_transition = (self.desired not in (0, replicas)) or len(pods) != replicas
        if in_transition:
            return self.desired or replicas
        healthy = [pod for pod in pods if pod.usage < self.kv_threshold and pod.queue < self.queue_threshold]
        spare_kv = spare_queue = 0.0
        for pod in healthy:
            spare_kv += self.kv_threshold - pod.usage
            spare_queue += self.queue_threshold - float(pod.queue)
        if healthy:
            spare_kv, spare_queue = spare_kv / len(healthy), spare_queue / len(healthy)
        if spare_kv < self.kv_trigger or spare_queue < self.queue_trigger:
            return replicas + 1
        return replicas - 1 if self.safe(len(healthy), spare_kv, spare_queue) and replicas > 1 else replicas

    def safe(self, healthy: int, spare_kv: float, spare_queue: float) -> bool:
        if healthy < 2:
            return False
        factor = healthy / (healthy - 1)
        left_kv = self.kv_threshold - (self.kv_threshold - spare_kv) * factor
        left_queue = self.queue_threshold - (self.queue_threshold - spare_queue) * factor
        return left_kv >= self.kv_trigger and left_queue >= self.queue_trigger


PODS = st.lists(st.builds(Pod, st.floats(0, 1), st.integers(0, 7)), min_size=12, max_size=12)


@given(st.lists(st.tuples(PODS, st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_it_decides_as_the_analyzer(looks: list[tuple[list[Pod], bool, bool]]) -> None:
    """Instances follow at once or later, and serve at once or later."""
    rule, analyzer, replicas, serving = wva(), Analyzer(), 2, 2
    for number, (pods, follows, serves) in enumerate(looks):
        seen = pods[:serving]
        at = group(*((pod.usage, pod.queue) for pod in seen), starting=replicas - serving, most=12)
        wanted, _ = rule.wanted(at, (1 + number) * 30 * S)
        analyzer.desired = min(analyzer.target(seen, replicas), 12)
        assert wanted == analyzer.desired
        replicas = wanted if follows else replicas
        serving = min(serving, replicas) if not serves else replicas


def test_in_a_cluster() -> None:
    scaler = {"max_instances": 4, "interval_us": 5 * S, "scale_down_stabilization_window_us": 0, "rule": "wva"}
    simulation = blis_tui.Simulation(blis_tui.load("autoscaling", set={"cluster.autoscaler": scaler, "expect": []}))
    decided: list[ScalingDecided] = []
    simulation.subscribe(ScalingDecided, decided.append)
    simulation.run()
    report = json.loads(simulation.report().to_json())
    assert {entry["change"] for entry in report["lifecycle"]["scaling"]} == {-1, 1}
    assert any(record.reason.startswith("0 of 1 not saturated") for record in decided)
    assert any("instances serving" in record.reason for record in decided)
