"""Rules of the autoscaler that count instances, beside its own that compares KV tokens."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (schemas are generated from the types of settings)
from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.units import plural
from blis_tui.cluster.policy import SCALING
from blis_tui.model.keys import SMALLEST
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from blis_tui.cluster.policy import ScaledGroup
    from blis_tui.model import Autoscaler

_SECOND_US: Final = 1_000_000
_LIMIT_FACTOR: Final = 2
_LIMIT_LEAST: Final = 4
"""Without a ``behavior``: twice as many as there are, or 4 (``scaleUpLimitFactor``, ``scaleUpLimitMinimum``)."""


class _Policy(NamedTuple):
    """How many instances may come or go within a period."""

    percent: bool
    """Whether ``value`` is a share, in percent, of those at the begin of the period."""
    value: int
    period_us: int

    def grown(self, begun: int) -> int:
        """Return how many there may be."""
        return ceil(begun * (1 + self.value / 100)) if self.percent else begun + self.value

    def shrunk(self, begun: int) -> int:
        """Return how many must stay."""
        return int(begun * (1 - self.value / 100)) if self.percent else begun - self.value


_UP: Final = (_Policy(False, 4, 15 * _SECOND_US), _Policy(True, 100, 15 * _SECOND_US))
_DOWN: Final = (_Policy(True, 100, 15 * _SECOND_US),)
"""By default, 4 pods or 100 % may be added in 15 s, whichever is more; all may be removed."""
_POLICY: Final[Mapping[str, object]] = {
    "properties": {
        "value": {"description": "How many, or how many percent.", "type": "integer", "minimum": 1, "maximum": 10**9},
        "period_s": {"description": "The period in seconds.", "type": "integer", "minimum": 1, "maximum": 1800},
    },
    "required": ["value", "period_s"],
    "additionalProperties": False,
}
"""The schema of a policy, which has the keys of Kubernetes'."""
_SELECT: Final = ["Max", "Min", "Disabled"]


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
    behavior: bool = setting(
        "Whether it has a `behavior`. Without one it goes at once to 4 or to twice as many as there are, whichever is"
        " more, and has no policies and no window for more instances.",
        default=True,
    )
    scale_up_pods: Mapping[str, float] | None = setting(
        "How many instances may come within a period. Without this and the next key: 4, or as many as there are, in"
        " 15 s.",
        default=None,
        **_POLICY,
    )
    scale_up_percent: Mapping[str, float] | None = setting(
        "How many may come, in percent of those at the begin of the period.", default=None, **_POLICY
    )
    scale_up_select: str = setting(
        "Of these two, which counts: the larger, the smaller, or neither, as none may come.",
        default="Max",
        enum=_SELECT,
    )
    scale_down_pods: Mapping[str, float] | None = setting(
        "How many instances may go within a period. Without this and the next key: all in 15 s.",
        default=None,
        **_POLICY,
    )
    scale_down_percent: Mapping[str, float] | None = setting(
        "How many may go, in percent of those at the begin of the period.", default=None, **_POLICY
    )
    scale_down_select: str = setting(
        "Of these two, which counts: the larger, the smaller, or neither, as none may go.",
        default="Max",
        enum=_SELECT,
    )


def _policies(
    pods: Mapping[str, float] | None, percent: Mapping[str, float] | None, default: tuple[_Policy, ...]
) -> tuple[_Policy, ...]:
    """Return the policies of a direction: those given, or the default ones."""
    given = [
        _Policy(share, int(one["value"]), int(one["period_s"]) * _SECOND_US)
        for share, one in ((False, pods), (True, percent))
        if one is not None
    ]
    return tuple(given) or default


class Windows:
    """The stabilization windows of a HorizontalPodAutoscaler: what was recommended for each group, and when.

    Attributes:
        past: group -> time and value of the recommendations that still matter.
    """

    def __init__(self, autoscaler: Autoscaler) -> None:
        self.past: dict[str, list[tuple[int, int]]] = {}
        self._up_us, self._down_us = autoscaler.scale_up_window_us, autoscaler.scale_down_window_us

    def stable(self, group: ScaledGroup, desired: int, now_us: int) -> tuple[int, str]:
        """Return the number nearest to the present one between the least and the most recommended in the windows."""
        past = self.past.setdefault(group.name, [(now_us, group.instances)])
        up = min([desired, *(value for at, value in past if at > now_us - self._up_us)])
        down = max([desired, *(value for at, value in past if at > now_us - self._down_us)])
        oldest_us = now_us - max(self._up_us, self._down_us)
        past[:] = [*(entry for entry in past if entry[0] > oldest_us), (now_us, desired)]
        stable = min(max(group.instances, up), down)
        if stable == desired:
            return stable, ""
        window_us = self._up_us if stable < desired else self._down_us
        return stable, f", held at {stable} by the window of {window_us / 1e6:g} s"

    def highest(self, group: ScaledGroup, desired: int, now_us: int) -> tuple[int, str]:
        """Return the most recommended in the window for fewer, as without a ``behavior``."""
        past = self.past.setdefault(group.name, [(now_us, group.instances)])
        past[:] = [*(entry for entry in past if entry[0] >= now_us - self._down_us), (now_us, desired)]
        stable = max(value for _, value in past)
        held = "" if stable == desired else f", held at {stable} by the window of {self._down_us / 1e6:g} s"
        return stable, held


@SCALING.plugin("hpa", "As Kubernetes' HorizontalPodAutoscaler.", HpaSettings)
class HorizontalPodAutoscaler:
    """Kubernetes' ``autoscaling/v2``: a ratio to a target, stabilized by the recommendations of a window.

    After its controller (``pkg/controller/podautoscaler``, ``replica_calculator.go`` and ``horizontal.go``): with a
    ``behavior`` by the autoscaler's two windows and the policies, else by the window of its ``scale_down`` and a limit.
    Metrics are always there, and of the present.
    """

    def __init__(self, settings: HpaSettings, autoscaler: Autoscaler) -> None:
        self._settings = settings
        self._windows = Windows(autoscaler)
        self._up = _policies(settings.scale_up_pods, settings.scale_up_percent, _UP)
        self._down = _policies(settings.scale_down_pods, settings.scale_down_percent, _DOWN)
        self._longest_us = max(policy.period_us for policy in (*self._up, *self._down))
        self._counts: dict[str, list[tuple[int, int]]] = {}
        """Group -> time and number of instances at each evaluation."""
        self.rule = (
            f"Each instance should have {settings.target:g} of {settings.metric} ({settings.source}, tolerance"
            f" {100 * settings.tolerance:g} %)."
        )

    def wanted(self, group: ScaledGroup, now_us: int) -> tuple[int, str]:
        """Return the recommendation, stabilized and limited, and what it rests on."""
        desired, reason = self._desired(group)
        if not self._settings.behavior:
            return self._plain(group, desired, reason, now_us)
        stable, within = self._windows.stable(group, desired, now_us)
        limit, limited = self._limited(group, stable, now_us)
        return (stable, f"{reason}{within}") if limit == stable else (limit, f"{reason}, {limited}")

    def state(self) -> tuple[object, ...]:
        """Return the recommendations and counts it remembers."""
        return tuple(
            (name, tuple(past), tuple(self._counts.get(name, ()))) for name, past in sorted(self._windows.past.items())
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

    def _limited(self, group: ScaledGroup, stable: int, now_us: int) -> tuple[int, str]:
        """Return what the policies leave of a change, and in what way: by the numbers when their periods began."""
        counts, settings = self._counts.setdefault(group.name, []), self._settings
        counts.append((now_us, group.instances))
        while counts[0][0] <= now_us - self._longest_us:
            del counts[0]
        if stable == group.instances:
            return stable, ""
        more = stable > group.instances
        select = settings.scale_up_select if more else settings.scale_down_select
        if select == "Disabled":
            return group.instances, f"held at {group.instances}, as instances never {'come' if more else 'go'}"
        allowed = [
            (policy.grown(begun) if more else policy.shrunk(begun), policy.period_us)
            for policy in (self._up if more else self._down)
            for begun in [next(count for at, count in counts if at > now_us - policy.period_us)]
        ]
        limit, period_us = max(allowed) if more is (select == "Max") else min(allowed)
        limit = max(limit, group.instances) if more else min(limit, group.instances)
        kept = min(stable, limit) if more else max(stable, limit)
        return kept, f"limited to {kept} within {period_us // _SECOND_US} s"

    def _plain(self, group: ScaledGroup, desired: int, reason: str, now_us: int) -> tuple[int, str]:
        """Return what it wants without a ``behavior``: the most recommended in the window, up to a limit."""
        stable, within = self._windows.highest(group, desired, now_us)
        most = max(_LIMIT_FACTOR * group.instances, _LIMIT_LEAST)
        return (most, f"{reason}, limited to {most} at once") if stable > most else (stable, f"{reason}{within}")
