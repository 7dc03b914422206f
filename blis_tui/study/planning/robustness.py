"""Whether an answer also holds on a slower server, with other step times, and with other random draws."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from blis_tui.base.streams import Stream
from blis_tui.engine.options.drafts import AcceptanceSampler
from blis_tui.results.expected_error import known_for
from blis_tui.runs.checkpoints import objects_from
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.resolve import CHOICES
from blis_tui.study.planning.answer import DISAGREEMENT, Candidate, OtherEstimate, Question, Trial, run_experiment
from blis_tui.study.planning.driver import Run
from blis_tui.study.planning.search import (
    failure_reason,
)
from blis_tui.study.planning.slower import LATER, SlowServer, metrics_bounded

if TYPE_CHECKING:
    from collections.abc import Generator

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.model import Experiment
    from blis_tui.study.study_rows import Row


def on_slower_server(
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


def other_estimates(question: Question, best: Candidate) -> Generator[list[Run], list[Row], tuple[OtherEstimate, ...]]:
    """Find each bounded figure at the answer with the other step-time models, in the deciding run."""
    found = best.decides
    if found is None:
        return ()
    experiment, bounds = run_experiment(question.study, found.rows[0]), question.study.constraints
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
