"""The page about one run: its report with pictures of the same data."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from blis_tui.base.html import Table
from blis_tui.base.units import plural, share_text
from blis_tui.model.latencies import LATENCIES, SAMPLED, Latency
from blis_tui.output.section_text import main_lines
from blis_tui.pictures.arrivals import NAMES, arrivals_picture, curve, curves_view, name_of, rates_picture
from blis_tui.pictures.load_pictures import load_pictures
from blis_tui.pictures.page import Card, Picture, Section, cards, page, provenance, settings
from blis_tui.results.report import seen_gaps_us
from blis_tui.results.stats import HistogramSamples
from blis_tui.spec.metric_names import COSTS
from blis_tui.study.costs import cost_figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.model import Experiment
    from blis_tui.pictures.arrivals import Curve
    from blis_tui.pictures.load_pictures import LoadObserver
    from blis_tui.results.expectations import Verdict
    from blis_tui.results.lints.finding import Finding
    from blis_tui.results.report import GroupReport, Report
    from blis_tui.results.request_log import RequestNumbers, RequestTable
    from blis_tui.results.stats import Distribution
    from blis_tui.runs.simulation import Simulation

GROUPS: Final = 6
"""Maximum number of SLO classes, and of tenants, with curves: those with the most requests."""
_COLUMNS: Final = ("mean", "p50", "p90", "p95", "p99", "max")
_KEY_PERCENTILES: Final = (5_000, 7_500, 9_000, 9_500, 9_900, 9_990)


def run_page(simulation: Simulation, report: Report, observed: LoadObserver) -> str:
    """Return the page about a run.

    Args:
        simulation: the run, at its end.
        report: its report.
        observed: its observer, subscribed from the start.

    Raises:
        InputError: the plotting library is not installed.
    """
    experiment = simulation.experiment
    rows = sorted(report.rows.plain(), key=lambda row: (row.arrival_us, row.number))
    end_us = report.duration_us
    pictures = [
        _percentiles(simulation, report, rows),
        *([arrivals_picture(report.rows, rows)] if rows else []),
    ]
    load = [*([rates_picture(rows, end_us)] if rows else [])]
    load += load_pictures(observed.table(simulation, end_us), end_us)
    sections = [
        Section(name="overview", title="Overview", content=[*_overview(report), *_costs(experiment, report)]),
        Section(name="latency", title="Latency", content=[_latencies(report), *pictures]),
        Section(name="load-section", title="Load and throughput", content=load),
        Section(name="groups", title="Classes and tenants", content=_groups(report)),
        Section(name="expectations", title="Expectations", content=_expectations(report.expectations)),
        Section(name="settings", title="All settings", content=[settings(experiment)]),
        Section(name="provenance", title="Provenance", content=[_provenance(report)]),
    ]
    about = experiment.description or "A simulated run of an LLM inference service."
    return page(f"{experiment.name}: a simulated run", about, sections)


# ---- overview ----


def _overview(report: Report) -> list[str | Table]:
    latency = report.latency
    requests, throughput, kv = report.requests, report.throughput, report.kv
    shown = [
        Card(name="Time to first token, p99", value=_ms(latency.ttft_ms.p99), more=f"p50 {_ms(latency.ttft_ms.p50)}"),
        Card(name="Inter-token latency, p99", value=_ms(latency.itl_ms.p99), more=f"p50 {_ms(latency.itl_ms.p50)}"),
        Card(name="End to end, p99", value=_ms(latency.e2e_ms.p99), more=f"p50 {_ms(latency.e2e_ms.p50)}"),
        Card(
            name="Output tokens per second",
            value=f"{throughput.output_tokens_per_s:,.0f}",
            more=f"{throughput.requests_per_s:,.2f} requests/s",
        ),
        Card(
            name="Requests completed",
            value=f"{requests.completed:,}",
            more=f"of {requests.total:,} in {report.duration_us / 1e6:,.1f} s",
        ),
        Card(name="Preemptions", value=f"{kv.preemptions:,}", more=f"prefix cache hit rate {share_text(kv.hit_rate)}"),
    ]
    if report.slo is not None and report.slo.attainment is not None:
        met = f"{report.slo.good:,} of {report.slo.injected:,} met their targets"
        shown.append(Card(name="Goodput", value=share_text(report.slo.attainment), more=met))
    lines = main_lines(report)
    parts: list[str | Table] = [cards(shown), _verdict(report.expectations)]
    if not report.meta.complete:
        parts.append(
            "<div class='finding error'><p>The run was interrupted: the figures are those until then.</p></div>"
        )
    parts += [_finding(warning) for warning in report.warnings]
    parts += [_broken(name, text) for name, text in report.invariants.items() if text not in ("ok", "not checked")]
    parts.append(Table(caption="The run in short", head=("", ""), rows=[*lines.items()], words=(1,)))
    return parts


def _costs(experiment: Experiment, report: Report) -> list[Table]:
    """Return the costs by the hardware documents; empty if they have neither prices nor watts."""
    costs = {name: value for name, value in cost_figures(experiment, report.to_dict()).items() if value is not None}
    if not costs.keys() - {"cost.gpus"}:
        return []
    rows = [(COSTS[name].rstrip("."), f"{value:,.2f}") for name, value in costs.items()]
    return [Table(caption="Cost and energy, by the hardware documents", head=("", ""), rows=rows)]


def _verdict(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    held = len([verdict for verdict in verdicts if verdict.ok])
    if held == len(verdicts):
        text = "its one expectation holds" if held == 1 else f"all {held} expectations hold"
        return f"<p class='verdict good'>✓ {text[0].upper()}{text[1:]}.</p>"
    broken = len(verdicts) - held
    failures = f"{broken} of {plural(len(verdicts), 'expectation')} {'does' if broken == 1 else 'do'} not hold"
    return f"<p class='verdict bad'>✗ {failures}.</p>"


def _finding(finding: Finding) -> str:
    return (
        f"<div class='finding {escape(finding.severity)}'><p><strong>{escape(finding.severity.capitalize())}</strong> "
        f"<code>{escape(finding.id)}</code></p><p>{escape(finding.message)}</p><p>{escape(finding.advice)}</p></div>"
    )


def _broken(name: str, text: str) -> str:
    return f"<div class='finding error'><p><strong>Invariant {escape(name)}</strong> {escape(text)}</p></div>"


def _ms(value: float | None) -> str:
    """Return a latency with a suitable number of digits."""
    if value is None:
        return "-"
    if value >= 10_000:
        return f"{value / 1000:,.2f} s"
    return f"{value:,.0f} ms" if value >= 1_000 else f"{value:,.1f} ms"


# ---- latency ----


def _latencies(report: Report) -> Table:
    distributions = {latency.title: getattr(report.latency, latency.field) for latency in LATENCIES}
    return _distributions("Milliseconds, as clients see them", distributions)


def _distributions(caption: str, distributions: Mapping[str, Distribution]) -> Table:
    rows = [(name, *distribution.texts(_COLUMNS)) for name, distribution in distributions.items()]
    return Table(caption=caption, head=("", *_COLUMNS), rows=rows)


def curves_of(
    simulation: Simulation, table: RequestTable, rows: Sequence[RequestNumbers]
) -> dict[str, dict[str, Curve]]:
    """Return latency -> group -> its percentiles: all requests, SLO classes and tenants.

    Args:
        simulation: the run.
        table: provides the classes and tenants of ``rows``.
        rows: its requests.
    """
    since_us = simulation.experiment.warm_up_us
    counted = [row for row in rows if row.arrival_us >= since_us]
    whose = {"all requests": counted}
    for kind, place in (("class", 0), ("tenant", 1)):
        members: dict[str, list[RequestNumbers]] = {}
        for row in counted:
            members.setdefault(table.group(row)[place], []).append(row)
        largest = sorted((name for name in members if name), key=lambda name: (-len(members[name]), name))[:GROUPS]
        if len(members) > 1:
            whose |= {f"{kind} {group}": members[group] for group in sorted(largest)}
    drawn = [latency for latency in SAMPLED.values() if latency.has_curve]
    curves = {latency.field: {group: _curve(some, latency) for group, some in whose.items()} for latency in drawn}
    # Gaps between tokens are counted per instance, not per request.
    curves["itl_ms"] = {"all requests": curve(HistogramSamples(seen_gaps_us(simulation.cluster)))}
    return curves


def _curve(rows: Sequence[RequestNumbers], latency: Latency) -> Curve:
    return curve(sorted(value for row in rows if (value := latency.of(row)) is not None))


def _percentiles(simulation: Simulation, report: Report, rows: Sequence[RequestNumbers]) -> Picture:
    curves = curves_of(simulation, report.rows, rows)
    body = []
    for name, title in NAMES.items():
        for group, points in curves[name].items():
            values = dict(points)
            cells = ("" if (measured := values.get(key)) is None else f"{measured:,.2f}" for key in _KEY_PERCENTILES)
            body.append((f"{title}: {group}", *cells))
    latency = report.latency
    spread = ", ".join(
        f"{title.lower()} {_ms(measured.p50)} at the median and {_ms(measured.p99)} at the 99th percentile"
        for name, title in NAMES.items()
        if (measured := getattr(latency, name)).p50 is not None
    )
    limits = simulation.experiment.expect
    return Picture(
        name="percentiles",
        title="Latency by percentile",
        description=f"A curve for each latency over its percentiles: {spread or 'nothing was observed'}.",
        views={"": curves_view(curves, limits)},
        height=640,
        table=Table(
            caption="Milliseconds at each percentile",
            head=("", *map(name_of, _KEY_PERCENTILES)),
            rows=body,
        ),
        note="Each further nine takes as much room; triangles mark what expectations allow at most. Curves end where"
        " fewer than one request is slower.",
    )


# ---- the rest ----


def _groups(report: Report) -> list[str | Picture | Table]:
    parts: list[str | Picture | Table] = []
    kinds = {"SLO class": report.slo_classes, "tenant": report.tenants}
    parts += [_group_table(kind, groups) for kind, groups in kinds.items() if len(groups) > 1]
    if report.slo is not None:
        rows = [
            (
                name,
                f"{class_.good:,} of {class_.injected:,}",
                share_text(class_.attainment),
                f"{class_.goodput_rps:,.2f}",
            )
            for name, class_ in report.slo.classes.items()
        ]
        head = ("SLO class", "within all targets", "share", "good requests/s")
        parts.append(Table(caption="Requests that met the targets of their class", head=head, rows=rows))
    return parts


def _group_table(kind: str, groups: Mapping[str, GroupReport]) -> Table:
    rows = []
    for name, group in groups.items():
        times = [*group.ttft_ms.texts(("p50", "p99")), *group.e2e_ms.texts(("p50", "p99"))]
        rows.append((name, f"{group.total:,}", f"{group.completed:,}", f"{group.output_tokens:,}", *times))
    head = (kind, "requests", "completed", "output tokens", "TTFT p50", "TTFT p99", "E2E p50", "E2E p99")
    return Table(caption=f"By {kind}, latencies in milliseconds", head=head, rows=rows)


def _expectations(verdicts: Sequence[Verdict]) -> list[str | Picture | Table]:
    if not verdicts:
        return []
    rows = [
        (verdict.metric, verdict.wish(), _measured_text(verdict), "holds" if verdict.ok else "does not hold")
        for verdict in verdicts
    ]
    return [
        Table(
            caption="What the experiment expects of the report",
            head=("metric", "expected", "found", ""),
            rows=rows,
            words=(1, 3),
            classes=["good" if verdict.ok else "bad" for verdict in verdicts],
        )
    ]


def _measured_text(verdict: Verdict) -> str:
    where = "" if verdict.event is None else f"event {verdict.event:,}: {verdict.why}"
    return ", ".join(filter(None, (_value(verdict.value) if verdict.wish() else "", where)))


def _value(value: float | str | bool | None) -> str:
    return "nothing" if value is None else str(value)


def _provenance(report: Report) -> Table:
    meta = report.meta
    return provenance(
        {
            "Experiment": meta.experiment,
            "SHA-256 of the resolved experiment": meta.spec_sha256,
            "Seed": f"{meta.seed}",
        }
    )
