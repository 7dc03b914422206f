"""Routing: which instance serves a request? It must not read output lengths (INV-9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.instance import Instance
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Plug


class RoutingPolicy(Protocol):
    """Decides about each admitted request once."""

    def choose(self, request: Request, instances: Sequence[Instance]) -> tuple[Instance, str]:
        """The chosen instance, and the reason in a few words."""

    def state(self) -> tuple[object, ...]:
        """All it remembers, as plain values (for digests)."""


class RoundRobin:
    """Each instance in turn."""

    def __init__(self, plug: Plug) -> None:
        del plug
        self._turn = 0

    def choose(self, request: Request, instances: Sequence[Instance]) -> tuple[Instance, str]:  # noqa: ARG002
        """The next one in line."""
        turn = self._turn
        self._turn = turn + 1
        return instances[turn % len(instances)], f"turn {turn}"

    def state(self) -> tuple[object, ...]:
        """Whose turn it is."""
        return (self._turn,)


ROUTING: Final[dict[str, Callable[[Plug], RoutingPolicy]]] = {"round-robin": RoundRobin}


def create_routing(plug: Plug) -> RoutingPolicy:
    """The routing policy of that name. Raises PolicyError when there is none."""
    try:
        make = ROUTING[plug.kind]
    except KeyError:
        raise PolicyError(f"no routing policy `{plug.kind}`", help=f"known: {', '.join(ROUTING)}") from None
    return make(plug)
