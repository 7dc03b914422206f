"""Optional stages of a request's path, with defaults that do nothing, and the life-cycle states of instances.

arrival -> deferral -> admission -> gateway -> dispatcher -> an instance's queue, accompanied by the life cycle. A
cluster always has one of each. A configured stage replaces its default, and only then is its module imported:
``gateway``, ``lifecycle``, ``closed_loop``, ``disaggregation`` (in ``cluster/options/``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.cluster.gateway_queue import Band, Held
    from blis_tui.cluster.routed_request import RoutedRequest
    from blis_tui.cluster.router import Router
    from blis_tui.engine.request import Request
    from blis_tui.model import Failure, Pool

GATEWAY: Final = "gateway"
"""Origin of the gateway's rejections, in place of a policy's name."""
FULL: Final = "gateway-full"
DISPLACED: Final = "gateway-displaced"
EXPIRED: Final = "gateway-expired"
"""The cause under which these rejections are counted."""


class DepartureListener(Protocol):
    """A stage that is told about every request that leaves its instance."""

    def departed(self, departed: Sequence[Request], prefilled: Sequence[Request], now: int) -> None:
        """Handle requests that no longer count as in flight.

        The prompts of ``prefilled`` are computed for another instance.
        """


class NoDeferral:
    """Defers no request.

    Attributes:
        waiting: requests that are deferred until the cluster is idle.
        deferrals: number of deferrals.
    """

    def __init__(self) -> None:
        self.waiting: list[RoutedRequest] = []
        self.deferrals = 0


class NoGateway:
    """Lets every admitted request pass at once.

    Attributes:
        holds: whether requests may have to wait here.
        dispatched: number of dispatched requests.
        peak_depth: largest number of held requests.
    """

    holds = False

    def __init__(self) -> None:
        self.dispatched = 0
        self.peak_depth = 0

    @property
    def rule(self) -> str:
        """The definition of saturation, in a sentence."""
        return ""

    @property
    def waiting(self) -> int:
        """Number of held requests."""
        return 0

    def held(self) -> list[RoutedRequest]:
        """Return the held requests, found one by one."""
        return []

    def bands(self) -> Iterator[tuple[int, float, Band]]:
        """Iterate over the bands, most urgent first: priority, saturation up to which it is served, requests."""
        return iter(())

    def upcoming(self) -> Held | None:
        """Return the next request, if no other arrives and the instances are not too busy."""
        return None

    def saturation(self) -> float:
        """Return the saturation by the signals read last."""
        return 0.0

    def wake(self, count: int, now: int) -> None:
        """React to a new instance with room for ``count`` requests."""

    def state(self) -> tuple[object, ...]:
        """Return its state as plain values (for digests)."""
        return ()


class Transfers:
    """Counts of KV transfers between instances.

    Attributes:
        active: transfers in flight.
        peak: largest number of transfers in flight.
        started: number of started transfers.
        bytes: total bytes transferred.
    """

    def __init__(self) -> None:
        self.active = 0
        self.peak = 0
        self.started = 0
        self.bytes = 0


class NoLifecycle:
    """No life cycles: the initial instances stay up to the end.

    Attributes:
        lives: by index of the instance; empty if none comes or goes.
        parked: requests that wait for an instance to come up, by their index.
        forfeited_us: total time of requests in queues and batches that they left without a result.
        retried: how often a request had to start over.
        failed: how often an instance has failed.
    """

    def __init__(self) -> None:
        self.lives: list[InstanceLife] = []
        self.parked: dict[int, RoutedRequest] = {}
        self.forfeited_us = 0
        self.retried = 0
        self.failed = 0

    @property
    def scaled(self) -> tuple[tuple[int, str, int, str], ...]:
        """The autoscaler's actions: time, pool, change, reason."""
        return ()

    @property
    def ready_nodes(self) -> int:
        """Number of nodes that are ready."""
        return 0

    def node_us(self, now: int) -> list[int]:  # noqa: ARG002
        """Total time that the nodes of each pool have existed until now."""
        return []

    def held_us(self, index: int, now: int) -> int:  # noqa: ARG002
        """How long an instance has held its accelerators until now; 0 if none comes or goes."""
        return 0

    def state_of(self, index: int) -> str:  # noqa: ARG002  (the same for all instances)
        """Life-cycle state of an instance."""
        return ACTIVE

    def begin(self) -> None:
        """Start the simulation."""

    def counted(self, entrance: Callable[[RoutedRequest, int], int]) -> Callable[[RoutedRequest, int], int]:
        """Return the first stage of requests, which may count them."""
        return entrance

    def never_progresses(self, left: int) -> bool:  # noqa: ARG002
        """Whether all remaining requests wait for instances that will never come up."""
        return False

    def park_if_stranded(self, routed: RoutedRequest, router: Router, now: int) -> bool:  # noqa: ARG002
        """Whether no instance that this router could choose is up; if so, the request waits for one."""
        return False

    def may_enqueue(self, request: Request, now: int) -> bool:  # noqa: ARG002
        """Whether a request may enter its instance's queue; if not, it is handled here."""
        return True

    def end_if_empty(self, index: int, now: int) -> None:
        """End a draining instance when no request needs it or the KV blocks that it holds or expects."""

    def handle_broken_handover(self, request: Request, index: int, now: int, *, down: bool) -> None:
        """Handle a request that cannot continue between two instances; ``down``: because instance ``index`` is gone."""

    def state(self) -> tuple[object, ...]:
        """Return everything as plain values (for digests)."""
        return ()


SCHEDULING: Final = "scheduling"
LOADING: Final = "loading"
WARMING: Final = "warming-up"
ACTIVE: Final = "active"
DRAINING: Final = "draining"
TERMINATED: Final = "terminated"
FAILED: Final = "failed"

CANDIDATES: Final = frozenset({WARMING, ACTIVE})
"""States in which an instance gets new requests."""
STARTING: Final = frozenset({SCHEDULING, LOADING})
"""States in which an instance will get requests later."""
CAN_FAIL: Final = frozenset({LOADING, WARMING, ACTIVE, DRAINING})
"""States in which an instance can fail."""


@dataclass(slots=True)
class InstanceLife:
    """The life cycle of one instance.

    Attributes:
        pool: the number of its pool.
        state: one of the above.
        served: requests that have left it during its warm-up.
        held_us: how long it had held its accelerators until ``held_since_us``.
        held_since_us: since when it holds them; -1 = it does not.
        returns: whether a failed instance will be repaired.
        failure: its latest failure.
        loaded_us: when its latest loading ends, or would have ended.
    """

    pool: int
    state: str = ACTIVE
    served: int = 0
    held_us: int = 0
    held_since_us: int = -1
    returns: bool = False
    failure: Failure | None = None
    loaded_us: int = -1

    def values(self) -> tuple[object, ...]:
        """Return everything as plain values (for digests)."""
        held = (self.held_us, self.held_since_us)
        return (self.pool, self.state, self.served, held, self.returns, self.failure, self.loaded_us)


class Lives(Protocol):
    """The life cycles of all instances, as failures and the autoscaler see them."""

    lives: list[InstanceLife]
    parked: dict[int, RoutedRequest]

    def cost_per_hour(self, pool: Pool) -> float | None:
        """Cost of an instance; None = unknown."""

    def pool_of(self, index: int) -> Pool:
        """The pool of an instance."""

    def of_pool(self, pool: int, states: frozenset[str]) -> list[int]:
        """Return the instances of a pool that are in one of these states."""

    def can_fail(self, index: int) -> bool:
        """Whether an instance exists and can fail."""

    def fail(self, index: int, now: int, failure: Failure, reason: str) -> None:
        """Fail an instance."""

    def drain(self, index: int, now: int, reason: str) -> None:
        """Send an instance no more requests."""

    def add(self, pool: int, now: int, reason: str) -> None:
        """Add an instance to a pool."""


class Node:
    """One machine.

    Attributes:
        name: made of its pool's name and its number.
        number: its number in its pool, by time of ordering.
        free: number of free accelerators.
        hosted: the instances on it, with their numbers of accelerators.
        ready_us: since when it is ready; -1 = it is being provisioned.
    """

    __slots__ = ("free", "hosted", "name", "number", "ready_us")

    def __init__(self, name: str, number: int, free: int) -> None:
        self.name = name
        self.number = number
        self.free = free
        self.hosted: dict[int, int] = {}
        self.ready_us = -1


class UnlimitedPlacement:
    """Placement without nodes: there is room for every instance.

    Attributes:
        nodes: the nodes.
        ready_nodes: how many of them are ready.
    """

    @property
    def nodes(self) -> list[Node]:
        """The nodes that exist or are being provisioned."""
        return []

    @property
    def ready_nodes(self) -> int:
        """Number of nodes that are ready."""
        return 0

    def place(self, index: int, pool: Pool) -> bool:  # noqa: ARG002
        """Whether there is room for a new instance now; otherwise it waits."""
        return True

    def provision(self, now: int) -> None:
        """Order nodes for the waiting instances."""

    def free(self, index: int, now: int) -> None:
        """Free the accelerators of an instance that is gone."""

    def will_have_room(self, pool: Pool) -> bool:  # noqa: ARG002
        """Whether there will be room for such an instance."""
        return True

    def cost_per_hour(self, pool: Pool) -> float | None:  # noqa: ARG002
        """Cost of an instance; None = unknown."""
        return None

    def node_us(self, now: int) -> list[int]:  # noqa: ARG002
        """Total time that the nodes of each pool have existed until now."""
        return []

    def state(self) -> tuple[object, ...]:
        """Return everything as plain values (for digests)."""
        return ()


class NoAutoscaler:
    """No autoscaling: load adds or removes no instance.

    Attributes:
        scales: whether instances may be added or removed.
        scaled: actions that took effect: time, pool, change, reason.
    """

    scales = False

    def __init__(self) -> None:
        self.scaled: list[tuple[int, str, int, str]] = []

    @property
    def gave_up(self) -> bool:
        """Whether it will not add an instance for the waiting requests."""
        return True

    def begin(self) -> None:
        """Schedule the first evaluation."""

    def counted(self, entrance: Callable[[RoutedRequest, int], int]) -> Callable[[RoutedRequest, int], int]:
        """Return the first stage of requests, which may count them."""
        return entrance

    def may_add(self, pool: int) -> bool:  # noqa: ARG002
        """Whether it may still add an instance to a pool."""
        return False

    def state(self) -> tuple[object, ...]:
        """Return what it remembers, as plain values (for digests)."""
        return ()


def accelerators(pool: Pool) -> int:
    """Accelerators per instance: ``tensor_parallel`` for each stage of its pipeline."""
    return pool.tensor_parallel * pool.engine.pipeline_parallel
