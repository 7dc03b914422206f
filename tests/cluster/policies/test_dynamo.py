"""The planner of Dynamo: by hand, and against oracles after its source."""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import blis_tui
from blis_tui.cluster.policies.dynamo import (
    DynamoLoad,
    DynamoLoadSettings,
    DynamoThroughput,
    DynamoThroughputSettings,
)
from blis_tui.cluster.policy import InstanceLoad, ScaledGroup
from blis_tui.cluster.records import ScalingDecided

if TYPE_CHECKING:
    from blis_tui.model import Autoscaler

S = 1_000_000
KV = 1000
"""Tokens that the KV cache of an instance holds."""


@pytest.fixture(scope="module")
def autoscaler() -> Autoscaler:
    own = blis_tui.load("autoscaling", set={"expect": []}).cluster.autoscaler
    assert own is not None
    return own


class Pass(NamedTuple):
    """Metrics of a forward pass: of requests that decode, and of those in the queue."""

    decode: int
    queued_decode: int
    queued_prefill: int


def group(*passes: tuple[int, int, int], role: str = "any", starting: int = 0, longest: int = 100) -> ScaledGroup:
    loads = tuple(
        InstanceLoad(
            1, 1, 0.5, KV, decode, waiting_prompt_tokens=prompts, waiting_decode_tokens=held, max_model_len=longest
        )
        for decode, held, prompts in passes
    )
    return ScaledGroup("g", len(loads) + starting, len(loads), 0, 0, 0, 0.0, role, least=1, loads=loads)


@pytest.mark.parametrize(
    ("target", "at", "wanted", "reason"),
    [
        ("throughput", group((900, 50, 50)), 1, "KV caches and what waits for them: 100.0 to 100.0 %"),  # not above
        ("throughput", group((900, 50, 51)), 2, "KV caches and what waits for them: 100.1 to 100.1 %"),
        ("throughput", group((900, 50, 51), role="decode"), 1, "KV caches and what waits for them: 95.0 to 95.0 %"),
        ("throughput", group((1001, 0, 0), (0, 0, 0)), 3, "KV caches and what waits for them: 0.0 to 100.1 %"),
        ("throughput", group((599, 0, 0), (0, 0, 0)), 1, "KV caches and what waits for them: 0.0 to 59.9 %"),
        ("throughput", group((600, 0, 0), (0, 0, 0)), 2, "KV caches and what waits for them: 0.0 to 60.0 %"),
        ("throughput", group((0, 0, 0)), 1, "KV caches and what waits for them: 0.0 to 0.0 %"),
        ("latency", group((401, 0, 0)), 2, "KV caches and what waits for them: 40.1 to 40.1 %"),
        ("latency", group((99, 0, 0), (0, 0, 0)), 1, "KV caches and what waits for them: 0.0 to 9.9 %"),
        ("throughput", group((0, 0, 100), role="prefill"), 2, "prompts in queues, of the context length: 100.0 to"),
        ("throughput", group((0, 0, 9), (0, 0, 0), role="prefill"), 1, "prompts in queues, of the context length: 0.0"),
        ("throughput", group((0, 0, 10), (0, 0, 0), role="prefill"), 2, "prompts in queues, of the context length"),
        ("latency", group((0, 0, 10), role="prefill"), 2, "prompts in queues, of the context length: 10.0 to 10.0 %"),
        ("latency", group((0, 0, 1), (0, 0, 0), role="prefill"), 2, "prompts in queues, of the context length"),
        ("latency", group((0, 0, 0), (0, 0, 0), role="prefill"), 1, "prompts in queues, of the context length"),
        ("throughput", group((0, 0, 9), role="prefill", longest=0), 1, "neither `context_length` nor"),
        ("throughput", group((2000, 0, 0), starting=1), 2, "1 of 2 instances serving"),
        ("throughput", group(), 0, "no instance to measure"),
    ],
)
def test_load_by_hand(target: str, at: ScaledGroup, wanted: int, reason: str, autoscaler: Autoscaler) -> None:
    number, why = DynamoLoad(DynamoLoadSettings(optimization_target=target), autoscaler).wanted(at, 5 * S)
    assert number == wanted
    assert why.startswith(reason)


def test_a_context_length_of_its_own(autoscaler: Autoscaler) -> None:
    rule = DynamoLoad(DynamoLoadSettings(context_length=10), autoscaler)
    assert rule.wanted(group((0, 0, 10), role="prefill"), 5 * S)[0] == 2


def planner_easy(passes: list[Pass], mode: str, target: str, workers: int) -> int:
    """``_prefill_easy_decision``, ``_decode_easy_decision`` and ``_agg_easy_decision``."""
    latency = target == "latency"
    if mode == "prefill":
        up, down = (0.1, 0.0) if latency else (1.0, 0.1)
        ratios = [one.queued_prefill / 100 for one in passes]
        if any(ratio >= up for ratio in ratios):
            return workers + 1
        fewer = all(ratio <= down if latency else ratio < down for ratio in ratios)
        return max(workers - 1, 1) if workers > 1 and fewer else workers
    up, down = (0.4, 0.1) if latency else (1.0, 0.6)
    used = [one.decode + one.queued_decode + (one.queued_prefill if mode == "agg" else 0) for one in passes]
    if any(tokens / KV > up for tokens in used):
        return workers + 1
    return max(workers - 1, 1) if workers > 1 and all(tokens / KV < down for tokens in used) else workers


PASSES = st.lists(
    st.builds(Pass, st.integers(0, 1200), st.sampled_from([0, 0, 7]), st.integers(0, 120) | st.integers(0, 12)),
    min_size=1,
    max_size=5,
)


@given(PASSES, st.sampled_from(["prefill", "decode", "agg"]), st.sampled_from(["throughput", "latency"]))
def test_load_as_the_planner(passes: list[Pass], mode: str, target: str) -> None:
    rule = DynamoLoad(DynamoLoadSettings(optimization_target=target), _ANY)
    at = group(*passes, role="any" if mode == "agg" else mode)
    assert rule.wanted(at, 5 * S)[0] == planner_easy(passes, mode, target, len(passes))


_ANY: Any = None
"""An autoscaler: these rules do not look at it."""


def at(arrived: int, instances: int = 2, *, role: str = "any", starting: int = 0, least: int = 1) -> ScaledGroup:
    return ScaledGroup("g", instances, instances - starting, 0, 0, 0, 0.0, role, least=least, arrived=arrived)


def throughput(**settings: Any) -> DynamoThroughput:
    return DynamoThroughput(DynamoThroughputSettings(**settings), _ANY)


def test_throughput_by_hand() -> None:
    rule = throughput(requests_per_s=2.5)
    assert rule.wanted(at(0), 180 * S) == (
        1,
        "0 requests in 180 s, 0.0 predicted for the next: 0.00/s, 2.5/s an instance: 1 instance",
    )
    assert rule.wanted(at(900), 360 * S)[0] == 2
    assert rule.wanted(at(1801), 540 * S) == (
        3,
        "901 requests in 180 s, 901.0 predicted for the next: 5.01/s, 2.5/s an instance: 3 instances",
    )
    assert rule.wanted(at(5000, 3, starting=1), 720 * S) == (3, "2 of 3 instances serving")
    assert rule.wanted(at(5450, 3), 900 * S)[0] == 1  # what came meanwhile is no part of it
    assert throughput(requests_per_s=2.5).wanted(at(0, least=0), 180 * S)[0] == 0


def test_roles_have_capacities_of_their_own() -> None:
    rule = throughput(requests_per_s=2, prefill_requests_per_s=8)
    assert rule.wanted(at(100, role="prefill")._replace(name="prefill"), 10 * S)[0] == 2
    assert rule.wanted(at(100, role="decode")._replace(name="decode"), 10 * S)[0] == 5
    assert [entry[:3] for entry in rule.state()] == [("decode", 10 * S, 100), ("prefill", 10 * S, 100)]  # type: ignore[index]
    assert "8 if it only prefills" in rule.rule
    assert throughput(requests_per_s=2).wanted(at(100, role="prefill"), 10 * S)[0] == 5


def test_a_trend_is_continued() -> None:
    rule, arrived, wanted = throughput(requests_per_s=1, load_predictor="kalman"), 0, []
    for number in range(1, 9):
        arrived += 10 * number
        wanted.append(rule.wanted(at(arrived), 10 * number * S)[0])
    assert wanted == [1, 3, 4, 5, 6, 7, 8, 9]


Matrix = tuple[tuple[float, float], tuple[float, float]]


def times(one: Matrix, other: Matrix) -> Matrix:
    (a, b), (c, d) = one
    (e, f), (g, h) = other
    return ((a * e + b * g, a * f + b * h), (c * e + d * g, c * f + d * h))


def plus(one: Matrix, other: Matrix) -> Matrix:
    (a, b), (c, d) = one
    (e, f), (g, h) = other
    return ((a + e, b + f), (c + g, d + h))


def transposed(one: Matrix) -> Matrix:
    (a, b), (c, d) = one
    return ((a, c), (b, d))


class KalmanPredictor:
    """``KalmanPredictor`` on ``filterpy``'s filter, which corrects covariances in Joseph's form."""

    transition: Matrix = ((1.0, 1.0), (0.0, 1.0))

    def __init__(self, q_level: float, q_trend: float, r: float) -> None:
        self.x = (0.0, 0.0)
        self.p: Matrix = ((1000.0, 0.0), (0.0, 1000.0))
        self.q: Matrix = ((q_level, 0.0), (0.0, q_trend))
        self.r = r
        self.seen_nonzero = self.initialized = False

    def add_data_point(self, value: float) -> None:
        if value == 0 and not self.seen_nonzero:
            return
        self.seen_nonzero = True
        if not self.initialized:
            self.x, self.initialized = (value, 0.0), True
            return
        innovation = self.p[0][0] + self.r
        gain = (self.p[0][0] / innovation, self.p[1][0] / innovation)
        residual = value - self.x[0]
        self.x = (self.x[0] + gain[0] * residual, self.x[1] + gain[1] * residual)
        left: Matrix = ((1 - gain[0], 0.0), (-gain[1], 1.0))
        noise: Matrix = (
            (gain[0] * self.r * gain[0], gain[0] * self.r * gain[1]),
            (gain[1] * self.r * gain[0], gain[1] * self.r * gain[1]),
        )
        self.p = plus(times(times(left, self.p), transposed(left)), noise)

    def predict_next(self) -> float:
        if not self.initialized:
            return 0.0
        self.x = (self.x[0] + self.x[1], self.x[1])
        self.p = plus(times(times(self.transition, self.p), transposed(self.transition)), self.q)
        return self.x[0]


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=40),
    st.sampled_from([0.01, 1.0, 30.0]),
    st.sampled_from([0.01, 0.1, 5.0]),
    st.sampled_from([0.1, 10.0, 400.0]),
    st.sampled_from([0.3, 2.5, 7.0]),
)
def test_kalman_as_the_planner(counts: list[int], q_level: float, q_trend: float, r: float, each: float) -> None:
    rule = throughput(
        requests_per_s=each, load_predictor="kalman", kalman_q_level=q_level, kalman_q_trend=q_trend, kalman_r=r
    )
    predictor, arrived = KalmanPredictor(q_level, q_trend, r), 0
    for number, count in enumerate(counts):
        arrived += count
        wanted, _ = rule.wanted(at(arrived), (1 + number) * 60 * S)
        predictor.add_data_point(float(count))
        needed = predictor.predict_next() / 60 / each
        assume(abs(needed - round(needed)) > 1e-6 or needed == 0)
        assert wanted == max(ceil(needed), 1)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=40), st.sampled_from([0.3, 2.5, 7.0]))
def test_constant_as_the_planner(counts: list[int], each: float) -> None:
    rule, arrived = throughput(requests_per_s=each), 0
    for number, count in enumerate(counts):
        arrived += count
        assert rule.wanted(at(arrived), (1 + number) * 60 * S)[0] == max(ceil(count / 60 / each), 1)


@pytest.mark.parametrize("rule", [{"kind": "dynamo-load"}, {"kind": "dynamo-throughput", "requests_per_s": 3}])
def test_in_a_cluster(rule: dict[str, object]) -> None:
    scaler = {"max_instances": 4, "interval_us": 5 * S, "rule": rule}
    simulation = blis_tui.Simulation(blis_tui.load("autoscaling", set={"cluster.autoscaler": scaler, "expect": []}))
    decided: list[ScalingDecided] = []
    simulation.subscribe(ScalingDecided, decided.append)
    simulation.run()
    report = json.loads(simulation.report().to_json())
    changes = [entry["change"] for entry in report["lifecycle"]["scaling"]]
    assert max(changes) > 0 > min(changes)
    assert {record.verdict for record in decided} == {"scale-up", "scale-down", "hold"}
    if rule["kind"] == "dynamo-throughput":
        counted = [int(record.reason.split()[0].replace(",", "")) for record in decided if " in 5 s" in record.reason]
        assert 0 < sum(counted) <= 900


@pytest.mark.parametrize("kind", ["dynamo-load", "dynamo-throughput"])
def test_prefill_and_decode_apart(kind: str) -> None:
    """Each role is scaled by its own figures; queues of prefill instances are compared with the context length."""
    rule = {"kind": kind, **({"requests_per_s": 2, "prefill_requests_per_s": 4} if kind[7] == "t" else {})}
    changes: dict[str, object] = {
        "workload.rate_per_s": 14,
        "workload.requests": 300,
        "engine.max_model_len": 3000,
        "engine.max_num_seqs": 16,
        "engine.kv_blocks": 1500,
        "cluster": {
            "instances": 3,
            "disaggregation": {"prefill_instances": 1, "decode_instances": 2},
            "autoscaler": {"max_instances": 6, "interval_us": 2 * S, "rule": rule},
        },
    }
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set=changes))
    decided: list[ScalingDecided] = []
    simulation.subscribe(ScalingDecided, decided.append)
    simulation.run()
    about = {record.reason.partition(":")[0] for record in decided}
    assert about == {"prefill", "decode"}
    if kind == "dynamo-load":
        assert any(record.reason.startswith("prefill: prompts in queues, of the context") for record in decided)
        assert any(record.reason.startswith("decode: KV caches and what waits") for record in decided)
    else:
        assert any("4/s an instance" in record.reason for record in decided if record.reason.startswith("prefill"))
        assert any("2/s an instance" in record.reason for record in decided if record.reason.startswith("decode"))
