"""The configuration of llm-d's Workload Variant Autoscaler, as keys of ``cluster.autoscaler``."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import Json, Source, as_list
from blis_tui.base.text import printable
from blis_tui.spec.foreign.kubernetes import documents, values
from blis_tui.spec.foreign.reading import Fate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.base.source import DataPath
    from blis_tui.spec.foreign.reading import Input

KIND: Final = "VariantAutoscaling"
"""The kind of document that names a deployment to it."""
CONFIG: Final = "wva-saturation-scaling-config"
"""The ConfigMap with its thresholds."""
METRIC: Final = "wva_desired_replicas"
"""What it measures for the autoscaler that carries its decisions out."""
_METRICS: Final = (METRIC, "inferno_desired_replicas")
_THRESHOLDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kvCacheThreshold": "kv_utilization_threshold",
        "queueLengthThreshold": "queue_length_threshold",
        "kvSpareTrigger": "kv_spare_trigger",
        "queueSpareTrigger": "queue_spare_trigger",
    }
)
_SECOND_US: Final = 1_000_000
_INTERVAL_S: Final = 60
"""``GLOBAL_OPT_INTERVAL`` by default."""
_TOKEN_BASED: Final[Mapping[str, tuple[str, float]]] = MappingProxyType(
    {
        "kvCacheThreshold": ("kv_utilization_threshold", 0.8),
        "scaleUpThreshold": ("scale_up_threshold", 0.85),
        "scaleDownBoundary": ("scale_down_boundary", 0.7),
    }
)
"""Settings of the analyzer by tokens -> keys of the autoscaler, and the defaults there."""


def asks_variants(spec: dict[str, Json]) -> bool:
    """Whether an autoscaler carries out what the Workload Variant Autoscaler decides."""
    return "wva" in spec or any(name in value for value in values(spec) if isinstance(value, str) for name in _METRICS)


def variant_keys(maps: Mapping[str, Mapping[str, Json]], given: Input, path: DataPath) -> dict[str, Json]:
    """Return the keys of ``cluster.autoscaler`` that its ConfigMaps say, having noted them.

    Args:
        maps: ConfigMaps by name.
        given: where it is noted.
        path: the path in the input of what asks for it.
    """
    config = _config(maps)
    keys: dict[str, Json] = {"interval_us": _interval_s(maps) * _SECOND_US}
    analyzer = str(config.get("analyzerName") or ("saturation" if as_list(config.get("analyzers")) else ""))
    if analyzer == "saturation":
        for name, (ours, default) in _TOKEN_BASED.items():
            keys[ours] = _share(config.get(name), default)
        text = "`cluster.autoscaler`: llm-d's analyzer by tokens, without what it learns of computation"
        given.note(Fate.TAKEN, path, text)
        return keys
    if analyzer:
        text = f"its analyzer `{printable(analyzer)}` is not simulated; simulated is the one by percentages"
        given.note(Fate.APPROXIMATED, path, text)
    thresholds = {ours: config[name] for name, ours in _THRESHOLDS.items() if _is_positive(config.get(name))}
    given.note(Fate.TAKEN, path, "`cluster.autoscaler.rule`: llm-d's analyzer by percentages (`wva`)")
    if not config:
        given.note(Fate.ELSEWHERE, path, f"no ConfigMap `{CONFIG}` is here: its thresholds are the usual ones")
    return {**keys, "rule": {"kind": "wva", **thresholds}}


def variant(name: str, model: str) -> dict[str, Json]:
    """Return the document that names a deployment to it."""
    target: Json = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "apiVersion": "llmd.ai/v1alpha1",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": target, "modelID": model},
    }


def thresholds(rule: Mapping[str, Json]) -> dict[str, Json]:
    """Return the ConfigMap with the thresholds of a rule."""
    lines = [f"{theirs}: {rule[ours]:.15g}\n" for theirs, ours in _THRESHOLDS.items()]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG},
        "data": {"default": "".join(lines)},
    }


def _config(maps: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """Return the entry for all models of the ConfigMap with thresholds; empty = it is not here."""
    for data in maps.values():
        text = data.get("default")
        if isinstance(text, str) and ("kvCacheThreshold" in text or "analyzerName" in text):
            return next(iter(documents(Source(CONFIG, text))), {})
    return {}


def _interval_s(maps: Mapping[str, Mapping[str, Json]]) -> int:
    """Return the time between two of its evaluations."""
    for data in maps.values():
        if (found := re.fullmatch(r"(\d{1,4})(s|m)", str(data.get("GLOBAL_OPT_INTERVAL")))) and int(found[1]):
            return int(found[1]) * (60 if found[2] == "m" else 1)
    return _INTERVAL_S


def _is_positive(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _share(value: Json, default: float) -> float:
    return float(value) if isinstance(value, int | float) and _is_positive(value) else default
