"""A row for every run of a study: the name of its point, its outcome, and its figures."""

from __future__ import annotations

import json
import sys
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from blis_tui.base.canonical import to_line
from blis_tui.base.classes import dataclass
from blis_tui.base.html import html_table
from blis_tui.base.source import as_map
from blis_tui.base.text import cut
from blis_tui.base.units import plural
from blis_tui.output.tables import csv_line
from blis_tui.results.expectations import judge, look_up
from blis_tui.results.expected_error import pool_loads
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.study.study_records import Point
from blis_tui.study.costs import cost_figures
from blis_tui.study.steady import SECTION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.model import Experiment
    from blis_tui.results.expected_error import PoolLoad
    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.task import Outcome


_WIDEST: Final = 24


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return the last part of each path; the whole path where two end alike."""
    last = [path.rsplit(".", 1)[-1] for path in paths]
    return {path: name if last.count(name) == 1 else path for path, name in zip(paths, last, strict=True)}


def value_text(value: Json) -> str:
    """Return a coordinate as text, shortened."""
    return cut(value if isinstance(value, str) else json.dumps(value), _WIDEST)


def point_text(paths: Sequence[str], coordinates: Mapping[str, Json]) -> str:
    """Return the coordinates that distinguish a point: ``instances 2, rate_per_s 40``; empty if nothing varies.

    Args:
        paths: what varies.
        coordinates: path -> the point's value.
    """
    return ", ".join(f"{name} {value_text(coordinates.get(path))}" for path, name in short_names(paths).items())


Value = float | str | bool | None

_GROUPS: Final = (
    "requests",
    "throughput",
    "offered",
    "steady",
    "latency",
    "kv",
    "slo",
    "fairness",
    "gateway",
    "lifecycle",
    "sessions",
    SECTION,
)
"""Sections of a report whose figures are in every row."""
USUAL: Final = ("throughput.requests_per_s", "latency.ttft_ms.p99", "latency.itl_ms.p99", "latency.e2e_ms.p99")
"""Figures shown for a study that uses none."""
_MOST_SHOWN: Final = 100
"""Maximum number of rows that a notebook shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run."""

    point: Point
    seed: int
    sha256: str = ""
    """Digest of its experiment; empty if it has none."""
    status: Literal["done", "stopped", "failed", "invalid", "missing"]
    """``stopped``: a constraint could no longer hold, so the figures cover a part of the run; ``invalid``: the point is
    no valid experiment; ``missing``: the study was interrupted before this run."""
    ok: bool | None
    """Whether all constraints hold; None = there are none, or no result."""
    why: str = ""
    """Why it was stopped, failed, or is invalid; otherwise the first constraint that does not hold."""
    warnings: Mapping[str, str] = field(default_factory=dict)
    """Warnings of the run: id -> message."""
    figures: Mapping[str, Value] = field(default_factory=dict)
    """Dotted path in the report, or ``cost.…`` -> value."""
    loads: Mapping[str, PoolLoad] = field(default_factory=dict, repr=False)
    """Pool -> its load, which determines the expected errors of means; empty without a report."""

    @property
    def coordinates(self) -> dict[str, Json]:
        """The run's values by path."""
        return self.point.coordinates

    @property
    def in_long_run(self) -> str:
        """Whether the bounds hold in the long run: ``holds``, ``fails`` or ``not known``; empty = it was not asked."""
        return str(self.figures.get(f"{SECTION}.verdict") or "")

    def __repr__(self) -> str:
        """Return one line, without the figures."""
        return f"<Row {self.coordinates}, seed {self.seed}: {self.status}{f' ({self.why})' if self.why else ''}>"


def numbers(rows: Iterable[Row], metric: str) -> list[float]:
    """Return a figure of each run that has it as a number."""
    figures = [row.figures.get(metric) for row in rows]
    return [float(figure) for figure in figures if isinstance(figure, int | float) and not isinstance(figure, bool)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """All known runs of a study, in the order of points, then of seeds: a sequence of :class:`Row`."""

    study: Study
    rows: tuple[Row, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, number: int) -> Row:
        return self.rows[number]

    @property
    def complete(self) -> bool:
        """Whether every run has its row."""
        return len(self.rows) == self.study.runs

    def whole(self) -> StudyResult:
        """Return the same result with a ``missing`` row for every run without one, so that gaps are visible."""
        known = {(row.point.number, row.seed): row for row in self.rows}
        runs = ((point, seed) for point in self.study.points for seed in self.study.seeds)
        rows = (known.get((point.number, seed)) or _missing(point, seed) for point, seed in runs)
        return self if self.complete else StudyResult(study=self.study, rows=tuple(rows))

    def columns(self) -> tuple[str, ...]:
        """Return the column names of a table: the point, what varies, the outcome, and every figure."""
        figures = dict.fromkeys(name for row in self.rows for name in row.figures)
        return ("point", *self.study.paths, "seed", "status", "ok", "why", "spec_sha256", *figures)

    def records(self) -> list[dict[str, Value]]:
        """Return a flat mapping per row, all with the same keys: for ``pandas.DataFrame`` or ``polars.DataFrame``."""
        return list(self.each_record())

    def each_record(self) -> Iterator[dict[str, Value]]:
        """Yield the mappings of :meth:`records` one by one; absent values are None."""
        names = self.columns()
        for row in self.rows:
            own: dict[str, Value] = {
                "point": row.point.number,
                **{path: _plain(value) for path, value in row.coordinates.items()},
                "seed": row.seed,
                "status": row.status,
                "ok": row.ok,
                "why": row.why,
                "spec_sha256": row.sha256 or None,
                **row.figures,
            }
            yield {name: own.get(name) for name in names}

    def __repr__(self) -> str:
        """Return one line."""
        return f"<StudyResult {self._headline()}>"

    def _repr_html_(self) -> str:
        """Return the HTML shown by a notebook."""
        paths, metrics = self.study.paths, wanted_metrics(self.study) or USUAL
        ending = ("seed", "status", *(("ok",) if self.study.constraints else ()), "why")
        names = (*paths, *metrics, *ending)
        shown = [[_shown(record[name]) for name in names] for record in islice(self._with(names), _MOST_SHOWN)]
        left = len(self.rows) - len(shown)
        notes = (f"{left:,} more rows: see records()",) if left else ()
        return html_table(self._headline(), names, shown, notes)

    def _headline(self) -> str:
        study = self.study
        return f"{study.name}: {plural(len(study.points), 'point')}, {len(self.rows):,} of {plural(study.runs, 'run')}"

    def _with(self, names: Iterable[str]) -> Iterator[dict[str, Value]]:
        """Yield the records with at least these columns."""
        for record in self.each_record():
            yield {**dict.fromkeys(names), **record}


def as_judged(row: Row) -> Point:
    """Return a point whose run is the stretch that a row judges: one without an end is cut where it was decided."""
    if not row.in_long_run:
        return row.point
    moments = {"warm_up_us": row.figures[f"{SECTION}.start_us"], "horizon_us": row.figures[f"{SECTION}.end_us"]}
    return Point(row.point.number, (*row.point.overrides, *parse_overrides(moments)))


def _missing(point: Point, seed: int) -> Row:
    return Row(point=point, seed=seed, status="missing", ok=None, why="the study was interrupted before this run")


def row_of(study: Study, point: Point, seed: int, experiment: Experiment, outcome: Outcome) -> Row:
    """Return the row of a run."""
    if outcome.status == "failed":
        return Row(point=point, seed=seed, sha256=experiment.sha256, status="failed", ok=None, why=outcome.why)
    report = json.loads(outcome.report)
    with_costs = {**report, "cost": _nested(cost_figures(experiment, report, study.prices))}
    verdicts = [judge(constraint, with_costs) for constraint in study.constraints]
    broken = [verdict.sentence() for verdict in verdicts if not verdict.ok]
    if isinstance(steady := report.get(SECTION), dict):
        costs = [verdict.sentence() for verdict in verdicts if not verdict.ok and verdict.metric.startswith("cost.")]
        broken = costs if steady["verdict"] == "holds" else [str(steady["why"])]
    stopped = outcome.status == "stopped"
    figures = figures_of(with_costs, wanted_metrics(study))
    # The report of a stretch counts what still runs as missed; how many of those that ended in it missed is known.
    missed = as_map(as_map(report.get(SECTION)).get("beyond_by_bound"))
    for metric, share in missed.items():
        if metric.endswith(".attainment") and isinstance(share, int | float):
            figures[metric] = 1 - share
    return Row(
        point=point,
        seed=seed,
        sha256=experiment.sha256,
        status=outcome.status,
        ok=not (stopped or broken) if study.constraints else None,
        why=outcome.why if stopped else next(iter(broken), ""),
        warnings={warning["id"]: warning["message"] for warning in report.get("warnings", ())},
        figures=figures,
        loads=pool_loads(experiment, report),
    )


def wanted_metrics(study: Study) -> tuple[str, ...]:
    """Return the metrics of the study's objectives and constraints."""
    asked = [objective.metric for objective in study.objectives] + [
        constraint.metric for constraint in study.constraints
    ]
    return tuple(dict.fromkeys(asked))


def figures_of(report: Mapping[str, object], wanted: tuple[str, ...]) -> dict[str, Value]:
    """Return the figures of a report's main sections, and those that the study uses."""
    figures: dict[str, Value] = {"duration_us": look_up("duration_us", dict(report))}
    for group in (*_GROUPS, "cost"):
        if report.get(group) is not None:
            figures.update(_leaves(group, report[group]))
    for metric in wanted:
        figures.setdefault(metric, look_up(metric, dict(report)))
    return figures


def _leaves(name: str, part: object) -> Iterator[tuple[str, Value]]:
    if isinstance(part, dict):
        for key, value in part.items():
            yield from _leaves(f"{name}.{key}", value)
    elif part is None or isinstance(part, int | float | str):
        yield sys.intern(name), part  # many rows share the same names


def _nested(costs: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name.removeprefix("cost."): value for name, value in costs.items()}


def _plain(value: Json) -> Value:
    """Return a coordinate as a cell: maps and lists as JSON."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


def _shown(value: Value) -> float | str | None:
    return ("yes" if value else "no") if isinstance(value, bool) else value


# The rows of a study as files: CSV, JSON lines, Parquet.


def rows_csv(result: StudyResult) -> Iterator[str]:
    """Yield a header with the column names, then a line per run."""
    yield csv_line(result.columns())
    for row in result.each_record():
        yield csv_line(_cell(value) for value in row.values())


def rows_jsonl(result: StudyResult) -> Iterator[str]:
    """Yield a JSON object per run; coordinates and figures are nested objects."""
    for row in result.rows:
        yield to_line(as_data(row)) + "\n"


def as_data(row: Row) -> dict[str, object]:
    """Return a row as plain data."""
    return {
        "point": row.point.number,
        "coordinates": row.coordinates,
        "seed": row.seed,
        "status": row.status,
        "ok": row.ok,
        "why": row.why,
        "spec_sha256": row.sha256 or None,
        "figures": dict(row.figures),
    }


def _cell(value: Value) -> str | int | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value + 0.0) if isinstance(value, float) else value
