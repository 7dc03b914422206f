"""What must hold after every event of the control plane and of clients: INV-7 and INV-11 of the BLIS simulator.

Its INV-6 (same seed, same bytes) and INV-10 (no call of a session before the answer it waits for) are about whole runs:
``tests/determinism`` and the goldens check the one, the oracle's sessions and ``tests/workload`` the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.invariants import Invariant
from blis_tui.workload.interactive import InteractiveSource

if TYPE_CHECKING:
    from blis_tui.cluster.cluster import Cluster


def _freshness(cluster: Cluster) -> str:
    return cluster.roster.board.audit(cluster.now) if cluster.roster.watched else ""


def _completeness(cluster: Cluster) -> str:
    source = cluster.source
    return source.audit() if isinstance(source, InteractiveSource) else ""


CONTROL_INVARIANTS: Final = (
    Invariant("INV-7", "the control plane sees each instance as it was when its figures were last renewed", _freshness),
    Invariant("INV-11", "every session that began is unfinished, or has ended in exactly one way", _completeness),
)
"""The statements that every event must leave true."""
