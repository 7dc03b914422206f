"""A run repeated with other routing decisions: what one would have changed, and the true regret of all.

A policy's scores only express its expectation. Here the rest of the run is simulated with another instance, once for
each alternative of each examined decision; the policies make all later decisions as that run unfolds.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import RouteError
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import count_text, plural
from blis_tui.cluster.decisions import PPM, Reroute
from blis_tui.cluster.records import RoutingDecision
from blis_tui.engine.records import Routed
from blis_tui.engine.request import RequestState
from blis_tui.model import Experiment
from blis_tui.results.record_lines import record_dict
from blis_tui.results.stats import of_samples
from blis_tui.runs.comparison import Simulated, compare, different_ends, match
from blis_tui.runs.divergence import record_stream, run_to_end, search
from blis_tui.runs.simulation import SLICE_EVENTS, Simulation

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from blis_tui.results.report import Report
    from blis_tui.results.request_log import RequestNumbers, RequestRow, RequestTable
    from blis_tui.results.stats import Distribution
    from blis_tui.runs.comparison import Comparison, OutcomeCounts
    from blis_tui.runs.divergence import Divergence
    from blis_tui.workload.traces.trace_table import LeftOut

    _Key = int | tuple[str, int]
    """What identifies a request in every replay: its number, or its session and the number of its call."""


MOST_LISTED: Final = 5
"""Maximum number of requests listed as most slowed down, and as most sped up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A request in the original run, and in the run with the changed decision."""

    before: RequestRow
    after: RequestRow

    @property
    def request_id(self) -> str:
        """The request's name."""
        return self.before.request_id

    @property
    def ttft_change_us(self) -> int | None:
        """Change of its TTFT; None if it got no first token in one of the runs."""
        return _change(self.before.ttft_us, self.after.ttft_us)

    @property
    def e2e_change_us(self) -> int | None:
        """Change of its E2E; None if it did not complete in one of the runs."""
        return _change(self.before.e2e_us, self.after.e2e_us)

    @property
    def moved(self) -> bool:
        """Whether another instance served it."""
        before, after = self.before, self.after
        if before.instance is None or after.instance is None:
            return False
        return (before.instance, before.prefill_instance) != (after.instance, after.prefill_instance)

    def to_dict(self) -> dict[str, object]:
        """Return the change as plain data."""
        names = ("state", "instance", "prefill_instance", "ttft_us", "e2e_us")
        before, after = ({name: getattr(row, name) for name in names} for row in (self.before, self.after))
        return {
            "request_id": self.request_id,
            "before": before,
            "after": after,
            "ttft_change_us": self.ttft_change_us,
            "e2e_change_us": self.e2e_change_us,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyShift:
    """Changes of a latency of the other requests; positive = longer."""

    longer: int
    """Number of requests whose latency grew."""
    shorter: int
    total_us: int
    """Sum of all changes."""
    change_ms: Distribution
    """Distribution of the non-zero changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRequests:
    """The effect of the decision on all other requests that are the same in both runs."""

    total: int
    not_compared: int
    """Requests of the original run that the changed run does not have: their sessions were cancelled, or the prompts of
    a closed loop came in another order."""
    changed: int
    """Requests for which anything in the request table differs, except their names, which count arrivals."""
    moved: int
    """Requests that another instance served."""
    ttft: LatencyShift
    e2e: LatencyShift
    different_ends: tuple[OutcomeCounts, ...]
    """Requests with different outcomes, by frequency."""
    worst: tuple[Change, ...]
    """Requests whose E2E grew most; ties by the earlier arrival."""
    best: tuple[Change, ...]
    """Requests whose E2E shrank most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A routing decision about the request."""

    event: int
    instance: int
    """Index of the instance that the policy chose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A run, and the same run with one request sent to another instance."""

    experiment: Experiment
    decision: Decision
    """The original decision that was changed."""
    decisions: tuple[Decision, ...]
    """All decisions about the request in the original run; several if it was split or restarted."""
    forced: int
    """The instance to which the request was sent instead."""
    request: Change
    others: OtherRequests
    divergence: Divergence | None
    """The first event that differs; None if the policy chose that instance anyway."""
    comparison: Comparison
    """Both reports: A is the original run, B the changed one."""

    @property
    def chosen(self) -> int:
        """The instance that the policy chose in the changed decision."""
        return self.decision.instance

    @property
    def routes(self) -> dict[str, Reroute]:
        """The override that produces the changed run, for ``Simulation``."""
        return {self.request.request_id: Reroute(self.forced, self.decision.event)}

    def __repr__(self) -> str:
        """Return one line, without the reports."""
        where = f"{self.request.request_id} to instance {self.forced}, not {self.chosen}"
        return f"<WhatIf {where}: {self.others.changed:,} of {self.others.total:,} others changed>"

    def to_dict(self, *, everything: bool = False) -> dict[str, object]:
        """Return the result as plain data; ``everything`` includes equal and minor figures of the reports."""
        divergence, others = self.divergence, self.others
        return {
            "experiment": self.experiment.name,
            "spec_sha256": self.experiment.sha256,
            "seed": self.experiment.seed,
            "chosen_instance": self.chosen,
            "forced_instance": self.forced,
            "decision_event": self.decision.event,
            "decisions": [asdict(decision) for decision in self.decisions],
            "request": self.request.to_dict(),
            "others": {
                **{name: getattr(others, name) for name in ("total", "not_compared", "changed", "moved")},
                "ttft": asdict(others.ttft),
                "e2e": asdict(others.e2e),
                "different_ends": [asdict(counts) for counts in others.different_ends],
                "worst": [change.to_dict() for change in others.worst],
                "best": [change.to_dict() for change in others.best],
            },
            "first_divergence": None
            if divergence is None
            else {"event": divergence.event, "before": divergence.left, "after": divergence.right},
            "metrics": [row.to_dict() for row in self.comparison.shown_metrics(everything=everything)],
        }


def whatif(experiment: Experiment, request: str, route_to: int, *, event: int | None = None) -> WhatIf:
    """Replay a run with one routing decision changed, and return the effect on that request and all others.

    The run is simulated from its start. The router is still asked, so that its policy's state and random numbers stay
    the same; only the destination of ``request`` changes. The policies make all later decisions as the run unfolds. A
    request is routed several times if its prefill and decode run on two instances, or if it restarts because its
    instance has gone: ``event`` selects the decision to change.

    Args:
        experiment: an experiment from :func:`blis_tui.load`.
        request: the name of a request.
        route_to: the index of an instance.
        event: the event of the decision; None = the first one that has the instance among its candidates.

    Raises:
        RouteError: there is no such request or instance; or the request is never routed, not in that event, or not with
            that candidate.
        SimulationError: one of the two runs cannot go on.
        TraceError: rows of a recorded workload are invalid.
    """
    return run_to_end(ask_whatif(experiment, request, route_to, event))


def ask_whatif(
    experiment: Experiment, request: str, route_to: int, event: int | None = None
) -> Generator[object, None, WhatIf]:
    """Do the same as :func:`whatif` step by step, for callers that may want to stop early."""
    if not isinstance(experiment, Experiment):
        raise TypeError(f"not an experiment but {type(experiment).__name__}: load one with blis_tui.load()")
    simulation = Simulation(experiment)
    decisions: list[Decision] = []

    def note_choice(record: Routed) -> None:
        if record.request_id == request:
            decisions.append(Decision(event=record.event, instance=record.instance))

    simulation.subscribe(Routed, note_choice)
    yield from _run(simulation)
    before = simulation.report()
    _require_routed(request, decisions, event, before.rows)
    require_instance(route_to, len(before.instances))
    routes = {request: Reroute(route_to, event)}
    changed = Simulation(experiment, routes=routes)
    left_alone: list[Routed] = []

    def note_undisturbed(record: Routed) -> None:
        if record.request_id == request and changed.unused_routes:
            left_alone.append(record)

    changed.subscribe(Routed, note_undisturbed)
    yield from _run(changed)
    if changed.unused_routes:
        been = " and ".join(str(decision.instance) for decision in decisions if event in (None, decision.event))
        where = "" if event is None else f" at event {count_text(event)}"
        who = "candidates depend on cluster.pools and cluster.disaggregation"
        if experiment.cluster.varies:
            who += ", and on which instances are up then"
        raise RouteError(
            f"instance {route_to} is not a candidate for {request}{where}", help=f"the router chose {been}; {who}"
        )
    after = changed.report()
    streams = record_stream(experiment), record_stream(experiment, routes=routes)
    divergence = yield from search(*streams, record_dict)
    matched = match(before.rows, after.rows, arrivals=False)
    changes = [Change(before=was, after=now) for was, now in matched.pairs]
    return WhatIf(
        experiment=experiment,
        decision=decisions[len(left_alone)],
        decisions=tuple(decisions),
        forced=route_to,
        request=next(change for change in changes if change.request_id == request),
        others=_others([change for change in changes if change.request_id != request], len(before.rows) - len(changes)),
        divergence=divergence,
        comparison=compare(_side(experiment, before), _side(experiment, after)),
    )


def _run(simulation: Simulation) -> Generator[None, None, None]:
    while not simulation.done:
        simulation.run(max_events=SLICE_EVENTS)
        yield


def _side(experiment: Experiment, report: Report) -> Simulated:
    return Simulated(experiment=experiment, source=experiment.name, report=report)


def _require_routed(request: str, decisions: Sequence[Decision], event: int | None, rows: Sequence[RequestRow]) -> None:
    """Raise RouteError if a request is unknown or was never routed, or not in that event."""
    if decisions:
        if event is None or any(decision.event == event for decision in decisions):
            return
        known = " and ".join(f"event {count_text(decision.event)} (to {decision.instance})" for decision in decisions)
        raise RouteError(f"{request} is not routed at event {count_text(event)}", help=f"it is at {known}")
    row = next((row for row in rows if row.request_id == request), None)
    if row is None:
        known = (
            f"there are {len(rows):,}, from {rows[0].request_id} to {rows[-1].request_id}" if rows else "there are none"
        )
        raise RouteError(f"there is no request `{request}`", help=f"names are those of `run --requests`; {known}")
    ended = "it was rejected" if row.state == "rejected" else "the run ended before that"
    raise RouteError(f"{request} is never routed: {ended}", help="only a request that is routed can go elsewhere")


def require_instance(index: int, count: int) -> None:
    """Raise RouteError if there is no such instance."""
    if not 0 <= index < count:
        which = f"0 to {count - 1}" if count > 1 else "0"
        raise RouteError(f"there is no instance {index}", help=f"the cluster has {plural(count, 'instance')}: {which}")


def _others(changes: Sequence[Change], not_compared: int) -> OtherRequests:
    timed = [(change.e2e_change_us, change) for change in changes if change.e2e_change_us]
    worst = sorted((pair for pair in timed if pair[0] > 0), key=lambda pair: -pair[0])
    best = sorted((pair for pair in timed if pair[0] < 0), key=lambda pair: pair[0])
    return OtherRequests(
        total=len(changes),
        not_compared=not_compared,
        changed=len(
            [change for change in changes if change.before != change.after._replace(request_id=change.request_id)]
        ),
        moved=len([change for change in changes if change.moved]),
        ttft=_shift([change.ttft_change_us for change in changes]),
        e2e=_shift([change.e2e_change_us for change in changes]),
        different_ends=different_ends((change.before.state, change.after.state) for change in changes),
        worst=tuple(change for _, change in worst[:MOST_LISTED]),
        best=tuple(change for _, change in best[:MOST_LISTED]),
    )


def _shift(changes_us: Sequence[int | None]) -> LatencyShift:
    changed = [change for change in changes_us if change]
    total = whole_sum(changed)
    longer = len([change for change in changed if change > 0])
    return LatencyShift(longer=longer, shorter=len(changed) - longer, total_us=total, change_ms=of_samples(changed))


def _change(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


MOST_DECISIONS: Final = 1000
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
        return min((self.actual, *self.alternatives), key=lambda alternative: alternative.for_request)

    @property
    def best_for_run(self) -> Alternative:
        """The best choice for all requests together; the actual decision wins ties."""
        return min((self.actual, *self.alternatives), key=lambda alternative: alternative.for_run)

    def to_dict(self) -> dict[str, object]:
        """Return the decision as plain data."""
        names = ("event", "time_us", "request_id", "policy", "state", "chosen", "candidates", "regret", "true_regret")
        return {
            **{name: getattr(self, name) for name in names},
            "best_for_request": asdict(self.best_for_request),
            "best_for_run": asdict(self.best_for_run),
            "alternatives": [asdict(alternative) for alternative in self.alternatives],
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
        return len([alternative for judged in self.judged for alternative in judged.alternatives])

    @property
    def lost_by_requests(self) -> Distribution:
        """Distribution of each decision's cost for its request: E2E with the chosen minus the best instance, in ms.

        Covers decisions whose request completed.
        """
        best = [judgement.best_for_request for judgement in self.judged if judgement.state == _COMPLETED]
        return of_samples([-alternative.e2e_change_us for alternative in best if alternative.e2e_change_us is not None])

    @property
    def lost_by_run(self) -> Distribution:
        """Distribution of each decision's cost for all requests: total E2E with the chosen minus the best one, in ms.

        Covers decisions that do not affect how many requests complete.
        """
        best = [judgement.best_for_run for judgement in self.judged]
        return of_samples([-alternative.run_e2e_change_us for alternative in best if not alternative.completed_change])

    def __repr__(self) -> str:
        """Return one line."""
        return (
            f"<Hindsight {self.experiment.name}: {len(self.judged):,} of {plural(self.decisions, 'decision')} judged>"
        )

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain data."""
        better = {
            name: len(
                [
                    judgement
                    for judgement in self.judged
                    if getattr(judgement, f"best_for_{name}").instance != judgement.chosen
                ]
            )
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
            "by_decision": [judgement.to_dict() for judgement in self.judged],
        }


def true_regret(
    experiment: Experiment, *, every: int = 1, alternatives: int | None = None, most: int = MOST_DECISIONS
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
    experiment: Experiment, *, every: int = 1, alternatives: int | None = None, most: int = MOST_DECISIONS
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
    total = len([candidate for decision in chosen for candidate in decision.top]) - len(chosen)
    _require_few(total, most, every, decisions)
    before, keys = _books(first), _keys(first)
    judged: list[JudgedDecision] = []
    again, done = Simulation(experiment), 0
    for decision in chosen:
        tried: list[Alternative] = []
        again.run(max_events=decision.event - 1 - again.events)
        others = [candidate.instance for candidate in decision.top if candidate.instance != decision.instance]
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


def _books(simulation: Simulation) -> dict[_Key, RequestNumbers]:
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


def _completed(rows: dict[_Key, RequestNumbers]) -> int:
    return len([row for row in rows.values() if row.state == RequestState.COMPLETED])


def _judged(decision: RoutingDecision, row: RequestNumbers, tried: Sequence[Alternative]) -> JudgedDecision:
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


def _alternative(
    instance: int, key: _Key, before: dict[_Key, RequestNumbers], after: dict[_Key, RequestNumbers]
) -> Alternative:
    row = after[key]
    ttft = e2e = 0
    for old, new in ((before[at], after[at]) for at in before if at in after):
        if old.input_tokens != new.input_tokens:
            continue  # prompts of a closed loop that came in another order
        ttft += _latency_change(old.ttft_us, new.ttft_us) or 0
        e2e += _latency_change(old.e2e_us, new.e2e_us) or 0
    return Alternative(
        instance=instance,
        state=_state(row),
        ttft_change_us=_latency_change(before[key].ttft_us, row.ttft_us),
        e2e_change_us=_latency_change(before[key].e2e_us, row.e2e_us),
        completed_change=_completed(after) - _completed(before),
        run_ttft_change_us=ttft,
        run_e2e_change_us=e2e,
    )


def _latency_change(before: int, after: int) -> int | None:
    """Return the change of a time; None if it is missing in one of the runs."""
    return after - before if before >= 0 and after >= 0 else None


def _state(row: RequestNumbers) -> str:
    return RequestState(row.state).name.lower()


_COMPLETED: Final = RequestState.COMPLETED.name.lower()
