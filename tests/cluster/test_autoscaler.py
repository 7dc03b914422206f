"""The autoscaler and the nodes: what is decided, why, and where instances find room."""

from __future__ import annotations

from dataclasses import replace

from blis_tui.cluster.options.lifecycle import LifecycleControl
from blis_tui.cluster.records import InstanceChanged, NodeChanged, Scaled, ScalingDecided
from blis_tui.model import Delay, Lifecycle, NodePool
from tests.builders import Outcome, request
from tests.cluster.test_lifecycle import asked, autoscaler, failure, states, varying


def decisions(outcome: Outcome) -> list[ScalingDecided]:
    return [record for record in outcome.records if isinstance(record, ScalingDecided)]


def test_what_is_missing_comes_and_what_is_spare_goes() -> None:
    made = varying(instances=1, scaler=autoscaler(1, 3, down_us=1000), lifecycle=Lifecycle(loading_delay_us=250))
    outcome = Outcome(made, [*asked(30, every_us=20), request(30, 9000, 8, 100)])
    # An instance of 40 blocks of 4 tokens supplies 0.8 x 160 = 128 tokens; a waiting request counts for 16.
    first = decisions(outcome)[0]
    assert (first.verdict, first.instances, first.supply_tokens, first.pending_tokens) == ("scale-up", 2, 128, 0)
    assert first.required_tokens == -(-first.demand_tokens * 10 // 8) - 128
    assert states(outcome, 1)[:3] == [(500, "scheduling"), (500, "loading"), (750, "active")]
    changes = [record.change for record in outcome.records if isinstance(record, Scaled)]
    assert changes[0] == 2
    assert min(changes) < 0
    assert [state for _, state in states(outcome, 2)][-2:] == ["draining", "terminated"]
    assert {row.state for row in outcome.rows.values()} == {"completed"}


def test_a_need_must_last_for_its_window() -> None:
    outcome = Outcome(varying(instances=1, scaler=autoscaler(1, 3, up_us=1000)), asked(40, every_us=10))
    verdicts = [(decision.time_us, decision.verdict) for decision in decisions(outcome)]
    assert verdicts[:3] == [(500, "wait"), (1000, "wait"), (1500, "scale-up")]


def test_a_decision_takes_effect_after_the_scrape_delay_and_is_made_once() -> None:
    outcome = Outcome(varying(instances=1, scaler=autoscaler(1, 2, delay_us=1200)), asked(40, every_us=10))
    scaled = [(record.time_us, record.change) for record in outcome.records if isinstance(record, Scaled)]
    assert scaled[0] == (1700, 1)
    assert [decision.verdict for decision in decisions(outcome)][:3] == ["scale-up", "hold", "hold"]
    assert "maximum" in decisions(outcome)[1].reason


def test_the_cluster_scales_to_zero_and_back() -> None:
    made = varying(instances=1, scaler=autoscaler(0, 2, down_us=0), lifecycle=Lifecycle(loading_delay_us=300))
    outcome = Outcome(made, [request(0, 0, 8, 2), request(1, 5100, 8, 2)])
    assert [state for _, state in states(outcome, 0)] == ["draining", "terminated"]
    assert states(outcome, 1) == [(5500, "scheduling"), (5500, "loading"), (5800, "active")]
    assert {row.state for row in outcome.rows.values()} == {"completed"}


def test_who_died_for_good_is_replaced() -> None:
    made = varying(failure(instance=0, at_us=200), instances=1, scaler=autoscaler(1, 1))
    outcome = Outcome(made, asked(10))
    assert decisions(outcome)[0].reason == "0 of at least 1 in only"
    assert {row.state for row in outcome.rows.values()} == {"completed"}


def test_all_that_are_missing_at_the_least_come_at_once() -> None:
    failures = (failure(instance=0, at_us=200), failure(instance=1, at_us=300))
    outcome = Outcome(varying(*failures, instances=3, scaler=autoscaler(3, 4)), asked(10))
    first = decisions(outcome)[0]
    assert (first.verdict, first.reason) == ("scale-up", "1 of at least 3 in only")
    assert next(record.change for record in outcome.records if isinstance(record, Scaled)) == 2


def node_pool(name: str, gpus: int, *, initial: int, most: int, cost: float | None = None) -> NodePool:
    return NodePool(
        name=name,
        gpu="gpu",
        gpus_per_node=gpus,
        initial=initial,
        min=0,
        max=most,
        provisioning_delay=Delay(mean_us=400),
        cost_per_hour=cost,
    )


def test_an_instance_needs_its_accelerators_on_one_node() -> None:
    # Two nodes with three accelerators: two instances of two, and two single accelerators that help nobody.
    made = varying(instances=3, nodes=(node_pool("n", 3, initial=2, most=3),))
    made = replace(made, pools=(replace(made.pools[0], tensor_parallel=2),))
    outcome = Outcome(made, asked())
    assert [
        (record.node, record.state, record.time_us) for record in outcome.records if isinstance(record, NodeChanged)
    ] == [("n-2", "ready", 400)]
    assert states(outcome, 2) == [(400, "active")]
    lifecycle = outcome.cluster.lifecycle
    assert isinstance(lifecycle, LifecycleControl)
    assert [tuple(node.hosted.items()) for node in lifecycle.placement.nodes] == [((0, 2),), ((1, 2),), ((2, 2),)]
    assert lifecycle.held_us(2, outcome.cluster.now) == outcome.cluster.now - 400


def test_an_empty_node_is_given_back() -> None:
    made = varying(
        instances=2, nodes=(node_pool("n", 1, initial=2, most=2, cost=3.6),), scaler=autoscaler(1, 2, down_us=0)
    )
    outcome = Outcome(made, [request(0, 0, 8, 80)])
    gone = [record for record in outcome.records if isinstance(record, NodeChanged)]
    assert [(one.node, one.state) for one in gone] == [("n-1", "released")]
    ended = [
        record for record in outcome.records if isinstance(record, InstanceChanged) and record.state == "terminated"
    ]
    assert [change.time_us for change in ended] == [gone[0].time_us]
    assert isinstance(outcome.cluster.lifecycle, LifecycleControl)
    assert outcome.cluster.lifecycle.placement.node_us(outcome.cluster.now) == [outcome.cluster.now + gone[0].time_us]
