"""The search for the size or the rate of one configuration."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING, Final, TypeVar

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import Diagnostic, about, located
from blis_tui.base.errors import InputError, SpecError
from blis_tui.base.source import Location, Source, Span, as_list, as_map
from blis_tui.base.units import plural
from blis_tui.model.keys import LARGEST_SEED
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.study.document import resolve_point
from blis_tui.spec.study.study_records import Point
from blis_tui.study.bounds import counts_up
from blis_tui.study.planning.answer import INSTANCES, USUAL_CONFIDENCE, Candidate, Question, Trial
from blis_tui.study.planning.driver import Run
from blis_tui.study.planning.search import (
    Verdict,
    failure_reason,
    hopeless_idle,
    search_rate,
    search_size,
    verdict_of,
)
from blis_tui.study.planning.slower import SlowServer, slower
from blis_tui.study.planning.steady_load import require_steady
from blis_tui.study.sensitivity import OF_HALVES
from blis_tui.study.steady import KV_FULL, SECTION, Steady

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from blis_tui.base.source import Json
    from blis_tui.spec.overrides import Override
    from blis_tui.study.planning.search import Knee, Probe, Wanted
    from blis_tui.study.study_rows import Row


T = TypeVar("T")


_OF_FORM: Final = "BLIS1"
"""Prefix of the codes of problems that no value of another key can solve."""


_OF_CAPACITY: Final = 1.1
"""Start of a rate search relative to the capacity; requests that do not come all at once meet fuller batches."""


_MORE_SEEDS: Final = 2
"""With how many other seeds a run must not fail if its KV cache filled. A batch whose cache is about to fill may hold
for many minutes; once requests are preempted, what they computed is computed again, and it never recovers. When that
happens is chance, so one run that held shows little."""


_MOST_LOAD_KNOWN: Final = 0.9
"""Loads of sessions above this are taken for it. Nobody thinks in the run that shows about what is served, and its
caches are not those of later: with think times of 13 s it showed less than 0.7 of what seven instances served (one
load). A load close to 1 asks for many more requests, which such an estimate is no reason for."""

_TWO_POOLS: Final = (
    "write the instances as two `cluster.pools` with the roles prefill and decode, and name the pool that may grow:"
    " --sizes cluster.pools.{pool}.instances=1..16"
)


class Configuration:
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
        self._capacity_per_s = None if not_enough is None else not_enough.capacity_per_s
        """Of one unit of size."""

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
        require_steady(as_map(document.get("workload")), self._question.rate_per_s, max_rate=self._question.max_rate)
        if isinstance(as_map(document.get("workload")).get("trace"), dict):
            self._recorded = True
            (row,) = yield [Run(point=self._point, values={}, seed=self._study.seeds[0])]
            offered_per_s = row.figures.get("offered.requests_per_s")
            offered = float(offered_per_s) if isinstance(offered_per_s, int | float) else None
        metrics = tuple(constraint.metric for constraint in self._study.constraints)
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
            guessed = yield from self._guessed_size(load, own, wanted)
            if isinstance(guessed, str):
                return self._candidate(None, why_not=guessed)
            guess = guessed
        near = self._not_enough is not None
        search = search_size(guess, least=least, most=most, seeds=len(seeds), quick=load.endless, near=near)
        ends = yield from self._ask(search, lambda probe: (int(probe.value), rate), load)
        if ends.holds is None:
            return self._candidate(None, why_not=self._not_enough_text(ends.fails or most, rate))
        # That one more holds, too, is certain where runs last until it is known of the answer.
        beside = (ends.fails,) if load.endless else (ends.fails, ends.holds + 1)
        shown = [size for size in (*beside, ends.holds) if size is not None and least <= size <= most]
        shown += [ends.holds + spare] if spare else []
        known = {(place[0], seed) for place, rows in self._rows.items() if place[1] == rate for seed in rows}
        wanted_runs = [(size, seed) for size in shown for seed in seeds if (size, seed) not in known]
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
        one_by_one = self._run(None, 0.0, self._study.seeds[0], load)
        first = replace(one_by_one, values={**one_by_one.values, **load.fewer()})
        flooded, idle = yield [self._saturating_run(load, own), first]
        (idle,) = self._judged([idle])
        if hopeless_idle(idle, bounds) and load.fewer():
            (idle,) = self._judged((yield [one_by_one]))
        if hopeless_idle(idle, bounds):  # bursts stay bursts, but more instances may spread them
            (idle,) = self._judged((yield [self._run(question.most, 0.0, self._study.seeds[0], load)]))
        if wrong := hopeless_idle(idle, bounds):
            size = "number of instances" if question.size_path == INSTANCES else f"value of {question.size_path}"
            return f"no {size} is enough, because even on an idle cluster {wrong}"
        capacity = capacity_of(flooded, load.of)
        if capacity is None:
            return own
        self._capacity_per_s = capacity / own
        return ceil(wanted * own / capacity)

    def _not_enough_text(self, most: int, rate: float | None) -> str:
        """Return why nothing up to a size holds, or that this is not known."""
        many, verb = f"{self._question.size_path} {most}", "is"
        if self._question.size_path == INSTANCES:
            many, verb = plural(most, "instance"), "is" if most == 1 else "are"
        found = {row.in_long_run for row in self._rows.get((most, rate), {}).values()}
        open_yet = "not known" in found and "fails" not in found
        what = f"whether {many} {verb} enough is not known" if open_yet else f"{many} {verb} not enough"
        return f"{what} ({self._reason(most, rate)}), and more were not tried"

    def _require_room_to_grow(self, document: Mapping[str, Json]) -> None:
        """Raise SpecError if more instances cannot help: there is one number that fits the pools, or the split."""
        path, cluster = self._question.size_path, as_map(document.get("cluster"))
        pools, split = as_list(cluster.get("pools")), as_map(cluster.get("disaggregation"))
        message = hint = ""
        if path in OF_HALVES and not pools and _splits_all(split) and not self._total_follows(document):
            message = f"{path} may grow, but {INSTANCES} is fixed, and instances of neither half get no requests"
            hint = (
                f"remove {INSTANCES}, which is then the sum of both; or {_TWO_POOLS.format(pool=OF_HALVES.index(path))}"
            )
        elif path != INSTANCES:
            return
        elif pools:
            message = f"{path} is the sum of the instances of its pools"
            hint = f"name the pool that may grow: --sizes cluster.pools.{len(pools) - 1}.instances=1..16"
        elif _splits_all(split):
            message = f"{path} may grow, but all requests are split between a fixed number of instances"
            hint = _TWO_POOLS.format(pool=1)
        if message:
            written = f"{path}={self._question.least}..{self._question.most}"
            place = Location(Source("--sizes", written), Span(1, 1, len(path) + 1))
            raise SpecError([located("BLIS2022", message, place, hint=hint)])

    def _total_follows(self, document: Mapping[str, Json]) -> bool:
        """Return whether one more instance of a half is one more of the cluster, as where no number of all is given."""
        more = Point(0, (*self._point.overrides, *self._size(_own_size(document, self._question.size_path) + 1)))
        try:
            grown = as_map(resolve_point(self._study, more).document.data)
        except SpecError:
            return False
        return _own_size(grown, INSTANCES) > _own_size(document, INSTANCES)

    def _require_sizes(self) -> None:
        """Raise SpecError if the size path is no key, or cannot have such values."""
        path, least, most = self._question.size_path, self._question.least, self._question.most
        written, moved = f"{path}={least}..{most}", len(f"{least}..")
        for size, to_right in ((least, 0), (most, moved)):
            try:
                resolve_point(self._study, Point(0, (*self._point.overrides, *self._size(size))))
            except SpecError as error:
                own = [diagnostic for diagnostic in error.diagnostics if diagnostic.source_line.startswith(f"{path}=")]
                for diagnostic in own:
                    if diagnostic.code.startswith(_OF_FORM):
                        by = to_right if diagnostic.column > len(path) else 0
                        column, end = diagnostic.column + by, diagnostic.end_column + by
                        hint = diagnostic.help and diagnostic.help.partition(": write `--set")[0]
                        placed = replace(diagnostic, file="--sizes", source_line=written, column=column, end_column=end)
                        placed = replace(placed, help=hint)
                        raise SpecError([placed]) from error

    def _require_load(self, load: Load, rate: float | None) -> None:
        """Raise InputError or SpecError if no run can have a rate; None = the workload's own."""
        if rate is not None:
            load.require_rate()
        if (problem := load.impossible(rate)) is not None:
            raise self._no_load(*problem)
        if load.endless:
            self._require_rates()
        try:
            resolve_point(self._study, Point(0, (*self._point.overrides, *parse_overrides(load.at(rate)))))
        except SpecError as error:
            for diagnostic in error.diagnostics:
                if load.path and diagnostic.source_line.startswith(f"{load.path}="):
                    raise self._no_load(diagnostic.message, diagnostic.help) from error

    def _require_rates(self) -> None:
        """Raise SpecError if a bound is on a count, which grows as long as a run goes on."""
        for at, constraint in enumerate(self._study.constraints):
            if counts_up(constraint.metric) and any(
                (constraint.min, constraint.max, constraint.equals)
            ):  # none at all can be asked for
                message = f"`{constraint.metric}` counts over a whole run, and the plan decides how long its runs last"
                hint = f"bound a rate, a share or a latency; or allow none at all: {constraint.metric}<=0"
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
        search: Generator[Wanted, list[Verdict], T],
        placed: Callable[[Probe], tuple[int | None, float | None]],
        load: Load,
    ) -> Generator[list[Run], list[Row], T]:
        """Answer the probes of a search with simulations until it ends."""
        try:
            wanted = next(search)
            while True:
                probes = wanted.probes
                runs = [self._probing(probe, placed, load) for probe in probes]
                then: Callable[[], Run | None] = partial(self._on_slower, runs[-1], placed(probes[-1])[0])
                if wanted.likely is not None:
                    then = partial(self._probing, wanted.likely, placed, load)
                runs[-1] = replace(runs[-1], then=then)
                rows = self._judged((yield runs))
                if not self._question.max_rate and any(row.figures.get("requests.total") == 0 for row in rows):
                    raise self._no_load("no request arrives before the run ends", "raise the rate, or `horizon_us`")
                for probe, row in zip(probes, rows, strict=True):
                    if not probe.quick or row.in_long_run == "fails":  # of the others little is known
                        self._rows.setdefault(placed(probe), {})[row.seed] = row
                verdicts = [self._verdict(probe, row) for probe, row in zip(probes, rows, strict=True)]
                doubtful = [at for at, row in enumerate(rows) if verdicts[at].holds and self._doubtful(probes[at], row)]
                for at in doubtful:
                    seeds = _other_seeds(runs[at].seed)
                    others = self._judged((yield [replace(runs[at], seed=seed, then=None) for seed in seeds]))
                    self._rows[placed(probes[at])] |= {row.seed: row for row in others}
                    found = [row.in_long_run for row in others]
                    if "fails" in found or "holds" not in found:
                        verdicts[at] = Verdict(holds=False)
                wanted = search.send(verdicts)
        except StopIteration as stop:
            answer: T = stop.value
            return answer

    def _probing(self, probe: Probe, placed: Callable[[Probe], tuple[int | None, float | None]], load: Load) -> Run:
        size, rate = placed(probe)
        return self._run(size, rate, self._study.seeds[probe.seed], load, quick=probe.quick)

    def _on_slower(self, run: Run, size: int | None) -> Run | None:
        """Return the run on a slower server that is needed if a run shows that its size is the answer."""
        question, steady = self._question, run.steady
        asked = question.confidence is None and self._slower is None and not question.max_rate
        if not asked or size is None or steady is None or steady.kind != "long":
            return None
        sized = Point(self._point.number, (*self._point.overrides, *self._size(size)))
        slow = slower(self._study, sized, USUAL_CONFIDENCE)
        point = Point(run.point.number, (*run.point.overrides, *parse_overrides(run.values)))
        return slow_run(point, run.seed, steady, slow) if isinstance(slow, SlowServer) and slow.matters else None

    def _doubtful(self, probe: Probe, row: Row) -> bool:
        """Return whether it may be luck that a run holds: its KV cache filled, and it is the only one."""
        peak = row.figures.get(f"{SECTION}.peak_kv")
        return not probe.quick and len(self._study.seeds) == 1 and isinstance(peak, float) and peak > KV_FULL

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
        steady = None if rate == 0 else self._long(rate, size)
        arrivals = load.one_by_one() if rate == 0 else load.at(rate) if steady is None else load.for_ever(rate)
        values = {**arrivals, **({} if size is None else {self._question.size_path: size}), **self._steps}
        if steady is not None and quick:
            steady = replace(steady, kind="quick")
        return Run(point=self._point, values=values, seed=seed, steady=steady)

    def _long(self, rate: float | None, size: int | None) -> Steady | None:
        """Return what a run must show of the long run; None = it ends by itself."""
        load, bounds = self._load, self._study.constraints
        if load is None or not load.endless:
            return None
        offered = load.own_rate_per_s if rate is None else rate
        served = None if size is None or self._capacity_per_s is None else size * self._capacity_per_s
        arriving = None if offered is None or served is None else self._slowed(offered / served)
        return Steady(
            bounds=bounds if self._slower is None else self._slower.tightened(bounds),
            kind="long",
            rate_per_s=offered,
            duration_s=self._question.duration_s,
            load=arriving if arriving is None or load.of == "requests" else min(arriving, _MOST_LOAD_KNOWN),
        )

    def _slowed(self, load: float) -> float:
        """Return the load of the server that is asked about; what can be served is known with usual step times."""
        return load if self._slower is None else load * self._slower.times

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
                list(self._rows[place].values()),
                self._long(place[1], place[0]),
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
            capacity_per_s=self._capacity_per_s,
            tried=tried,
        )


def slow_run(point: Point, seed: int, steady: Steady | None, slow: SlowServer) -> Run:
    """Return a run on a slower server."""
    tightened = None if steady is None else replace(steady, bounds=slow.tightened(steady.bounds))
    return Run(point=point, values=slow.values, seed=seed, steady=tightened)


def _other_seeds(seed: int) -> list[int]:
    """Return the seeds to try beside one."""
    return [(seed + more) % (LARGEST_SEED + 1) for more in range(1, 1 + _MORE_SEEDS)]


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


def _splits_all(split: Mapping[str, Json]) -> bool:
    """Return whether all requests prefill and decode apart."""
    return bool(split) and as_map(split.get("decider")).get("kind", split.get("decider")) in (None, "always")


# ---- the load of a run ----


_TAIL: Final = 20
"""Required requests above the highest bounded percentile; a p99 of fewer than 2,000 requests is too random."""
MOST: Final = 200_000
"""Maximum number of requests of a run."""
LATEST_S: Final = 2**62 / 1e6
"""Half of the longest time in a simulation, because the last of many requests may arrive later than expected."""
_USUAL: Final = 200
_AT_ONCE: Final = 1000
"""Number of requests, or of sessions, that arrive at once; more only for more than five instances. What they show is
where the search begins, so a workload of its own of many more would be wasted on it."""
_FIRST: Final = 4
_OFTEN: Final = 1000.0
"""Factor for a rate that is certainly more than is served, or that leaves a cluster idle."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to assign to a workload so that requests arrive at a rate.

    Attributes:
        own_rate_per_s: the workload's own rate; None = it is not a single number.
        path: the path of the rate; empty = the rate cannot be changed.
        why_not: the reason in that case.
        scaled: whether the assigned value is a multiple of the own rate.
        of: what arrives at that rate: ``requests``, or ``sessions``.
        counted: the path of their number, with which runs can be made longer; empty = the workload has none.
        least: the minimum number for the bounds.
        duration_s: minimum time during which requests arrive.
        horizon: whether the experiment has a horizon.
        cut: whether it also has a number of requests, after which sessions would not go on.
    """

    own_rate_per_s: float | None
    path: str
    why_not: str
    scaled: bool
    of: str
    counted: str
    least: int
    duration_s: float
    horizon: bool = False
    cut: bool = False

    def require_rate(self) -> None:
        """Raise InputError if the rate of the workload cannot be changed."""
        if not self.path:
            raise InputError(f"the rate of this workload cannot be varied: {self.why_not}")

    def impossible(self, rate_per_s: float | None) -> tuple[str, str] | None:
        """Return why no run at a rate (None = the workload's own) can last as long as required, and what to do."""
        rate = self.own_rate_per_s if rate_per_s is None else rate_per_s
        if not self.counted or rate is None:
            return None
        many, least = rate * self.duration_s, self.least / rate if rate else inf
        if many > MOST:
            count = f"{many:,.0f}" if many < 1e12 else f"{many:g}"
            message = f"{self.duration_s:g} s at {rate:g} {self.of}/s are {count}, and a run has at most {MOST:,}"
            return message, f"let them arrive for at most {MOST / rate:.4g} s: --duration"
        if least > LATEST_S:
            message = f"at {rate:g}/s the last of {self.least:,} {self.of} comes after more than 146,000 years"
            return message, "plan for a higher rate"
        return None

    def at(self, rate_per_s: float | None) -> dict[str, object]:
        """Return the assignments for a rate; None = the workload's own."""
        assignments: dict[str, object] = {}
        rate = self.own_rate_per_s if rate_per_s is None else rate_per_s
        if rate_per_s is not None:
            self.require_rate()
            assignments[self.path] = (
                rate_per_s / self.own_rate_per_s if self.scaled and self.own_rate_per_s else rate_per_s
            )
        if self.counted and rate is not None:
            assignments |= self._many(min(max(self.least, ceil(rate * self.duration_s)), MOST))
        return assignments

    @property
    def endless(self) -> bool:
        """Whether requests may go on to arrive for as long as a run needs them."""
        return bool(self.counted) and not self.horizon

    def for_ever(self, rate_per_s: float | None) -> dict[str, object]:
        """Return the assignments for a rate at which requests arrive for as long as a run needs them."""
        return {**self.at(rate_per_s), **(self._many(MOST) if self.counted else {})}

    def all_at_once(self, instances: int) -> dict[str, object]:
        """Return the assignments for arrivals much faster than ``instances`` instances can serve."""
        count = max(min(self.least, _AT_ONCE), min(_USUAL * instances, MOST))
        return self._times(_OFTEN, 10.0 * count, count)

    def one_by_one(self) -> dict[str, object]:
        """Return the assignments for arrivals so rare that each finds an idle cluster."""
        ends = {"horizon_us": "none"} if self.horizon and self.counted else {}
        return {**self._times(1 / _OFTEN, 0.0, self.least), **ends}

    def fewer(self) -> dict[str, object]:
        """Return the assignment for a first look at requests that come one by one: a quarter of them."""
        return self._many(ceil(self.least / _FIRST)) if self.counted else {}

    def _times(self, factor: float, least_rate: float, count: int) -> dict[str, object]:
        self.require_rate()
        rate = factor if self.scaled else max(factor * (self.own_rate_per_s or 1.0), least_rate)
        return {self.path: rate, **(self._many(count) if self.counted else {})}

    def _many(self, count: int) -> dict[str, object]:
        """Return the assignments for that many requests or sessions."""
        return {self.counted: count, **({"workload.requests": None} if self.cut else {})}


def capacity_of(flooded: Row, of: str) -> float | None:
    """Estimate the highest rate that a cluster serves from a run in which all requests arrived at once.

    The estimate is the largest ratio of ended requests to elapsed time. The mean over the whole run would be too low,
    because the last requests run in half-empty batches.

    Args:
        flooded: the run.
        of: what is counted: ``requests``; ``sessions``, whose requests come one after the other; ``arrivals`` of both.
    """
    figures = flooded.figures
    rates = [_number(figures, "throughput.requests_per_s")]
    completed = _number(figures, "requests.completed")
    if of != "requests":
        calls, started = _number(figures, "sessions.calls"), _number(figures, "sessions.started")
        total = max(_number(figures, "requests.total"), calls)
        rates[0] *= (started + total - calls) / total if calls else 0.0
    else:
        times = [(share, _number(figures, f"latency.e2e_ms.p{share}")) for share in (50, 90, 95)]
        rates += [10 * share * completed / time for share, time in times if time]
    return max(rates) or None


def _number(figures: Mapping[str, object], name: str) -> float:
    value = figures.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def load_of(
    document: Mapping[str, Json], *, metrics: tuple[str, ...], duration_s: float, offered: float | None
) -> Load:
    """Return the load of a resolved experiment.

    Args:
        document: the experiment.
        metrics: the bounded metrics; high percentiles need many requests.
        duration_s: minimum time during which requests arrive.
        offered: for a recorded workload, requests per second that arrived in a run.
    """
    workload = as_map(document.get("workload"))
    tail = max((-(-100 * _TAIL // (100 - _percentile(metric))) for metric in metrics), default=_USUAL)
    sessions = isinstance(workload.get("sessions"), int)
    count = workload.get("sessions" if sessions else "requests")
    counted = isinstance(count, int) and not workload.get("stages") and not workload.get("trace")
    path, why, own = _rate_of(workload)
    return Load(
        own_rate_per_s=offered if path.startswith("workload.trace") else own,
        path=path,
        why_not=why,
        scaled=path == "workload.trace.scale_rate",
        of=_counted(workload),
        counted=("workload.sessions" if sessions else "workload.requests") if counted else "",
        least=max(count if isinstance(count, int) else 0, 0 if sessions else tail),
        duration_s=duration_s,
        horizon=document.get("horizon_us") != "none",
        cut=sessions and counted and isinstance(workload.get("requests"), int),
    )


def _counted(workload: Mapping[str, Json]) -> str:
    """Return what a rate counts: ``requests``, ``sessions``, or ``arrivals`` if some clients begin sessions only.

    Users of a closed loop have no rate.
    """
    clients = [as_map(client) for client in as_list(workload.get("clients"))]
    rated = [client for client in clients if as_map(client.get("arrivals")).get("kind") != "closed-loop"] or clients
    in_sessions = ["session" in client for client in rated]
    return "sessions" if in_sessions and all(in_sessions) else "arrivals" if any(in_sessions) else "requests"


def _rate_of(workload: Mapping[str, Json]) -> tuple[str, str, float | None]:
    """Return the path of the rate, why there is none, and the rate itself."""
    trace = workload.get("trace")
    if isinstance(trace, dict):
        return ("workload.trace.rate_per_s" if "rate_per_s" in trace else "workload.trace.scale_rate"), "", None
    if workload.get("stages"):
        return "", "it has `stages`, each with a rate of its own", None
    rate = workload.get("rate_per_s")
    if isinstance(rate, int | float):
        return "workload.rate_per_s", "", float(rate)
    return "", "its clients are users of a closed loop, who send as fast as they are answered", None


def _percentile(metric: str) -> int:
    """Return the percentile of a metric; 90 for means and the like."""
    last = metric.rsplit(".", 1)[-1]
    return int(last[1:]) if last[:1] == "p" and last[1:].isdecimal() and int(last[1:]) < 100 else 90
