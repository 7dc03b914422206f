"""The names of all metrics that reports can contain, derived from their records.

A section's module is imported only when one of its metrics is needed, because few runs have all sections.
"""

from __future__ import annotations

import re
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.metrics.stats import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "requests": "report.RequestCounts",
        "tokens": "report.TokenCounts",
        "throughput": "report.Throughput",
        "offered": "load.Offered",
        "steady": "load.Steady",
        "latency": "report.Latencies",
        "kv": "kv.KvCounts",
        "lifecycle": "lifecycle.LifecycleReport",
        "slo": "goodput.SloReport",
        "fairness": "sections.Fairness",
        "deferrals": "control_plane.DeferralReport",
        "gateway": "control_plane.GatewayReport",
        "disaggregation": "control_plane.DisaggregationReport",
        "routing": "control_plane.RoutingReport",
        "preemption": "preemption.PreemptionReport",
        "kv_tiers": "kv.TiersReport",
        "adapters": "adapters.AdaptersReport",
        "speculative": "optional.SpeculativeReport",
        "sessions": "optional.SessionReport",
        "reasoning": "reasoning.ReasoningReport",
        "multimodal": "reasoning.MultimodalReport",
        "encoder": "encoder.EncoderReport",
        "fitness": "goodput.FitnessReport",
        "anomalies": "optional.Anomalies",
        "saturation": "saturation.Saturation",
        "warm_up": "sections.WarmUp",
        "prompt_throughput": "sections.PromptThroughput",
        "pipeline": "sections.PipelineReport",
        "ranks": "sections.RanksReport",
    }
)
"""Section of a report -> the module of ``blis_tui.metrics`` and the record that describe it."""
_ALONE: Final = frozenset({"duration_us"})

_OPEN_ENDED: Final = re.compile(
    r"(?:instances\.\d+|models\.\d+|throughput_log\.\d+|(?:pools|slo_classes|slo\.classes|tenants|kv_tiers\.tiers)\.[^.]+|rejections|fitness\.components"
    r"|invariants)(?:\.[A-Za-z0-9_-]+)+\Z"
)
"""Metrics whose names depend on the run: of an instance, a pool, a class or a tenant."""


def metrics_of(group: str, part: type) -> Iterator[str]:
    """Yield the names of the metrics in a section of a report, below ``group``."""
    for one in fields(part):
        kind = str(one.type)
        nested = Distribution if kind == Distribution.__name__ else getattr(sys.modules[part.__module__], kind, None)
        if isinstance(nested, type) and is_dataclass(nested):
            yield from metrics_of(f"{group}.{one.name}", nested)
        elif not str(one.type).startswith(("Mapping", "tuple")):
            yield f"{group}.{one.name}"


@cache
def _of_group(group: str) -> frozenset[str]:
    module, _, record = _GROUPS[group].partition(".")
    return frozenset(metrics_of(group, getattr(import_module(f"blis_tui.metrics.{module}"), record)))


@cache
def all_metrics() -> frozenset[str]:
    """Return the metrics of every report, including those of optional sections."""
    return _ALONE.union(*map(_of_group, _GROUPS))


def is_metric(name: str) -> bool:
    """Return whether some report can contain a metric of that name."""
    group, _, rest = name.partition(".")
    return name in _of_group(group) if rest and group in _GROUPS else name in _ALONE


def is_open_ended(name: str) -> bool:
    """Return whether a metric contains a name from the run, so that it may exist."""
    return _OPEN_ENDED.match(name) is not None
