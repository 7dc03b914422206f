"""Checks of KV tiers that instances share: which of the tiers, and between which pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.diagnostics import about
from blis_tui.base.source import as_list, as_map
from blis_tui.spec.build import build_model_part, stack_of
from blis_tui.spec.pools import is_own, pool_paths, stacks, where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import DataPath, Document, Json
    from blis_tui.model import Model

_CODE: Final = "BLIS2026"


class _Store(NamedTuple):
    """A shared tier as one stack has it, and what its blocks are."""

    owner: DataPath
    """The pool; ``()`` = the experiment's own stack."""
    path: DataPath
    """Of the tier."""
    model: Model
    sizes: dict[str, Json]
    """What else must agree, by key."""


def check_shared_tiers(document: Document) -> Iterator[Diagnostic]:
    """Yield every problem of shared tiers: only the last tier can be, and all that share one have the same blocks."""
    stores: dict[str, _Store] = {}
    for owner in stacks(document):
        listed = where(document, owner, "engine", "kv_tiers", "tiers")
        tiers = [as_map(tier) for tier in as_list(document.get(*listed))]
        for at, tier in enumerate(tiers):
            if tier.get("shared") is not True:
                continue
            path, name = (*listed, at), str(tier.get("name"))
            if at + 1 < len(tiers):
                message = f"tier `{name}` is shared, but its blocks sink on to `{tiers[at + 1].get('name')}`"
                hint = "list it last, or remove `shared`"
                yield about(document, (*path, "shared"), _CODE, message, key=True, hint=hint)
                continue
            store = _store(document, owner, path)
            yield from _differences(document, name, stores.setdefault(name, store), store)


def _store(document: Document, owner: DataPath, path: DataPath) -> _Store:
    stack = stack_of(as_map(document.data), as_map(document.get(*owner)) if owner else None)
    engine = where(document, owner, "engine")
    sizes: dict[str, Json] = {
        "engine.block_size_tokens": document.get(*engine, "block_size_tokens"),
        "tensor_parallel": document.get(*where(document, owner, "tensor_parallel")) or 1,
        "engine.pipeline_parallel": document.get(*engine, "pipeline_parallel") or 1,
        "blocks": document.get(*path, "blocks"),
    }
    return _Store(owner, path, build_model_part(stack), sizes)


def _differences(document: Document, name: str, first: _Store, store: _Store) -> Iterator[Diagnostic]:
    """Yield the first reason why two stacks cannot share a tier: a block of one is none of the other."""
    what = "model" if store.model != first.model else ""
    what = what or next((key for key, size in store.sizes.items() if size != first.sizes[key]), "")
    if what:
        pools = [_pool(document, one.owner) for one in (first, store)]
        message = f"pools `{pools[0]}` and `{pools[1]}` share the KV tier `{name}`, but differ in `{what}`"
        hint = "give one of them an `engine.kv_tiers` whose tier has another name, which is another store"
        if what == "blocks":
            hint = "it is one store: give it the same size in both, or one of the tiers another name"
        yield about(document, (*store.path, "name"), _CODE, message, hint=hint)


def _pool(document: Document, owner: DataPath) -> str:
    """Return the name of a pool; of the experiment's own stack, that of the first pool that has it."""
    path = owner or next(path for path in pool_paths(document) if not is_own(document, path))
    return str(document.get(*path, "name"))
