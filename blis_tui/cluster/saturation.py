"""How busy a fleet is, in one figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Fleet


def utilization(fleet: Fleet, queue_depth: float, kv_utilization: float) -> float:
    """Mean over instances of the larger of queue / ``queue_depth`` and KV utilization / ``kv_utilization``.

    1 and more is saturated; so is a fleet without instances.
    """
    if not len(fleet):
        return 1.0
    total = 0.0
    for waiting, share in zip(fleet.column("waiting"), fleet.column("kv_utilization"), strict=True):
        total += max(waiting / queue_depth, share / kv_utilization)
    return total / len(fleet)


def concurrency(fleet: Fleet, per_instance: int) -> float:
    """Requests in flight of all that the instances should have at most; 1 for a fleet without instances."""
    if not len(fleet):
        return 1.0
    in_flight = 0.0
    for count in fleet.column("in_flight"):
        in_flight += count
    return in_flight / (len(fleet) * per_instance)
