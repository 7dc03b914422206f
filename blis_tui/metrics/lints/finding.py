"""What a check looks at, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.batch import Limits
    from blis_tui.metrics.load import Flow
    from blis_tui.metrics.request_log import RequestTable
    from blis_tui.spec.model import Experiment


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
    """The instance to look at; likewise."""


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
    def busy_us(self) -> int:
        """Durations of all steps."""
        return self.total("busy_us")

    @property
    def gaps_us(self) -> dict[int, int]:
        """How often each inter-token latency occurred, at the engine, over all instances."""
        gaps: dict[int, int] = {}
        for instance in self.cluster.instances:
            for gap_us, count in instance.tallies.itl_us.items():
                gaps[gap_us] = gaps.get(gap_us, 0) + count
        return gaps

    def total(self, name: str) -> int:
        """The sum of a tally over all instances."""
        total = 0
        for instance in self.cluster.instances:
            value: int = getattr(instance.tallies, name)
            total += value
        return total

    @property
    def limits(self) -> Limits:
        """What bounds the first instance; the checks that use it say what an instance is like."""
        return self.cluster.instances[0].batch.limits
