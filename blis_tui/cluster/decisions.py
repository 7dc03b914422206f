"""Routing decisions: their records with candidates, and overrides of single ones.

A decision is recorded besides ``routed``, and only if its kind has observers. Regret is summed up if an experiment has
``counterfactual``. Nothing here draws from a random stream, refreshes signals, or changes what a policy remembers.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest
from operator import index
from typing import TYPE_CHECKING, Final, Protocol, SupportsIndex, TypeAlias, TypeGuard

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.pickling import is_internal_class
from blis_tui.cluster.policy import clamp_score
from blis_tui.cluster.records import Candidate, RoutingDecision
from blis_tui.cluster.signals import SignalBoard
from blis_tui.model import Signals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.router import Router
    from blis_tui.cluster.signals import Fleet, IncomingRequest, InstanceSignals
    from blis_tui.engine.instance import Instance


class Reroute(NamedTuple):
    """An override of one of a request's routing decisions; there are several if it is split or retried.

    Attributes:
        instance: the index of the instance to use.
        event: the event of the decision; None = the first decision with the instance among its candidates.
    """

    instance: int
    event: int | None = None


RouteOverrides: TypeAlias = Mapping[str, int | Reroute]
"""Overrides by the request's name; an instance alone stands for ``Reroute(instance)``."""


def normalized_overrides(routes: RouteOverrides | None) -> dict[str, Reroute]:
    """Normalize all overrides to ``Reroute``.

    Raises:
        TypeError: one is neither an index nor a ``Reroute``; the engine would fail in the middle of an event.
    """
    return {name: _reroute(name, route) for name, route in (routes or {}).items()}


def _reroute(name: str, given: object) -> Reroute:
    if isinstance(given, Reroute):
        return given
    if isinstance(given, SupportsIndex):
        return Reroute(index(given))
    raise TypeError(f"the route of {name} is the index of an instance or a Reroute, not {given!r}")


ALTERNATIVES: Final = 7
"""Default number of candidates in a record besides the chosen one, the best ones first."""
PPM: Final = 1_000_000
LOAD: Final = "load"
"""Score shown if the policy has none: 1 / (1 + queue + batch + in flight), as in ``load-balance``. The policy does not
decide by it, so there is no regret."""


class Scoring(Protocol):
    """A routing policy that sums up scores."""

    shares: Sequence[float]
    """The share of each score in the sum of all weights."""

    def explain(self, request: IncomingRequest, fleet: Fleet) -> tuple[tuple[str, list[float]], ...]:
        """Return every score's name and unweighted values by place, without changing anything."""


@dataclass(frozen=True, slots=True)
class _Scores:
    """The scores of a fleet's instances, by place."""

    names: tuple[str, ...]
    shares: Sequence[float]
    each: tuple[Sequence[float], ...]
    total: Sequence[float]


class Regrets:
    """The regret of routing decisions: the best score minus the chosen one, summed up.

    Attributes:
        decisions: number of decisions.
        seen: for policies with scores, regret in parts per million -> count, by the instances as the router saw them.
        true: the same, by the instances' actual state.
    """

    def __init__(self) -> None:
        self.decisions = 0
        self.seen: dict[int, int] = {}
        self.true: dict[int, int] = {}

    def add(self, weighed: CapturedDecision, instance: int) -> None:
        """Add one decision for an instance."""
        self.decisions += 1
        for counted, regret in zip((self.seen, self.true), weighed.regret(instance), strict=True):
            if regret is not None:
                counted[regret] = counted.get(regret, 0) + 1

    def state(self) -> tuple[object, ...]:
        """Return everything as plain values (for digests)."""
        return (self.decisions, tuple(sorted(self.seen.items())), tuple(sorted(self.true.items())))


class CapturedDecision:
    """The candidates of a decision, captured before it is made, as the choice changes what policies remember."""

    def __init__(self, router: Router, request: IncomingRequest, instances: Sequence[Instance], now: int) -> None:
        members = router.fleet.members
        true = router.fleet.on(_true_state(instances, now))
        # The board of a policy that reads no signals may be out of date.
        seen = router.fleet if router.reads_signals else true
        self._router = router
        self._request = request
        self._members = members
        self._seen = seen
        self._scored = _is_additive(router.policy)
        self._scores = _scores(router.policy, request, seen)
        self._true = self._scores.total if seen is true else _scores(router.policy, request, true).total

    def regret(self, instance: int) -> tuple[int | None, int | None]:
        """Regret of choosing an instance, by the router's view and by the actual state; None = there are no scores."""
        if not self._scored:
            return None, None
        chosen = self._members.index(instance)
        seen, true = self._scores.total, self._true
        return _ppm(max(seen) - seen[chosen]), _ppm(max(true) - true[chosen])

    def ranked(self, instance: int, most: int) -> list[int]:
        """Return the instance and up to ``most`` others with the best scores in the router's view, best first."""
        total, chosen = self._scores.total, self._members.index(instance)
        others = [at for at in range(len(self._members)) if at != chosen]
        listed = [chosen, *nsmallest(most, others, key=lambda at: (-total[at], at))]
        return [self._members[at] for at in sorted(listed, key=lambda at: (-total[at], at != chosen, at))]

    def to_record(self, event: int, now: int, instance: int, most: int = ALTERNATIVES) -> RoutingDecision:
        """Create the record of the decision for an instance, with at most ``most`` other candidates."""
        scores = self._scores
        regret, true_regret = self.regret(instance)
        places = map(self._members.index, self.ranked(instance, most))
        return RoutingDecision(
            event,
            now,
            self._request.request_id,
            instance,
            self._router.name,
            len(self._members),
            regret,
            true_regret,
            scores.names,
            tuple(map(_ppm, scores.shares)),
            tuple(self._candidate(place, self._seen[place]) for place in places),
        )

    def _candidate(self, place: int, signals: InstanceSignals) -> Candidate:
        return Candidate(
            signals.instance,
            signals.waiting,
            signals.running,
            signals.in_flight,
            signals.kv_used_blocks,
            signals.kv_total_blocks,
            signals.age_us,
            _ppm(self._scores.total[place]),
            _ppm(self._true[place]),
            tuple(_ppm(values[place]) for values in self._scores.each),
        )


def _true_state(instances: Sequence[Instance], now: int) -> SignalBoard:
    """Create a board with signals free of any delay."""
    board = SignalBoard(Signals())
    board.deferring = True
    for instance in instances:
        board.add(instance)
        board.touched[instance.index] = None
    board.read(now)
    return board


def _scores(policy: object, request: IncomingRequest, fleet: Fleet) -> _Scores:
    if _is_additive(policy):
        named = policy.explain(request, fleet)
        names, each = tuple(name for name, _ in named), tuple(list(map(clamp_score, values)) for _, values in named)
        shares = policy.shares
    else:
        names, each, shares = (LOAD,), ([1.0 / (1.0 + load) for load in fleet.loads()],), (1.0,)
    total = [0.0] * len(fleet)
    for share, values in zip(shares, each, strict=True):
        total = [score + share * value for score, value in zip(total, values, strict=True)]
    return _Scores(names, shares, each, total)


def _is_additive(policy: object) -> TypeGuard[Scoring]:
    """Whether a policy sums up scores; attributes of the same names in plug-ins may mean something else."""
    return is_internal_class(type(policy)) and hasattr(policy, "explain")


def _ppm(share: float) -> int:
    return round(share * PPM)
