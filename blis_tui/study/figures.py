"""Checks, before anything runs, that reports will have the figures of a study or of an experiment's expectations."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.diagnostics import about, in_order, suggestion
from blis_tui.base.errors import PolicyError, SpecError
from blis_tui.base.source import as_list, as_map
from blis_tui.model import SLO_CLASSES
from blis_tui.results.sections.instances import zero_if_omitted
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.library import names
from blis_tui.spec.load import build
from blis_tui.spec.metric_names import COSTS
from blis_tui.spec.study.document import resolve_point
from blis_tui.study.costs import without_cost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import DataPath, Json
    from blis_tui.model import Experiment
    from blis_tui.spec.resolve import Resolved
    from blis_tui.spec.study.study_records import Study

_MOST_TRIED: Final = 16
"""Number of points of which at least one must have a figure."""
_SECTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "adapters": "with `engine.lora`",
        "anomalies": "with `report: full`",
        "deferrals": "with `policy.deferral`",
        "disaggregation": "with `cluster.disaggregation`",
        "fairness": "with `report: full`",
        "fitness": "with `fitness`",
        "gateway": "with `policy.gateway`",
        "kv_tiers": "with `engine.kv_tiers`",
        "lifecycle": "where instances come and go",
        "models": "with more than one model",
        "pipeline": "with `engine.pipeline_parallel`",
        "pools": "with more than one pool",
        "preemption": "with a `policy.preemption` of its own",
        "prompt_throughput": "with a batching rule that counts cached tokens",
        "multimodal": "where clients have `multimodal`, or the trace says so",
        "reasoning": "where clients have `reasoning`, or the trace says so",
        "ranks": "with ranks of `engine.data_parallel` that share experts",
        "rejections": "with `report: full`",
        "routing": "with `counterfactual`",
        "saturation": "with `report: full`",
        "sessions": "where clients hold sessions",
        "slo": "with `slo_targets`",
        "speculative": "with `engine.speculative`",
        "warm_up": "with `warm_up_us`",
    }
)
"""Sections that only some reports have, and when they have them."""


def require_figures(study: Study) -> None:
    """Refuse a study if none of its points can have a figure of an objective or a constraint.

    Prices must be for hardware in use or known hardware; others are typing errors.

    Raises:
        SpecError: with each such figure or price.
    """
    missing: dict[str, DataPath] = {
        **{objective.metric: ("objectives", at, "metric") for at, objective in enumerate(study.objectives)},
        **{constraint.metric: ("constraints", at, "metric") for at, constraint in enumerate(study.constraints)},
    }
    bounded = {constraint.metric for constraint in study.constraints}
    missing = {metric: place for metric, place in missing.items() if metric not in COSTS or metric in bounded}
    hints: dict[str, str] = {}
    for experiment in _experiments(study) if missing else ():
        report = _empty_report(experiment)
        explanations = {
            metric: without_cost(metric, experiment, study.prices)
            if metric in COSTS
            else _instead(metric.split("."), experiment, report)
            for metric in missing
        }
        hints = {metric: hint for metric, hint in explanations.items() if hint is not None}
        missing = {metric: place for metric, place in missing.items() if metric in hints}
        if not missing:
            break
    diagnostics = list(_mistyped(study)) if study.prices else []
    diagnostics += [
        about(study.written, missing[metric], "BLIS2069", f"no run of this study reports `{metric}`", hint=hint)
        for metric, hint in hints.items()
    ]
    if diagnostics:
        raise SpecError(in_order(diagnostics))


def require_expected(resolved: Resolved) -> None:
    """Refuse an experiment whose report cannot have a figure of its expectations.

    One that replays a trace is taken: that would have to be read as a whole.

    Raises:
        SpecError: with each such figure.
    """
    document = resolved.document
    entries = [as_map(entry) for entry in as_list(document.get("expect"))]
    expected = {str(entry["metric"]): ("expect", at, "metric") for at, entry in enumerate(entries) if "metric" in entry}
    if not expected or resolved.trace_path is not None:
        return
    experiment = build(resolved)
    try:
        report = _empty_report(experiment)
    except PolicyError:  # which is the run's to tell
        return
    diagnostics = [
        about(document, place, "BLIS2069", f"no run of this experiment reports `{metric}`", hint=hint)
        for metric, place in expected.items()
        if (hint := _instead(metric.split("."), experiment, report)) is not None
    ]
    if diagnostics:
        raise SpecError(in_order(diagnostics))


def _empty_report(experiment: Experiment) -> Json:
    """Return the report of a run without any event: it has all sections, which the experiment determines."""
    report: Json = json.loads(Simulation(experiment).report(verify=False).to_json())
    return report


def _mistyped(study: Study) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each price of unknown hardware."""
    used = {pool.hardware.name for experiment in _experiments(study) for pool in experiment.pools}
    known = sorted({*used, *names("Hardware", Path.cwd())})
    for name in study.prices:
        if name not in known:
            hint = suggestion(name, known, otherwise="known names are")
            message = f"no hardware is named `{name}`"
            yield about(study.written, ("prices", name), "BLIS2001", message, key=True, hint=hint)


def _experiments(study: Study) -> Iterator[Experiment]:
    """Yield the experiments of some valid points, spread over all points."""
    for point in study.points[:: -(-len(study.points) // _MOST_TRIED)]:
        try:
            yield build(resolve_point(study, point))
        except SpecError:
            continue


def _instead(steps: list[str], experiment: Experiment, report: Json) -> str | None:
    """Return what to use instead of a figure that the experiment's reports cannot have; None if they may have it."""
    if steps[0] in ("slo_classes", "tenants"):
        return _instead_of_group(steps, experiment)
    if steps[0] == "rejections" and steps[0] in as_map(report):  # the report then lists all causes that can reject
        return None
    if steps[0] == "instances" and experiment.cluster.varies:
        return None
    here = report
    for at, step in enumerate(steps):
        parts = {str(number): part for number, part in enumerate(here)} if isinstance(here, list) else as_map(here)
        if step not in parts:
            if at == len(steps) - 1 and zero_if_omitted(".".join(steps)) is not None:
                return None
            if at == 0:
                return f"reports contain `{step}` only {_SECTIONS[step]}" if step in _SECTIONS else ""
            return suggestion(step, parts, otherwise=f"`{'.'.join(steps[:at])}` has")
        here = parts[step]
    return None


def _instead_of_group(steps: list[str], experiment: Experiment) -> str | None:
    """Do the same for figures of SLO classes and tenants: a report has those that sent requests."""
    section, name = steps[:2]
    if experiment.workload.trace is not None:  # its rows, which nothing reads here, name them
        unknown = section == "slo_classes" and name not in SLO_CLASSES
        return suggestion(name, SLO_CLASSES, otherwise="the SLO classes are") if unknown else None
    clients = experiment.workload.clients
    known = {client.tenant for client in clients} if section == "tenants" else {client.slo_class for client in clients}
    if name in known:
        return None
    return suggestion(name, known - {""}, otherwise="clients have") if known - {""} else "its clients have none"
