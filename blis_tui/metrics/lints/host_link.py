"""Is host memory there for somebody?"""

from __future__ import annotations

from blis_tui.metrics.lints.finding import Finding, Seen


def host_link(seen: Seen) -> Finding | str:
    """Host memory is described, and nobody is ever swapped there."""
    cluster = seen.cluster
    described = [pool.engine.host_link for pool in cluster.pools if pool.engine.host_link is not None]
    if not described or any(instance.batch.host is not None for instance in cluster.instances):
        return ""
    restore = seen.experiment.policy.preemption_restore
    return Finding(
        id="host-link",
        message=f"engine.host_link has no effect: `restore: {restore}` swaps nothing to the host.",
        figures={"preemptions": seen.total("preemptions")},
        advice="Set policy.preemption.restore to swap or auto, or leave engine.host_link out.",
        keys=("policy.preemption.restore", "engine.host_link"),
    )
