"""Decodes parts of a resolved document into frozen records, as defined by their keys (``blis_tui.keys``)."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from blis_tui.classes import NamedTuple
from blis_tui.keys import AUTO, keys_of
from blis_tui.spec.document_parts import Part, plugin_of
from blis_tui.spec.model import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from blis_tui.keys import Key
    from blis_tui.spec.model import PluginConfig

_R = TypeVar("_R")


class _Step(NamedTuple):
    """How to read one field."""

    field: str
    name: str
    required: bool
    read: Callable[[Part, str], object]
    group: str
    """The key of the map that contains the field; empty = the field stands directly in the record's map."""
    group_required: bool


def decode(record: type[_R], part: Part, **given: object) -> _R:
    """Return the record that a map of a resolved document describes.

    Args:
        record: a dataclass whose fields are made by functions of ``blis_tui.keys``.
        part: the map, with defaults filled in.
        given: values of fields that are not read from the map.

    Raises:
        InputError: the map lacks a key, or a value has the wrong type.
    """
    steps = _STEPS.get(record)
    if steps is None:
        steps = _STEPS[record] = _steps(record)
    for step in steps:
        if step.field in given:
            continue
        within = part
        if step.group:
            if not step.group_required and step.group not in part.data:
                continue
            within = part.part(step.group)
        if step.required or step.name in within.data:
            given[step.field] = step.read(within, step.name)
    return record(**given)


def _steps(record: type) -> tuple[_Step, ...]:
    keys = keys_of(record)
    held = {one.name for one in fields(record)}
    required = {about.name or name: not about.optional for name, (about, _) in keys.items()}
    return tuple(
        _Step(
            field=name,
            name=about.name or name,
            required=not about.optional,
            read=_reader(about, annotation),
            group=about.group,
            group_required=bool(about.group) and required[about.group],
        )
        for name, (about, annotation) in keys.items()
        if name in held
    )


def _reader(about: Key, annotation: str) -> Callable[[Part, str], object]:
    """Return the reader for a key whose field has the annotated type."""
    kind, plain = about.kind, annotation.removesuffix(" | None")
    if about.point:
        return Part.text if plain == "str" else _plug_in
    if about.variants is not None:
        return _kind
    if plain == "int" and (about.words or about.default is None):
        return partial(_amount, about.words) if plain != annotation else Part.integer
    if about.words and plain != "float":
        return Part.text
    if plain in _READERS:
        return _READERS[plain]
    if isinstance(kind, tuple):
        return partial(_records, cast("type", kind[0]))
    return partial(_record, kind) if isinstance(kind, type) else partial(_by_name, cast("Mapping[str, Key]", kind))


def _plug_in(part: Part, name: str) -> PluginConfig:
    return plugin_of(part.part(name))


def _kind(part: Part, name: str) -> str:
    return part.part(name).text("kind")


def _amount(words: Collection[str], part: Part, name: str) -> int | None:
    """Return an integer, or None for null and for the key's words except ``auto``, which must be resolved by then."""
    value = part.data.get(name, AUTO)
    return None if value is None or (value != AUTO and value in words) else part.integer(name)


def _budget(part: Part, name: str) -> Budget:
    """Return the declared output budget: a word for none, a multiple of the answer, or a distribution."""
    value = part.data.get(name)
    if isinstance(value, str):
        return Budget()
    within = part.part(name)
    return Budget(ratio=within.number("ratio")) if "ratio" in within.data else Budget(tokens=plugin_of(within))


def _record(kind: type[_R], part: Part, name: str) -> _R:
    return decode(kind, part.part(name))


def _records(kind: type[_R], part: Part, name: str) -> tuple[_R, ...]:
    return tuple(decode(kind, one) for one in part.parts(name))


def _by_name(entries: Mapping[str, Key], part: Part, name: str) -> dict[str, object]:
    """Return a map with arbitrary keys, each of which holds a record."""
    within, kind = part.part(name), cast("type", next(iter(entries.values())).kind)
    return {key: _record(kind, within, key) for key in within.data}


_READERS: Final[Mapping[str, Callable[[Part, str], object]]] = {
    "bool": Part.flag,
    "int": Part.integer,
    "float": Part.number,
    "str": Part.text,
    "float | str | bool": Part.plain,
    "tuple[str, ...]": Part.texts,
    "tuple[float, ...]": Part.numbers,
    "Mapping[str, float]": lambda part, name: part.part(name).floats(),
    "Mapping[str, int]": lambda part, name: part.part(name).integers(),
    "Mapping[str, str]": lambda part, name: part.part(name).words(),
    "Budget": _budget,
}
"""Reader of each plain field type."""
_STEPS: Final[dict[type, tuple[_Step, ...]]] = {}
"""Cached steps for reading each record."""
