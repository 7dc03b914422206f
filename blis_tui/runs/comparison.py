"""Compares two simulated experiments: documents, figures (with the better direction), and single requests.

Names of requests count arrivals. Requests that are sent when an answer has come (later calls of sessions, prompts of
closed loops) may arrive in another order in another run, and then carry each other's names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import InputError
from blis_tui.model.latencies import LATENCIES
from blis_tui.results.sections.instances import zero_if_omitted
from blis_tui.runs.documents import Difference, experiment_differences
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.authoring.report_figures import figures_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.model import Experiment
    from blis_tui.results.report import Report
    from blis_tui.results.request_log import RequestRow
    from blis_tui.workload.traces.trace_table import LeftOut

# ---- figures ----

THRESHOLD: Final = 0.01
"""Relative changes up to this size count as noise, neither better nor worse."""
LOWER: Final = "lower"
HIGHER: Final = "higher"

_DIRECTIONS: Final = (
    (rf"(.*\.)?({'|'.join([latency.field for latency in LATENCIES])})\..*", LOWER),
    (r"(.*\.)?(rejected|dropped_unservable|timed_out)", LOWER),
    (r"requests\.(still_queued|length_capped)", LOWER),
    (r"(.*\.)?kv\.(preemptions|preempted_requests|allocation_failures)", LOWER),
    (r"(requests|slo_classes\..*|tenants\..*)\.completed", HIGHER),
    (r"throughput\..*", HIGHER),
)
"""Pattern of a metric's whole name -> which direction is better. Metrics that are not listed have no obvious direction.
Throughput in the `steady` half follows the arrivals there and includes earlier backlog; preempted requests hit the
cache with their own blocks, so more hits may mean more repeated work; the number running grows if more requests are
admitted."""
_COUNTS: Final = re.compile(r"(.*\.)?(rejected|dropped_unservable|timed_out|completed|kv\..*)|requests\..*")
"""Of these, counts of requests and preemptions: they follow the number of requests that arrive."""
_RATES: Final = re.compile(r"throughput\..*")
"""Of these, rates: they follow the rate of the arrivals."""

_PATTERNS: Final = tuple((re.compile(pattern), direction) for pattern, direction in _DIRECTIONS)

_MAIN: Final = re.compile(
    r"(requests|tokens|throughput|kv)\..*|(offered|steady)\..*_per_s|duration_us|(latency|slo_classes|tenants)\..*\.(mean|p50|p99|max)"
    r"|(slo_classes|tenants)\..*\.(completed|rejected|timed_out)"
)
"""The main figures; the others are shown only on request."""

_LARGEST: Final = 2**63 - 1
"""Integers in reports are counts and microseconds."""

_LONGEST: Final = 40
_NO_NUMBER: Final = "`blis-tui explain METRIC` says what it is; write the file again with `blis-tui run -o FILE.json`"
_NO_RESULTS: Final = frozenset({"meta", "step_time", "expectations", "warnings"})
"""Parts of a report that describe the input, or judge the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure of both reports; None if a report does not have it, or nothing was observed."""

    metric: str
    a: float | None
    b: float | None
    judged: bool = True
    """Whether a change can be called better or worse: the two runs are alike in what the figure follows."""

    @property
    def differs(self) -> bool:
        """Whether the two figures differ."""
        return self.a != self.b

    @property
    def main(self) -> bool:
        """Whether it is one of the main figures."""
        return _MAIN.fullmatch(self.metric) is not None

    @property
    def tenant(self) -> str:
        """The tenant of the figure; empty for other figures."""
        part, _, rest = self.metric.partition(".")
        return rest.partition(".")[0] if part == "tenants" else ""

    @property
    def change(self) -> float | None:
        """``b - a``; None if one of them is missing."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def relative(self) -> float | None:
        """The change relative to ``a``; None if that is undefined."""
        return None if self.change is None or not self.a else self.change / abs(self.a)

    @property
    def is_noise(self) -> bool:
        """Whether the figures differ by no more than noise."""
        return self.differs and self.a is not None and self.b is not None and not exceeds_noise(self.a, self.b)

    @property
    def verdict(self) -> str:
        """``better`` or ``worse``; empty if the change is zero or noise, or it has no obvious direction."""
        direction = direction_of(self.metric)
        if not self.change or self.is_noise or direction is None or not self.judged:
            return ""
        return "better" if (self.change > 0) == (direction == HIGHER) else "worse"

    def to_dict(self) -> dict[str, object]:
        """Return the row as plain data."""
        return {
            "metric": self.metric,
            "a": self.a,
            "b": self.b,
            "change": self.change,
            "relative": self.relative,
            "verdict": self.verdict or None,
        }


def exceeds_noise(a: float, b: float) -> bool:
    """Return whether a figure changes by more than noise."""
    return abs(b - a) > THRESHOLD * abs(a)


def direction_of(metric: str) -> str | None:
    """Return which direction is better, :data:`LOWER` or :data:`HIGHER`; None if neither obviously is."""
    return next((direction for pattern, direction in _PATTERNS if pattern.fullmatch(metric)), None)


def rows(a: Mapping[str, object], b: Mapping[str, object]) -> list[ComparedFigure]:
    """Return all figures of two reports, in the order of the first; figures only in the second come last."""
    left, right = dict(_figures(a)), dict(_figures(b))
    names = [*left, *(name for name in right if name not in left)]
    as_many = left.get("requests.total") == right.get("requests.total")
    # Another load, or another seed, has another first arrival; how later ones follow may depend on the results.
    alike = as_many and left.get("offered.first_arrival_us") == right.get("offered.first_arrival_us")
    return [
        ComparedFigure(
            metric=name,
            a=left.get(name, zero_if_omitted(name)),
            b=right.get(name, zero_if_omitted(name)),
            judged=alike if _RATES.fullmatch(name) else as_many or not _COUNTS.fullmatch(name),
        )
        for name in names
    ]


def _figures(report: Mapping[str, object]) -> Iterator[tuple[str, float | None]]:
    for name, part in report.items():
        if name not in _NO_RESULTS:
            yield from _leaves(name, part)


def _leaves(name: str, value: object) -> Iterator[tuple[str, float | None]]:
    for path, leaf in _values(name, value):
        if leaf is None or (isinstance(leaf, int | float) and not isinstance(leaf, bool)):
            yield path, leaf


def _values(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield every value in a part of a report that is neither a map nor a list, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _values(f"{name}.{key}", inner)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _values(f"{name}.{at}", inner)
    else:
        yield name, value


def _texts(report: Mapping[str, object]) -> Iterator[tuple[str, str | bool]]:
    """Yield the non-numeric results of a report."""
    for name, part in report.items():
        if name not in _NO_RESULTS:
            for path, value in _values(name, part):
                if isinstance(value, str | bool):
                    yield path, value


def _shown(value: str | bool) -> str:
    """Return a value as JSON, truncated if it is long."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


# ---- requests ----

MOST_AFFECTED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """A request and its end-to-end times, in microseconds."""

    request_id: str
    b_request_id: str
    """Its name in the second run: those of calls of sessions may differ, because names count arrivals."""
    a_us: int
    b_us: int

    @property
    def change_us(self) -> int:
        """``b - a``, in microseconds."""
        return self.b_us - self.a_us


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCounts:
    """Number of requests that ended in state ``a`` in one run and in state ``b`` in the other."""

    a: str
    b: str
    count: int


def different_ends(states: Iterable[tuple[str, str]]) -> tuple[OutcomeCounts, ...]:
    """Count the requests that did not end in the same state in both runs, by frequency."""
    fates = Counter(both for both in states if both[0] != both[1])
    return tuple(OutcomeCounts(a=first, b=second, count=count) for (first, second), count in fates.most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestChanges:
    """The requests of two runs, matched by name; calls of sessions by session and number."""

    common: int
    """Requests in both runs with equal arrival (of the session, for its calls) and prompt length."""
    other: int
    """Matching requests with another arrival or prompt, which are excluded from all fields below."""
    only_a: int
    only_b: int
    compared: int
    """Common requests that completed in both runs."""
    slower: int
    """Compared requests whose end-to-end time grew by more than noise."""
    faster: int
    different_ends: tuple[OutcomeCounts, ...]
    """Requests with different outcomes, by frequency."""
    most_affected: tuple[Affected, ...]
    """By the size of the change; ties by the earlier arrival."""

    def to_dict(self) -> dict[str, object]:
        """Return the changes as plain data."""
        return {
            **{name: getattr(self, name) for name in ("common", "other", "only_a", "only_b", "compared")},
            "threshold": THRESHOLD,
            "slower": self.slower,
            "faster": self.faster,
            "different_ends": [asdict(counts) for counts in self.different_ends],
            "most_affected": [{**asdict(change), "change_us": change.change_us} for change in self.most_affected],
        }


def request_changes(a: Sequence[RequestRow], b: Sequence[RequestRow]) -> RequestChanges:
    """Match the requests of two runs and summarise how their outcomes differ."""
    matched = match(a, b, arrivals=True)
    timed: list[Affected] = []
    for row, other in matched.pairs:
        if row.e2e_us is not None and other.e2e_us is not None:
            names = (row.request_id, other.request_id)
            timed.append(Affected(request_id=names[0], b_request_id=names[1], a_us=row.e2e_us, b_us=other.e2e_us))
    changed = sorted((change for change in timed if change.change_us), key=lambda change: -abs(change.change_us))
    beyond = [change for change in changed if exceeds_noise(change.a_us, change.b_us)]
    slower = sum(change.change_us > 0 for change in beyond)
    return RequestChanges(
        common=len(matched.pairs),
        other=matched.different,
        only_a=matched.only_a,
        only_b=matched.only_b,
        compared=len(timed),
        slower=slower,
        faster=len(beyond) - slower,
        different_ends=different_ends((row.state, other.state) for row, other in matched.pairs),
        most_affected=tuple(changed[:MOST_AFFECTED]),
    )


# ---- whole comparisons ----


class ComparedRun(Protocol):
    """One side of a comparison."""

    @property
    def source(self) -> str:
        """The user's name for it."""

    @property
    def name(self) -> str:
        """Name of the experiment."""

    @property
    def overrides(self) -> tuple[str, ...]:
        """Its overrides from the command line."""

    @property
    def seed(self) -> int:
        """Seed of the experiment."""

    @property
    def sha256(self) -> str:
        """Digest of the experiment."""

    @property
    def document(self) -> Mapping[str, object] | None:
        """The resolved experiment; None = only its results are known."""

    @property
    def figures(self) -> Mapping[str, object]:
        """The report as plain data."""

    @property
    def rows(self) -> Sequence[RequestRow] | None:
        """The outcome of each request; None = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """An experiment, and the report of its run."""

    experiment: Experiment
    source: str
    overrides: tuple[str, ...] = ()
    report: Report

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.experiment.name

    @property
    def seed(self) -> int:
        """Seed of the experiment."""
        return self.experiment.seed

    @property
    def sha256(self) -> str:
        """Digest of the experiment."""
        return self.experiment.sha256

    @property
    def document(self) -> Mapping[str, object]:
        """The resolved experiment."""
        return self.experiment.document

    @property
    def figures(self) -> Mapping[str, object]:
        """The report as plain data."""
        return self.report.to_dict()

    @property
    def rows(self) -> Sequence[RequestRow]:
        """The outcome of each request."""
        return self.report.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A report from a file: written by ``run``, of a golden, or in a bundle."""

    source: str
    name: str
    seed: int
    sha256: str
    figures: Mapping[str, object]
    document: Mapping[str, object] | None = None

    @property
    def overrides(self) -> tuple[str, ...]:
        """Empty, because overrides are already applied in the file."""
        return ()

    @property
    def rows(self) -> None:
        """None, because reports do not contain requests."""
        return


def stored(source: str, report: object, document: Mapping[str, object] | None = None) -> Stored:
    """Return a side from a report as plain JSON data.

    Raises:
        InputError: it is not a report.
    """
    meta = report.get("meta") if isinstance(report, dict) else None
    if not isinstance(report, dict) or not isinstance(meta, dict) or not isinstance(report.get("requests"), dict):
        raise InputError(f"{source} is not a report", help="reports are what `blis-tui run -o FILE.json` writes")
    name, seed, sha256 = meta.get("experiment"), meta.get("seed"), meta.get("spec_sha256")
    if not (isinstance(name, str) and isinstance(seed, int) and isinstance(sha256, str)):
        raise InputError(
            f"{source} does not say which experiment it reports", help="its `meta` is not that of a report"
        )
    for metric, value in _figures(report):
        if value is not None and not (abs(value) <= _LARGEST if isinstance(value, int) else isfinite(value)):
            shown = f"{value}" if isinstance(value, float) else "more than 64 bits"
            raise InputError(f"{source} is not a report: `{metric}` is {shown}", help="no run writes such a figure")
    for metric, text in _texts(report):
        if any("number" in figure.field.type for figure in figures_at(metric)):
            raise InputError(f"{source} is not a report: `{metric}` is {_shown(text)}, not a number", help=_NO_NUMBER)
    return Stored(source=source, name=name, seed=seed, sha256=sha256, figures=report, document=document)


def _side_data(side: ComparedRun) -> dict[str, object]:
    return {
        "experiment": side.name,
        "source": side.source,
        "overrides": list(side.overrides),
        "spec_sha256": side.sha256,
        "seed": side.seed,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two experiments or results, and all differences between them."""

    a: ComparedRun
    b: ComparedRun
    spec: tuple[Difference, ...] | None
    """Differences of the experiments; None = one of them is unknown."""
    metrics: tuple[ComparedFigure, ...]
    requests: RequestChanges | None
    """Differences of the requests; None = the requests of one side are unknown."""
    notes: tuple[str, ...] = ()
    """Remarks on the comparison itself."""

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """What the trace formats of both sides left out; shared entries appear once."""
        omissions = [
            omission for side in (self.a, self.b) if isinstance(side, Simulated) for omission in side.report.left_out
        ]
        return tuple(dict.fromkeys(omissions))

    @property
    def results_differ(self) -> bool:
        """Whether any figure, or the outcome of any request, differs."""
        requests = self.requests
        if any(row.differs for row in self.metrics):
            return True
        if requests is None:
            return False
        most = max(len(self.a.rows or ()), len(self.b.rows or ()))
        return bool(requests.different_ends or requests.most_affected) or requests.common < most

    def shown_metrics(self, *, everything: bool) -> list[ComparedFigure]:
        """Return the main figures that differ, or all figures. A group that contains all requests is left out."""
        if everything:
            return list(self.metrics)
        only_groups = tuple(
            f"{part}."
            for part in ("slo_classes", "tenants")
            if max(_size(side.figures.get(part)) for side in (self.a, self.b)) < 2
        )
        return [row for row in self.metrics if row.differs and row.main and not row.metric.startswith(only_groups)]

    def to_dict(self, *, everything: bool = False) -> dict[str, object]:
        """Return the comparison as plain data; ``everything`` includes equal and minor figures."""
        return {
            "a": _side_data(self.a),
            "b": _side_data(self.b),
            "notes": list(self.notes),
            "spec": None if self.spec is None else [difference.to_dict() for difference in self.spec],
            "results_differ": self.results_differ,
            "metrics_differing": sum(row.differs for row in self.metrics),
            "metrics": [row.to_dict() for row in self.shown_metrics(everything=everything)],
            "requests": None if self.requests is None else self.requests.to_dict(),
        }


def _size(part: object) -> int:
    return len(part) if isinstance(part, dict) else 0


def simulate(*experiments: Experiment) -> Iterator[Report]:
    """Yield the report of each experiment; equal experiments are simulated only once.

    Raises:
        SimulationError: one of them cannot go on.
        TraceError: rows of a recorded workload are invalid.
    """
    known: dict[tuple[str, int], Report] = {}
    for experiment in experiments:
        key = (experiment.sha256, experiment.seed)
        if key not in known:
            known[key] = _report(experiment)
        yield known[key]


def _report(experiment: Experiment) -> Report:
    simulation = Simulation(experiment)
    simulation.run()
    return simulation.report()


def compare(a: ComparedRun, b: ComparedRun, notes: tuple[str, ...] = ()) -> Comparison:
    """Compare two sides, as far as both are known."""
    left, right = a.document, b.document
    return Comparison(
        a=a,
        b=b,
        spec=None if left is None or right is None else tuple(experiment_differences(left, right)),
        metrics=tuple(rows(a.figures, b.figures)),
        requests=None if a.rows is None or b.rows is None else request_changes(a.rows, b.rows),
        notes=(*notes, *_engines(a, b)),
    )


def _engines(a: ComparedRun, b: ComparedRun) -> Iterator[str]:
    """Yield a note if the two sides were simulated by different engines."""
    left, right = (side.figures.get("meta") for side in (a, b))
    if isinstance(left, dict) and isinstance(right, dict) and left.get("engine") != right.get("engine"):
        was, now = (_shown(str(meta.get("engine", ""))) for meta in (left, right))
        yield f"A was made by engine {was}, B by engine {now} (`meta.engine`): metrics may differ for that reason alone"


class Matched(NamedTuple):
    """The requests of two runs, matched."""

    pairs: list[tuple[RequestRow, RequestRow]]
    """The same request in both runs, in the order of the first."""
    different: int
    """Requests of the first run whose counterpart in the second is another request."""
    only_a: int
    only_b: int


def match(a: Sequence[RequestRow], b: Sequence[RequestRow], *, arrivals: bool) -> Matched:
    """Match the requests of two runs: calls of sessions by session and number, others by name.

    Args:
        a: the requests of one run.
        b: the requests of the other one.
        arrivals: requests are the same if they have the same prompt length and arrive (a session: begins) at the same
            time; otherwise if prompt and answer have the same lengths, as in two runs of one workload.
    """
    asked_a, asked_b = (_asked(rows, arrivals=arrivals) for rows in (a, b))
    others = {_identity(row): (row, asked) for row, asked in zip(b, asked_b, strict=True)}
    pairs: list[tuple[RequestRow, RequestRow]] = []
    common = 0
    for row, asked in zip(a, asked_a, strict=True):
        other, asked_there = others.get(_identity(row), (None, asked))
        if other is None:
            continue
        common += 1
        if asked == asked_there:
            pairs.append((row, other))
    return Matched(pairs, common - len(pairs), len(a) - common, len(others) - common)


def _identity(row: RequestRow) -> str | tuple[str, int]:
    return row.request_id if row.round_index is None else (row.session_id, row.round_index)


def _asked(rows: Sequence[RequestRow], *, arrivals: bool) -> list[tuple[int, int]]:
    """Return what must be equal in both runs, for each request."""
    if not arrivals:
        return [(row.input_tokens, row.requested_output_tokens) for row in rows]
    begun: dict[str, int] = {}
    for row in rows:
        if row.round_index is not None:
            begun[row.session_id] = min(begun.get(row.session_id, row.arrival_us), row.arrival_us)
    return [(row.input_tokens, begun.get(row.session_id, row.arrival_us)) for row in rows]
