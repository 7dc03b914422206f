"""Statements about signals and sessions: what they find when something is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.base.errors import InvariantError
from blis_tui.cluster.invariants import CONTROL_INVARIANTS, outcomes
from blis_tui.runs.simulation import Simulation
from blis_tui.workload.interactive import InteractiveSource
from tests.cluster.fleets import fleet

if TYPE_CHECKING:
    from collections.abc import Callable


def busy() -> Simulation:
    """Conversations on instances whose figures are old."""
    changes = {
        "workload.sessions": 6,
        "latency": "roofline",
        "policy": "blis",
        "policy.routing": "least-loaded",
        "cluster.signals": {"refresh_interval_us": 400_000},
    }
    simulation = Simulation(blis_tui.load("conversations", set=changes))
    simulation.run(max_events=150)
    return simulation


def _see_the_present(simulation: Simulation) -> None:
    board = simulation.cluster.registry.board
    board.touched.clear()
    board.waiting[0] += 1


def _count_too_many(simulation: Simulation) -> None:
    board = simulation.cluster.registry.board
    board.touched.clear()
    board.in_flight[1] += 1


def _forget_to_renew(simulation: Simulation) -> None:
    simulation.cluster.registry.board.refreshed_us -= 400_000


def _renew_tomorrow(simulation: Simulation) -> None:
    simulation.cluster.registry.board.refreshed_us += 10**9


def source_of(simulation: Simulation) -> InteractiveSource:
    source = simulation.cluster.source
    assert isinstance(source, InteractiveSource)
    return source


def _lose_a_session(simulation: Simulation) -> None:
    source_of(simulation)._sessions.popitem()


def _end_one_twice(simulation: Simulation) -> None:
    source_of(simulation)._cancelled += 1


def _forget_its_calls(simulation: Simulation) -> None:
    source = source_of(simulation)
    source._next.clear()
    source._senders.clear()


FAULTS: list[tuple[str, Callable[[Simulation], None]]] = [
    ("INV-7", _see_the_present),
    ("INV-7", _count_too_many),
    ("INV-7", _forget_to_renew),
    ("INV-7", _renew_tomorrow),
    ("INV-11", _lose_a_session),
    ("INV-11", _end_one_twice),
    ("INV-11", _forget_its_calls),
]


@pytest.mark.parametrize(("identifier", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_is_noticed_and_named(identifier: str, fault: Callable[[Simulation], None]) -> None:
    simulation = busy()
    assert not [invariant.identifier for invariant in CONTROL_INVARIANTS if invariant.check(simulation.cluster)]
    fault(simulation)
    assert [invariant.identifier for invariant in CONTROL_INVARIANTS if invariant.check(simulation.cluster)] == [
        identifier
    ]
    with pytest.raises(InvariantError, match=identifier):
        simulation.verify()
    assert identifier in outcomes(simulation.cluster, verify=True)


def test_every_invariant_has_a_fault() -> None:
    assert {identifier for identifier, _ in FAULTS} == {invariant.identifier for invariant in CONTROL_INVARIANTS}


@pytest.mark.parametrize("name", ["WEIGHTED", "GATEWAY", "SPLIT", "GROWING"])
def test_nothing_is_wrong_with_a_cluster_at_work(name: str) -> None:
    simulation = Simulation(fleet(name))
    for _ in range(40):
        simulation.run(max_events=25)
        assert not [
            invariant.check(simulation.cluster)
            for invariant in CONTROL_INVARIANTS
            if invariant.check(simulation.cluster)
        ]


def test_reports_list_them_only_where_one_does_not_hold() -> None:
    assert not {"INV-7", "INV-11"} & set(busy().report().invariants)


UNSEEN: dict[str, dict[str, object]] = {
    "the place of a request whose client gave up": {
        "seed": 12,
        "policy.batching": "sglang",
        "policy.gateway": {},
        "cluster.instances": 3,
        "engine": {"kv_blocks": 200, "max_num_seqs": 4, "lora": {}},
        "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [5000, 20, 30]},
        "workload": {
            "requests": 40,
            "rate_per_s": 29,
            "clients": [
                {
                    "id": "c0",
                    "input_tokens": {"kind": "uniform", "min": 1, "max": 20},
                    "output_tokens": {"kind": "uniform", "min": 1, "max": 58},
                    "timeout_us": 5000,
                    "adapters": {"count": 2},
                }
            ],
        },
    },
    "blocks reserved for a prompt that does not arrive": {
        "policy.routing": "least-loaded",
        "cluster": {
            "instances": 3,
            "disaggregation": {
                "prefill_instances": 1,
                "decode_instances": 2,
                "order": "decode-first",
                "transfer": {"bandwidth_gb_per_s": 1},
            },
            "failures": [{"instance": 0, "at_us": at, "repair_us": 1000} for at in range(100_000, 900_000, 50_000)],
        },
        "workload.requests": 20,
    },
    "the queue of an instance that has to go": {
        "seed": 1,
        "policy.routing": "least-loaded",
        "policy.gateway": {},
        "cluster": {
            "instances": 3,
            "autoscaler": {
                "interval_us": 100_000,
                "max_instances": 4,
                "avg_input_tokens": 1,
                "scale_down_stabilization_window_us": 0,
            },
            "lifecycle": {"drain": "redirect"},
        },
        "engine.max_num_seqs": 1,
        "workload.rate_per_s": 200,
        "workload.requests": 60,
    },
}


@pytest.mark.parametrize("what", UNSEEN)
def test_what_becomes_free_without_an_event_on_its_instance_is_seen(what: str) -> None:
    simulation = Simulation(blis_tui.load("quickstart", set=UNSEEN[what]), check="all")
    simulation.run()
    assert set(simulation.report().invariants.values()) == {"ok"}
