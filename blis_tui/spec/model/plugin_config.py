"""What a spec says at a plug point."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

F = TypeVar("F")

Setting: TypeAlias = "bool | int | float | str | tuple[float, ...] | Mapping[str, float] | tuple[PluginConfig, ...]"
"""What a setting of a plug-in may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """What a spec says at a plug point: a plug-in's name and its settings, defaults filled in by the schema."""

    kind: str
    settings: Mapping[str, Setting] = field(default_factory=dict)


def plug_in(point: str, default: F | None = cast("None", MISSING)) -> F:  # noqa: B008  (a constant)
    """A field of a record that holds what a spec says at a plug point: a ``PluginConfig``, or the plug-in's bare name.

    Args:
        point: the key of the plug point, such as ``policy.routing``.
        default: as of any field.
    """
    return field(default=cast("F", default), metadata={"plug_point": point})


def named_in(record: object) -> Iterator[tuple[str, PluginConfig]]:
    """Everything that a record says at plug points, itself or in the records that it holds: the point, and what."""
    if isinstance(record, tuple):
        for one in record:
            yield from named_in(one)
    elif is_dataclass(record):
        for one in fields(record):
            held = getattr(record, one.name)
            if "plug_point" not in one.metadata:
                yield from named_in(held)
            elif held is not None:
                yield one.metadata["plug_point"], PluginConfig(kind=held) if isinstance(held, str) else held
