"""Every invariant notices the fault it is about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.invariants import CLUSTER_INVARIANTS, INVARIANTS, STATEMENTS, outcomes
from blis_tui.engine.records import Observers
from blis_tui.engine.request import RequestState
from blis_tui.results.request_log import RequestLog
from tests.builders import ListSource, experiment, request

if TYPE_CHECKING:
    from collections.abc import Callable


def busy() -> Cluster:
    """A cluster in the middle of its work: somebody runs, somebody waits, somebody is done."""
    requests = [request(0, 0, 8, 1), *(request(i, 10, 8, 20, segments=(("s", 4),)) for i in range(1, 5))]
    cluster = Cluster(experiment(max_num_seqs=2), ListSource(requests), RequestLog(), Observers())
    cluster.run(1000, until_us=600)
    assert cluster.instances[0].batch.running
    assert cluster.instances[0].waiting.items
    assert cluster.closed()
    return cluster


def _lose_a_request(cluster: Cluster) -> None:
    waiting = cluster.instances[0].waiting
    waiting.remove(waiting.head())


def _miscount_what_is_in_flight(cluster: Cluster) -> None:
    cluster.instances[0].seen.in_flight += 1


def _confuse_a_state(cluster: Cluster) -> None:
    next(iter(cluster.instances[0].batch.running.values())).state = RequestState.WAITING


def _be_in_two_places(cluster: Cluster) -> None:
    slot, one = next(iter(cluster.instances[0].batch.running.items()))
    cluster.instances[0].batch.stalled[slot] = one


def _hold_blocks_while_waiting(cluster: Cluster) -> None:
    cluster.instances[0].waiting.head().held_blocks = 1


def _turn_the_clock_back(cluster: Cluster) -> None:
    one = cluster.queue.steps[0]
    cluster.queue.steps[0] = (cluster.now - 1, *one[1:])
    cluster.run(1)


def _forget_a_block(cluster: Cluster) -> None:
    cluster.instances[0].pool.free -= 1


def _miscount_a_reference(cluster: Cluster) -> None:
    holders = [one for one in cluster.instances[0].batch.running.values() if one.shared_blocks]
    holders[0].pieces *= 2


def _serve_before_arrival(cluster: Cluster) -> None:
    next(iter(cluster.instances[0].batch.running.values())).scheduled_us = -2


def _complete_before_arrival(cluster: Cluster) -> None:
    done = request(9, 100, 8, 1)
    done.queued_us = done.scheduled_us = done.first_token_us = 100
    done.completed_us = 99
    cluster.ledger.close(done)


def _forget_the_step(cluster: Cluster) -> None:
    cluster.instances[0].loop.step_pending = False


def _peek_at_the_future(cluster: Cluster) -> None:
    cluster.dispatcher.router.policy.seen = list(cluster.instances)  # type: ignore[attr-defined]


FAULTS: list[tuple[str, Callable[[Cluster], None]]] = [
    ("INV-1", _lose_a_request),
    ("INV-1", _miscount_what_is_in_flight),
    ("INV-2", _confuse_a_state),
    ("INV-2", _be_in_two_places),
    ("INV-2", _hold_blocks_while_waiting),
    ("INV-3", _turn_the_clock_back),
    ("INV-4", _forget_a_block),
    ("INV-4", _miscount_a_reference),
    ("INV-5", _serve_before_arrival),
    ("INV-5", _complete_before_arrival),
    ("INV-8", _forget_the_step),
    ("INV-9", _peek_at_the_future),
]


def broken(cluster: Cluster) -> set[str]:
    return {invariant.identifier for invariant in INVARIANTS if invariant.check(cluster)}


def test_nothing_is_wrong_with_a_cluster_at_work() -> None:
    assert broken(busy()) == set()


@pytest.mark.parametrize(("identifier", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_is_noticed(identifier: str, fault: Callable[[Cluster], None]) -> None:
    cluster = busy()
    fault(cluster)
    assert identifier in broken(cluster)


def test_every_invariant_has_a_fault() -> None:
    assert {identifier for identifier, _ in FAULTS} == {invariant.identifier for invariant in INVARIANTS}


def test_the_page_has_every_statement_by_identifier_and_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "semantics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (INV-\S+) \| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE)
    assert rows == [(statement.identifier, statement.name, statement.sentence) for statement in STATEMENTS.values()]
    assert [identifier for identifier, _, _ in rows][:11] == [f"INV-{number}" for number in range(1, 12)]


def test_every_check_has_a_statement_and_its_verdict_has_the_name() -> None:
    cluster = busy()
    assert {invariant.identifier for invariant in (*INVARIANTS, *CLUSTER_INVARIANTS)} == STATEMENTS.keys() - {
        "INV-6",
        "INV-10",
    }
    assert set(outcomes(cluster, verify=True).values()) == {"ok"}
    _turn_the_clock_back(cluster)
    assert outcomes(cluster, verify=True)["INV-3"].startswith("clock monotonicity: the clock went back ")
