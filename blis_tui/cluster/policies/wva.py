"""The saturation analyzer of llm-d's Workload Variant Autoscaler, by the shares of spare KV cache and queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.units import plural
from blis_tui.cluster.policies.scaling import Windows
from blis_tui.cluster.policy import SCALING
from blis_tui.model.keys import SMALLEST
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from blis_tui.cluster.policy import ScaledGroup
    from blis_tui.model import Autoscaler

_FEWEST: Final = 2
"""An instance goes only if so many are not saturated (``MinNonSaturatedReplicasForScaleDown``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WvaSettings:
    """Settings: when an instance is saturated, and how much the others should have to spare."""

    kv_utilization_threshold: float = setting(
        "`kvCacheThreshold`: from this share of its KV cache in use on, an instance is saturated.",
        default=0.8,
        minimum=SMALLEST,
        maximum=1,
    )
    queue_length_threshold: float = setting(
        "`queueLengthThreshold`: from so many waiting requests on, an instance is saturated.",
        default=5.0,
        minimum=SMALLEST,
        maximum=1e9,
    )
    kv_spare_trigger: float = setting(
        "`kvSpareTrigger`: an instance is added if those that are not saturated lack on average less than this share"
        " of their KV cache to the threshold.",
        default=0.1,
        minimum=0,
        maximum=1,
    )
    queue_spare_trigger: float = setting(
        "`queueSpareTrigger`: likewise, if they lack on average fewer waiting requests than this to the threshold.",
        default=3.0,
        minimum=0,
        maximum=1e9,
    )


class _Spare(NamedTuple):
    """What instances that are not saturated lack to the thresholds, on average."""

    number: int
    kv: float
    queue: float


@SCALING.plugin(
    "wva", "As the saturation analyzer of llm-d's Workload Variant Autoscaler: one instance more or less.", WvaSettings
)
class WorkloadVariantAutoscaler:
    """One instance more where little is to spare, one less where the others could take its load.

    After ``internal/saturation/analyzer.go``: the analyzer by percentages. Its other one, by tokens, is the
    autoscaler without a rule. It decides nothing while instances come or go. A HorizontalPodAutoscaler or KEDA carries
    its decisions out: by the autoscaler's two windows.
    """

    def __init__(self, settings: WvaSettings, autoscaler: Autoscaler) -> None:
        self._settings = settings
        self._windows = Windows(autoscaler)
        self._desired: dict[str, int] = {}
        """Group -> the number that it last asked for, to which it holds until there are so many."""
        self.rule = (
            f"Instances that are not saturated (KV cache {100 * settings.kv_utilization_threshold:g} %,"
            f" {settings.queue_length_threshold:g} waiting) should lack {100 * settings.kv_spare_trigger:g} % and"
            f" {settings.queue_spare_trigger:g} waiting to that, on average."
        )

    def wanted(self, group: ScaledGroup, now_us: int) -> tuple[int, str]:
        """Return what it last asked for until it is there, and then what the analysis asks for."""
        there = group.instances
        desired = self._desired.get(group.name, there)
        if desired != there:
            reason = f"{plural(desired, 'instance')} asked for, {there} there"
        elif group.serving != there:
            reason = f"{group.serving} of {plural(there, 'instance')} serving"
        else:
            change, reason = self._analyzed(group)
            desired = min(max(there + change, group.least), group.most)
        self._desired[group.name] = desired
        stable, within = self._windows.stable(group, desired, now_us)
        return stable, f"{reason}: {plural(desired, 'instance')}{within}"

    def state(self) -> tuple[object, ...]:
        """Return the recommendations and requests it remembers."""
        return tuple((name, tuple(past), self._desired[name]) for name, past in sorted(self._windows.past.items()))

    def _spare(self, group: ScaledGroup) -> _Spare:
        """Return what there is to spare; nothing if all are saturated."""
        settings = self._settings
        kv = queue = 0.0
        count = 0
        for load in group.loads:
            if (
                load.kv_utilization >= settings.kv_utilization_threshold
                or load.waiting >= settings.queue_length_threshold
            ):
                continue
            kv += settings.kv_utilization_threshold - load.kv_utilization
            queue += settings.queue_length_threshold - load.waiting
            count += 1
        return _Spare(count, kv / count, queue / count) if count else _Spare(0, 0.0, 0.0)

    def _analyzed(self, group: ScaledGroup) -> tuple[int, str]:
        """Return how many instances should come or go, and why."""
        settings, there = self._settings, group.instances
        if not group.loads:
            return 0, "no instance to measure"
        spare = self._spare(group)
        figures = (
            f"{spare.number} of {there} not saturated, with {100 * spare.kv:.1f} % KV cache"
            f" and {spare.queue:.1f} waiting to spare"
        )
        if spare.kv < settings.kv_spare_trigger or spare.queue < settings.queue_spare_trigger:
            return 1, figures
        if spare.number < _FEWEST:
            return 0, figures
        factor = spare.number / (spare.number - 1)
        kv = settings.kv_utilization_threshold - (settings.kv_utilization_threshold - spare.kv) * factor
        queue = settings.queue_length_threshold - (settings.queue_length_threshold - spare.queue) * factor
        safe = kv >= settings.kv_spare_trigger and queue >= settings.queue_spare_trigger
        return -1 if safe else 0, f"{figures}, {100 * kv:.1f} % and {queue:.1f} with one less"
