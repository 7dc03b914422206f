"""What a spec says at a plug point."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

Setting: TypeAlias = "bool | int | float | str | tuple[float, ...] | Mapping[str, float] | tuple[PluginConfig, ...]"
"""What a setting of a plug-in may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """What a spec says at a plug point: a plug-in's name and its settings, defaults filled in by the schema."""

    kind: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
