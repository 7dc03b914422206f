"""Goodput (requests that meet the targets of their SLO class), and the fitness score of a run."""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import RequestState
from blis_tui.model import SLO_CLASSES, SloTarget
from blis_tui.model.latencies import SAMPLED
from blis_tui.results.stats import OMITTED_IF_ABSENT, of_samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.results.request_log import RequestNumbers, RequestTable


_REQUESTS_PER_S: Final = 100.0


_TOKENS_PER_S: Final = 10_000.0
"""Rates at which a fitness component is one half, as in BLIS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """How many completed requests met one target."""

    met: int
    """Completed requests that met it."""
    counted: int
    """Completed requests that have the figure; a request with one output token has no time per output token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSlo:
    """The requests of one SLO class, judged against its targets."""

    injected: int
    """Requests of the class that arrived and were not rejected."""
    completed: int
    """Injected requests that completed."""
    good: int
    """Completed requests that met all targets of the class."""
    attainment: float | None
    """``good / injected``, from 0 to 1; None if none was injected. Rejected requests are excluded; requests that never
    completed are included."""
    goodput_rps: float
    """Good requests per second of the whole run."""
    ttft: Met | None
    """Requests that met ``ttft_ms``; None = there is no such target."""
    tpot: Met | None
    """Requests that met ``tpot_ms``; None = there is no such target."""
    e2e: Met | None
    """Requests that met ``e2e_ms``; None = there is no such target."""
    ttfat: Met | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Requests that met ``ttfat_ms`` (time to first answer token); left out if there is no such target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloReport:
    """Requests judged against the targets of their SLO classes: classes with targets only, including the warm-up."""

    injected: int
    """Requests of classes with targets that arrived and were not rejected."""
    good: int
    """Completed requests that met all targets of their class."""
    attainment: float | None
    """``good / injected``, from 0 to 1; None if none was injected."""
    goodput_rps: float
    """Good requests per second of the whole run (``duration_us``)."""
    classes: Mapping[str, ClassSlo]
    """By name: the requests of each class that has targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitnessReport:
    """The run's score by the experiment's weights."""

    score: float
    """Sum of weight * component; without unit."""
    components: Mapping[str, float]
    """Each between 0 and 1, larger is better; 0 if nothing was observed."""


_TARGETS: Final = frozenset([target.name for target in fields(SloTarget)])
_TARGETED: Final = {latency.name: latency for latency in SAMPLED.values() if latency.field in _TARGETS}
"""By name: latencies for which SLO classes may have a target."""


def slo_report(
    targets: Mapping[str, SloTarget],
    rows: Sequence[RequestNumbers],
    table: RequestTable,
    duration_us: int,
) -> SloReport:
    """Judge every request of the classes that have targets; a request without a class is ``standard``."""
    classes = {}
    for name in SLO_CLASSES:
        if name in targets:
            members = [row for row in rows if (table.group(row)[0] or "standard") == name]
            classes[name] = _judge_class(targets[name], members, table, duration_us)
    injected = whole_sum([class_.injected for class_ in classes.values()])
    good = whole_sum([class_.good for class_ in classes.values()])
    return SloReport(
        injected=injected,
        good=good,
        attainment=good / injected if injected else None,
        goodput_rps=_per_second(good, duration_us),
        classes=classes,
    )


def _judge_class(target: SloTarget, rows: Sequence[RequestNumbers], table: RequestTable, duration_us: int) -> ClassSlo:
    limits: dict[str, float | None] = {name: getattr(target, f"{name}_ms") for name in (*_TARGETED, "ttfat")}
    met, counted = dict.fromkeys(limits, 0), dict.fromkeys(limits, 0)
    injected = completed = good = 0
    for row in rows:
        injected += row.state != RequestState.REJECTED
        if row.state != RequestState.COMPLETED:
            continue
        completed += 1
        fits = True
        answer_us = table.extras(row.number).ttfat_us
        figures = {**figures_ms(row), "ttfat": answer_us / 1000 if answer_us >= 0 else None}
        for name, figure_ms in figures.items():
            limit = limits[name]
            if limit is not None and figure_ms is not None:
                counted[name] += 1
                met[name] += figure_ms <= limit
                fits = fits and figure_ms <= limit
        good += fits
    dimensions = {
        name: None if limit is None else Met(met=met[name], counted=counted[name]) for name, limit in limits.items()
    }
    return ClassSlo(
        injected=injected,
        completed=completed,
        good=good,
        attainment=good / injected if injected else None,
        goodput_rps=_per_second(good, duration_us),
        **dimensions,
    )


def figures_ms(row: RequestNumbers) -> dict[str, float | None]:
    """Return a request's figures that targets refer to, except TTFAT; None where it has no such figure."""
    return {name: latency.of(row, 1000) for name, latency in _TARGETED.items()}


def fitness_report(
    weights: Mapping[str, float],
    rows: Sequence[RequestNumbers],
    duration_us: int,
    warm_up_us: int = 0,
) -> FitnessReport:
    """Return the components that have a weight, and their weighted sum; latencies exclude the warm-up."""
    completed = whole_sum([row.state == RequestState.COMPLETED for row in rows])
    tokens = whole_sum([row.output_tokens for row in rows])
    requests_per_s, tokens_per_s = _per_second(completed, duration_us), _per_second(tokens, duration_us)
    components = {
        "throughput": requests_per_s / (requests_per_s + _REQUESTS_PER_S),
        "tokens_per_sec": tokens_per_s / (tokens_per_s + _TOKENS_PER_S),
    }
    for name in ("ttft", "e2e"):
        samples_us = [getattr(row, f"{name}_us") for row in rows if row.arrival_us >= warm_up_us]
        distribution = of_samples([sample for sample in samples_us if sample >= 0])
        for statistic in ("p99", "p50", "mean"):
            value_ms = getattr(distribution, statistic)
            components[f"{statistic}_{name}"] = 0.0 if value_ms is None else 1 / (1 + value_ms)
    score = 0.0
    for name, component in components.items():
        score += weights.get(name, 0.0) * component
    return FitnessReport(
        score=score, components={name: component for name, component in components.items() if name in weights}
    )


def _per_second(count: int, duration_us: int) -> float:
    return count / (duration_us / 1e6) if duration_us else 0.0
