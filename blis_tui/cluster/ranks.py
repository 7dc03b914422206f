"""Which replica an instance is a rank of, and which one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.spec.model import Pool


class Place(NamedTuple):
    """A rank's place, from 0; replicas are counted in each pool by themselves."""

    replica: int
    rank: int


def place_of(pools: Sequence[Pool], index: int) -> Place | None:
    """The place of an instance; None = it is a replica by itself.

    Args:
        pools: that of each instance; those of a pool stand together, because none of them comes or goes.
        index: the instance's number.
    """
    pool = pools[index]
    ranks = pool.engine.data_parallel
    if ranks == 1:
        return None
    first = next(at for at, one in enumerate(pools) if one.name == pool.name)
    return Place(*divmod(index - first, ranks))
