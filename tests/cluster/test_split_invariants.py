"""Every invariant of disaggregation notices the fault it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.cluster.cluster import Cluster
from blis_tui.cluster.invariants import SPLIT_INVARIANTS
from blis_tui.cluster.options.disaggregation import Splitter
from blis_tui.engine.records import Observers
from blis_tui.engine.request import handover_of
from blis_tui.results.request_log import RequestLog
from tests.builders import ListSource, experiment, request
from tests.cluster.test_disaggregation import split

if TYPE_CHECKING:
    from collections.abc import Callable


def busy() -> Cluster:
    """Somebody's KV blocks travel, somebody decodes."""
    requests = [request(0, 0, 8, 20), request(1, 110, 8, 3)]
    made = split(base_latency_us=100)
    cluster = Cluster(made, ListSource(requests), RequestLog(detours=True), Observers())
    cluster.run(1000, until_us=300)
    assert cluster.instances[1].batch.running
    assert splitter_of(cluster).link.active == 1
    return cluster


def splitter_of(cluster: Cluster) -> Splitter:
    assert isinstance(cluster.dispatcher, Splitter)
    return cluster.dispatcher


def _decode_before_the_transfer(cluster: Cluster) -> None:
    [one] = cluster.instances[1].batch.running.values()
    handover_of(one).transfer_us = -1


def _prefill_where_answers_are_decoded(cluster: Cluster) -> None:
    [one] = cluster.instances[1].batch.running.values()
    handover_of(one).prefilled = False


def _forget_a_transfer(cluster: Cluster) -> None:
    splitter_of(cluster).arrived -= 1


def _miscount_the_link(cluster: Cluster) -> None:
    splitter_of(cluster).link.active += 1


def _transfer_before_the_prefill(cluster: Cluster) -> None:
    [one] = splitter_of(cluster).transferring()
    handover_of(one).transfer_start_us = one.arrival_us - 1


def _arrive_tomorrow(cluster: Cluster) -> None:
    [one] = cluster.instances[1].batch.running.values()
    handover_of(one).transfer_us = 10**6


def _change_a_role(cluster: Cluster) -> None:
    cluster.pools[1] = cluster.pools[0]


def _choose_from_the_wrong_role(cluster: Cluster) -> None:
    splitter_of(cluster).decode.fleet.include(0)


def _be_in_two_places(cluster: Cluster) -> None:
    [one] = splitter_of(cluster).transferring()
    cluster.instances[1].waiting.push(one)


FAULTS: list[tuple[str, Callable[[Cluster], None]]] = [
    ("INV-PD-1", _decode_before_the_transfer),
    ("INV-PD-2", _prefill_where_answers_are_decoded),
    ("INV-PD-3", _forget_a_transfer),
    ("INV-PD-3", _miscount_the_link),
    ("INV-PD-4", _transfer_before_the_prefill),
    ("INV-PD-4", _arrive_tomorrow),
    ("INV-PD-5", _change_a_role),
    ("INV-PD-5", _choose_from_the_wrong_role),
    ("INV-PD-6", _be_in_two_places),
]


def broken(cluster: Cluster) -> set[str]:
    return {invariant.identifier for invariant in SPLIT_INVARIANTS if invariant.check(cluster)}


def test_nothing_is_wrong_with_requests_on_two_instances() -> None:
    cluster = busy()
    assert broken(cluster) == set()
    cluster.run(1000)
    assert broken(cluster) == set()


def test_nothing_is_wrong_without_disaggregation() -> None:
    cluster = Cluster(experiment(), ListSource([request(0, 0, 8, 3)]), RequestLog(), Observers())
    cluster.run(3)
    assert broken(cluster) == set()


@pytest.mark.parametrize(("identifier", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_is_noticed(identifier: str, fault: Callable[[Cluster], None]) -> None:
    cluster = busy()
    fault(cluster)
    assert identifier in broken(cluster)


def test_every_invariant_has_a_fault() -> None:
    assert {identifier for identifier, _ in FAULTS} == {invariant.identifier for invariant in SPLIT_INVARIANTS}
