"""Runs shared by several processes: their results are those of one, byte for byte."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pytest

import blis_tui
from blis_tui.base.errors import BlisError, SimulationError
from blis_tui.model import PluginConfig
from blis_tui.runs import shares as module
from blis_tui.runs.shares import SharedRun, simulated_share
from blis_tui.runs.simulation import Simulation
from tests.builders import ListSource
from tests.oracle.draws import at_random
from tests.oracle.fleets import draw_fleet, draw_fleet_with_adapters
from tests.oracle.runs import check_many
from tests.oracle.strategies import draw_overload, draw_scenario, draw_tensorrt_llm, draw_two_phases

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from random import Random

    from blis_tui.model import Experiment
    from tests.oracle.draws import Draw
    from tests.oracle.strategies import Scenario

MAKERS: Final[tuple[Callable[[Draw], Scenario], ...]] = (
    draw_fleet,
    draw_fleet_with_adapters,
    draw_scenario,
    partial(draw_scenario, starved=True),
    partial(draw_scenario, drafts=True),
    partial(draw_scenario, adapters=True),
    partial(draw_scenario, media=True),
    draw_two_phases,
    draw_tensorrt_llm,
    draw_overload,
)
STORE: Final = {"kind": "offload", "tiers": [{"name": "store", "blocks": 900, "shared": True}]}
SHIPPED: Final = blis_tui.load("quickstart", set={"cluster.instances": 5, "workload.requests": 60})


def results(simulation: Simulation) -> tuple[object, ...]:
    """All that a run leaves behind for others to read."""
    cluster = simulation.cluster
    seen = (simulation.now_us, simulation.ended, cluster.arrived, cluster.rejected, cluster.present_us())
    return (simulation.report().to_json(), *simulation.report().rows, *seen)


def in_shares(simulation: Simulation, count: int) -> Simulation:
    """The simulation after its run in shares, one after the other in this process."""
    made = simulation.experiment
    simulation.take_shares([simulated_share(made, number, count) for number in range(count)])
    return simulation


def divided(made: Experiment, random: Random) -> Experiment:
    """The experiment with several instances, none of which others look at."""
    admission = made.policy.admission
    if admission.kind != "token-bucket":
        admission = PluginConfig(kind="always-admit")
    routing = PluginConfig(kind="round-robin")
    policy = replace(made.policy, routing=routing, admission=admission, gateway=None, tenant_budgets=None)
    return replace(
        made,
        policy=policy,
        pools=tuple(replace(pool, role="any", instances=random.randint(2, 3)) for pool in made.pools),
        cluster=replace(made.cluster, disaggregation=None),
        counterfactual=0,
        horizon_us=random.choice([None, None, random.randint(100, 20_000)]),
        warm_up_us=random.choice([0, random.randint(1, 3_000)]),
    )


def test_random_clusters_give_the_same_results() -> None:
    compared = []

    def check(_: Scenario, random: Random) -> None:
        scenario = random.choice(MAKERS)(at_random(random))
        made = divided(scenario.experiment, random)
        with (
            patch("blis_tui.runs.simulation.create_source", side_effect=lambda *_: scenario.source()),
            patch("blis_tui.runs.shares.create_source", side_effect=lambda *_: scenario.source()),
        ):
            try:
                whole, parts = Simulation(made), Simulation(made)
                if whole.why_whole():
                    return
                whole.run()
            except BlisError:
                return
            assert results(in_shares(parts, random.randint(2, len(whole.cluster.instances)))) == results(whole)
            compared.append(made)

    check_many(150, draw_fleet, check)
    assert len(compared) > 50


@pytest.mark.parametrize("jobs", [2, 3, 9])
def test_processes_give_the_same_report(jobs: int) -> None:
    assert blis_tui.run(SHIPPED, jobs=jobs).to_json() == blis_tui.run(SHIPPED).to_json()


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("quickstart", {"cluster.instances": 1}, "there is one instance"),
        ("quickstart", {"policy.routing": "least-loaded"}, "routing `least-loaded` looks at all instances"),
        ("quickstart", {"policy.admission": "tier-shed"}, "admission `tier-shed` looks at all instances"),
        ("quickstart", {"policy.gateway": {}}, "the gateway looks at all instances"),
        ("quickstart", {"policy.deferral": "idle-only"}, "deferred requests wait until all instances are idle"),
        ("quickstart", {"counterfactual": 2}, "`counterfactual` looks at all instances"),
        ("quickstart", {"cluster.signals.results": "step-start"}, "the control plane follows all instances"),
        ("instance-dies", {"policy.routing": "round-robin"}, "instances are started and stopped"),
        ("disaggregation", {}, "prefill and decode are on different instances"),
        ("conversations", {}, "some requests are sent when others have ended"),
        (
            "tenant-budgets",
            {"policy.routing": "round-robin", "policy.tenant_budgets": {"fractions": {"bulk": 0.5}}},
            "budgets of tenants count requests on all instances",
        ),
        ("wide-experts", {}, "the ranks of a replica start their steps together"),
        ("kv-tiers", {"engine.kv_tiers": STORE, "cluster.instances": 3}, "instances share a KV tier"),
    ],
)
def test_what_looks_at_other_instances_stays_whole(name: str, changes: dict[str, object], why: str) -> None:
    made = blis_tui.load(name, set={"workload.requests": 5, "expect": [], **changes})
    assert Simulation(made).why_whole() == why
    assert blis_tui.run(made, jobs=2).to_json() == blis_tui.run(made).to_json()


def test_who_follows_the_events_gets_them_in_order() -> None:
    simulation = Simulation(SHIPPED)
    assert simulation.why_whole() == ""
    simulation.subscribe("all", lambda _: None)
    assert simulation.why_whole() == "records are written in the order of events"
    assert Simulation(SHIPPED, check="all").why_whole() == "invariants are verified after every event"
    begun = Simulation(SHIPPED)
    begun.step()
    assert begun.why_whole() == Simulation(SHIPPED, source=ListSource([])).why_whole() != ""


def test_an_error_is_that_of_one_process() -> None:
    endless = {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [1e15, 0, 0]}
    values = {"workload.requests": 2, "workload.clients.0.output_tokens": 20_000, "latency": endless}
    made = blis_tui.load("quickstart", set=values)
    with pytest.raises(SimulationError) as alone:
        blis_tui.run(made)
    with pytest.raises(SimulationError) as shared:
        blis_tui.run(made, jobs=2)
    assert str(shared.value) == str(alone.value)


def dying(connection: Connection, *_: object) -> None:
    """The work of a process for which there is too little memory."""
    connection.send(3)
    os.kill(os.getpid(), signal.SIGKILL)


def failing(connection: Connection, *_: object) -> None:
    """The work of a process that has come to an error."""
    connection.send(None)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_simulate", dying)
    with pytest.raises(SimulationError, match=r"died \(SIGKILL: was there too little memory"):
        SharedRun(Simulation(SHIPPED), 2).run()


def test_a_run_that_is_stopped_is_where_it_began() -> None:
    simulation = Simulation(SHIPPED)
    shared = SharedRun(simulation, 2)
    shared.stop()
    assert not shared.run()
    assert simulation.events == 0


def test_what_repeats_an_error_in_one_process_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_simulate", failing)
    simulation = Simulation(SHIPPED)
    shared, run = SharedRun(simulation, 2), simulation.run

    def stopped() -> bool:
        shared.stop()
        return run()

    monkeypatch.setattr(simulation, "run", stopped)
    assert not shared.run()
    assert 0 < simulation.events < 100


def test_progress_is_the_sum_over_the_processes() -> None:
    made = blis_tui.load("quickstart", set={"cluster.instances": 2, "workload.requests": 3_000})
    shared, counts = SharedRun(Simulation(made), 2), list[int]()
    assert shared.run(lambda: counts.append(shared.ended))
    assert counts == sorted(counts)
    assert 1_000 < max(counts) <= 3_000
