"""A router: a routing policy with its fleet, its random stream, and checks of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.errors import SimulationError
from blis_tui.base.pickling import Picklable, is_internal_class
from blis_tui.cluster.policy import ROUTING, TracksInstances
from blis_tui.cluster.signals import Context

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.base.streams import Streams
    from blis_tui.cluster.policy import RoutingPolicy
    from blis_tui.cluster.signals import Fleet, IncomingRequest
    from blis_tui.engine.records import Observers
    from blis_tui.model import Experiment, PluginConfig


_SEQUENCES: Final = (tuple, list)
_LENGTH: Final = 2
"""Length of an answer: a place and a reason."""
NAME: Final = "router"
"""Origin of rejections because no instance serves the model, in place of a policy's name."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Router(Picklable):
    """Chooses instances of one fleet.

    Attributes:
        name: the policy's name in specs.
        policy: the policy.
        fleet: the instances it chooses from.
        by_model: if instances serve different models, a router for each model, with a policy and memory of its own.
        reads_signals: whether the policy uses signals; signals that no policy uses are not kept.
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
        self._internal = is_internal_class(type(self.policy))
        self._context = Context(streams.stream(path), experiment.policy.slo_priorities, observers)
        self.by_model: dict[str, Router] = {}
        if len(parts := fleet.by_model()) > 1:
            for model, part in parts.items():
                self.by_model[model] = Router(experiment, config, part, streams, observers, f"{path}/{model}")

    def policies(self) -> tuple[RoutingPolicy, ...]:
        """Return its own policy, and those for single models."""
        return (self.policy, *(router.policy for router in self.by_model.values()))

    def forget(self, instance: int) -> None:
        """Let its policies forget an instance that is gone with everything it had cached."""
        for policy in self.policies():
            if isinstance(policy, TracksInstances):
                policy.forget(instance)

    def of(self, request: IncomingRequest) -> Router:
        """Return the router for a request: that of its model if instances serve different models."""
        return self.by_model[request.model] if self.by_model and request.model else self

    def choose(self, request: IncomingRequest, now: int, explained: bool = True) -> tuple[int, str]:
        """Return the index of an instance that serves the request's model, and the reason (if that is ``explained``).

        Raises:
            SimulationError: the policy's answer is invalid.
        """
        if self.by_model and request.model:
            return self.of(request).choose(request, now, explained)
        context = self._context
        context.now_us = now
        context.told = explained
        if self._internal:
            place, reason = self.policy.choose(request, self.fleet, context)
            return self.fleet.members[place], reason
        choose: Callable[..., object] = self.policy.choose  # a plug-in may answer anything
        answer = choose(request, self.fleet, context)
        if isinstance(answer, _SEQUENCES) and len(answer) == _LENGTH:
            place, reason = answer[0], answer[1]
            members = self.fleet.members
            if type(place) is int and type(reason) is str and 0 <= place < len(members):
                return members[place], reason
        raise self._invalid_choice(answer, request)

    def state(self) -> tuple[object, ...]:
        """Return what it remembers, as plain values (for digests)."""
        memory = self.policy.state()
        if self.by_model:
            memory = (memory, *(router.state() for router in self.by_model.values()))
        return (memory, self._context.stream.state())

    def _invalid_choice(self, answer: object, request: IncomingRequest) -> SimulationError:
        return SimulationError(
            f"the routing policy `{self.name}` answers {answer!r} for {request.request_id}",
            help=f"`choose` returns a place in the fleet, 0 to {len(self.fleet) - 1}, and a reason",
        )
