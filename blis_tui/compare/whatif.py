"""A counterfactual: the same run with one routing decision changed, and the effect on all requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.cluster.reroute import Reroute
from blis_tui.compare.comparison import OutcomeCounts, Simulated, compare
from blis_tui.compare.divergence import record_stream, run_to_end, search
from blis_tui.compare.same import match
from blis_tui.engine.records import Routed
from blis_tui.errors import RouteError
from blis_tui.metrics.stats import of_samples
from blis_tui.records.tables import record_dict
from blis_tui.simulation import SLICE_EVENTS, Simulation
from blis_tui.spec.model import Experiment
from blis_tui.units import count_text, plural

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from blis_tui.compare.comparison import Comparison
    from blis_tui.compare.divergence import Divergence
    from blis_tui.metrics.report import Report
    from blis_tui.metrics.request_log import RequestRow
    from blis_tui.metrics.stats import Distribution

MOST: Final = 5
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
        found, others = self.divergence, self.others
        return {
            "experiment": self.experiment.name,
            "spec_sha256": self.experiment.sha256,
            "seed": self.experiment.seed,
            "chosen_instance": self.chosen,
            "forced_instance": self.forced,
            "decision_event": self.decision.event,
            "decisions": [asdict(one) for one in self.decisions],
            "request": self.request.to_dict(),
            "others": {
                **{name: getattr(others, name) for name in ("total", "not_compared", "changed", "moved")},
                "ttft": asdict(others.ttft),
                "e2e": asdict(others.e2e),
                "different_ends": [asdict(one) for one in others.different_ends],
                "worst": [one.to_dict() for one in others.worst],
                "best": [one.to_dict() for one in others.best],
            },
            "first_divergence": None
            if found is None
            else {"event": found.event, "before": found.left, "after": found.right},
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
        been = " and ".join(str(one.instance) for one in decisions if event in (None, one.event))
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
    changes = [Change(before=one, after=two) for one, two in matched.pairs]
    return WhatIf(
        experiment=experiment,
        decision=decisions[len(left_alone)],
        decisions=tuple(decisions),
        forced=route_to,
        request=next(one for one in changes if one.request_id == request),
        others=_others([one for one in changes if one.request_id != request], len(before.rows) - len(changes)),
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
        if event is None or any(one.event == event for one in decisions):
            return
        known = " and ".join(f"event {count_text(one.event)} (to {one.instance})" for one in decisions)
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
    fates: Counter[tuple[str, str]] = Counter()
    for one in changes:
        if one.before.state != one.after.state:
            fates[one.before.state, one.after.state] += 1
    timed = [(one.e2e_change_us, one) for one in changes if one.e2e_change_us]
    worst = sorted((pair for pair in timed if pair[0] > 0), key=lambda pair: -pair[0])
    best = sorted((pair for pair in timed if pair[0] < 0), key=lambda pair: pair[0])
    return OtherRequests(
        total=len(changes),
        not_compared=not_compared,
        changed=len([one for one in changes if one.before != one.after._replace(request_id=one.request_id)]),
        moved=len([one for one in changes if one.moved]),
        ttft=_shift([one.ttft_change_us for one in changes]),
        e2e=_shift([one.e2e_change_us for one in changes]),
        different_ends=tuple(OutcomeCounts(a=one, b=two, count=count) for (one, two), count in fates.most_common()),
        worst=tuple(one for _, one in worst[:MOST]),
        best=tuple(one for _, one in best[:MOST]),
    )


def _shift(changes_us: Sequence[int | None]) -> LatencyShift:
    changed = [change for change in changes_us if change]
    total = 0
    for change in changed:
        total += change
    longer = len([change for change in changed if change > 0])
    return LatencyShift(longer=longer, shorter=len(changed) - longer, total_us=total, change_ms=of_samples(changed))


def _change(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
