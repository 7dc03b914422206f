"""One run of a study in any process: its input and its outcome, and its end once a constraint can no longer hold."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

from blis_tui._version import ENGINE
from blis_tui.base.canonical import to_sorted_json
from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, in_words
from blis_tui.model.plug_ins import place_in_plugin
from blis_tui.runs.simulation import SLICE_EVENTS, Simulation
from blis_tui.spec.build import build_experiment
from blis_tui.spec.user_plugins import load_plugins
from blis_tui.study.bounds import FollowerFactory, range_of
from blis_tui.study.steady import steady_report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.engine.request import Request
    from blis_tui.model import Expectation, Experiment
    from blis_tui.model.plug_ins import Plugin
    from blis_tui.study.bounds import Figure
    from blis_tui.study.steady import Steady

Status = Literal["done", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An experiment to run, in a form that can be sent to another process."""

    key: str
    """Key under which its result is kept."""
    document: Mapping[str, object]
    """The resolved experiment; no file but its trace is read."""
    trace_path: str | None
    plugins: tuple[str, ...] = ()
    """Plug-ins to load, as the user gave them."""
    stop_at: tuple[Expectation, ...] = ()
    """Constraints; the run ends as soon as one of them can no longer hold."""
    steady: Steady | None = None
    """Bounds; the run ends when it is known whether they hold in the long run. None = it ends by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run."""

    status: Status
    """``stopped``: a constraint could no longer hold, so the report covers a part of the run."""
    report: str = ""
    """JSON text; empty if the run failed."""
    why: str = ""
    """Why it was stopped, or failed."""
    left_out: tuple[str, ...] = ()
    """What of its trace is no request, in words."""
    place: str = ""
    """Where in a plug-in's code it failed; empty if it failed elsewhere, or did not fail."""


def task_of(experiment: Experiment, stop_at: Sequence[Expectation] = (), steady: Steady | None = None) -> Task:
    """Return what another process needs to run an experiment.

    Args:
        experiment: the experiment.
        stop_at: constraints without which its result is useless.
        steady: what must be known of the long run; None = the run ends by itself.
    """
    trace = experiment.workload.trace
    key = key_of(experiment)
    return Task(
        key=key if steady is None else sha256(to_sorted_json([key, asdict(steady)]).encode()).hexdigest(),
        document=experiment.document,
        trace_path=None if trace is None else trace.path,
        plugins=tuple(origin.asked for origin in experiment.plugins.origins),
        stop_at=tuple(stop_at),
        steady=steady,
    )


def key_of(experiment: Experiment) -> str:
    """Return a key that is equal for equal reports: from the experiment's digest, the engine, and users' code."""
    used = [[plugin.path, plugin.name, *_from(plugin)] for plugin in experiment.plugins_used()]
    return sha256(to_sorted_json([experiment.sha256, ENGINE, used]).encode()).hexdigest()


def _from(plugin: Plugin) -> tuple[str, ...]:
    return () if plugin.origin is None else (plugin.origin.name, plugin.origin.version, plugin.origin.code)


def stopped_key(key: str, stop_at: Sequence[Expectation]) -> str:
    """Return the key of a run that may be stopped, since another study may not want it stopped there."""
    if not stop_at:
        return key
    bounds = [[expectation.metric, expectation.min, expectation.max, expectation.equals] for expectation in stop_at]
    return sha256(to_sorted_json([key, bounds]).encode()).hexdigest()


def execute(task: Task) -> Outcome:
    """Run a task to its end, or until what is asked of it is known; failures are outcomes, too."""
    try:
        plugins = load_plugins(task.plugins) if task.plugins else None
        experiment = build_experiment(task.document, trace_path=task.trace_path, plugins=plugins)
        simulation = Simulation(experiment)
        if task.steady is not None:
            report = steady_report(simulation, task.steady)
            return Outcome(status="done", report=report, left_out=tuple(map(str, simulation.left_out)))
        stop = EarlyStop(experiment, task.stop_at)
        stop.run(simulation)
        whole = stop.broken is None
        return Outcome(
            status="done" if whole else "stopped",
            report=simulation.report(verify=whole).to_json(),
            why="" if stop.broken is None else stop.broken.sentence,
            left_out=tuple(map(str, simulation.left_out)),
        )
    except BlisError as error:
        return Outcome(status="failed", why=error.message, place=place_in_plugin(error.__cause__ or error))
    except MemoryError:
        return Outcome(status="failed", why="out of memory")
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a defect, here or in a plug-in, costs one run of many)
        return Outcome(status="failed", why=in_words(error), place=place_in_plugin(error))


_FEWEST_EVENTS: Final = 128
_EVENTS_PER_REQUEST: Final = 4
"""Minimum events between two looks, per running request, so that looking costs about a hundredth of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A constraint that can no longer hold, and when this was detected."""

    expectation: Expectation
    event: int
    time_us: int
    sentence: str
    """The reason, such as ``latency.ttft_ms.p99 will be above 300: 6 of at most 500 requests had more, at most 5 may``.
    """


class EarlyStop:
    """Stops runs of an experiment whose constraints can no longer hold.

    A run that it stops would violate that constraint at its end, too; any other run has the same result as without it.
    For figures that are unknown before the end, only the report decides: ``study.bounds`` knows the others.

    Args:
        experiment: the simulated experiment.
        constraints: the constraints on its report.

    Attributes:
        broken: the constraint that stopped the latest run; None if none did.
    """

    def __init__(self, experiment: Experiment, constraints: Sequence[Expectation]) -> None:
        self.broken: Broken | None = None
        self._experiment = experiment
        self._constraints = tuple(constraints)

    def run(self, simulation: Simulation, *, go_on: Callable[[Simulation], bool] | None = None) -> bool:
        """Run a new simulation to its end, unless a constraint becomes impossible before.

        Args:
            simulation: a simulation of the experiment.
            go_on: as for ``Simulation.run``.

        Returns:
            False if a constraint (see ``broken``), ``go_on`` or ``Simulation.stop`` stopped it.
        """
        self.broken = None
        watch = Watch(simulation, self._experiment, self._constraints)
        if not watch.follows:
            return simulation.run(go_on=go_on)
        asked = 0
        while not simulation.done:
            if not simulation.run(max_events=watch.events_to_next):
                return False
            self.broken = watch.look()
            if self.broken is not None:
                return False
            if go_on is not None and simulation.events - asked >= SLICE_EVENTS:
                asked = simulation.events
                if not go_on(simulation):
                    return False
        return True


class Watch:
    """Follows one simulation.

    Args:
        simulation: a simulation that has not begun.
        experiment: its experiment.
        constraints: the constraints on its report.

    Attributes:
        events_to_next: number of events until the next look.
    """

    def __init__(self, simulation: Simulation, experiment: Experiment, constraints: Sequence[Expectation]) -> None:
        self.events_to_next = _FEWEST_EVENTS
        self._simulation = simulation
        self._read = 0
        followers = FollowerFactory(experiment, simulation.cluster)
        followed = [(constraint, followers.follow(range_of(constraint))) for constraint in constraints]
        self._followed: list[tuple[Expectation, Figure]] = [
            (expectation, figure) for expectation, figure in followed if figure is not None
        ]

    @property
    def follows(self) -> bool:
        """Whether any constraint can be followed."""
        return bool(self._followed)

    def look(self) -> Broken | None:
        """Return a constraint that can no longer hold, if there is one; call it between two events."""
        simulation, log, followed = self._simulation, self._simulation.log, self._followed
        rows, groups = log.rows(self._read), log.groups()
        self._read += len(rows)
        for _, figure in followed:
            figure.ended(rows, groups)
        answering = self._answering()
        for constraint, figure in followed:
            figure.look(answering, simulation.now_us)
            why = figure.reason(simulation.now_us)
            if why:
                return Broken(expectation=constraint, event=simulation.events, time_us=simulation.now_us, sentence=why)
        return None

    def _answering(self) -> list[Request]:
        """Return running requests with a first token, including those that get it at the end of the current step."""
        requests: list[Request] = []
        running = 0
        for instance in self._simulation.cluster.instances:
            there = instance.batch.running
            running += len(there)
            clients = instance.batch.of_clients(there.values())
            requests += [request for request in clients if request.first_token_us >= 0]
        self.events_to_next = max(_FEWEST_EVENTS, _EVENTS_PER_REQUEST * running)
        return requests
