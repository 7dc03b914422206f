"""Pools in documents: the stack of each, in which a pool's own keys override those of the experiment."""

from __future__ import annotations

from functools import reduce
from operator import add
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import Document, as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.base.source import DataPath, Json

SLOTS: Final = MappingProxyType({"model": "Model", "hardware": "Hardware", "workload": "Workload", "policy": "Policy"})
"""Keys of an experiment that hold another document, and that document's kind."""
_POOLS: Final = ("cluster", "pools")
_POOL_SLOTS: Final = ("model", "hardware")
_POOL_DEPTH: Final = len(_POOLS) + 1
SPLIT: Final = ("cluster", "disaggregation")
DIVISION: Final = ("prefill_instances", "decode_instances")
"""Keys of ``SPLIT`` that divide a cluster without pools."""
STACK: Final = ("model", "hardware", "latency", "engine")
"""The stack of an instance: keys of an experiment that a pool may override."""


def pool_paths(document: Document) -> list[DataPath]:
    """Return the paths of an experiment's pools; empty if none are listed."""
    pools = as_list(document.get(*_POOLS))
    return [(*_POOLS, at) for at, pool in enumerate(pools) if isinstance(pool, dict)]


def slots(document: Document) -> Iterator[tuple[DataPath, str]]:
    """Yield the slots for other documents, with their kinds: those of the experiment and of its pools."""
    for slot, kind in SLOTS.items():
        yield (slot,), kind
    for path in pool_paths(document):
        for slot in _POOL_SLOTS:
            if document.get(*path, slot) is not None:
                yield (*path, slot), SLOTS[slot]


def slot_of(path: DataPath) -> DataPath:
    """Return the slot that contains a path, or is the path itself; empty = none."""
    if path[:1] and path[0] in SLOTS:
        return path[:1]
    inside = path[:2] == _POOLS and len(path) > _POOL_DEPTH and path[_POOL_DEPTH] in _POOL_SLOTS
    return path[: _POOL_DEPTH + 1] if inside else ()


def owner_of(path: DataPath) -> DataPath:
    """Return the pool that contains a path; empty = the experiment itself."""
    return path[:_POOL_DEPTH] if path[:2] == _POOLS and len(path) > _POOL_DEPTH else ()


def where(document: Document, owner: DataPath, *path: str) -> DataPath:
    """Return where a pool's key is defined: in the pool, else in the experiment, at ``cluster`` or at the top.

    Args:
        document: an experiment.
        owner: the pool; empty = the experiment itself.
        path: a key of :data:`STACK` and a path below it, or ``tensor_parallel``.
    """
    if owner and document.get(*owner, path[0]) is not None:
        return (*owner, *path)
    return ("cluster", *path) if path == ("tensor_parallel",) else path


def is_own(document: Document, owner: DataPath) -> bool:
    """Return whether a pool overrides any part of the experiment's stack."""
    return has_own(as_map(document.get(*owner))) if owner else False


def has_own(pool: dict[str, Json]) -> bool:
    """Return whether a pool's map overrides any part of the stack."""
    return any(key in pool for key in (*STACK, "tensor_parallel"))


def stacks(document: Document) -> list[DataPath]:
    """Return the different stacks: pools with overrides, and ``()`` for all others."""
    paths = pool_paths(document)
    own: list[DataPath] = [path for path in paths if is_own(document, path)]
    return [(), *own] if len(own) < len(paths) or not paths else own


def complete_pools(document: Document) -> None:
    """Fill in what follows from pools and roles, in place: the number of instances, and the engine of each pool."""
    paths = pool_paths(document)
    cluster = as_map(document.get("cluster"))
    if "instances" not in cluster:
        counts = [document.get(*path, "instances") for path in paths] or _divided(document)
        if counts:
            cluster["instances"] = reduce(add, [count for count in counts if isinstance(count, int)], 0)
    engine = as_map(document.get("engine"))
    for path in paths:
        own = document.get(*path, "engine")
        if not isinstance(own, dict):
            continue
        for key in engine:
            if key not in own:
                own[key] = None
                document.graft((*path, "engine", key), document.branch(("engine", key)))


def _divided(document: Document) -> list[Json]:
    """Return how many instances of a cluster without pools prefill, and how many decode; empty unless both are set."""
    split = as_map(document.get(*SPLIT))
    return [split[key] for key in DIVISION] if all(key in split for key in DIVISION) else []
