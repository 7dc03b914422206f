"""A fast check that accepts most valid data without importing jsonschema, which takes longer than the check.

It accepts data only if it knows every keyword and each of them holds. Otherwise jsonschema decides, and reports what is
wrong.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.base.source import Json

    Schema = dict[str, Json]
    Resolve = Callable[[str], tuple[Json, "FastValidator"]]
    Keyword = Callable[[Json, Json, Schema, "FastValidator"], bool]


_REMEMBERED: Final = 64
"""Number of accepted documents that are cached per kind; a study loads the same few for each of its runs."""
_REMEMBERED_LENGTH: Final = 16_384
"""Longer documents are not cached."""


class FastValidator:
    """Checks data against parts of schemas.

    Args:
        resolve: returns the target of a ``$ref``, and the checker for the target's file.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._known: dict[str, tuple[Json, FastValidator]] = {}
        self._allowed: set[str] = set()

    def allows_document(self, data: Json, schema: Schema) -> bool:
        """Return whether a whole document is certainly valid; results are cached for equal documents."""
        written = repr(data)
        if written in self._allowed:
            return True
        if not self.allows(data, schema):
            return False
        if len(written) <= _REMEMBERED_LENGTH:
            if len(self._allowed) >= _REMEMBERED:
                self._allowed.clear()
            self._allowed.add(written)
        return True

    def allows(self, data: Json, node: Json) -> bool:
        """Return whether data is certainly valid under a part of a schema."""
        if not isinstance(node, dict):
            return node is True
        for keyword, wanted in node.items():
            holds = _KEYWORDS.get(keyword)
            if holds is None or not holds(data, wanted, node, self):
                return False
        return True

    def follow(self, reference: str) -> tuple[Json, FastValidator]:
        """Return the target of a ``$ref``, and the checker for the target's file."""
        found = self._known.get(reference)
        if found is None:
            found = self._known[reference] = self._resolve(reference)
        return found


def _is_unconstrained(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001  (common signature)
    return True


def _type(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    kind = type(data)
    names = wanted if isinstance(wanted, list) else [wanted]
    if any(_TYPES.get(cast("str", name)) is kind for name in names):
        return True
    if kind is int:
        return "number" in names
    return isinstance(data, float) and "integer" in names and data.is_integer()


def _same(data: Json, wanted: Json) -> bool:
    """Return whether two plain values are certainly equal as in JSON: 1 equals 1.0, but no boolean."""
    if isinstance(data, dict | list) or isinstance(data, bool) is not isinstance(wanted, bool):
        return False
    return data == wanted


def _const(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    return _same(data, wanted)


def _enum(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    return isinstance(wanted, list) and any(_same(data, one) for one in wanted)


def _properties(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    if not isinstance(data, dict) or not isinstance(wanted, dict):
        return isinstance(wanted, dict)
    return all(sure.allows(data[name], part) for name, part in wanted.items() if name in data)


def _additional(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:
    if not isinstance(data, dict):
        return True
    known = cast("Schema", node.get("properties", {}))
    return all(sure.allows(value, wanted) for name, value in data.items() if name not in known)


def _property_names(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    return not isinstance(data, dict) or all(sure.allows(name, wanted) for name in data)


def _required(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    return not isinstance(data, dict) or all(name in data for name in cast("list[str]", wanted))


def _items(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    return not isinstance(data, list) or all(sure.allows(one, wanted) for one in data)


def _unique(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    if not isinstance(data, list) or wanted is False:
        return True
    return all(isinstance(one, str) for one in data) and len(set(cast("list[str]", data))) == len(data)


def _reference(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    target, there = sure.follow(cast("str", wanted))
    return there.allows(data, target)


def _all_of(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    return all(sure.allows(data, part) for part in cast("list[Json]", wanted))


def _any_of(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    for part in cast("list[Json]", wanted):
        if sure.allows(data, part):
            return True
        if not _decides(part):
            return False
    return False


def _if(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:
    holds = sure.allows(data, wanted)
    if not holds and not _decides(wanted):
        return False
    return sure.allows(data, node.get("then" if holds else "else", True))


def _decides(condition: Json) -> bool:
    """Return whether a condition that does not certainly hold certainly fails: its keywords leave no doubt."""
    if not isinstance(condition, dict) or not condition.keys() <= _DECIDING:
        return isinstance(condition, bool)
    types = condition.get("type", [])
    if not all(name in _TYPES for name in (types if isinstance(types, list) else [types])):
        return False
    plain = [condition.get("const"), *cast("list[Json]", condition.get("enum", []))]
    parts = cast("Schema", condition.get("properties", {}))
    inner = [*parts.values(), *cast("list[Json]", condition.get("anyOf", []))]
    return not any(isinstance(one, dict | list) for one in plain) and all(map(_decides, inner))


def _number(holds: Callable[[float, float], bool]) -> Keyword:
    """Return the check of a keyword about numbers."""

    def check(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
        if isinstance(data, bool) or not isinstance(data, int | float):
            return True
        return holds(data, cast("float", wanted))

    return check


def _length(kind: type, holds: Callable[[int, int], bool]) -> Keyword:
    """Return the check of a keyword about lengths."""

    def check(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
        return not isinstance(data, kind) or holds(len(cast("str", data)), cast("int", wanted))

    return check


def _pattern(data: Json, wanted: Json, node: Schema, sure: FastValidator) -> bool:  # noqa: ARG001
    return not isinstance(data, str) or re.search(cast("str", wanted), data) is not None


_TYPES: Final[Mapping[str, type]] = MappingProxyType(
    {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": float,
        "boolean": bool,
        "null": type(None),
    }
)
_DECIDING: Final = frozenset({"type", "const", "enum", "required", "properties", "anyOf"})
_KEYWORDS: Final[Mapping[str, Keyword]] = MappingProxyType(
    {
        **dict.fromkeys(("$schema", "$id", "$defs", "title", "description", "default", "examples"), _is_unconstrained),
        **dict.fromkeys(("enumDescriptions", "x-partial"), _is_unconstrained),
        **dict.fromkeys(("then", "else"), _is_unconstrained),  # evaluated by `if`
        "type": _type,
        "const": _const,
        "enum": _enum,
        "properties": _properties,
        "additionalProperties": _additional,
        "propertyNames": _property_names,
        "required": _required,
        "items": _items,
        "uniqueItems": _unique,
        "$ref": _reference,
        "allOf": _all_of,
        "anyOf": _any_of,
        "if": _if,
        "minimum": _number(lambda data, least: data >= least),
        "maximum": _number(lambda data, most: data <= most),
        "exclusiveMinimum": _number(lambda data, above: data > above),
        "exclusiveMaximum": _number(lambda data, below: data < below),
        "minLength": _length(str, lambda size, least: size >= least),
        "maxLength": _length(str, lambda size, most: size <= most),
        "minItems": _length(list, lambda size, least: size >= least),
        "maxItems": _length(list, lambda size, most: size <= most),
        "minProperties": _length(dict, lambda size, least: size >= least),
        "maxProperties": _length(dict, lambda size, most: size <= most),
        "pattern": _pattern,
    }
)
"""Keyword -> its check, given the data, the keyword's value, the part of the schema, and the checker."""
