"""Nodes: thousands of instances that wait for thousands of them take work in proportion, and get what few would get."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from math import fsum, prod
from typing import TYPE_CHECKING

import pytest

from blis_tui.cluster.options.lifecycle import LifecycleControl
from blis_tui.engine.records import Routed
from blis_tui.model import Autoscaler, Delay, Experiment, NodePool, PluginConfig
from tests.builders import Outcome, experiment, request
from tests.work import lines

if TYPE_CHECKING:
    from collections.abc import Callable

SCORERS = tuple(PluginConfig(kind=kind, settings={"weight": 1.0}) for kind in ("queue-depth", "kv-utilization"))
ROUTING = {
    "round-robin": PluginConfig(kind="round-robin"),
    "weighted": PluginConfig(kind="weighted", settings={"scorers": SCORERS}),
}


def nodes(*, initial: int = 0, most: int, gpus: int = 1, delay_us: int = 1000) -> NodePool:
    return NodePool(
        name="n",
        gpu="gpu",
        gpus_per_node=gpus,
        initial=initial,
        min=0,
        max=most,
        provisioning_delay=Delay(mean_us=delay_us, std_dev_us=delay_us // 4),
        cost_per_hour=None,
    )


def on_nodes(instances: int, kind: NodePool, *, routing: str = "round-robin", gpus: int = 1) -> Experiment:
    made = experiment(instances=instances)
    return replace(
        made,
        pools=(replace(made.pools[0], tensor_parallel=gpus),),
        cluster=replace(made.cluster, nodes=(kind,)),
        policy=replace(made.policy, routing=ROUTING[routing]),
    )


def growing(most: int) -> Experiment:
    """One instance, and an autoscaler that orders all others at once."""
    scaler = Autoscaler(
        interval_us=50,
        bounds={"only": (1, most)},
        kv_utilization_threshold=0.8,
        scale_up_threshold=0.8,
        scale_down_boundary=0.0001,
        avg_input_tokens=1_000_000,
        scale_up_window_us=0,
        scale_down_window_us=10**9,
        scrape_delay=Delay(mean_us=0),
    )
    made = on_nodes(1, nodes(initial=1, most=most))
    return replace(made, cluster=replace(made.cluster, autoscaler=scaler))


def run(made: Experiment) -> Outcome:
    return Outcome(made, [request(index, 200 * (index - index % 20), 8, 4) for index in range(60)])


@pytest.mark.parametrize(
    "make",
    [
        lambda count: on_nodes(count, nodes(most=count)),
        lambda count: on_nodes(count, nodes(initial=count, most=count)),
        lambda count: on_nodes(count, nodes(most=count, gpus=8), gpus=3),
        lambda count: on_nodes(count, nodes(most=count), routing="weighted"),
        lambda count: on_nodes(count, nodes(most=count // 2)),
        growing,
    ],
    ids=["ordered", "there", "several on a node", "weighted", "too few", "autoscaler"],
)
def test_twice_as_many_instances_are_twice_the_work(make: Callable[[int], Experiment]) -> None:
    few, many = make(60), make(120)
    assert len(run(few).cluster.instances) == 60  # and all is imported that is needed on the way
    assert lines(lambda: run(many)) < 2.4 * lines(lambda: run(few))


def on_nothing(instances: int) -> Experiment:
    """The same instances without nodes."""
    made = on_nodes(instances, nodes(most=instances))
    return replace(made, cluster=replace(made.cluster, nodes=()))


@cache
def of_4096(make: Callable[[int], Experiment]) -> float:
    """How many lines they would run, by a parabola through the work of three sizes."""
    sizes = (64, 128, 256)
    parts = (
        lines(partial(run, make(size))) * prod((4096 - other) / (size - other) for other in sizes if other != size)
        for size in sizes
    )
    return fsum(parts)


@pytest.mark.parametrize("initial", [False, True], ids=["ordered", "there"])
def test_4096_instances_on_nodes_are_hardly_more_work_than_without(initial: bool) -> None:
    """What grows faster than the number of instances has all the weight there.

    Counted as a whole, which takes 18 s, those are 12,549,240 lines without nodes, 12,847,599 on nodes that are there,
    13,073,548 on nodes that are ordered; the parabola has the first two to the line, the third within half a percent.
    """

    def with_nodes(count: int) -> Experiment:
        return on_nodes(count, nodes(initial=count * initial, most=count))

    run(with_nodes(4))  # all is imported that is needed on the way
    assert of_4096(with_nodes) < 1.3 * of_4096(on_nothing)


@pytest.mark.parametrize("initial", [0, 3])
def test_instances_wait_for_their_nodes_in_their_order(initial: int) -> None:
    made = on_nodes(7, nodes(initial=initial, most=10, gpus=5), gpus=2)
    outcome = run(made)
    lifecycle = outcome.cluster.lifecycle
    assert isinstance(lifecycle, LifecycleControl)
    there = [tuple(node.hosted) for node in lifecycle.placement.nodes]
    assert sorted(index for hosted in there for index in hosted) == list(range(7))
    assert [len(hosted) for hosted in there] == [2, 2, 2, 1]
    assert {record.instance for record in outcome.records if isinstance(record, Routed)} <= set(range(7))
