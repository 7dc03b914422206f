"""True regret: replays routing decisions with their alternatives, and finds what the best one would have changed.

A policy's scores only express its expectation. Here the rest of the run is simulated with another instance, once for
each alternative of each examined decision; the policies make all later decisions as that run unfolds.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.cluster.decisions import PPM
from blis_tui.cluster.records import RoutingDecision
from blis_tui.cluster.reroute import Reroute
from blis_tui.compare.divergence import run_to_end
from blis_tui.engine.request import RequestState
from blis_tui.errors import RouteError
from blis_tui.metrics.stats import of_samples
from blis_tui.simulation import SLICE_EVENTS, Simulation
from blis_tui.spec.model import Experiment
from blis_tui.units import count_text, plural

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from blis_tui.metrics.request_log import RequestTable, Row
    from blis_tui.metrics.stats import Distribution
    from blis_tui.workload.trace_table import LeftOut

    _Key = int | tuple[str, int]
    """What identifies a request in every replay: its number, or its session and the number of its call."""

MOST: Final = 1000
"""Default maximum number of replays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The run with one decision sent to another instance; changes are relative to the original, negative = sooner."""

    instance: int
    state: str
    """Final state of the request."""
    ttft_change_us: int | None
    """Change for the request; None if it got no first token in one of the runs."""
    e2e_change_us: int | None
    completed_change: int
    """Change in the number of completed requests."""
    run_ttft_change_us: int
    """Sum over all requests that have a first token in both runs. Prompts of closed loops that came in another order
    do not count."""
    run_e2e_change_us: int
    """Sum over those that completed in both runs."""

    @property
    def for_request(self) -> tuple[bool, int, int]:
        """Sort key, best first for the request: whether it fails to complete, E2E change, TTFT change."""
        return self.state != _COMPLETED, self.e2e_change_us or 0, self.ttft_change_us or 0

    @property
    def for_run(self) -> tuple[int, int, int]:
        """Sort key, best first for all requests: completions, then E2E latencies, then TTFTs."""
        return -self.completed_change, self.run_e2e_change_us, self.run_ttft_change_us


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedDecision:
    """A routing decision, and the runs that its alternatives would have led to."""

    event: int
    time_us: int
    request_id: str
    policy: str
    state: str
    """Final state of the request."""
    chosen: int
    candidates: int
    regret: float | None
    """Regret by the router's view of the candidates; None = the policy has no scores."""
    true_regret: float | None
    """Regret by the candidates' true state."""
    alternatives: tuple[Alternative, ...]
    """The replayed alternatives, in the order of their scores."""

    @property
    def actual(self) -> Alternative:
        """The actual decision as an alternative without changes."""
        return Alternative(
            instance=self.chosen,
            state=self.state,
            ttft_change_us=0,
            e2e_change_us=0,
            completed_change=0,
            run_ttft_change_us=0,
            run_e2e_change_us=0,
        )

    @property
    def best_for_request(self) -> Alternative:
        """The best choice for the request; the actual decision wins ties."""
        return min((self.actual, *self.alternatives), key=lambda one: one.for_request)

    @property
    def best_for_run(self) -> Alternative:
        """The best choice for all requests together; the actual decision wins ties."""
        return min((self.actual, *self.alternatives), key=lambda one: one.for_run)

    def to_dict(self) -> dict[str, object]:
        """Return the decision as plain data."""
        names = ("event", "time_us", "request_id", "policy", "state", "chosen", "candidates", "regret", "true_regret")
        return {
            **{name: getattr(self, name) for name in names},
            "best_for_request": asdict(self.best_for_request),
            "best_for_run": asdict(self.best_for_run),
            "alternatives": [asdict(one) for one in self.alternatives],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """The true regret of a run's decisions."""

    experiment: Experiment
    every: int
    decisions: int
    """Number of decisions in the run."""
    requests: int
    completed: int
    """Number of completed requests in the original run."""
    judged: tuple[JudgedDecision, ...]
    """The examined decisions: the first one, and every n-th after it."""
    left_out: tuple[LeftOut, ...] = ()
    """What the trace's format left out of a recorded workload; not part of the JSON document."""

    @property
    def replays(self) -> int:
        """Number of replays, each from its decision on, besides the run itself."""
        return len([one for judged in self.judged for one in judged.alternatives])

    @property
    def lost_by_requests(self) -> Distribution:
        """Distribution of each decision's cost for its request: E2E with the chosen minus the best instance, in ms.

        Covers decisions whose request completed.
        """
        best = [one.best_for_request for one in self.judged if one.state == _COMPLETED]
        return of_samples([-one.e2e_change_us for one in best if one.e2e_change_us is not None])

    @property
    def lost_by_run(self) -> Distribution:
        """Distribution of each decision's cost for all requests: total E2E with the chosen minus the best one, in ms.

        Covers decisions that do not affect how many requests complete.
        """
        best = [one.best_for_run for one in self.judged]
        return of_samples([-one.run_e2e_change_us for one in best if not one.completed_change])

    def __repr__(self) -> str:
        """Return one line."""
        return (
            f"<Hindsight {self.experiment.name}: {len(self.judged):,} of {plural(self.decisions, 'decision')} judged>"
        )

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain data."""
        better = {
            name: len([one for one in self.judged if getattr(one, f"best_for_{name}").instance != one.chosen])
            for name in ("request", "run")
        }
        return {
            "experiment": self.experiment.name,
            "spec_sha256": self.experiment.sha256,
            "seed": self.experiment.seed,
            "every": self.every,
            "decisions": self.decisions,
            "judged": len(self.judged),
            "replays": self.replays,
            "better_for_request": better["request"],
            "better_for_run": better["run"],
            "lost_by_requests_ms": asdict(self.lost_by_requests),
            "lost_by_run_ms": asdict(self.lost_by_run),
            "by_decision": [one.to_dict() for one in self.judged],
        }


def true_regret(
    experiment: Experiment, *, every: int = 1, alternatives: int | None = None, most: int = MOST
) -> Hindsight:
    """Replay routing decisions with each of their alternatives, and return what the best ones would have changed.

    The run is simulated twice, to learn its decisions and to reach each of them; each replay continues from there.

    Args:
        experiment: an experiment from :func:`blis_tui.load`.
        every: examine the first decision and every n-th after it; 1 = all.
        alternatives: maximum number of alternatives per decision, by the scores the router saw; None = all.
        most: maximum number of replays.

    Raises:
        RouteError: more replays would be needed.
        SimulationError: one of the runs cannot go on.
        TraceError: rows of a recorded workload are invalid.
        ValueError: a number is below 1.
    """
    return run_to_end(ask_true_regret(experiment, every=every, alternatives=alternatives, most=most))


def ask_true_regret(
    experiment: Experiment, *, every: int = 1, alternatives: int | None = None, most: int = MOST
) -> Generator[tuple[int, int], None, Hindsight]:
    """Do the same as :func:`true_regret` step by step; yield the number of replays done and in total."""
    if not isinstance(experiment, Experiment):
        raise TypeError(f"not an experiment but {type(experiment).__name__}: load one with blis_tui.load()")
    if min(every, 1 if alternatives is None else alternatives, most) < 1:
        raise ValueError("every, alternatives and most are at least 1")
    decisions: list[RoutingDecision] = []
    # Weighing more candidates does not change the run. An autoscaler may add any number of candidates.
    wanted = replace(experiment, counterfactual=alternatives or experiment.instance_numbers)
    first = Simulation(wanted)
    first.subscribe(RoutingDecision, decisions.append)
    while not first.done:
        first.run(max_events=SLICE_EVENTS)
        yield 0, 0
    chosen = decisions[::every]
    total = len([one for decision in chosen for one in decision.top]) - len(chosen)
    _require_few(total, most, every, decisions)
    before, keys = _books(first), _keys(first)
    judged: list[JudgedDecision] = []
    again, done = Simulation(experiment), 0
    for decision in chosen:
        tried: list[Alternative] = []
        again.run(max_events=decision.event - 1 - again.events)
        others = [one.instance for one in decision.top if one.instance != decision.instance]
        mark = again.mark() if others else None
        for instance in others:
            assert mark is not None  # noqa: S101  (it has other candidates)
            other = again.twin(mark, routes={decision.request_id: Reroute(instance, decision.event)})
            while not other.done:
                other.run(max_events=SLICE_EVENTS)
                yield done, total
            tried.append(_alternative(instance, keys[decision.request_id], before, _books(other)))
            done += 1
        judged.append(_judged(decision, before[keys[decision.request_id]], tried))
    return Hindsight(
        experiment=experiment,
        every=every,
        decisions=len(decisions),
        requests=len(before),
        completed=_completed(before),
        judged=tuple(judged),
        left_out=first.left_out,
    )


def _require_few(total: int, most: int, every: int, decisions: Sequence[RoutingDecision]) -> None:
    """Raise RouteError if the decisions need more replays than allowed."""
    if total <= most:
        return
    fewer = -(-every * total // most)
    raise RouteError(
        f"replaying every decision takes {count_text(total)} replays of the run, more than {count_text(most)}"
        if every == 1
        else f"replaying every {every}th decision takes {count_text(total)} replays of the run, more than"
        f" {count_text(most)}",
        help=f"there are {plural(len(decisions), 'decision')}: replay every {fewer}th (--every {fewer}), fewer "
        f"alternatives of each (--counterfactual), or allow more (--most)",
    )


def _books(simulation: Simulation) -> dict[_Key, Row]:
    """Return the books of all requests."""
    table = simulation.log.table(simulation.cluster)
    return {_key(table, row.number): row for row in table.plain()}


def _keys(simulation: Simulation) -> dict[str, _Key]:
    """Return the key of each request, by its name."""
    table = simulation.log.table(simulation.cluster)
    return {table.name(row.number): _key(table, row.number) for row in table.plain()}


def _key(table: RequestTable, number: int) -> _Key:
    """Return what a request is in every replay: numbers count arrivals, and calls of sessions wait for answers."""
    return table.session(number) or number


def _completed(rows: dict[_Key, Row]) -> int:
    return len([row for row in rows.values() if row.state == RequestState.COMPLETED])


def _judged(decision: RoutingDecision, row: Row, tried: Sequence[Alternative]) -> JudgedDecision:
    regret, true = decision.regret_ppm, decision.true_regret_ppm
    return JudgedDecision(
        event=decision.event,
        time_us=decision.time_us,
        request_id=decision.request_id,
        policy=decision.policy,
        state=_state(row),
        chosen=decision.instance,
        candidates=decision.candidates,
        regret=None if regret is None else regret / PPM,
        true_regret=None if true is None else true / PPM,
        alternatives=tuple(tried),
    )


def _alternative(instance: int, key: _Key, before: dict[_Key, Row], after: dict[_Key, Row]) -> Alternative:
    row = after[key]
    ttft = e2e = 0
    for one, other in ((before[at], after[at]) for at in before if at in after):
        if one.input_tokens != other.input_tokens:
            continue  # prompts of a closed loop that came in another order
        ttft += _change(one.ttft_us, other.ttft_us) or 0
        e2e += _change(one.e2e_us, other.e2e_us) or 0
    return Alternative(
        instance=instance,
        state=_state(row),
        ttft_change_us=_change(before[key].ttft_us, row.ttft_us),
        e2e_change_us=_change(before[key].e2e_us, row.e2e_us),
        completed_change=_completed(after) - _completed(before),
        run_ttft_change_us=ttft,
        run_e2e_change_us=e2e,
    )


def _change(before: int, after: int) -> int | None:
    """Return the change of a time; None if it is missing in one of the runs."""
    return after - before if before >= 0 and after >= 0 else None


def _state(row: Row) -> str:
    return RequestState(row.state).name.lower()


_COMPLETED: Final = RequestState.COMPLETED.name.lower()
