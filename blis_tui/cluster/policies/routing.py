"""Routing policies: which instance serves a request? See also ``weighted``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.cluster.policy import ROUTING
from blis_tui.model.plug_ins import Stateless, setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest
    from blis_tui.model.plug_ins import NoSettings


def pick(places: Sequence[int], context: Context) -> int:
    """Return one of these equally good places, drawn at random if there are several."""
    return places[0] if len(places) == 1 else places[context.stream.below(len(places))]


@ROUTING.plugin("always-busiest", "The instance with the most load: the worst case, for tests of alarms.", of_blis=True)
class AlwaysBusiest(Stateless):
    """Chooses the instance with the highest load: the worst case, for tests of alarms."""

    rule = "Always-busiest takes the instance with the most requests: queue + batch + in flight."

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:  # noqa: ARG002
        """Return the first of the most loaded instances."""
        loads = fleet.loads()
        most = max(loads)
        return loads.index(most), f"load {most}"


@ROUTING.plugin("least-estimated-ttft", "The instance whose step-time model predicts the earliest first token.")
class LeastEstimatedTtft:
    """Chooses by the predicted time to compute the queued prompts and then this one beside the current batch.

    A queued prompt counts as an average one of those routed so far; the part of the request's own prompt that the
    instance has cached is left out. The policy examines every instance.
    """

    rule = (
        "Predicts with each instance's step-time model how long its queue and this prompt take, and takes the shortest;"
        " a queued prompt counts as an average one."
    )

    def __init__(self, settings: NoSettings) -> None:  # noqa: ARG002  (there are none)
        self._requests = 0
        self._tokens = 0

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """Return the place with the shortest prediction; ties are drawn at random."""
        self._requests += 1
        self._tokens += request.input_tokens
        cached = fleet.cached_blocks(request.segments) if request.segments else [0] * len(fleet)
        predictions = []
        for place, waiting in enumerate(fleet.column("waiting")):
            queued = int(waiting) * self._tokens // self._requests
            own = max(1, request.input_tokens - cached[place] * fleet.block_size_tokens)
            predictions.append(fleet.prefill_us(place, queued + own))
        least = min(predictions)
        places = [place for place, prediction in enumerate(predictions) if prediction == least]
        return pick(places, context), f"first token in about {least} us"

    def state(self) -> tuple[object, ...]:
        """Return the number of requests it has seen, and their prompt tokens."""
        return (self._requests, self._tokens)


@ROUTING.plugin("least-loaded", "The instance with the least load; ties are drawn.")
class LeastLoaded(Stateless):
    """Chooses the instance with the least load; ties are drawn at random."""

    rule = "Least-loaded takes the instance with the fewest requests: queue + batch + in flight."
    shares = (1.0,)

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:  # noqa: ARG002
        """Return a least loaded place."""
        loads = fleet.loads()
        least = min(loads)
        return pick([place for place, load in enumerate(loads) if load == least], context), f"load {least}"

    def explain(self, request: IncomingRequest, fleet: Fleet) -> tuple[tuple[str, list[float]], ...]:  # noqa: ARG002
        """Return its one score, which decreases with the load."""
        return (("load", [1.0 / (1.0 + load) for load in fleet.loads()]),)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOfTwoSettings:
    """Settings of the draw."""

    choices: int = setting("Number of different instances drawn.", default=2, minimum=1, maximum=100)


@ROUTING.plugin("power-of-two", "The least loaded of a few instances drawn at random.", PowerOfTwoSettings)
class PowerOfTwo(Stateless):
    """Draws a few different instances and chooses the one with the least load; among equals the first drawn."""

    def __init__(self, settings: PowerOfTwoSettings) -> None:
        self._choices = settings.choices
        drawn = f"{settings.choices} instances and takes the one with the fewest requests"
        self.rule = f"Draws {'one instance' if settings.choices == 1 else drawn}."

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:  # noqa: ARG002
        """Return the least loaded of the drawn places."""
        loads = fleet.loads()
        places = list(range(len(loads)))
        for drawn in range(min(self._choices, len(places))):  # the first part of a shuffle
            other = drawn + context.stream.below(len(places) - drawn)
            places[drawn], places[other] = places[other], places[drawn]
        candidates = places[: self._choices]
        best = min(candidates, key=loads.__getitem__)
        return best, f"load {loads[best]} of {len(candidates)} drawn"


@ROUTING.plugin("round-robin", "Instances take turns.")
class RoundRobin:
    """Chooses each instance in turn."""

    rule = "Round-robin takes the instances in turn; it does not look at their load."
    reads_signals = False

    def __init__(self, settings: NoSettings) -> None:  # noqa: ARG002  (there are none)
        self._turn = 0

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:  # noqa: ARG002
        """Return the next place."""
        turn = self._turn
        self._turn = turn + 1
        return turn % len(fleet.members), f"turn {turn}" if context.told else ""

    def state(self) -> tuple[object, ...]:
        """Return the turn's number."""
        return (self._turn,)


@ROUTING.plugin("session-affinity", "All requests of a session go to the same instance, new ones to the least loaded.")
class SessionAffinity:
    """Remembers the instance of each session; a request without a session is routed by load."""

    rule = "Session-affinity sends all requests of a session to one instance; new ones go to the least loaded."

    def __init__(self, settings: NoSettings) -> None:  # noqa: ARG002  (there are none)
        self._homes: dict[str, int] = {}

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """Return the session's instance if it can still be chosen; otherwise a least loaded one."""
        session = request.session_id
        home = self._homes.get(session) if session else None
        if home in fleet.members:
            return fleet.members.index(home), f"session {session}"
        loads = fleet.loads()
        least = min(loads)
        place = pick([at for at, load in enumerate(loads) if load == least], context)
        if session:
            self._homes[session] = fleet.members[place]
        return place, f"load {least}"

    def forget(self, instance: int) -> None:
        """Forget the sessions of an instance that is gone with its cache."""
        self._homes = {session: home for session, home in self._homes.items() if home != instance}

    def state(self) -> tuple[object, ...]:
        """Return the instance of each session."""
        return tuple(self._homes.items())
