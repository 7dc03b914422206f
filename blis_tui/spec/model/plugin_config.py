"""What a spec says at a plug point."""

from __future__ import annotations

from dataclasses import field, fields, is_dataclass
from typing import TYPE_CHECKING, TypeAlias

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Setting: TypeAlias = "bool | int | float | str | tuple[float, ...] | Mapping[str, float] | tuple[PluginConfig, ...]"
"""What a setting of a plug-in may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """What a spec says at a plug point: a plug-in's name and its settings, defaults filled in by the schema."""

    kind: str
    settings: Mapping[str, Setting] = field(default_factory=dict)


def named_in(record: object) -> Iterator[tuple[str, PluginConfig]]:
    """Everything that a record says at plug points, itself or in the records that it holds: the point, and what."""
    if isinstance(record, tuple):
        for one in record:
            yield from named_in(one)
    elif is_dataclass(record):
        for one in fields(record):
            held = getattr(record, one.name)
            point = one.metadata["key"].point if "key" in one.metadata else ""
            if not point:
                yield from named_in(held)
            elif held is not None:
                yield point, PluginConfig(kind=held) if isinstance(held, str) else held
