"""The stages of a request's way that an experiment may do without, and what each does then: nothing.

arrival -> deferral -> admission -> gateway -> dispatcher -> an instance's queue, with a life cycle beside them. A
cluster always has one of each. What an experiment configures takes the place of what is here, and only then is the
module imported that has it: ``deferral``, ``gateway_control``, ``lifecycle``, ``feedback``, ``disaggregation``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.cluster.lives import ACTIVE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blis_tui.cluster.gateway_queue import Band, Held
    from blis_tui.cluster.lives import Life
    from blis_tui.cluster.passage import Passage
    from blis_tui.cluster.router import Router
    from blis_tui.engine.request import Request


GATEWAY: Final = "gateway"
"""What the gateway's rejections name as their origin, where a policy's name would stand."""
FULL: Final = "gateway-full"
DISPLACED: Final = "gateway-displaced"
EXPIRED: Final = "gateway-expired"
"""What these rejections count as."""


class Follower(Protocol):
    """A stage that hears of every request that leaves its instance."""

    def departed(self, departed: Sequence[Request], prefilled: Sequence[Request], now: int) -> None:
        """These no longer count as in flight; of those ``prefilled`` the prompt is computed for another instance."""


class NoDeferral:
    """No request is put off.

    Attributes:
        waiting: requests that were put off until the cluster is idle.
        deferrals: how often that happened.
    """

    def __init__(self) -> None:
        self.waiting: list[Passage] = []
        self.deferrals = 0


class OpenGateway:
    """Every admitted request passes at once.

    Attributes:
        holds: whether requests may have to wait here.
        dispatched: how many it has sent on.
        peak_depth: the most it has held at a time.
    """

    holds = False

    def __init__(self) -> None:
        self.dispatched = 0
        self.peak_depth = 0

    @property
    def rule(self) -> str:
        """What counts as saturated, in a sentence."""
        return ""

    @property
    def waiting(self) -> int:
        """Requests that it holds."""
        return 0

    def held(self) -> list[Passage]:
        """Those requests, counted one by one."""
        return []

    def bands(self) -> Iterator[tuple[int, float, Band]]:
        """The bands of its queue, the most urgent first: priority, saturation up to which it is served, requests."""
        return iter(())

    def upcoming(self) -> Held | None:
        """The request that is next if no other comes and the instances are not too busy."""
        return None

    def saturation(self) -> float:
        """How busy the instances are, by the figures read last."""
        return 0.0

    def wake(self, count: int, now: int) -> None:
        """An instance for so many requests has come up."""

    def state(self) -> tuple[object, ...]:
        """What it holds, as plain values (for digests)."""
        return ()


class Transfers:
    """Transfers of KV blocks between instances, counted.

    Attributes:
        active: those under way.
        peak: the most there have been at a time.
        started: how many there have been.
        bytes: what they transfer together.
    """

    def __init__(self) -> None:
        self.active = 0
        self.peak = 0
        self.started = 0
        self.bytes = 0


class AlwaysUp:
    """The instances of the start are there to the end.

    Attributes:
        lives: by index of the instance; empty where none comes or goes.
        parked: requests that wait for an instance to come up, by their index.
        forfeited_us: time that requests spent in queues and batches which they had to leave for nothing, added up.
        retried: how often a request had to start again.
        failed: how often an instance has died.
    """

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.parked: dict[int, Passage] = {}
        self.forfeited_us = 0
        self.retried = 0
        self.failed = 0

    @property
    def scaled(self) -> tuple[tuple[int, str, int, str], ...]:
        """What an autoscaler has done: time, pool, change, reason."""
        return ()

    @property
    def ready_nodes(self) -> int:
        """Nodes that can be used."""
        return 0

    def node_us(self, now: int) -> list[int]:  # noqa: ARG002
        """How long the nodes of each pool have been there until now, added up."""
        return []

    def held_us(self, index: int, now: int) -> int:  # noqa: ARG002
        """How long an instance has held its accelerators until now; 0 where none comes or goes."""
        return 0

    def state_of(self, index: int) -> str:  # noqa: ARG002  (the same for all)
        """Where an instance stands in its life."""
        return ACTIVE

    def begin(self) -> None:
        """The simulation starts."""

    def hopeless(self, left: int) -> bool:  # noqa: ARG002
        """Whether all of the requests that are left wait for instances that will never come up."""
        return False

    def strands(self, passage: Passage, router: Router, now: int) -> bool:  # noqa: ARG002
        """Whether no instance is up that this router could choose: the request waits for one."""
        return False

    def lets_in(self, request: Request, now: int) -> bool:  # noqa: ARG002
        """Whether a request that has come to its instance gets into the queue there; if not, this looks after it."""
        return True

    def end_if_empty(self, index: int, now: int) -> None:
        """A draining instance goes when no request needs it any more, nor the KV blocks that it has or expects."""

    def start_again(self, request: Request, index: int, now: int, *, down: bool) -> None:
        """A request cannot go on between two instances; ``down``: because instance ``index`` has gone."""

    def state(self) -> tuple[object, ...]:
        """Everything, as plain values (for digests)."""
        return ()
