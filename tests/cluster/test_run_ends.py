"""Every run ends, also where instances fail and return for ever while requests wait for one that never comes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.invariants import INVARIANTS
from blis_tui.cluster.options.lifecycle import LifecycleControl
from blis_tui.engine.records import Observers
from blis_tui.model import Autoscaler, Delay, Experiment, Failure, Lifecycle, NodePool
from blis_tui.results.request_log import RequestLog
from tests.builders import ListSource
from tests.cluster.test_lifecycle import LIVES, autoscaler, failure, varying
from tests.cluster.test_models import HEAD, LLAMA, QWEN
from tests.cluster.test_split_lifecycle import asked, going, scaler
from tests.results.clusters import document

if TYPE_CHECKING:
    from pathlib import Path

MANY = 20_000
"""Events that no run here comes close to."""
LUCKY = 50 * MANY
"""The same where instances may live no longer than a request takes, which then starts over until it is lucky."""


def run_to_the_end(made: Experiment, count: int = 6, every_us: int = 100, most: int = MANY) -> Cluster:
    cluster = Cluster(made, ListSource(asked(count, every_us)), RequestLog(detours=True), Observers())
    assert cluster.run(most) < most
    assert cluster.next_event_us() is None
    assert cluster.closed() + len(cluster.in_transit()) == cluster.arrived == count
    assert [invariant.identifier for invariant in INVARIANTS if invariant.check(cluster)] == []
    return cluster


def node(gpus: int, *, initial: int = 1, most: int = 1) -> NodePool:
    return NodePool(
        name="n",
        gpu="gpu",
        gpus_per_node=gpus,
        initial=initial,
        min=0,
        max=most,
        provisioning_delay=Delay(),
        cost_per_hour=1.0,
    )


@pytest.mark.parametrize("scaling", [None, scaler(1, 3), scaler(1, 3, window_us=500)])
def test_a_role_waits_for_a_node_that_others_never_leave(scaling: Autoscaler | None) -> None:
    """Both places of the only node belong to prefill instances that fail, are repaired, and keep their places."""
    made = going(failure(every_us=900, repair_us=100), nodes=(node(2),), scaler=scaling, instances=(2, 1))
    cluster = run_to_the_end(made)
    assert isinstance(cluster.lifecycle, LifecycleControl)
    assert len(cluster.lifecycle.parked) == 5
    assert {life.state for life in cluster.lifecycle.lives[2:]} == {"scheduling"}


def test_it_ends_ten_decisions_after_the_last_progress() -> None:
    made = going(failure(every_us=900, repair_us=100), nodes=(node(2),), scaler=scaler(1, 3), instances=(2, 1))
    cluster = run_to_the_end(made, 2, 100)
    assert 100 + 10 * 300 <= cluster.now <= 100 + 12 * 300


@pytest.mark.parametrize(("up_us", "down_us", "delay"), [(500, 0, (0, 0)), (0, 700, (0, 0)), (0, 0, (200, 30))])
def test_a_decision_takes_its_windows_and_the_longest_delay(up_us: int, down_us: int, delay: tuple[int, int]) -> None:
    """The longest delay that is drawn: the mean and six standard deviations."""
    mean_us, std_dev_us = delay
    waits = {"scale_up_window_us": up_us, "scale_down_window_us": down_us}
    scaling = replace(scaler(1, 3), scrape_delay=Delay(mean_us=mean_us, std_dev_us=std_dev_us), **waits)  # type: ignore[arg-type]
    made = going(failure(every_us=900, repair_us=100), nodes=(node(2),), scaler=scaling, instances=(2, 1))
    cycle_us = 300 + up_us + down_us + mean_us + 6 * std_dev_us
    assert 100 + 10 * cycle_us <= run_to_the_end(made, 2, 100).now <= 100 + 10 * cycle_us + 2 * 300


def test_the_autoscaler_waits_for_those_who_are_still_to_come() -> None:
    """The last request comes long after it would have given up on the first ones."""
    made = going(failure(every_us=900, repair_us=100), nodes=(node(2),), scaler=scaler(2, 3), instances=(2, 1))
    cluster = run_to_the_end(made, 2, 9_000)
    assert 9_000 + 10 * 300 <= cluster.now <= 9_000 + 12 * 300


@pytest.mark.parametrize("death", [failure(instance=0, at_us=5_000), failure(instance=0, every_us=5_000)])
def test_who_dies_for_good_leaves_a_place(death: Failure) -> None:
    """The decode instance gets the place of the prefill instance that dies: the run does not end before."""
    cluster = run_to_the_end(going(death, nodes=(node(2),), instances=(2, 1)))
    assert isinstance(cluster.lifecycle, LifecycleControl)
    assert [life.state for life in cluster.lifecycle.lives] == ["failed", "active", "active"]
    assert not cluster.lifecycle.parked


def test_who_waits_for_an_answer_that_never_comes_sends_nothing_more() -> None:
    """Users of a closed loop, while prefill instances fail and return for ever."""
    made = document(
        {
            "instances": 3,
            "disaggregation": {"prefill_instances": 2, "decode_instances": 1, "decider": "always"},
            "failures": [
                {"instance": 2, "at_us": 500_000},
                {"pool": "prefill", "mean_time_between_us": 1_000_000, "repair_us": 1000},
            ],
        },
        {},
        workload={
            "requests": 100,
            "clients": [
                {"id": "all", "arrivals": {"kind": "closed-loop", "users": 4}, "input_tokens": 200, "output_tokens": 20}
            ],
        },
    )
    simulation = blis_tui.Simulation(blis_tui.load(made))
    simulation.run(max_events=MANY)
    assert simulation.done
    report = simulation.report()
    assert (report.requests.completed, report.requests.injected) == (4, 8)
    [finding] = [warning for warning in report.warnings if warning.id == "stranded"]
    assert finding.message == "4 requests of 8 (50 %) were left without an instance; one of them is request_5."
    assert "unfinished" not in {warning.id for warning in report.warnings}


def test_those_who_were_served_no_longer_keep_a_run_going(tmp_path: Path) -> None:
    """One model's only instance comes back again and again, and serves who waited; the other's is gone for good."""
    always = {"pool": "qwens", "mean_time_between_us": 200_000, "repair_us": 1000}
    deaths = [{"instance": 0, "at_us": 0}, {"instance": 1, "at_us": 0, "repair_us": 10_000}, always]
    pools = f"[{{name: llamas, instances: 1, model: {LLAMA}}}, {{name: qwens, instances: 1}}]"
    (tmp_path / "requests.csv").write_text(
        f"arrival_time_us,input_tokens,output_tokens,model\n2000,100,5,{QWEN}\n4000,100,5,{LLAMA}\n"
    )
    path = tmp_path / "mine.blis.yaml"
    path.write_text(HEAD + f"workload: {{trace: {{file: requests.csv}}}}\ncluster: {{pools: {pools}}}\n")
    simulation = blis_tui.Simulation(blis_tui.load(path, set={"cluster.failures": deaths}))
    stranded: list[str] = []
    simulation.subscribe("stranded", lambda record: stranded.append(record.request_id))
    simulation.run(max_events=MANY)
    assert simulation.done
    assert list(dict.fromkeys(stranded)) == ["request_0", "request_1"]
    assert [row.state for row in simulation.report().rows] == ["completed", "in-transit"]


FAILURES = st.lists(
    st.builds(
        failure,
        instance=st.sampled_from([None, 0, 1, 2]),
        every_us=st.sampled_from([200, 900, 3000]),
        repair_us=st.sampled_from([None, 0, 100, 700]),
        requests=st.sampled_from(["retry", "lose"]),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=120, deadline=None)
@given(
    failures=FAILURES,
    lifecycle=LIVES,
    bounds=st.none() | st.tuples(st.sampled_from([0, 1]), st.sampled_from([2, 3])),
    windows_us=st.tuples(st.sampled_from([0, 600]), st.sampled_from([0, 900])),
    nodes=st.builds(lambda gpus, most: (node(gpus, most=most),), st.integers(1, 3), st.integers(1, 3)),
    instances=st.none() | st.tuples(st.integers(1, 2), st.integers(1, 2)),
    order=st.sampled_from(["prefill-first", "decode-first"]),
    every_us=st.sampled_from([0, 50, 400]),
)
def test_every_run_ends(
    failures: list[Failure],
    lifecycle: Lifecycle,
    bounds: tuple[int, int] | None,
    windows_us: tuple[int, int],
    nodes: tuple[NodePool, ...],
    instances: tuple[int, int] | None,
    order: str,
    every_us: int,
) -> None:
    scaling = None if bounds is None else scaler(*bounds)
    if instances is None:
        made = varying(*failures, nodes=nodes, scaler=bounds and autoscaler(*bounds))
    else:
        made = going(*failures, nodes=nodes, scaler=scaling, instances=instances, order=order)
    if made.cluster.autoscaler is not None:
        up_us, down_us = windows_us
        asked_for = replace(made.cluster.autoscaler, scale_up_window_us=up_us, scale_down_window_us=down_us)
        made = replace(made, cluster=replace(made.cluster, lifecycle=lifecycle, autoscaler=asked_for))
    cluster = run_to_the_end(made, 8, every_us, LUCKY)
    assert isinstance(cluster.lifecycle, LifecycleControl)
    assert len(cluster.in_transit()) == len(cluster.lifecycle.parked)
