"""What is asked of the planner, and what it answers: a configuration with everything that was tried."""

from __future__ import annotations

from dataclasses import field
from math import fsum, sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.units import plural
from blis_tui.engine.client_times import ServiceTimes
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.planning.driver import Run
from blis_tui.study.planning.search import (
    failure_reason,
    margins,
    verdict_of,
)
from blis_tui.study.sensitivity import PROCESSES
from blis_tui.study.steady import SECTION
from blis_tui.study.study_rows import numbers

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.model import Expectation, Experiment
    from blis_tui.results.expected_error import Expectation as Expected
    from blis_tui.spec.study.study_records import Point, Study
    from blis_tui.study.planning.search import Knee, Margin
    from blis_tui.study.planning.slower import SlowServer
    from blis_tui.study.steady import Steady
    from blis_tui.study.study_rows import Row


INSTANCES: Final = "cluster.instances"
"""The usual size path."""


DISAGREEMENT: Final = 1.2
"""Maximum ratio between the figures of two step-time models before it is reported."""


DURATION_S: Final = 90.0
"""Default minimum of simulated time."""


USUAL_CONFIDENCE: Final = 0.9
"""Default confidence: the answer is tested on a server as slow as 1 in 10 measured ones."""


COSTS: Final = ("cost.usd_per_hour", "cost.gpus")
"""The figures by which configurations are compared: money if all of them have a price, else GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The planner's question.

    Answering it raises InputError if the workload's rate must be varied but cannot be, and SpecError if no run can have
    that rate.
    """

    study: Study
    """Its points are the configurations, its constraints the bounds, its seeds the runs that must agree."""
    rate_per_s: float | None = None
    """The load; None = the experiment's own."""
    max_rate: bool = False
    """Whether to find the highest rate instead of the cheapest size."""
    size_path: str = INSTANCES
    """Path of the size to search."""
    least: int = 1
    most: int = 64
    duration_s: float = DURATION_S
    """Minimum simulated time before bounds are said to hold; where a run ends by itself (a horizon), minimum time
    during which requests arrive."""
    headroom: float = 0.0
    """Share by which the load may be higher: bounds hold at the load times 1 + this; not with ``max_rate``."""
    spare: int = 0
    """Number of instances that may be down: bounds hold with as many fewer; not with ``max_rate``."""
    precision: float = 0.075
    """Maximum width of the found rate interval, relative to its lower end, if seeds agree."""
    confidence: float | None = None
    """The share of measured servers with no slower steps than the answer allows for; None = the answer holds with the
    expected step times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The runs of one configuration at one size and rate."""

    size: int | None
    rate_per_s: float | None
    rows: tuple[Row, ...]
    seeds: int
    """Number of seeds; greater than the number of rows if all seeds gave the same run, which is then stored once."""
    steady: Steady | None = None
    """What the runs were asked of the long run; None = they ended by themselves."""

    @property
    def ignores_seed(self) -> bool:
        """Whether the seed makes no difference."""
        return self.seeds > len(self.rows)

    @property
    def holding(self) -> int:
        """Number of rows that hold."""
        return len([row for row in self.rows if not failure_reason(row)])

    @property
    def all_hold(self) -> bool:
        """Whether every row holds."""
        return self.holding == len(self.rows)

    @property
    def known(self) -> bool:
        """Whether runs of it were decided, or some fail."""
        failing = [row for row in self.rows if failure_reason(row)]
        return not failing or any(row.in_long_run != "not known" for row in failing)

    def mean(self, metric: str) -> float | None:
        """Return the mean of a figure over the completed runs; None if there is none."""
        values = self.values(metric)
        return fsum(values) / len(values) if values else None

    def values(self, metric: str) -> list[float]:
        """Return a figure of each completed run."""
        return numbers((row for row in self.rows if row.status == "done"), metric)

    def nearest(self, bounds: tuple[Expectation, ...], metric: str = "") -> tuple[Margin, Row] | None:
        """Return the bound (of a metric) with the least margin, or exceeded most, and its run; None = no figure.

        All seeds must hold, so this run decides.
        """
        margins_of_rows = [
            (margin, row) for row in self.rows if row.status == "done" for margin in margins(row, bounds)
        ]
        wanted = [each for each in margins_of_rows if metric in ("", each[0].metric)]
        return max(wanted, key=lambda each: each[0].of_bound, default=None)

    @property
    def nearest_limit(self) -> tuple[str, float, float] | None:
        """Return the metric of which most of what may be beyond its bound is, that share, and its limit.

        The metric is empty for what every bound needs: that nearly all are served. None = runs were not judged so.
        """
        judged = [
            (str(row.figures.get(f"{SECTION}.bound")), beyond, limit)
            for row in self.rows
            if isinstance(beyond := row.figures.get(f"{SECTION}.beyond"), int | float)
            and isinstance(limit := row.figures.get(f"{SECTION}.beyond_limit"), int | float)
            and limit > 0
        ]
        return max(judged, key=lambda share: share[1] / share[2], default=None)

    def figure(self, metric: str, bounds: tuple[Expectation, ...]) -> float | None:
        """Return the figure to report for several seeds: that of the deciding run, or the mean if none decides."""
        nearest = self.nearest(bounds, metric)
        return self.mean(metric) if nearest is None else nearest[0].value


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The answer for one configuration."""

    point: Point
    size: int | None
    """The smallest size that holds; with ``max_rate`` the configuration's own."""
    knee: Knee | None = None
    """With ``max_rate``, the interval of rates that contains the knee."""
    why_not: str = ""
    """Why nothing holds; empty = something does."""
    not_known: bool = False
    """Whether nothing was tried because the possible slowdown of servers is unknown; ``why_not`` has the reason."""
    of: str = "requests"
    """What arrives at the rates: ``requests``, ``sessions`` of several requests, or ``arrivals`` of both."""
    recorded: bool = False
    """Whether the workload is a trace, which is the same with every seed."""
    spare: int = 0
    """Number of instances of ``size`` that may be down."""
    tried: tuple[Trial, ...] = ()
    """All runs, by size, then by rate."""
    capacity_per_s: float | None = None
    """What one unit of size serves per second, roughly; None = not known."""
    expected: Mapping[str, tuple[str, Expected]] = field(default_factory=dict)
    """Pool -> its step-time model, and the expected errors of the means of the deciding run; empty without an answer.
    """

    @property
    def measured(self) -> bool:
        """Whether errors of step times were measured on servers like those of the answer."""
        return bool(self.expected) and all("itl" in known.bands for _, known in self.expected.values())

    @property
    def coordinates(self) -> Mapping[str, Json]:
        """The values that define the configuration."""
        return self.point.coordinates

    @property
    def accuracy(self) -> float | None:
        """Relative standard error of the rate; None if no rate was found.

        The rate of N Poisson arrivals (all seeds together) has a relative standard error of 1 / sqrt(N). Closer rates
        cannot be distinguished by these runs, and near its knee a seed's verdict may alternate, because it is monotone
        only in expectation. The rate of recorded arrivals is exact.
        """
        trial = None if self.knee is None else self.found
        if trial is None:
            return None
        if self.recorded:
            return 0.0
        arrivals = fsum(trial.values("requests.total" if self.of == "requests" else "sessions.started"))
        return 1 / sqrt(arrivals) if arrivals else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval that contains the knee: the rates of ``knee``, widened by the accuracy; None if unknown."""
        knee, off = self.knee, self.accuracy
        if knee is None or knee.holds is None or knee.fails is None or off is None:
            return None
        return knee.holds / (1 + off), knee.fails * (1 + off)

    def __repr__(self) -> str:
        """Return one line, without the runs."""
        size = "" if self.size is None else f", size {self.size}"
        rate = "" if self.knee is None or self.knee.holds is None else f", {self.knee.holds:g} {self.of}/s"
        return f"<Candidate {self.coordinates}{size}{rate}: {self.why_not or 'holds'}>"

    def at(self, *, size: int | None, rate_per_s: float | None) -> Trial | None:
        """Return the runs at a size and rate, if there are any."""
        return next((trial for trial in self.tried if (trial.size, trial.rate_per_s) == (size, rate_per_s)), None)

    @property
    def found(self) -> Trial | None:
        """The runs at the answer."""
        rate = self.knee.holds if self.knee is not None else next((trial.rate_per_s for trial in self.tried), None)
        return None if self.why_not else self.at(size=self.size, rate_per_s=rate)

    @property
    def decides(self) -> Trial | None:
        """The runs that had to hold: those at the answer, or with as many fewer instances as may be down."""
        trial = self.found
        if trial is None or self.size is None or not self.spare:
            return trial
        return self.at(size=self.size - self.spare, rate_per_s=trial.rate_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherEstimate:
    """The value of a figure at the answer with another step-time model, or with slower steps."""

    kind: str
    metric: str
    value: float
    own: float
    holds: bool
    """Whether all bounds would hold."""

    @property
    def apart(self) -> bool:
        """Whether the two values differ too much to ignore."""
        low, high = sorted((self.value, self.own))
        return high > DISAGREEMENT * low


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The planner's answer."""

    question: Question
    candidates: tuple[Candidate, ...]
    """One for each configuration, in the order of the study's points."""
    best: Candidate | None
    """The cheapest that holds, or the one with the highest rate; None = nothing holds."""
    best_measured: Candidate | None
    """The best of those whose step times have a known error; None = none of those that hold."""
    cost: str
    """The figure by which configurations were compared."""
    binding: Margin | None
    """The bound with the least margin at the answer, in the deciding run."""
    kind: str
    """The step-time model of the answer's first pool; empty without an answer."""
    opinions: tuple[OtherEstimate, ...]
    """Results of the other step-time models whose error on such servers is known; only for expected step times."""
    slower: SlowServer | str | None
    """A server as slow as ``confidence`` or ``USUAL_CONFIDENCE`` requires; a text = why it is unknown."""
    if_slower: OtherEstimate | None
    """Effect of such a server on the tightest bound, if the answer assumes expected step times."""
    on_slower: Candidate | None
    """If the bounds do not hold on such a server: the answer for it, with the same configuration."""
    as_expected: Candidate | None
    """With ``confidence``: the answer without it."""
    front_end: MoreProcesses | None
    """One instance less, if it would do with more API server processes."""
    ties: tuple[Candidate, ...]
    """Equally cheap candidates (with the same rate) with smaller margins, or later in the study."""
    drawn: tuple[str, ...]
    """For recorded requests whose seeds still make different runs: what the seeds decide, in words."""
    warnings: Mapping[str, str]
    """Warnings of the runs at the answer: id -> message, from the first run that has it."""
    runs: int
    """Number of runs, including known ones."""

    @property
    def expected(self) -> Mapping[str, tuple[str, Expected]]:
        """Pool -> its step-time model, and the expected errors of the deciding run's means; empty without an answer."""
        return {} if self.best is None else self.best.expected

    def __repr__(self) -> str:
        """Return one line, without the runs."""
        best = "nothing holds" if self.best is None else f"best {self.best!r}"
        return f"<Plan {self.question.study.name}: {best} of {len(self.candidates):,}, {plural(self.runs, 'run')}>"


def run_experiment(study: Study, row: Row) -> Experiment:
    """Return the experiment of a run."""
    return experiment_of(study, row.point, row.seed)


# ---- front end ----


_BUSY: Final = 0.5
"""Share of its time from which on an API server may be what limits an instance."""


class MoreProcesses(NamedTuple):
    """A smaller size that would do with more API server processes on each instance."""

    size: int
    processes: int


def busy_processes(experiment: Experiment, rate_per_s: float, size: int) -> int | None:
    """Return the number of API server processes of instances whose processes would be busy; None = they would not."""
    engine, latency = experiment.pools[0].engine, experiment.pools[0].latency
    if engine.front_end is None and latency.kind != "operators":
        return None
    usual = latency.settings.get("request_us") if latency.kind == "operators" else None
    times = ServiceTimes() if not isinstance(usual, int | float) else ServiceTimes(request_us=usual)
    times = times.given(engine.front_end)
    share = rate_per_s / size * times.request_us / 1e6 / times.processes
    return times.processes if share > _BUSY else None


def more_processes(
    rows: Sequence[Row], steady: Steady | None, bounds: tuple[Expectation, ...], tried: MoreProcesses
) -> Generator[list[Run], list[Row], MoreProcesses | None]:
    """Repeat the runs of a size that was not enough, with more processes; None = that is not enough, either."""
    values = {PROCESSES: tried.processes}
    again = yield [Run(point=row.point, values=values, seed=row.seed, steady=steady) for row in rows]
    return tried if all(verdict_of(row, bounds).holds for row in again) else None
