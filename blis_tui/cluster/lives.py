"""Where an instance stands in its life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.spec.model import Failure

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
