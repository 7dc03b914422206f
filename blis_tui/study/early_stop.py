"""Stops a run as soon as one of its constraints can no longer hold, whatever happens next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.runs.simulation import SLICE_EVENTS
from blis_tui.study.bounds import FollowerFactory, range_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.request import Request
    from blis_tui.model import Expectation, Experiment
    from blis_tui.runs.simulation import Simulation
    from blis_tui.study.bounds import Figure

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
    For figures that are unknown before the end, only the report decides: ``study.bounded`` knows the others.

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
        found = [(constraint, followers.follow(range_of(constraint))) for constraint in constraints]
        self._followed: list[tuple[Expectation, Figure]] = [
            (one, figure) for one, figure in found if figure is not None
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
        found: list[Request] = []
        running = 0
        for instance in self._simulation.cluster.instances:
            there = instance.batch.running
            running += len(there)
            clients = instance.batch.of_clients(there.values())
            found += [request for request in clients if request.first_token_us >= 0]
        self.events_to_next = max(_FEWEST_EVENTS, _EVENTS_PER_REQUEST * running)
        return found
