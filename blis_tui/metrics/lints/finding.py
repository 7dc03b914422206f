"""What a check looks at, and what it says: a warning, why it cannot be made yet, or ``""`` where nothing is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.profile import Limits
    from blis_tui.metrics.load import Flow
    from blis_tui.metrics.request_log import RequestTable
    from blis_tui.spec.model import Experiment

MANY: Final = 20
"""Requests below which nothing is said about trends and shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A warning about a run."""

    id: str
    """Which check it comes from."""
    severity: str = "warning"
    """`error` (a defect of the simulator, or requests that can never be served) or `warning`."""
    message: str
    """What is wrong, in one sentence."""
    figures: Mapping[str, float]
    """The figures of the message, and those it was judged by; units are in the names."""
    advice: str
    """What to do about it."""
    keys: tuple[str, ...]
    """The keys of the experiment that help."""
    request: str | None = None
    """The request to look at; None where no single one shows it."""
    instance: int | None = None
    """The index of the instance to look at; None where no single one shows it."""


def load_keys(experiment: Experiment) -> tuple[str, ...]:
    """The keys that make an experiment's load lighter, as its workload has them."""
    workload = experiment.workload
    if workload.trace is not None:
        return ("workload.trace.rate_per_s" if workload.trace.rate_per_s is not None else "workload.trace.scale_rate",)
    if workload.stages:
        return ("workload.stages",)
    users = [at for at, one in enumerate(workload.clients) if one.arrivals.kind == CLOSED_LOOP]
    if len(users) == len(workload.clients):
        return tuple(f"workload.clients.{at}.arrivals.users" for at in users)
    return ("workload.rate_per_s",)


def longer_keys(seen: Seen) -> tuple[str, ...]:
    """The keys that let more requests be simulated: where the horizon ended the run, nothing else does."""
    if seen.cluster.queue.head():
        return ("horizon_us",)
    workload = seen.experiment.workload
    if workload.trace is not None and workload.requests is None:
        return ("workload.trace",)
    return ("workload.sessions",) if workload.sessions is not None else ("workload.requests",)


def budget_key(instance: Instance) -> str:
    """The key of the token budget of its steps."""
    traits = instance.batch.traits
    return f"{'policy.batching' if traits.step_tokens_setting else 'engine'}.{traits.budget_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The instances of a pool: what is said about limits is said of instances that are alike."""

    of: str
    """`` of pool NAME``; empty where there is one pool."""
    instances: Sequence[Instance]
    arrived: int
    """Requests that had to do with it."""

    @property
    def routed(self) -> int:
        """Requests sent there."""
        routed = 0
        for instance in self.instances:
            routed += instance.routed
        return routed

    @property
    def limits(self) -> Limits:
        """What bounds each of them."""
        return self.instances[0].batch.limits

    def total(self, name: str) -> int:
        """The sum of a tally over its instances."""
        total = 0
        for instance in self.instances:
            value: int = getattr(instance.tallies, name)
            total += value
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the checks look at: a run as it stands at some moment."""

    experiment: Experiment
    cluster: Cluster
    flow: Flow
    table: RequestTable
    duration_us: int
    """Simulated time until now."""
    done: bool
    """Nothing will happen any more."""

    @property
    def gaps_us(self) -> dict[int, int]:
        """How often each inter-token latency occurred, at the engine, over all instances."""
        gaps: dict[int, int] = {}
        for instance in self.cluster.instances:
            for gap_us, count in instance.tallies.itl_us.items():
                gaps[gap_us] = gaps.get(gap_us, 0) + count
        return gaps

    def by_pool(self) -> list[Group]:
        """The instances, pool by pool."""
        cluster = self.cluster
        names = [*dict.fromkeys(pool.name for pool in cluster.pools)]
        if len(names) == 1:
            return [Group(of="", instances=cluster.instances, arrived=self.flow.total)]
        pools: dict[str, list[Instance]] = {name: [] for name in names}
        for instance, pool in zip(cluster.instances, cluster.pools, strict=True):
            pools[pool.name].append(instance)
        groups = [Group(of=f" of pool {name}", instances=members, arrived=0) for name, members in pools.items()]
        return [replace(group, arrived=group.routed) for group in groups]

    def total(self, name: str) -> int:
        """The sum of a tally over all instances."""
        return Group(of="", instances=self.cluster.instances, arrived=self.flow.total).total(name)

    @property
    def limits(self) -> Limits:
        """What bounds the first instance; the checks that use it say what an instance is like."""
        return self.cluster.instances[0].batch.limits


def worst(found: Iterable[Finding | str]) -> Finding | str:
    """What is said of several pools: the first finding; if there is none, why one of them could not be checked."""
    said = [*found]
    reasons = [one for one in said if isinstance(one, str)]
    return next((one for one in said if isinstance(one, Finding)), max(reasons, default=""))
