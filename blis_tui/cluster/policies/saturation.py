"""Saturation detectors: how busy are the instances? While they are saturated, the gateway dispatches no request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.policy import SATURATION
from blis_tui.keys import SMALLEST
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Fleet
    from blis_tui.registry import NoSettings


def utilization(fleet: Fleet, queue_depth: float, kv_utilization: float) -> float:
    """Mean over instances of the larger of queue / ``queue_depth`` and KV utilization / ``kv_utilization``.

    1 and more means saturated; so does a fleet without instances.
    """
    if not len(fleet):
        return 1.0
    total = 0.0
    for waiting, share in zip(fleet.column("waiting"), fleet.column("kv_utilization"), strict=True):
        total += max(waiting / queue_depth, share / kv_utilization)
    return total / len(fleet)


def concurrency(fleet: Fleet, per_instance: int) -> float:
    """Requests in flight relative to the maximum for all instances; 1 for a fleet without instances."""
    if not len(fleet):
        return 1.0
    in_flight = 0.0
    for count in fleet.column("in_flight"):
        in_flight += count
    return in_flight / (len(fleet) * per_instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencySettings:
    """Settings: what counts as saturated."""

    max_concurrency: int = setting(
        "Maximum number of requests in flight that an instance should have.", default=100, minimum=1, maximum=10**9
    )


@SATURATION.plugin("concurrency", "By requests in flight, of all instances together.", ConcurrencySettings)
class Concurrency:
    """In-flight requests / (instances x maximum per instance)."""

    def __init__(self, settings: ConcurrencySettings) -> None:
        self._most = settings.max_concurrency
        self.rule = f"Saturation is requests in flight / (instances x {self._most})."

    def level(self, fleet: Fleet) -> float:
        """Return the share of the maximum that is in flight."""
        return concurrency(fleet, self._most)


@SATURATION.plugin("never", "The instances never count as saturated.")
class Never:
    """Never reports saturation."""

    rule = "The instances never count as saturated."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def level(self, fleet: Fleet) -> float:  # noqa: ARG002
        """Return 0."""
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationSettings:
    """Settings: what counts as saturated."""

    queue_depth_threshold: float = setting(
        "Queue length at which an instance counts as saturated.", default=5.0, minimum=SMALLEST, maximum=1e9
    )
    kv_utilization_threshold: float = setting(
        "Share of KV blocks in use at which an instance counts as saturated.",
        default=0.8,
        minimum=SMALLEST,
        maximum=1,
    )


@SATURATION.plugin("utilization", "By queues and KV caches, in the mean over instances.", UtilizationSettings)
class Utilization:
    """The mean over instances of the larger of two ratios."""

    def __init__(self, settings: UtilizationSettings) -> None:
        self._queue, self._kv = settings.queue_depth_threshold, settings.kv_utilization_threshold
        self.rule = (
            f"Saturation is the mean of the larger of queue / {self._queue:g} and KV utilization / {self._kv:g}."
        )

    def level(self, fleet: Fleet) -> float:
        """The mean of max(queue / threshold, KV utilization / threshold)."""
        return utilization(fleet, self._queue, self._kv)
