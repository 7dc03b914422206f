"""Batch-formation rules by their spec names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.batching.blis import BlisBatching
from blis_tui.engine.batching.vllm_v1 import VllmV1Batching
from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.batching.rule import BatchRule
    from blis_tui.spec.model import Plug

BATCHING: Final[dict[str, Callable[[Plug], BatchRule]]] = {
    "blis": BlisBatching,
    "vllm-v1": VllmV1Batching,
}


def create_batching(plug: Plug) -> BatchRule:
    """The rule of that name. Raises PolicyError when there is none."""
    try:
        make = BATCHING[plug.kind]
    except KeyError:
        raise PolicyError(f"no batching rule `{plug.kind}`", help=f"known: {', '.join(BATCHING)}") from None
    return make(plug)
