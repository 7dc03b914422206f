"""The names of all figures that reports can hold, read off their records.

The module of a part of reports is imported with the first figure of that part: few runs have all parts.
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
"""Part of reports -> the module of ``blis_tui.metrics`` and the record that describe it."""
_ALONE: Final = frozenset({"duration_us"})

_OPEN_ENDED: Final = re.compile(
    r"(?:instances\.\d+|models\.\d+|throughput_log\.\d+|(?:pools|slo_classes|slo\.classes|tenants|kv_tiers\.tiers)\.[^.]+|rejections|fitness\.components"
    r"|invariants)(?:\.[A-Za-z0-9_-]+)+\Z"
)
"""Metrics whose names depend on the run: one instance's, one pool's, one class's, one tenant's."""


def metrics_of(group: str, part: type) -> Iterator[str]:
    """Names of the figures that a part of reports holds, below ``group``."""
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
    """Metrics of every report, and of the sections that a report may have."""
    return _ALONE.union(*map(_of_group, _GROUPS))


def is_metric(name: str) -> bool:
    """Whether a report can hold a figure of that name, whatever the run."""
    group, _, rest = name.partition(".")
    return name in _of_group(group) if rest and group in _GROUPS else name in _ALONE


def is_open_ended(name: str) -> bool:
    """Whether a metric may exist that is named after something of the run."""
    return _OPEN_ENDED.match(name) is not None
