"""What the batching rule that a document names says about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.batching.rule import BATCHING
from blis_tui.engine.batching.traits import Traits
from blis_tui.errors import PolicyError
from blis_tui.shipped import builtin
from blis_tui.spec.document_parts import Part, plugin_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.registry import Registry


def batching_traits(document: Mapping[str, object], plugins: Registry | None) -> Traits:
    """What the batching rule of a resolved experiment says about itself; of an impossible one, nothing special."""
    config = plugin_of(Part(document, "").part("policy").part("batching"))
    try:
        return (plugins or builtin()).create(BATCHING, config.kind, config.settings).traits
    except PolicyError:
        return Traits()
