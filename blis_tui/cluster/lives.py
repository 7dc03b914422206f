"""Where an instance stands in its life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.cluster.passage import Passage
    from blis_tui.spec.model import Failure, Pool

SCHEDULING: Final = "scheduling"
LOADING: Final = "loading"
WARMING: Final = "warming-up"
ACTIVE: Final = "active"
DRAINING: Final = "draining"
TERMINATED: Final = "terminated"
FAILED: Final = "failed"

CANDIDATES: Final = frozenset({WARMING, ACTIVE})
"""States in which an instance gets new requests."""
COMING: Final = frozenset({SCHEDULING, LOADING})
"""States in which it will get some."""
MORTAL: Final = frozenset({LOADING, WARMING, ACTIVE, DRAINING})
"""States in which it can die."""


@dataclass(slots=True)
class Life:
    """Where an instance stands.

    Attributes:
        pool: the number of its pool.
        state: one of those above.
        served: requests that have left it while it warms up.
        held_us: how long it had held its accelerators until ``held_since_us``.
        held_since_us: since when it holds them; -1 = it does not.
        returns: of a failed one: it will be repaired.
        failure: what it died of last.
        loaded_us: when its latest loading is, or was to be, over.
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
        """All of it, as plain values (for digests)."""
        held = (self.held_us, self.held_since_us)
        return (self.pool, self.state, self.served, held, self.returns, self.failure, self.loaded_us)


class Lives(Protocol):
    """All instances' lives, as failures and the autoscaler see them."""

    lives: list[Life]
    parked: dict[int, Passage]

    def cost_per_hour(self, pool: Pool) -> float | None:
        """What an instance costs; None = not known."""

    def pool_of(self, index: int) -> Pool:
        """The pool of an instance."""

    def of_pool(self, pool: int, states: frozenset[str]) -> list[int]:
        """The instances of a pool that are in one of these states."""

    def can_fail(self, index: int) -> bool:
        """Whether there is an instance that can die."""

    def fail(self, index: int, now: int, failure: Failure, reason: str) -> None:
        """An instance dies."""

    def drain(self, index: int, now: int, reason: str) -> None:
        """An instance gets no more requests."""

    def add(self, pool: int, now: int, reason: str) -> None:
        """One more instance of a pool."""


class Node:
    """One machine.

    Attributes:
        name: its pool and its number there.
        number: its number in its pool, in the order in which they were ordered.
        free: accelerators that no instance has.
        hosted: the instances on it, and how many accelerators each has.
        ready_us: since when it can be used; -1 = it is being provisioned.
    """

    __slots__ = ("free", "hosted", "name", "number", "ready_us")

    def __init__(self, name: str, number: int, free: int) -> None:
        self.name = name
        self.number = number
        self.free = free
        self.hosted: dict[int, int] = {}
        self.ready_us = -1


class RoomForAll:
    """Where no nodes are described, every instance has room.

    Attributes:
        nodes: the machines that there are.
        ready_nodes: how many of them can be used.
    """

    @property
    def nodes(self) -> list[Node]:
        """Those there are or that are being provisioned."""
        return []

    @property
    def ready_nodes(self) -> int:
        """How many of them can be used."""
        return 0

    def place(self, index: int, pool: Pool) -> bool:  # noqa: ARG002
        """Whether there is room for a new instance now; else it waits."""
        return True

    def provision(self, now: int) -> None:
        """Order nodes for the instances that wait."""

    def free(self, index: int, now: int) -> None:
        """An instance is gone: others may get its accelerators."""

    def expects_room(self, pool: Pool) -> bool:  # noqa: ARG002
        """Whether there will be room for such an instance."""
        return True

    def cost_per_hour(self, pool: Pool) -> float | None:  # noqa: ARG002
        """What an instance costs; None = not known."""
        return None

    def node_us(self, now: int) -> list[int]:  # noqa: ARG002
        """How long the nodes of each pool have been there until now, added up."""
        return []

    def state(self) -> tuple[object, ...]:
        """Everything, as plain values (for digests)."""
        return ()


class NoAutoscaler:
    """No instance is added or removed by load.

    Attributes:
        scales: whether any may be.
        scaled: what took effect: time, pool, change, reason.
    """

    scales = False

    def __init__(self) -> None:
        self.scaled: list[tuple[int, str, int, str]] = []

    @property
    def gave_up(self) -> bool:
        """Whether it will not bring an instance for the requests that wait for one."""
        return True

    def begin(self) -> None:
        """Look for the first time."""

    def may_add(self, pool: int) -> bool:  # noqa: ARG002
        """Whether it may ever order one more instance of a pool."""
        return False

    def state(self) -> tuple[object, ...]:
        """What it remembers, as plain values (for digests)."""
        return ()


def accelerators(pool: Pool) -> int:
    """How many an instance has: ``tensor_parallel`` of them for each stage of its pipeline."""
    return pool.tensor_parallel * pool.engine.pipeline_parallel
