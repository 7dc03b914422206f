"""The planner finds the cheapest configuration that sustains a rate, or the rate that a configuration sustains.

Its answer is then tried on a slower server, with other step times, and with other random draws.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import InputError
from blis_tui.base.streams import Stream
from blis_tui.base.units import plural
from blis_tui.engine.options.drafts import AcceptanceSampler
from blis_tui.results.expected_error import known_for
from blis_tui.runs.checkpoints import objects_from
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.resolve import CHOICES
from blis_tui.spec.study.document import experiment_of
from blis_tui.spec.study.study_records import Point
from blis_tui.study.planning.answer import (
    COSTS,
    DISAGREEMENT,
    INSTANCES,
    USUAL_CONFIDENCE,
    Candidate,
    MoreProcesses,
    OtherEstimate,
    Plan,
    Question,
    Trial,
    busy_processes,
    more_processes,
    run_experiment,
)
from blis_tui.study.planning.configuration import Configuration, slow_run
from blis_tui.study.planning.driver import Driver, Run
from blis_tui.study.planning.search import failure_reason
from blis_tui.study.planning.slower import LATER, SlowServer, metrics_bounded, slower
from blis_tui.study.point_summary import expected_of
from blis_tui.study.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.model import Experiment
    from blis_tui.study.planning.driver import Search
    from blis_tui.study.runners import Runner
    from blis_tui.study.store import Store
    from blis_tui.study.study_rows import Row

_CENTS: Final = 6
"""Prices are equal if they agree to this many digits; sums of the same prices may differ in the last ones."""


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
    searches = [Configuration(question, point).search() for point in study.points]
    if question.confidence is not None:
        searches += [Configuration(question, point, question.confidence).search() for point in study.points]
    with Driver(study, runner, MemoryStore() if store is None else store, on_run, warn) as driver:
        answers = driver.answer(searches)
        candidates = tuple(_with_errors(question, answer) for answer in answers[-len(study.points) :])
        choice = _choose(question, candidates)
        best = choice.best
        second, slow, fewer = driver.answer_each(
            other_estimates(question, best), _slower(question, best), _one_less(question, best)
        )
    expected = answers[: len(study.points)]
    trial = None if best is None else best.decides
    experiment = None if best is None else experiment_of(study, _sized(question, best), study.seeds[0])
    pool = None if experiment is None else experiment.pools[0]
    rows = () if trial is None else trial.rows
    limit = None if trial is None else trial.nearest_limit
    nearest = None if trial is None else trial.nearest(study.constraints, limit[0] if limit else "")
    differs = trial is not None and len(trial.rows) > 1 and best is not None and best.recorded
    return Plan(
        question=question,
        candidates=candidates,
        best=best,
        best_measured=_choose(question, [candidate for candidate in candidates if candidate.measured]).best,
        cost=choice.cost,
        binding=None if nearest is None else nearest[0],
        kind="" if pool is None else pool.latency.kind,
        opinions=second,
        slower=slow.server,
        if_slower=slow.bound,
        on_slower=slow.enough,
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


def _one_less(question: Question, best: Candidate | None) -> Search[MoreProcesses | None]:
    """Find whether one instance less is enough with twice as many API server processes, if these limit it."""
    if best is None or best.decides is None or question.size_path != INSTANCES or question.max_rate:
        return None
    size = (best.size or 1) - best.spare - 1
    less = best.at(size=size, rate_per_s=best.decides.rate_per_s)
    offered = None if less is None else less.mean("offered.requests_per_s")
    experiment = experiment_of(question.study, _sized(question, best), question.study.seeds[0])
    processes = None if offered is None else busy_processes(experiment, offered, size)
    if less is None or processes is None:
        return None
    tried = MoreProcesses(size=size, processes=2 * processes)
    return (yield from more_processes(less.rows, less.steady, question.study.constraints, tried))


def _with_errors(question: Question, candidate: Candidate) -> Candidate:
    """Return a configuration with the expected errors at its answer, which refer to step times as expected."""
    trial, study = candidate.decides, question.study
    if trial is None:
        return candidate
    nearest = trial.nearest(study.constraints)
    row = trial.rows[0] if nearest is None else nearest[1]
    slow = None if question.confidence is None else slower(study, _sized(question, candidate), question.confidence)
    more = parse_overrides(slow.values) if isinstance(slow, SlowServer) else ()
    kept = tuple(each for each in row.point.overrides if each not in more)
    return replace(candidate, expected=expected_of(study, replace(row, point=replace(row.point, overrides=kept))))


class _Choice(NamedTuple):
    best: Candidate | None
    ties: tuple[Candidate, ...]
    cost: str


def _choose(question: Question, candidates: Sequence[Candidate]) -> _Choice:
    """Return the best candidate that holds, and those that are equally cheap."""
    holding = [candidate for candidate in candidates if candidate.found is not None]
    cost = next((name for name in COSTS if all(_cost(candidate, name) is not None for candidate in holding)), COSTS[-1])
    if not holding:
        return _Choice(None, (), cost)
    order = [_order(question, candidate, cost) for candidate in holding]
    least = min(order)
    best = holding[order.index(least)]
    as_good = [
        candidate
        for candidate, place in zip(holding, order, strict=True)
        if place[:2] == least[:2] and candidate is not best
    ]
    return _Choice(best, tuple(as_good), cost)


def answer_experiment(plan: Plan) -> Experiment | None:
    """Return the experiment with the configuration that was found; None = nothing holds."""
    study = plan.question.study
    return None if plan.best is None else experiment_of(study, _sized(plan.question, plan.best), study.seeds[0])


def _sized(question: Question, candidate: Candidate) -> Point:
    """Return the configuration's point with the size that was found."""
    size = {} if candidate.size is None or question.max_rate else {question.size_path: candidate.size}
    return Point(candidate.point.number, (*candidate.point.overrides, *parse_overrides(size)))


def _cost(candidate: Candidate, metric: str) -> float | None:
    return None if candidate.found is None else candidate.found.mean(metric)


def _order(question: Question, candidate: Candidate, cost: str) -> tuple[float, float, float, int]:
    """Return the sort key: cheapest or highest rate first, then the largest margin, then the order of the study."""
    price = round(_cost(candidate, cost) or 0.0, _CENTS)
    rate = (
        0.0 if not question.max_rate or candidate.knee is None or candidate.knee.holds is None else candidate.knee.holds
    )
    nearest = None if candidate.decides is None else candidate.decides.nearest(question.study.constraints)
    return (-rate, price, 0.0 if nearest is None else nearest[0].of_bound, candidate.point.number)


class _OnSlower(NamedTuple):
    server: SlowServer | str | None = None
    """See ``Plan.slower``, and so on."""
    bound: OtherEstimate | None = None
    enough: Candidate | None = None


def _slower(question: Question, best: Candidate | None) -> Search[_OnSlower]:
    """Find what a slower server changes and, if the answer does not hold there, what does."""
    if best is None:
        return _OnSlower()
    confidence = question.confidence or USUAL_CONFIDENCE
    slow, trial = slower(question.study, _sized(question, best), confidence), best.decides
    if question.confidence is not None or trial is None or not isinstance(slow, SlowServer) or not slow.matters:
        return _OnSlower(slow)
    bound = yield from on_slower_server(question, trial, slow)
    if bound is None or bound.holds:
        return _OnSlower(slow, bound)
    return _OnSlower(slow, bound, (yield from Configuration(question, best.point, confidence, best).search()))


def on_slower_server(question: Question, trial: Trial, slow: SlowServer) -> Search[OtherEstimate | None]:
    """Find the effect of a slower server on the tightest bound at the answer, in the deciding run."""
    nearest = trial.nearest(question.study.constraints)
    if nearest is None:
        return None
    mine, row = nearest
    (other,) = yield [slow_run(row.point, row.seed, trial.steady, slow)]
    value = other.figures.get(mine.metric)
    if not isinstance(value, int | float):
        return None
    holds = not failure_reason(slow.judged(other, question.study.constraints))
    value *= slow.later if mine.metric.startswith(LATER) else 1.0
    return OtherEstimate(kind="slower", metric=mine.metric, value=float(value), own=mine.value, holds=holds)


def other_estimates(question: Question, best: Candidate | None) -> Search[tuple[OtherEstimate, ...]]:
    """Find each bounded figure at the answer with the other step-time models, in the deciding run.

    A plan with a confidence names none.
    """
    trial = None if best is None or question.confidence is not None else best.decides
    if trial is None:
        return ()
    experiment, bounds = run_experiment(question.study, trial.rows[0]), question.study.constraints
    own, metrics = experiment.pools[0].latency.kind, metrics_bounded(bounds)
    known = [kind for kind, _ in CHOICES if known_for(kind, experiment, metrics, 100 * (DISAGREEMENT - 1))]
    if own not in known:
        return ()
    decide = [trial.nearest(bounds, metric) for metric in dict.fromkeys(bound.metric for bound in bounds)]
    asked = [
        (kind, margin, row) for kind in known if kind != own for margin, row in filter(None, decide) if margin.value > 0
    ]
    steady = None if trial.steady is None else replace(trial.steady, kind="opinion")
    rows = yield [
        Run(point=row.point, values={"latency": {"kind": kind}}, seed=row.seed, steady=steady) for kind, _, row in asked
    ]
    failing = {kind for (kind, _, _), other in zip(asked, rows, strict=True) if failure_reason(other)}
    estimates = []
    for (kind, mine, _), other in zip(asked, rows, strict=True):
        value = other.figures.get(mine.metric)
        if isinstance(value, int | float):
            holds = kind not in failing
            estimates.append(
                OtherEstimate(kind=kind, metric=mine.metric, value=float(value), own=mine.value, holds=holds)
            )
    return tuple(estimates)


def other_random_draws(experiment: Experiment) -> tuple[str, ...]:
    """Return what a run draws besides its requests, in words; empty = seeds do not change how requests fare.

    Raises:
        SimulationError: the simulation cannot go on.
    """
    simulation = Simulation(experiment, check="off")
    simulation.run()
    cluster = simulation.cluster
    counts = {
        "how long the front end takes per request": _drawn([instance.front_end for instance in cluster.instances]),
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
    for router in cluster.registry.routers:
        for policy in (router, *router.by_model.values()):
            count += _started(policy.state()[-1])
    return count


def _started(state: object) -> bool:
    """Return whether a stream has been read, from its state."""
    return isinstance(state, tuple) and bool(state[0])


def _drawn(part: object) -> int:
    """Return how many streams in a part of a simulation have been read."""
    streams = objects_from([Stream.__module__], part)
    return len([stream for stream in streams if isinstance(stream, Stream) and _started(stream.state())])
