"""A routing policy at work: with its fleet, its random stream, and its answers checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import mypyc_attr
from blis_tui.cluster.policy import ROUTING, Forgetful
from blis_tui.cluster.signals import Context
from blis_tui.errors import SimulationError
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.cluster.policy import RoutingPolicy
    from blis_tui.cluster.signals import Fleet, IncomingRequest
    from blis_tui.engine.records import Observers
    from blis_tui.engine.streams import Streams
    from blis_tui.spec.model import Experiment, PluginConfig


_SEQUENCES: Final = (tuple, list)
_LENGTH: Final = 2
"""Of an answer: a place and a reason."""
NAME: Final = "router"
"""What turns requests away whose model no instance serves, where a policy's name would stand."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Router(Kept):
    """Chooses instances of one fleet.

    Attributes:
        name: what a spec calls its policy.
        policy: the policy.
        fleet: whom it chooses from.
        by_model: where instances serve different models, a router for each of them, with a policy of its own: its turns
            and what it remembers are those of these instances alone.
        reads_signals: whether the policy looks at them; signals that no policy reads are not kept.
    """

    def __init__(
        self,
        experiment: Experiment,
        config: PluginConfig,
        fleet: Fleet,
        streams: Streams,
        observers: Observers,
        path: str = "policy/routing",
    ) -> None:
        self.name = config.kind
        self.policy = experiment.plugins.create(ROUTING, config.kind, config.settings)
        self.fleet = fleet
        self.reads_signals: bool = getattr(self.policy, "reads_signals", True)
        self._context = Context(streams.stream(path), experiment.policy.slo_priorities, observers)
        self.by_model: dict[str, Router] = {}
        if len(parts := fleet.by_model()) > 1:
            for model, part in parts.items():
                self.by_model[model] = Router(experiment, config, part, streams, observers, f"{path}/{model}")

    def policies(self) -> tuple[RoutingPolicy, ...]:
        """Its own, and those for single models."""
        return (self.policy, *(router.policy for router in self.by_model.values()))

    def forget(self, instance: int) -> None:
        """An instance has gone with all that it had cached."""
        for policy in self.policies():
            if isinstance(policy, Forgetful):
                policy.forget(instance)

    def of(self, request: IncomingRequest) -> Router:
        """The one that chooses for a request: of its model's instances, if they differ."""
        return self.by_model[request.model] if self.by_model and request.model else self

    def choose(self, request: IncomingRequest, now: int) -> tuple[int, str]:
        """The index of an instance that serves its model, and why.

        Raises:
            SimulationError: the policy's answer is none.
        """
        if self.by_model and request.model:
            return self.of(request).choose(request, now)
        context = self._context
        context.now_us = now
        choose: Callable[..., object] = self.policy.choose  # what a plug-in answers may be anything
        answer = choose(request, self.fleet, context)
        if isinstance(answer, _SEQUENCES) and len(answer) == _LENGTH:
            place, reason = answer[0], answer[1]
            members = self.fleet.members
            if type(place) is int and type(reason) is str and 0 <= place < len(members):
                return members[place], reason
        raise self._no_choice(answer, request)

    def state(self) -> tuple[object, ...]:
        """What it remembers, as plain values (for digests)."""
        memory = self.policy.state()
        if self.by_model:
            memory = (memory, *(router.state() for router in self.by_model.values()))
        return (memory, self._context.stream.state())

    def _no_choice(self, answer: object, request: IncomingRequest) -> SimulationError:
        return SimulationError(
            f"the routing policy `{self.name}` answers {answer!r} for {request.request_id}",
            help=f"`choose` returns a place in the fleet, 0 to {len(self.fleet) - 1}, and a reason",
        )
