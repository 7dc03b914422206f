"""Autoscalers of Kubernetes, KEDA, AIBrix and charts, as ``cluster.autoscaler``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.source import as_list, as_map
from blis_tui.base.text import printable
from blis_tui.spec.foreign.pods import number, values
from blis_tui.spec.foreign.reading import Fate

if TYPE_CHECKING:
    from blis_tui.base.source import DataPath, Json
    from blis_tui.spec.foreign.reading import Input

KINDS: Final = ("HorizontalPodAutoscaler", "ScaledObject", "PodAutoscaler")
_LEAST: Final = ("minReplicas", "minReplicaCount", "min_replicas", "minInstances")
_MOST: Final = ("maxReplicas", "maxReplicaCount", "max_replicas", "maxInstances")
_METRICS: Final = ("metrics", "triggers", "metricsSources", "scaleMetric", "targetMetric", "metric")
_SECONDS: Final = 1_000_000
_INTERVAL_S: Final = 15
"""Time between two evaluations of Kubernetes' own autoscaler."""


def autoscaler_of(spec: dict[str, Json], given: Input, path: DataPath, *, instances: int) -> dict[str, Json]:
    """Return the keys of ``cluster.autoscaler``, having noted them; none if the number of instances never changes.

    Args:
        spec: limits, metrics and windows, under the names of any of these autoscalers.
        given: where it is noted.
        path: its path in the input.
        instances: the number of instances at the start.
    """
    least = next((number(spec[key]) for key in _LEAST if key in spec), min(1, instances))
    most = next((number(spec[key]) for key in _MOST if key in spec), 0)
    if most <= max(1, least):
        given.note(Fate.NO_EFFECT, path, "the number of instances stays as it is")
        return {}
    behavior = _below(spec, "behavior")
    up, down = (as_map(as_map(behavior).get(key)).get("stabilizationWindowSeconds") for key in ("scaleUp", "scaleDown"))
    scaler: dict[str, Json] = {
        "interval_us": number(_below(spec, "pollingInterval"), _INTERVAL_S) * _SECONDS,
        "min_instances": least,
        "max_instances": most,
    }
    if isinstance(up, int) and up > 0:
        scaler["scale_up_stabilization_window_us"] = up * _SECONDS
    if isinstance(down, int) and down >= 0:
        scaler["scale_down_stabilization_window_us"] = down * _SECONDS
    given.note(Fate.TAKEN, path, f"`cluster.autoscaler`: {least} to {most} instances")
    measured = next((shown for key in _METRICS if (shown := _shown(spec.get(key)))), "what the platform measures")
    text = f"it looks at {measured}; simulated is one by queues and KV use (`kv_utilization_threshold` …)"
    given.note(Fate.APPROXIMATED, path, printable(text))
    return scaler


def _below(spec: dict[str, Json], key: str) -> Json:
    """Return the value of a key wherever it is below; None = nowhere."""
    return next((as_map(one)[key] for one in values(spec) if key in as_map(one)), None)


def _shown(metrics: Json) -> str:
    """Return the names of metrics and their targets."""
    if isinstance(metrics, str):
        return f"`{metrics}`"
    found = []
    for one in as_list(metrics):
        inside = as_map(one)
        inside = as_map(
            next((inside[key] for key in ("pods", "external", "object", "resource") if key in inside), inside)
        )
        metadata = as_map(inside.get("metadata"))
        name = as_map(inside.get("metric")).get("name") or inside.get("targetMetric") or inside.get("name")
        name = metadata.get("metricName") or name or metadata.get("query") or inside.get("type")
        target = as_map(inside.get("target"))
        aim = next((target[key] for key in ("averageValue", "value", "averageUtilization") if key in target), None)
        aim = aim or metadata.get("threshold") or inside.get("targetValue")
        found.append(f"`{name}`" + (f" (target {aim})" if aim is not None else ""))
    return " and ".join(found[:5])
