"""The plug points of the control plane, in the order of a request's path. ``policies`` has the built-in ones."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from blis_tui.base.classes import NamedTuple
from blis_tui.model import Autoscaler
from blis_tui.model.plug_ins import PlugPoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest


class AdmissionPolicy(Protocol):
    """Decides once about each arriving request."""

    rule: str
    """A sentence that explains how it decides, with its settings; empty if its name says it."""

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:
        """Return the reason to reject ``request``; empty to admit it."""

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers, as plain values (for digests)."""


class Saturation(Protocol):
    """Measures how busy the instances are."""

    rule: str
    """A sentence that explains how, with its settings."""

    def level(self, fleet: Fleet) -> float:
        """Return the saturation: 0 = idle; from 1 on the instances are saturated. Observers call it on a copy."""


class RoutingPolicy(Protocol):
    """Chooses an instance once for each admitted request.

    An optional method ``forget`` is called with the index of each instance that is gone, cache included.
    """

    rule: str
    """A sentence that explains how it decides, with its settings; empty if its name says it."""

    def choose(self, request: IncomingRequest, fleet: Fleet, context: Context) -> tuple[int, str]:
        """Return the place in ``fleet`` of the instance that is to serve ``request``, and the reason in a few words."""

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers, as plain values (for digests)."""


@runtime_checkable
class TracksInstances(Protocol):
    """A routing policy or a scorer that remembers what it has sent to an instance."""

    def forget(self, instance: int) -> None:
        """Forget the instance with that index, which is gone with everything it had cached."""


class Scorer(Protocol):
    """Rates each instance for a request. It may have ``forget``, like a routing policy."""

    weight: float
    """Its weight relative to the other scorers."""

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:
        """Return a score between 0 and 1 for every place in ``fleet``, without changing what it remembers.

        Larger ones count as 1, negative ones as 0.
        """

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """Record that ``request`` was routed to that place."""

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers, as plain values (for digests)."""


def clamp_score(score: float) -> float:
    """Clamp a score to 0 to 1.

    Raises:
        ValueError: it is not a number, which cannot be compared with others.
    """
    if isnan(score):
        raise ValueError("a score is not a number")
    return 0.0 if score < 0.0 else min(score, 1.0)


class Decider(Protocol):
    """Decides once for each admitted request whether to split it."""

    rule: str
    """A sentence that explains how it decides, with its settings."""

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:
        """Return whether prefill and decode run on different instances, and why, in a few words.

        ``fleet`` has the decode instances; ``place`` is the chosen one, or None if it is not known yet.
        """

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Record that ``request`` was routed to its prefill instance or, if not split, to its only instance."""

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers, as plain values (for digests)."""


class InstanceLoad(NamedTuple):
    """What one instance of a group holds when the autoscaler evaluates; it is one that requests are sent to."""

    running: int
    """Requests in its batch."""
    waiting: int
    """Requests in its queue."""
    kv_utilization: float
    """Its share of KV blocks in use."""
    kv_tokens: int
    """Tokens that its KV blocks can hold."""
    decode_tokens: int
    """Tokens in the KV cache of the requests that decode."""
    waiting_prompt_tokens: int
    """Prompt tokens of requests in its queue that have not begun."""
    waiting_decode_tokens: int
    """Tokens in the KV cache of the requests that have begun, but do not run: preempted, or prefilled elsewhere."""
    max_model_len: int
    """The most tokens that a request may have; 0 = any number."""


class ScaledGroup(NamedTuple):
    """Instances of one model and role when the autoscaler evaluates, all of whose pools can replace each other."""

    name: str
    """What tells the group from others: its role, its model, or both; ``default`` if there is one group."""
    instances: int
    """All that exist, start, are ordered or under repair."""
    serving: int
    """Those that requests are sent to."""
    running: int
    """Requests in their batches."""
    waiting: int
    """Requests in their queues."""
    outside: int
    """Requests that wait outside of all instances, for one to come up or for the gateway."""
    kv_utilization: float
    """The sum of their shares of KV blocks in use."""
    role: str = "any"
    """``prefill``, ``decode`` or ``any``."""
    least: int = 0
    """The fewest instances that its pools may have together."""
    most: int = 10**9
    """The most instances that its pools may have together."""
    arrived: int = 0
    """Requests that have arrived since the start, and name its model or none."""
    loads: tuple[InstanceLoad, ...] = ()
    """The figures of each instance that requests are sent to."""


class ScalingRule(Protocol):
    """Says how many instances a group should have. The autoscaler keeps to its limits and chooses the pools.

    It is made with the autoscaler's settings, as the stabilization windows are the rule's business.
    """

    rule: str
    """A sentence that explains how it decides, with its settings."""

    def wanted(self, group: ScaledGroup, now_us: int) -> tuple[int, str]:
        """Return the number of instances that there should be, and why, in a few words; called at each evaluation."""

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers, as plain values (for digests)."""


ADMISSION: Final = PlugPoint[[], AdmissionPolicy]("policy.admission", "admission policy", AdmissionPolicy)
SATURATION: Final = PlugPoint[[], Saturation]("policy.gateway.saturation", "saturation detector", Saturation)
ROUTING: Final = PlugPoint[[], RoutingPolicy]("policy.routing", "routing policy", RoutingPolicy)
SCORING: Final = PlugPoint[[], Scorer]("policy.routing.scorers", "scorer", Scorer)
DECIDER: Final = PlugPoint[[], Decider]("cluster.disaggregation.decider", "disaggregation decider", Decider)
SCALING: Final = PlugPoint[[Autoscaler], ScalingRule]("cluster.autoscaler.rule", "scaling rule", ScalingRule)
