"""The planner finds the cheapest configuration that sustains a rate, or the rate that a configuration sustains."""

from __future__ import annotations

from dataclasses import field, replace
from math import ceil, fsum, sqrt
from typing import TYPE_CHECKING, Final, TypeVar

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.diagnostics import Diagnostic, about, located
from blis_tui.base.errors import InputError, SpecError
from blis_tui.base.source import Location, Source, Span, as_list, as_map
from blis_tui.base.streams import Stream
from blis_tui.base.units import plural
from blis_tui.engine.options.drafts import AcceptanceSampler
from blis_tui.results.expected_error import known_for
from blis_tui.runs.checkpoints import objects_from
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.resolve import CHOICES
from blis_tui.spec.study.document import experiment_of, resolve_point
from blis_tui.spec.study.model import Point
from blis_tui.study.bounds import counts_up
from blis_tui.study.planning.driver import Driver, Run
from blis_tui.study.planning.load import capacity_of, load_of
from blis_tui.study.planning.opinions import (
    LATER,
    MoreProcesses,
    SlowServer,
    busy_processes,
    metrics_bounded,
    more_processes,
    slower,
)
from blis_tui.study.planning.search import (
    Verdict,
    failure_reason,
    hopeless_idle,
    margins,
    search_rate,
    search_size,
    verdict_of,
)
from blis_tui.study.steady import Steady
from blis_tui.study.store import MemoryStore
from blis_tui.study.summary import expected_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from blis_tui.base.source import Json
    from blis_tui.cluster.cluster import Cluster
    from blis_tui.model import Expectation, Experiment
    from blis_tui.results.expected_error import Expectation as Expected
    from blis_tui.spec.overrides import Override
    from blis_tui.spec.study.model import Study
    from blis_tui.study.planning.load import Load
    from blis_tui.study.planning.search import Knee, Margin, Probe
    from blis_tui.study.rows import Row
    from blis_tui.study.runners import Runner
    from blis_tui.study.store import Store


T = TypeVar("T")

INSTANCES: Final = "cluster.instances"
"""The usual size path."""
_OF_FORM: Final = "BLIS1"
"""Prefix of the codes of problems that no value of another key can solve."""
_OF_CAPACITY: Final = 1.1
"""Start of a rate search relative to the capacity; requests that do not come all at once meet fuller batches."""
DISAGREEMENT: Final = 1.2
"""Maximum ratio between the figures of two step-time models before it is reported."""
DURATION_S: Final = 90.0
"""Default minimum of simulated time."""
USUAL_CONFIDENCE: Final = 0.9
"""Default confidence: the answer is tested on a server as slow as 1 in 10 measured ones."""
_CENTS: Final = 6
"""Prices are equal if they agree to this many digits; sums of the same prices may differ in the last ones."""
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
    precision: float = 0.1
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
    def known(self) -> bool:
        """Whether runs of it were decided, or some fail."""
        failing = [row for row in self.rows if failure_reason(row)]
        return not failing or any(row.in_long_run != "not known" for row in failing)

    def mean(self, metric: str) -> float | None:
        """Return the mean of a figure over the completed runs; None if there is none."""
        found = self.values(metric)
        return fsum(found) / len(found) if found else None

    def values(self, metric: str) -> list[float]:
        """Return a figure of each completed run."""
        found = [row.figures.get(metric) for row in self.rows if row.status == "done"]
        return [float(one) for one in found if isinstance(one, int | float) and not isinstance(one, bool)]

    def nearest(self, bounds: tuple[Expectation, ...], metric: str = "") -> tuple[Margin, Row] | None:
        """Return the bound (of a metric) with the least margin, or exceeded most, and its run; None = no figure.

        All seeds must hold, so this run decides.
        """
        found = [(one, row) for row in self.rows if row.status == "done" for one in margins(row, bounds)]
        wanted = [each for each in found if metric in ("", each[0].metric)]
        return max(wanted, key=lambda each: each[0].of_bound, default=None)

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
        found = None if self.knee is None else self.found
        if found is None:
            return None
        if self.recorded:
            return 0.0
        arrivals = fsum(found.values("requests.total" if self.of == "requests" else "sessions.started"))
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
        return next((one for one in self.tried if (one.size, one.rate_per_s) == (size, rate_per_s)), None)

    @property
    def found(self) -> Trial | None:
        """The runs at the answer."""
        rate = self.knee.holds if self.knee is not None else next((one.rate_per_s for one in self.tried), None)
        return None if self.why_not else self.at(size=self.size, rate_per_s=rate)

    @property
    def decides(self) -> Trial | None:
        """The runs that had to hold: those at the answer, or with as many fewer instances as may be down."""
        found = self.found
        if found is None or self.size is None or not self.spare:
            return found
        return self.at(size=self.size - self.spare, rate_per_s=found.rate_per_s)


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


def plan(
    question: Question,
    runner: Runner,
    store: Store | None = None,
    on_run: Callable[[Row], None] = lambda _: None,
    warn: Callable[[str], None] | None = None,
) -> Plan:
    """Answer a question.

    Args:
        question: the question.
        runner: makes the runs.
        store: where results are looked up and kept.
        on_run: called with each run, in the order in which they end.
        warn: called once for each problem that does not stop the search: results that cannot be kept, or trace entries
            that are no requests.

    Raises:
        InputError: there are no bounds, or the workload's rate cannot be varied.
        SpecError: no run can have the requested rate, or no request arrives in it; or the size path is no key.
        SimulationError: the runner cannot make runs any more.
    """
    study = question.study
    if not study.constraints:
        raise InputError(
            "there is nothing to plan for",
            help="add a bound: --slo 'latency.ttft_ms.p99<=300', slos=[…] from Python",
        )
    _require_sense(question)
    driver = Driver(study, MemoryStore() if store is None else store, on_run, warn)
    searches = [_Configuration(question, point).search() for point in study.points]
    if question.confidence is not None:
        searches += [_Configuration(question, point, question.confidence).search() for point in study.points]
    answers = driver.answer(searches, runner)
    candidates = tuple(_with_errors(question, one) for one in answers[-len(study.points) :])
    expected = answers[: len(study.points)]
    choice = _choose(question, candidates)
    best, found = choice.best, None if choice.best is None else choice.best.decides
    asked = best is not None and question.confidence is None
    second = driver.answer([_other_estimates(question, best)], runner)[0] if asked and best is not None else ()
    experiment = None if best is None else experiment_of(study, _sized(question, best), study.seeds[0])
    slow = None if best is None else slower(study, _sized(question, best), question.confidence or USUAL_CONFIDENCE)
    if_slower = on_slower = None
    if asked and found is not None and isinstance(slow, SlowServer) and max(slow.times, slow.later) > 1.0:
        (if_slower,) = driver.answer([_if_slower(question, found, slow)], runner)
    if best is not None and if_slower is not None and not if_slower.holds:
        (on_slower,) = driver.answer([_Configuration(question, best.point, USUAL_CONFIDENCE, best).search()], runner)
    fewer: MoreProcesses | None = None
    if best is not None and experiment is not None and question.size_path == INSTANCES and not question.max_rate:
        (fewer,) = driver.answer([_one_less(question, best, experiment)], runner)
    pool = None if experiment is None else experiment.pools[0]
    rows = () if found is None else found.rows
    nearest = None if found is None else found.nearest(study.constraints)
    differs = found is not None and len(found.rows) > 1 and best is not None and best.recorded
    return Plan(
        question=question,
        candidates=candidates,
        best=best,
        best_measured=_choose(question, [one for one in candidates if one.measured]).best,
        cost=choice.cost,
        binding=None if nearest is None else nearest[0],
        kind="" if pool is None else pool.latency.kind,
        opinions=second,
        slower=slow,
        if_slower=if_slower,
        on_slower=on_slower,
        as_expected=None if question.confidence is None else _choose(question, expected).best,
        front_end=fewer,
        ties=choice.ties,
        drawn=other_random_draws(experiment) if differs and experiment is not None else (),
        warnings={name: message for row in reversed(rows) for name, message in row.warnings.items()},
        runs=driver.runs,
    )


def _require_sense(question: Question) -> None:
    """Raise InputError if parts of a question contradict each other."""
    if question.max_rate and (question.headroom or question.spare):
        what = "headroom" if question.headroom else "spare"
        raise InputError(f"{what} and the highest rate cannot be combined", help="give a rate to plan for")
    if question.spare and not question.size_path.endswith("instances"):
        raise InputError(
            f"{question.size_path} is no number of instances, so none of it can be down",
            help="leave out --spare, or let a number of instances grow: --sizes",
        )
    if question.spare >= question.most:
        raise InputError(
            f"of at most {plural(question.most, 'instance')}, {question.spare} cannot be down", help="see --sizes"
        )


def _one_less(
    question: Question, best: Candidate, experiment: Experiment
) -> Generator[list[Run], list[Row], MoreProcesses | None]:
    """Find whether one instance less is enough with twice as many API server processes, if these limit it."""
    found, size = best.decides, (best.size or 1) - best.spare - 1
    less = None if found is None else best.at(size=size, rate_per_s=found.rate_per_s)
    offered = None if less is None else less.mean("offered.requests_per_s")
    processes = None if offered is None else busy_processes(experiment, offered, size)
    if less is None or processes is None:
        return None
    tried = MoreProcesses(size=size, processes=2 * processes)
    return (yield from more_processes(less.rows, less.steady, question.study.constraints, tried))


def _with_errors(question: Question, one: Candidate) -> Candidate:
    """Return a configuration with the expected errors at its answer, which refer to step times as expected."""
    found, study = one.decides, question.study
    if found is None:
        return one
    nearest = found.nearest(study.constraints)
    row = found.rows[0] if nearest is None else nearest[1]
    slow = None if question.confidence is None else slower(study, _sized(question, one), question.confidence)
    more = parse_overrides(slow.values) if isinstance(slow, SlowServer) else ()
    kept = tuple(each for each in row.point.overrides if each not in more)
    return replace(one, expected=expected_of(study, replace(row, point=replace(row.point, overrides=kept))))


class _Choice(NamedTuple):
    best: Candidate | None
    ties: tuple[Candidate, ...]
    cost: str


def _choose(question: Question, candidates: Sequence[Candidate]) -> _Choice:
    """Return the best candidate that holds, and those that are equally cheap."""
    holding = [one for one in candidates if one.found is not None]
    cost = next((name for name in COSTS if all(_cost(one, name) is not None for one in holding)), COSTS[-1])
    if not holding:
        return _Choice(None, (), cost)
    order = [_order(question, one, cost) for one in holding]
    least = min(order)
    best = holding[order.index(least)]
    as_good = [one for one, place in zip(holding, order, strict=True) if place[:2] == least[:2] and one is not best]
    return _Choice(best, tuple(as_good), cost)


def _sized(question: Question, one: Candidate) -> Point:
    """Return the configuration's point with the size that was found."""
    size = {} if one.size is None or question.max_rate else {question.size_path: one.size}
    return Point(one.point.number, (*one.point.overrides, *parse_overrides(size)))


def _cost(one: Candidate, metric: str) -> float | None:
    return None if one.found is None else one.found.mean(metric)


def _order(question: Question, one: Candidate, cost: str) -> tuple[float, float, float, int]:
    """Return the sort key: cheapest or highest rate first, then the largest margin, then the order of the study."""
    price = round(_cost(one, cost) or 0.0, _CENTS)
    rate = 0.0 if not question.max_rate or one.knee is None or one.knee.holds is None else one.knee.holds
    nearest = None if one.decides is None else one.decides.nearest(question.study.constraints)
    return (-rate, price, 0.0 if nearest is None else nearest[0].of_bound, one.point.number)


def _experiment(study: Study, row: Row) -> Experiment:
    return experiment_of(study, row.point, row.seed)


class _Configuration:
    """One configuration whose size or rate is searched.

    Args:
        question: the question.
        point: the configuration.
        confidence: the share of measured servers that are no slower; None = step times are as expected.
        not_enough: an answer that does not hold on a slower server, from which the search goes on.
    """

    def __init__(
        self, question: Question, point: Point, confidence: float | None = None, not_enough: Candidate | None = None
    ) -> None:
        self._question = question
        self._confidence = confidence
        self._not_enough = not_enough
        self._slower: SlowServer | None = None
        self._study = question.study
        self._point = point
        self._of = "requests"
        self._recorded = False
        self._load: Load | None = None
        self._rows: dict[tuple[int | None, float | None], dict[int, Row]] = {}

    def search(self) -> Generator[list[Run], list[Row], Candidate]:
        """Request runs until the answer is known."""
        point = self._point
        try:
            document = as_map(resolve_point(self._study, point).document.data)
        except SpecError as error:
            size = self._question.least
            try:  # it may be valid with another number of instances
                point = Point(self._point.number, (*self._point.overrides, *self._size(size)))
                document = as_map(resolve_point(self._study, point).document.data)
            except SpecError:
                return self._candidate(None, why_not=error.diagnostics[0].message)
        if self._confidence is not None:
            slow = slower(self._study, point, self._confidence)
            if isinstance(slow, str):
                return self._candidate(None, why_not=slow, not_known=True)
            self._slower = slow
        load = self._load = yield from self._load_of(document)
        self._of = load.of
        own = _own_size(document, self._question.size_path)
        if self._question.max_rate:
            return (yield from self._highest_rate(load, own))
        self._require_room_to_grow(document)
        return (yield from self._least_size(load, own))

    def _load_of(self, document: Mapping[str, Json]) -> Generator[list[Run], list[Row], Load]:
        offered = None
        if isinstance(as_map(document.get("workload")).get("trace"), dict):
            self._recorded = True
            (row,) = yield [Run(point=self._point, values={}, seed=self._study.seeds[0])]
            found = row.figures.get("offered.requests_per_s")
            offered = float(found) if isinstance(found, int | float) else None
        metrics = tuple(one.metric for one in self._study.constraints)
        return load_of(document, metrics=metrics, duration_s=self._question.duration_s, offered=offered)

    def _highest_rate(self, load: Load, own: int) -> Generator[list[Run], list[Row], Candidate]:
        load.require_rate()
        known = None if self._not_enough is None or self._not_enough.knee is None else self._not_enough.knee.holds
        if known is not None:
            guess = known
        else:
            (flooded,) = yield [self._saturating_run(load, own)]
            capacity = capacity_of(flooded, load.of)
            guess = (load.own_rate_per_s or 1.0) if capacity is None else _OF_CAPACITY * capacity
        seeds = len(self._study.seeds)
        search = search_rate(guess, precision=self._question.precision, seeds=seeds, quick=load.endless)
        knee = yield from self._ask(search, lambda probe: (None, probe.value), load)
        why = ""
        if knee.fails == 0:
            why = "no rate holds, because even on an idle cluster " + self._reason(None, knee.fails)
        elif knee.holds is None:
            why = "no rate holds, however low: " + self._reason(None, knee.fails)
        return self._candidate(own, knee=knee, why_not=why)

    def _least_size(self, load: Load, own: int) -> Generator[list[Run], list[Row], Candidate]:
        question, seeds, spare = self._question, self._study.seeds, self._question.spare
        self._require_sizes()
        rate = self._required_rate(load)
        least, most, guess = max(1, question.least - spare), question.most - spare, own
        wanted = rate if rate is not None else load.own_rate_per_s
        if self._not_enough is not None:
            least = guess = (self._not_enough.size or 0) - spare + 1
        elif load.path and wanted is not None:
            found = yield from self._guessed_size(load, own, wanted)
            if isinstance(found, str):
                return self._candidate(None, why_not=found)
            guess = found
        search = search_size(guess, least=least, most=most, seeds=len(seeds), quick=load.endless)
        ends = yield from self._ask(search, lambda probe: (int(probe.value), rate), load)
        if ends.holds is None:
            return self._candidate(None, why_not=self._not_enough_text(ends.fails or most, rate))
        # That one more holds, too, is certain where runs last until it is known of the answer.
        beside = (ends.fails,) if load.endless else (ends.fails, ends.holds + 1)
        shown = [size for size in (*beside, ends.holds) if size is not None and least <= size <= most]
        shown += [ends.holds + spare] if spare else []
        wanted_runs = [(size, seed) for size in shown for seed in seeds]
        rows = self._judged((yield [self._run(size, rate, seed, load) for size, seed in wanted_runs]))
        for (size, seed), row in zip(wanted_runs, rows, strict=True):
            self._rows.setdefault((size, rate), {})[seed] = row
        return self._candidate(ends.holds + spare)

    def _required_rate(self, load: Load) -> float | None:
        """Return the rate at which bounds must hold; None = the workload's own.

        Raises:
            InputError: the rate must be varied, but cannot be.
            SpecError: no run can have that rate.
        """
        rate, headroom = self._question.rate_per_s, self._question.headroom
        if headroom:
            load.require_rate()
            own = load.own_rate_per_s if rate is None else rate
            rate = None if own is None else own * (1 + headroom)
        self._require_load(load, rate)
        return rate

    def _guessed_size(self, load: Load, own: int, wanted: float) -> Generator[list[Run], list[Row], int | str]:
        """Return about how many are needed, or why no number is enough."""
        question, bounds = self._question, self._study.constraints
        flooded, idle = yield [self._saturating_run(load, own), self._run(None, 0.0, self._study.seeds[0], load)]
        (idle,) = self._judged([idle])
        if hopeless_idle(idle, bounds):  # bursts stay bursts, but more instances may spread them
            (idle,) = self._judged((yield [self._run(question.most, 0.0, self._study.seeds[0], load)]))
        if wrong := hopeless_idle(idle, bounds):
            size = "number of instances" if question.size_path == INSTANCES else f"value of {question.size_path}"
            return f"no {size} is enough, because even on an idle cluster {wrong}"
        capacity = capacity_of(flooded, load.of)
        return own if capacity is None else ceil(wanted * own / capacity)

    def _not_enough_text(self, most: int, rate: float | None) -> str:
        """Return why nothing up to a size holds."""
        many = f"{self._question.size_path} {most} is"
        if self._question.size_path == INSTANCES:
            many = "1 instance is" if most == 1 else f"{most} instances are"
        return f"{many} not enough ({self._reason(most, rate)}), and more were not tried"

    def _require_room_to_grow(self, document: Mapping[str, Json]) -> None:
        """Raise SpecError if more instances cannot help: there is one number that fits the pools, or the split."""
        path, cluster = self._question.size_path, as_map(document.get("cluster"))
        pools, split = as_list(cluster.get("pools")), as_map(cluster.get("disaggregation"))
        message = hint = ""
        if pools:
            message = f"{path} is the sum of the instances of its pools"
            hint = f"name the pool that may grow: --sizes cluster.pools.{len(pools) - 1}.instances=1..16"
        elif split and as_map(split.get("decider")).get("kind", split.get("decider")) in (None, "always"):
            message = f"{path} may grow, but all requests are split between a fixed number of instances"
            hint = (
                "write the instances as two `cluster.pools` with the roles prefill and decode, and name the pool that"
                " may grow: --sizes cluster.pools.1.instances=1..16"
            )
        if path == INSTANCES and message:
            written = f"{path}={self._question.least}..{self._question.most}"
            place = Location(Source("--sizes", written), Span(1, 1, len(path) + 1))
            raise SpecError([located("BLIS2022", message, place, hint=hint)])

    def _require_sizes(self) -> None:
        """Raise SpecError if the size path is no key, or cannot have such values."""
        path, least, most = self._question.size_path, self._question.least, self._question.most
        written, moved = f"{path}={least}..{most}", len(f"{least}..")
        for size, to_right in ((least, 0), (most, moved)):
            try:
                resolve_point(self._study, Point(0, (*self._point.overrides, *self._size(size))))
            except SpecError as error:
                own = [one for one in error.diagnostics if one.source_line.startswith(f"{path}=")]
                for one in own:
                    if one.code.startswith(_OF_FORM):
                        by = to_right if one.column > len(path) else 0
                        column, end = one.column + by, one.end_column + by
                        hint = one.help and one.help.partition(": write `--set")[0]
                        placed = replace(one, file="--sizes", source_line=written, column=column, end_column=end)
                        placed = replace(placed, help=hint)
                        raise SpecError([placed]) from error

    def _require_load(self, load: Load, rate: float | None) -> None:
        """Raise InputError or SpecError if no run can have a rate; None = the workload's own."""
        if rate is not None:
            load.require_rate()
        if (found := load.impossible(rate)) is not None:
            raise self._no_load(*found)
        if load.endless:
            self._require_rates()
        try:
            resolve_point(self._study, Point(0, (*self._point.overrides, *parse_overrides(load.at(rate)))))
        except SpecError as error:
            for one in error.diagnostics:
                if load.path and one.source_line.startswith(f"{load.path}="):
                    raise self._no_load(one.message, one.help) from error

    def _require_rates(self) -> None:
        """Raise SpecError if a bound is on a count, which grows as long as a run goes on."""
        for at, one in enumerate(self._study.constraints):
            if counts_up(one.metric) and any((one.min, one.max, one.equals)):  # none at all can be asked for
                message = f"`{one.metric}` counts over a whole run, and the plan decides how long its runs last"
                hint = f"bound a rate, a share or a latency; or allow none at all: {one.metric}<=0"
                place = ("constraints", at, "metric")
                raise SpecError([about(self._study.written, place, "BLIS2065", message, hint=hint)])

    def _no_load(self, message: str, hint: str | None) -> SpecError:
        """Return the error about the load: the requested rate, or the experiment's own."""
        rate = self._question.rate_per_s
        if rate is None:
            return SpecError([Diagnostic(code="BLIS1005", message=message, file=self._study.experiment, help=hint)])
        text = f"{rate:g}"
        whole = Location(Source("--rate", text), Span(1, 1, len(text) + 1))
        return SpecError([located("BLIS1005", message, whole, hint=hint)])

    def _ask(
        self,
        search: Generator[list[Probe], list[Verdict], T],
        placed: Callable[[Probe], tuple[int | None, float | None]],
        load: Load,
    ) -> Generator[list[Run], list[Row], T]:
        """Answer the probes of a search with simulations until it ends."""
        try:
            probes = next(search)
            while True:
                runs = []
                for probe in probes:
                    size, rate = placed(probe)
                    run = self._run(size, rate, self._study.seeds[probe.seed], load, quick=probe.quick)
                    runs.append(run)
                rows = self._judged((yield runs))
                if not self._question.max_rate and any(row.figures.get("requests.total") == 0 for row in rows):
                    raise self._no_load("no request arrives before the run ends", "raise the rate, or `horizon_us`")
                for probe, row in zip(probes, rows, strict=True):
                    if not probe.quick or row.in_long_run == "fails":  # of the others little is known
                        self._rows.setdefault(placed(probe), {})[row.seed] = row
                probes = search.send([self._verdict(probe, row) for probe, row in zip(probes, rows, strict=True)])
        except StopIteration as stop:
            found: T = stop.value
            return found

    def _verdict(self, probe: Probe, row: Row) -> Verdict:
        """Return what a probe showed; requests that come one by one are asked whether any rate can hold."""
        if self._question.max_rate and probe.value == 0:
            return Verdict(holds=not hopeless_idle(row, self._study.constraints))
        if probe.quick:
            return Verdict(holds=row.status == "done" and row.in_long_run != "fails")
        return verdict_of(row, self._study.constraints)

    def _saturating_run(self, load: Load, size: int) -> Run:
        """Return the run that shows about how much ``size`` instances serve."""
        values = {**load.all_at_once(size), **self._steps}
        return Run(point=self._point, values=values, seed=self._study.seeds[0])

    def _run(self, size: int | None, rate: float | None, seed: int, load: Load, *, quick: bool = False) -> Run:
        """Return the run of a size at a rate; at a rate of 0, requests come one by one."""
        steady = None if rate == 0 else self._long(rate)
        arrivals = load.one_by_one() if rate == 0 else load.at(rate) if steady is None else load.for_ever(rate)
        values = {**arrivals, **({} if size is None else {self._question.size_path: size}), **self._steps}
        if steady is not None and quick:
            steady = replace(steady, kind="quick")
        return Run(point=self._point, values=values, seed=seed, steady=steady)

    def _long(self, rate: float | None) -> Steady | None:
        """Return what a run must show of the long run; None = it ends by itself."""
        load, bounds = self._load, self._study.constraints
        if load is None or not load.endless:
            return None
        return Steady(
            bounds=bounds if self._slower is None else self._slower.tightened(bounds),
            kind="long",
            rate_per_s=load.own_rate_per_s if rate is None else rate,
            duration_s=self._question.duration_s,
        )

    @property
    def _steps(self) -> Mapping[str, object]:
        """The assignments that make steps slower."""
        return {} if self._slower is None else self._slower.values

    def _judged(self, rows: list[Row]) -> list[Row]:
        """Return runs as judged on the slower server."""
        bounds = self._study.constraints
        return rows if self._slower is None else [self._slower.judged(row, bounds) for row in rows]

    def _size(self, size: int) -> tuple[Override, ...]:
        return parse_overrides({self._question.size_path: size})

    def _reason(self, size: int | None, rate: float | None) -> str:
        rows = self._rows.get((size, rate), {})
        return next((text for row in rows.values() if (text := failure_reason(row))), "it does not hold")

    def _candidate(
        self, size: int | None, *, knee: Knee | None = None, why_not: str = "", not_known: bool = False
    ) -> Candidate:
        places = [place for place in self._rows if place[1] != 0]  # runs on an idle cluster are no candidates
        order = sorted(places, key=lambda place: (place[0] or 0, place[1] or 0.0))
        tried = tuple(
            _tried(
                size if place[0] is None else place[0],
                place[1],
                [self._rows[place][seed] for seed in self._study.seeds if seed in self._rows[place]],
                self._long(place[1]),
            )
            for place in order
        )
        return Candidate(
            point=self._point,
            size=size,
            knee=knee,
            why_not=why_not,
            not_known=not_known,
            of=self._of,
            recorded=self._recorded,
            spare=self._question.spare,
            tried=tried,
        )


def _tried(size: int | None, rate_per_s: float | None, rows: list[Row], steady: Steady | None) -> Trial:
    """Return the runs of several seeds; equal ones, as with a trace, are kept once, as they prove no agreement."""
    first = rows[0]
    alike = first.status == "done" and all((row.status, row.figures) == (first.status, first.figures) for row in rows)
    return Trial(
        size=size, rate_per_s=rate_per_s, rows=tuple(rows[:1] if alike else rows), seeds=len(rows), steady=steady
    )


def _own_size(document: Mapping[str, Json], path: str) -> int:
    value: Json = dict(document)
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) and step.isdecimal() else as_map(value).get(step)
    return value if isinstance(value, int) and value > 0 else 1


def _if_slower(
    question: Question, found: Trial, slow: SlowServer
) -> Generator[list[Run], list[Row], OtherEstimate | None]:
    """Find the effect of a slower server on the tightest bound at the answer, in the deciding run."""
    nearest = found.nearest(question.study.constraints)
    if nearest is None:
        return None
    mine, row = nearest
    steady = None if found.steady is None else replace(found.steady, bounds=slow.tightened(found.steady.bounds))
    (other,) = yield [Run(point=row.point, values=slow.values, seed=row.seed, steady=steady)]
    value = other.figures.get(mine.metric)
    if not isinstance(value, int | float):
        return None
    holds = not failure_reason(slow.judged(other, question.study.constraints))
    value *= slow.later if mine.metric.startswith(LATER) else 1.0
    return OtherEstimate(kind="slower", metric=mine.metric, value=float(value), own=mine.value, holds=holds)


def _other_estimates(question: Question, best: Candidate) -> Generator[list[Run], list[Row], tuple[OtherEstimate, ...]]:
    """Find each bounded figure at the answer with the other step-time models, in the deciding run."""
    found = best.decides
    if found is None:
        return ()
    experiment, bounds = _experiment(question.study, found.rows[0]), question.study.constraints
    own, metrics = experiment.pools[0].latency.kind, metrics_bounded(bounds)
    known = [kind for kind, _ in CHOICES if known_for(kind, experiment, metrics, 100 * (DISAGREEMENT - 1))]
    if own not in known:
        return ()
    decide = [found.nearest(bounds, metric) for metric in dict.fromkeys(one.metric for one in bounds)]
    asked = [
        (kind, margin, row) for kind in known if kind != own for margin, row in filter(None, decide) if margin.value > 0
    ]
    steady = None if found.steady is None else replace(found.steady, kind="opinion")
    rows = yield [
        Run(point=row.point, values={"latency": {"kind": kind}}, seed=row.seed, steady=steady) for kind, _, row in asked
    ]
    failing = {kind for (kind, _, _), other in zip(asked, rows, strict=True) if failure_reason(other)}
    told = []
    for (kind, mine, _), other in zip(asked, rows, strict=True):
        value = other.figures.get(mine.metric)
        if isinstance(value, int | float):
            holds = kind not in failing
            told.append(OtherEstimate(kind=kind, metric=mine.metric, value=float(value), own=mine.value, holds=holds))
    return tuple(told)


# What a seed still decides when the requests are recorded: the parts that draw random numbers, found by a run.


def other_random_draws(experiment: Experiment) -> tuple[str, ...]:
    """Return what a run draws besides its requests, in words; empty = seeds do not change how requests fare.

    Raises:
        SimulationError: the simulation cannot go on.
    """
    simulation = Simulation(experiment, check="off")
    simulation.run()
    cluster = simulation.cluster
    counts = {
        "how long the front end takes per request": _drawn([one.front_end for one in cluster.instances]),
        "which instance the router chooses": _of_routers(cluster),
        "which requests are admitted": _started(cluster.pipeline.admission.control.state()[-1]),
    }
    rest = _drawn(cluster) - _drawn(cluster.source)
    for count in counts.values():
        rest -= count
    counts["when instances come and go" if experiment.cluster.varies else "what plug-ins draw"] = rest
    counts["which drafts are accepted"] = len(objects_from([AcceptanceSampler.__module__], cluster))
    return tuple(words for words, count in counts.items() if count)


def _of_routers(cluster: Cluster) -> int:
    """Return how many routers have drawn; a router for several models delegates to one per model."""
    count = 0
    for router in cluster.roster.routers:
        for one in (router, *router.by_model.values()):
            count += _started(one.state()[-1])
    return count


def _started(state: object) -> bool:
    """Return whether a stream has been read, from its state."""
    return isinstance(state, tuple) and bool(state[0])


def _drawn(part: object) -> int:
    """Return how many streams in a part of a simulation have been read."""
    streams = objects_from([Stream.__module__], part)
    return len([one for one in streams if isinstance(one, Stream) and _started(one.state())])
