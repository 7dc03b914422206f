"""Did everybody find an instance?"""

from __future__ import annotations

from blis_tui.metrics.lints.finding import Finding, Seen
from blis_tui.units import percent_text, plural


def stranded(seen: Seen) -> Finding | str:
    """The run ended with requests that no instance came up for."""
    cluster = seen.cluster
    if not seen.done:
        return "the run has not ended yet"
    left, arrived = cluster.arrived - cluster.closed(), cluster.arrived
    if not left or cluster.queue.heap:  # what is still due lies beyond the horizon
        return ""
    first = cluster.in_transit()[0].request_id
    share = percent_text(left, arrived)
    return Finding(
        id="stranded",
        message=f"{plural(left, 'request')} of {arrived:,} ({share}) never found an instance; one is {first}.",
        figures={"stranded": left, "arrived": arrived},
        advice="Let instances that die be repaired, give nodes more room, or raise the autoscaler's max_instances.",
        keys=("cluster.failures", "cluster.nodes", "cluster.autoscaler"),
        request=first,
    )
