"""Pools in documents: what each one runs with, its own keys going before those of the experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.spec.compose import SLOTS
from blis_tui.spec.source import Document, as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.spec.source import DataPath, Json

_POOLS: Final = ("cluster", "pools")
_POOL_SLOTS: Final = ("model", "hardware")
_POOL_DEPTH: Final = len(_POOLS) + 1
STACK: Final = ("model", "hardware", "latency", "engine")
"""What instances run with: keys of an experiment that a pool may have, too."""


def pool_paths(document: Document) -> list[DataPath]:
    """Where the pools of an experiment are; empty where none are listed."""
    pools = as_list(document.get(*_POOLS))
    return [(*_POOLS, at) for at, pool in enumerate(pools) if isinstance(pool, dict)]


def slots(document: Document) -> Iterator[tuple[DataPath, str]]:
    """Where an experiment takes other documents, and of which kind: its own slots and those of its pools."""
    for slot, kind in SLOTS.items():
        yield (slot,), kind
    for path in pool_paths(document):
        for slot in _POOL_SLOTS:
            if document.get(*path, slot) is not None:
                yield (*path, slot), SLOTS[slot]


def slot_of(path: DataPath) -> DataPath:
    """The slot that a path leads to or through; empty = none."""
    if path[:1] and path[0] in SLOTS:
        return path[:1]
    inside = path[:2] == _POOLS and len(path) > _POOL_DEPTH and path[_POOL_DEPTH] in _POOL_SLOTS
    return path[: _POOL_DEPTH + 1] if inside else ()


def owner_of(path: DataPath) -> DataPath:
    """The pool that a path leads into; empty = the experiment itself."""
    return path[:_POOL_DEPTH] if path[:2] == _POOLS and len(path) > _POOL_DEPTH else ()


def where(document: Document, owner: DataPath, *path: str) -> DataPath:
    """Where a key that applies to a pool is said: in the pool, else in the experiment, at ``cluster`` or its top.

    Args:
        document: an experiment.
        owner: the pool; empty = the experiment itself.
        path: a key of :data:`STACK` and what is below it, or ``tensor_parallel``.
    """
    if owner and document.get(*owner, path[0]) is not None:
        return (*owner, *path)
    return ("cluster", *path) if path == ("tensor_parallel",) else path


def is_own(document: Document, owner: DataPath) -> bool:
    """Whether instances of the pool run with anything else than the experiment says."""
    return has_own(as_map(document.get(*owner))) if owner else False


def has_own(pool: dict[str, Json]) -> bool:
    """The same of a pool's own map."""
    return any(key in pool for key in (*STACK, "tensor_parallel"))


def stacks(document: Document) -> list[DataPath]:
    """The different ways in which instances run: pools with something of their own, ``()`` for all others."""
    paths = pool_paths(document)
    found: list[DataPath] = [path for path in paths if is_own(document, path)]
    return [(), *found] if len(found) < len(paths) or not paths else found


def complete_pools(document: Document) -> None:
    """Write out what follows from pools, in place: the number of instances, and the engine of each pool."""
    paths = pool_paths(document)
    cluster = as_map(document.get("cluster"))
    if paths and "instances" not in cluster:
        total = 0
        for path in paths:
            count = document.get(*path, "instances")
            total += count if isinstance(count, int) else 0
        cluster["instances"] = total
    engine = as_map(document.get("engine"))
    for path in paths:
        own = document.get(*path, "engine")
        if not isinstance(own, dict):
            continue
        for key in engine:
            if key not in own:
                own[key] = None
                document.graft((*path, "engine", key), document.branch(("engine", key)))
