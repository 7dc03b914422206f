"""The names of all metrics that reports can contain, and of those that studies may use.

The names of all metrics that reports can contain, derived from their records.

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

from blis_tui.results.stats import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "requests": "report.RequestCounts",
        "tokens": "report.TokenCounts",
        "throughput": "report.Throughput",
        "offered": "sections.offered_load.Offered",
        "steady": "sections.offered_load.Steady",
        "latency": "report.Latencies",
        "kv": "sections.instances.KvCounts",
        "lifecycle": "sections.control.LifecycleReport",
        "slo": "sections.quality.SloReport",
        "fairness": "sections.types.Fairness",
        "deferrals": "sections.control.DeferralReport",
        "gateway": "sections.control.GatewayReport",
        "disaggregation": "sections.control.DisaggregationReport",
        "routing": "sections.control.RoutingReport",
        "preemption": "sections.control.PreemptionReport",
        "kv_tiers": "sections.instances.TiersReport",
        "adapters": "sections.instances.AdaptersReport",
        "speculative": "sections.request_kinds.SpeculativeReport",
        "sessions": "sections.request_kinds.SessionReport",
        "reasoning": "sections.request_kinds.ReasoningReport",
        "multimodal": "sections.request_kinds.MultimodalReport",
        "encoder": "sections.instances.EncoderReport",
        "fitness": "sections.quality.FitnessReport",
        "anomalies": "sections.request_kinds.Anomalies",
        "saturation": "sections.control.Saturation",
        "warm_up": "sections.types.WarmUp",
        "prompt_throughput": "sections.types.PromptThroughput",
        "pipeline": "sections.types.PipelineReport",
        "ranks": "sections.types.RanksReport",
    }
)
"""Section of a report -> the module of ``blis_tui.results`` and the record that describe it."""
_SECTIONS: Final[Mapping[str, str]] = MappingProxyType({group.rpartition(".")[2]: group for group in _GROUPS.values()})
_ALONE: Final = frozenset({"duration_us"})

_NAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "instances": "report.InstanceReport",
        "models": "sections.types.ModelReport",
        "throughput_log": "sections.types.IntervalThroughput",
        "pools": "sections.types.PoolReport",
        "slo_classes": "report.GroupReport",
        "slo.classes": "sections.quality.ClassSlo",
        "tenants": "report.GroupReport",
        "kv_tiers.tiers": "sections.instances.TierReport",
    }
)
"""Part of a report whose entries have names or numbers -> the module of ``blis_tui.results`` and an entry's record."""
_LISTS: Final = frozenset({"instances", "models", "throughput_log"})
"""Those whose entries have numbers."""
_FREE: Final = re.compile(r"(?:rejections|fitness\.components|invariants)(?:\.[A-Za-z0-9_-]+)+\Z")
"""Metrics of which each run has others."""


def metrics_of(group: str, part: type) -> Iterator[str]:
    """Yield the names of the metrics in a section of a report, below ``group``."""
    for field in fields(part):
        kind = str(field.type).removesuffix(" | None")
        nested = Distribution if kind == Distribution.__name__ else _nested(part, kind)
        if nested is not None:
            yield from metrics_of(f"{group}.{field.name}", nested)
        elif not kind.startswith(("Mapping", "tuple")):
            yield f"{group}.{field.name}"


def _nested(part: type, kind: str) -> type | None:
    """Return the record of that name, seen from the module of ``part``; None = it is none."""
    section = getattr(sys.modules[part.__module__], kind, None)
    if section is None and kind in _SECTIONS:  # imported for type checkers only
        section = _record(_SECTIONS[kind])
    return section if isinstance(section, type) and is_dataclass(section) else None


def _record(place: str) -> type:
    module, _, record = place.rpartition(".")
    section: type = getattr(import_module(f"blis_tui.results.{module}"), record)
    return section


@cache
def _of_group(group: str) -> frozenset[str]:
    return frozenset(metrics_of(group, _record(_GROUPS[group])))


@cache
def all_metrics() -> frozenset[str]:
    """Return the metrics of every report, including those of optional sections."""
    return _ALONE.union(*map(_of_group, _GROUPS))


def is_metric(name: str) -> bool:
    """Return whether some report can contain a metric of that name."""
    group, _, rest = name.partition(".")
    return name in _of_group(group) if rest and group in _GROUPS else name in _ALONE


def name_in(metric: str) -> tuple[str, str, str] | None:
    """Split a metric of one of many entries, such as ``tenants.acme.total``, into part, name and figure."""
    for part in _NAMED:
        name, _, figure = metric.removeprefix(f"{part}.").partition(".")
        if metric.startswith(f"{part}.") and name and figure and (name.isdecimal() or part not in _LISTS):
            return part, name, figure
    return None


def entry_metrics(part: str, name: str) -> frozenset[str]:
    """Return the metrics of an entry of a part of reports, such as those of a tenant."""
    return frozenset(metrics_of(f"{part}.{name}", _record(_NAMED[part])))


def is_open_ended(name: str) -> bool:
    """Return whether a metric contains a name from the run, so that it may exist."""
    named = name_in(name)
    if named is None:
        return _FREE.match(name) is not None
    part, entry, _ = named
    return name in entry_metrics(part, entry)


def entry_meant(name: str) -> str:
    """Return the metric of an entry, such as ``slo.classes.chat.good``, that ``slo.chat.good`` means; empty = none."""
    nested = (part for part in _NAMED if name.startswith(f"{part.partition('.')[0]}.") and "." in part)
    meant = (part + name[len(part.partition(".")[0]) :] for part in nested)
    return next((metric for metric in meant if is_open_ended(metric)), "")


def unknown_step(steps: tuple[str, ...]) -> int | None:
    """Return the position of the first step of a path into reports that no report has; None = some may have it."""
    if not steps or steps[0] not in {field.name for field in fields(_record("report.Report"))}:
        return 0
    group = steps[0]
    if group not in _GROUPS or len(steps) == 1:
        return None
    if steps[1] not in {field.name for field in fields(_record(_GROUPS[group]))}:
        return 1
    below = {name.split(".")[2] for name in _of_group(group) if name.startswith(f"{group}.{steps[1]}.")}
    return 2 if below and len(steps) > 2 and steps[2] not in below else None


COSTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cost.gpus": "Accelerators that instances hold, on average over the run.",
        "cost.usd_per_hour": "What these cost in an hour, in US dollars.",
        "cost.usd_per_million_output_tokens": "US dollars for a million generated tokens.",
        "cost.peak_watts": "What these take at most, in watts.",
        "cost.watts": "What these take on average, in watts.",
        "cost.wh_per_million_output_tokens": "Watt-hours for a million generated tokens.",
    }
)
"""Additional metrics and their descriptions."""


def is_study_metric(name: str) -> bool:
    """Return whether a study can use the metric."""
    return is_metric(name) or name in COSTS or is_open_ended(name)
