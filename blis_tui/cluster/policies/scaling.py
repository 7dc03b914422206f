"""Rules of the autoscaler that count instances, beside its own that compares KV tokens."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.units import plural
from blis_tui.cluster.policy import SCALING
from blis_tui.model.keys import SMALLEST
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from blis_tui.cluster.policy import ScaledGroup
    from blis_tui.model import Autoscaler

_PERIOD_US: Final = 15_000_000
_MOST_PODS: Final = 4
_MOST_FACTOR: Final = 2
"""By default, 4 pods or 100 % may be added in 15 s, whichever is more; all may be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaSettings:
    """Settings: the metric, and what each instance should have of it."""

    metric: str = setting(
        "What is measured: `num_requests_waiting` and `num_requests_running` of vLLM (requests that wait for an"
        " instance to start count as waiting), or `kv_cache_usage_perc`, a share from 0 to 1.",
        default="num_requests_waiting",
        enum=["num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"],
    )
    target: float = setting(
        "Its `averageValue`: how much of it an instance should have.", default=5.0, minimum=SMALLEST, maximum=1e9
    )
    source: str = setting(
        "`External`: the sum is divided by the target, as with KEDA. `Pods`: the mean over instances that serve is"
        " compared with it; while others start, they count as idle.",
        default="External",
        enum=["External", "Pods"],
    )
    tolerance: float = setting(
        "Nothing is changed while the ratio of metric and target is this close to 1.",
        default=0.1,
        minimum=0,
        maximum=1e9,
    )


@SCALING.plugin("hpa", "As Kubernetes' HorizontalPodAutoscaler, with its default policies.", HpaSettings)
class HorizontalPodAutoscaler:
    """Kubernetes' ``autoscaling/v2``: a ratio to a target, stabilized by the recommendations of a window.

    After its controller (``pkg/controller/podautoscaler``, ``replica_calculator.go`` and ``horizontal.go``), as it does
    with a ``behavior``: the autoscaler's two windows, and the default policies. (Without one, it allows up to 4, or
    twice as many as there are.) Metrics are always there, and of the present.
    """

    def __init__(self, settings: HpaSettings, autoscaler: Autoscaler) -> None:
        self._settings = settings
        self._up_us, self._down_us = autoscaler.scale_up_window_us, autoscaler.scale_down_window_us
        self._recommended: dict[str, list[tuple[int, int]]] = {}
        """Group -> time and value of recommendations."""
        self._counts: dict[str, list[tuple[int, int]]] = {}
        """Group -> time and number of instances at each evaluation."""
        self.rule = (
            f"Each instance should have {settings.target:g} of {settings.metric} ({settings.source}, tolerance"
            f" {100 * settings.tolerance:g} %)."
        )

    def wanted(self, group: ScaledGroup, now_us: int) -> tuple[int, str]:
        """Return the recommendation, stabilized and limited, and what it rests on."""
        desired, reason = self._desired(group)
        stable, within = self._stabilized(group, desired, now_us)
        most = self._most(group, now_us)
        if stable > most:
            return most, f"{reason}, limited to {most} within {_PERIOD_US // 1_000_000} s"
        return stable, f"{reason}{within}"

    def state(self) -> tuple[object, ...]:
        """Return the recommendations and counts it remembers."""
        return tuple(
            (name, tuple(self._recommended[name]), tuple(counts)) for name, counts in sorted(self._counts.items())
        )

    def _desired(self, group: ScaledGroup) -> tuple[int, str]:
        """Return how many instances the metric asks for by itself."""
        settings = self._settings
        total = {
            "num_requests_waiting": float(group.waiting + group.outside),
            "num_requests_running": float(group.running),
        }.get(settings.metric, group.kv_utilization)
        shown = f"{total:.2f}" if settings.metric == "kv_cache_usage_perc" else f"{total:,.0f}"
        if settings.source == "External":
            desired = ceil(total / settings.target)
            if group.instances and self._tolerated(total / (settings.target * group.instances)):
                desired = group.instances
        else:
            desired = self._of_pods(group, total)
        reason = f"{settings.metric} is {shown} in total, target {settings.target:g} per instance"
        return desired, f"{reason}: {plural(desired, 'instance')}"

    def _of_pods(self, group: ScaledGroup, total: float) -> int:
        """Return what a metric of pods asks for; those that start are idle where more are asked for."""
        current, target = group.instances, self._settings.target
        if not group.serving:
            return current
        ratio, pods = total / group.serving / target, group.serving
        starting = current - group.serving
        if starting > 0 and ratio > 1.0:
            pods = current
            ratio = total / pods / target
            if ratio < 1.0:
                return current
        return current if self._tolerated(ratio) else ceil(ratio * pods)

    def _tolerated(self, ratio: float) -> bool:
        return abs(1.0 - ratio) <= self._settings.tolerance

    def _stabilized(self, group: ScaledGroup, desired: int, now_us: int) -> tuple[int, str]:
        """Return the number nearest to the present one between the least and the most recommended in the windows."""
        past = self._recommended.setdefault(group.name, [(now_us, group.instances)])
        up = min([desired, *(value for at, value in past if at > now_us - self._up_us)])
        down = max([desired, *(value for at, value in past if at > now_us - self._down_us)])
        oldest_us = now_us - max(self._up_us, self._down_us)
        past[:] = [*(entry for entry in past if entry[0] > oldest_us), (now_us, desired)]
        stable = min(max(group.instances, up), down)
        if stable == desired:
            return stable, ""
        window_us = self._up_us if stable < desired else self._down_us
        return stable, f", held at {stable} by the window of {window_us / 1e6:g} s"

    def _most(self, group: ScaledGroup, now_us: int) -> int:
        """Return how many there may be: by the number before the first decision within the period."""
        counts = self._counts.setdefault(group.name, [])
        counts.append((now_us, group.instances))
        while counts[0][0] <= now_us - _PERIOD_US:
            del counts[0]
        begun = counts[0][1]
        return max(begun + _MOST_PODS, begun * _MOST_FACTOR, group.instances)
