"""What a cluster keeps count of while requests come and go, counted again one by one (for invariants)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.admission_control import AdmissionControl
    from blis_tui.cluster.gateway.gateway import GatewayControl
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.instance import Instance


class Count(NamedTuple):
    """One figure."""

    what: str
    kept: int
    found: int
    """What counting again finds."""


def recount(
    queue: EventQueue,
    instances: Sequence[Instance],
    in_flight: int | None,
    admission: AdmissionControl,
    gateway: GatewayControl | None,
) -> list[Count]:
    """Requests in flight, on each instance, on all of them and of all tenants, and those the gateway holds.

    ``in_flight`` is the cluster's own count; None = it keeps none.
    """
    bound = [0] * len(instances)
    for *_, event in queue.heap:
        if event.kind == "queued" and event.instance_index is not None:
            bound[event.instance_index] += 1
    counts = [
        Count(
            f"requests in flight on instance {one.index}",
            one.seen.in_flight,
            bound[one.index] + len(one.waiting.items) + one.seen.running,
        )
        for one in instances
    ]
    total = 0
    for count in counts:
        total += count.found
    if in_flight is not None:
        counts.append(Count("requests in flight", in_flight, total))
    if admission.counts_tenants:
        of_tenants = 0
        for there in admission.in_flight.values():
            of_tenants += there
        counts.append(Count("requests in flight of all tenants", of_tenants, total))
    if gateway is not None:
        counts.append(Count("requests that the gateway holds", len(gateway.queue), len(list(gateway.queue.held()))))
    return counts
