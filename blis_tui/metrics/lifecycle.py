"""The report's section on instances that come and go."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.cluster.life import accelerators
from blis_tui.metrics.stats import OMITTED_IF_ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.spec.model import Experiment

_US_PER_HOUR: Final = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingEvent:
    """A decision of the autoscaler that took effect."""

    time_us: int
    """When it took effect."""
    pool: str
    """The pool that it concerns."""
    change: int
    """Number of instances added, or (negative) removed."""
    reason: str
    """The reason for the decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLife:
    """How an instance ended, and how long it held its accelerators."""

    instance: int
    """Its index in the cluster, from 0."""
    pool: str
    """The name of its pool."""
    state: str
    """``scheduling``, ``loading``, ``warming-up``, ``active``, ``draining``, ``terminated`` or ``failed``."""
    held_us: int
    """How long it held its GPUs: from its placement until it was terminated, failed for good, or the run ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleReport:
    """Instances that came and went; left out where none can.

    An instance holds its accelerators from its placement until it is terminated or fails for good, including loading
    and repair.
    """

    failures: int
    """Failures of instances."""
    retries: int
    """How often requests had to leave their instance and restart."""
    transfers_broken_off: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """KV transfers aborted because one of their instances went away; left out without disaggregation."""
    stranded: int
    """Requests waiting for an instance at the end."""
    scaled_up: int
    """Instances that the autoscaler added."""
    scaled_down: int
    """Instances that the autoscaler removed."""
    instance_hours: float
    """Hours for which instances held their GPUs, summed over the instances."""
    gpu_hours: float
    """Hours for which GPUs were held: each instance's hours times the number of its GPUs."""
    cost: float | None
    """Price of the nodes' time, in the currency of ``cost_per_hour``: of each node from when it is ready until it is
    returned; None if no node has a price."""
    instances: tuple[InstanceLife, ...]
    """Every instance that ever existed, in order of index."""
    scaling: tuple[ScalingEvent, ...]
    """The autoscaler's actions, in order of time."""


def lifecycle_report(experiment: Experiment, cluster: Cluster, now_us: int) -> LifecycleReport | None:
    """Return the section on the lifecycle; None if instances neither come nor go."""
    if not experiment.cluster.varies:
        return None
    lifecycle, dispatcher = cluster.lifecycle, cluster.dispatcher
    lives = tuple(
        InstanceLife(
            instance=index,
            pool=cluster.pools[index].name,
            state=life.state,
            held_us=lifecycle.held_us(index, now_us),
        )
        for index, life in enumerate(lifecycle.lives)
    )
    held_us = gpu_us = up = down = 0
    for index, life in enumerate(lives):
        held_us += life.held_us
        gpu_us += life.held_us * accelerators(cluster.pools[index])
    for _, _, change, _ in lifecycle.scaled:
        up += max(change, 0)
        down += max(-change, 0)
    return LifecycleReport(
        failures=lifecycle.failed,
        retries=lifecycle.retried,
        transfers_broken_off=dispatcher.broken_off if dispatcher.splits else None,
        stranded=len(lifecycle.parked),
        scaled_up=up,
        scaled_down=down,
        instance_hours=held_us / _US_PER_HOUR,
        gpu_hours=gpu_us / _US_PER_HOUR,
        cost=_cost(experiment, lifecycle.node_us(now_us)),
        instances=lives,
        scaling=tuple(
            ScalingEvent(time_us=time_us, pool=pool, change=change, reason=reason)
            for time_us, pool, change, reason in lifecycle.scaled
        ),
    )


def _cost(experiment: Experiment, node_us: Sequence[int]) -> float | None:
    costs = [
        time_us / _US_PER_HOUR * pool.cost_per_hour
        for pool, time_us in zip(experiment.cluster.nodes, node_us, strict=True)
        if pool.cost_per_hour is not None
    ]
    total = 0.0
    for cost in costs:
        total += cost
    return total if costs else None
