"""What a check looks at, and its result: a warning, the reason why it cannot be made yet, or ``""`` for no problem."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.profile import Limits
    from blis_tui.model import Experiment
    from blis_tui.results.request_log import RequestTable
    from blis_tui.results.sections.offered_load import Throughflow

MIN_REQUESTS: Final = 20
"""With fewer requests, checks say nothing about trends and shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A warning about a run."""

    id: str
    """The name of the check."""
    severity: str = "warning"
    """`error` (a defect of the simulator, or requests that could not be served) or `warning`."""
    message: str
    """What is wrong, in one sentence."""
    figures: Mapping[str, float]
    """The figures of the message, and those behind the verdict; units are in the names."""
    advice: str
    """What to do about it."""
    keys: tuple[str, ...]
    """The keys of the experiment to change."""
    request: str | None = None
    """The request to look at; None if no single request shows the problem."""
    instance: int | None = None
    """The index of the instance to look at; None if no single instance shows the problem."""


def load_keys(experiment: Experiment) -> tuple[str, ...]:
    """Return the keys that reduce an experiment's load, depending on its kind of workload."""
    workload = experiment.workload
    if workload.trace is not None:
        return ("workload.trace.rate_per_s" if workload.trace.rate_per_s is not None else "workload.trace.scale_rate",)
    if workload.stages:
        return ("workload.stages",)
    users = [at for at, client in enumerate(workload.clients) if client.arrivals.kind == CLOSED_LOOP]
    if len(users) == len(workload.clients):
        return tuple(f"workload.clients.{at}.arrivals.users" for at in users)
    return ("workload.rate_per_s",)


def longer_keys(seen: LintContext) -> tuple[str, ...]:
    """Return the keys that let more requests be simulated; if the horizon ended the run, only that."""
    if seen.cluster.queue.head():
        return ("horizon_us",)
    workload = seen.experiment.workload
    if workload.trace is not None and workload.requests is None:
        return ("workload.trace",)
    return ("workload.sessions",) if workload.sessions is not None else ("workload.requests",)


def budget_key(instance: Instance) -> str:
    """Return the key of the token budget of an instance's steps."""
    traits = instance.batch.traits
    return f"{'policy.batching' if traits.step_tokens_setting else 'engine'}.{traits.budget_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The instances of a pool; checks of limits report per pool, because its instances are alike."""

    of: str
    """`` of pool NAME``; empty if there is only one pool."""
    instances: Sequence[Instance]
    arrived: int
    """Number of requests that reached the pool."""

    @property
    def routed(self) -> int:
        """Number of requests sent to the pool."""
        return whole_sum([instance.routed for instance in self.instances])

    @property
    def decoded(self) -> int:
        """Number of tokens that the pool's decodes got, those that come together as one."""
        return whole_sum([whole_sum(instance.tallies.itl_us.values()) for instance in self.instances])

    @property
    def limits(self) -> Limits:
        """The limits of each instance."""
        return self.instances[0].batch.limits

    def total(self, name: str) -> int:
        """Return the sum of a tally over the pool's instances."""
        return whole_sum([getattr(instance.tallies, name) for instance in self.instances])


@dataclass(frozen=True, slots=True, kw_only=True)
class LintContext:
    """What the checks look at: a run at some moment."""

    experiment: Experiment
    cluster: Cluster
    flow: Throughflow
    table: RequestTable
    duration_us: int
    """Simulated time until now."""
    done: bool
    """Whether no event follows."""
    found: dict[str, Finding | str] = field(default_factory=dict)
    """What checks have found on which others build, by name."""

    @property
    def gaps_us(self) -> dict[int, int]:
        """How often each inter-token latency occurred at the engine, over all instances."""
        gaps: dict[int, int] = {}
        for instance in self.cluster.instances:
            for gap_us, count in instance.tallies.itl_us.items():
                gaps[gap_us] = gaps.get(gap_us, 0) + count
        return gaps

    def by_pool(self) -> list[Group]:
        """Return the instances, pool by pool."""
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
        """Return the sum of a tally over all instances."""
        return Group(of="", instances=self.cluster.instances, arrived=self.flow.total).total(name)

    @property
    def limits(self) -> Limits:
        """The limits of the first instance, for checks that describe a typical instance."""
        return self.cluster.instances[0].batch.limits


def worst(findings: Iterable[Finding | str]) -> Finding | str:
    """Return the first finding of several pools; without one, the reason why a pool could not be checked."""
    results = [*findings]
    reasons = [result for result in results if isinstance(result, str)]
    return next((result for result in results if isinstance(result, Finding)), max(reasons, default=""))
