"""Reads data as a schema says: one walk finds its short forms and every violation, and completes it.

The walk takes data and schema together, and knows the keywords that the schemas use; of ``anyOf``, only that in an
``if``. It fills in defaults, and turns ``8`` into ``8.0`` where a number is expected and a short form into its map, so
that equal experiments have equal digests.
"""

from __future__ import annotations

import json
import re
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.source import as_list, copied, equal
from blis_tui.spec.schema import File, Schema, node_at, part_of, referred, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from blis_tui.base.source import DataPath, Json
    from blis_tui.model.plug_ins import Registry as Plugins

    _LongForms = list[tuple[DataPath, dict[str, Json]]]
    _Rule = tuple[type | tuple[type, ...], Callable[..., bool]]

_REMEMBERED: Final = 512
_REMEMBERED_CHARACTERS: Final = 32 * 1024


class Violation(NamedTuple):
    """A keyword of a schema that a value violates."""

    kind: str
    """Kind of the document that contains the value."""
    path: DataPath
    keyword: str
    wanted: Json
    """The keyword's value, such as the limit of ``minimum``; of ``required``, the missing key."""
    instance: Json
    schema: Schema
    """The part of the schema that holds the keyword."""
    under: str
    """The keyword that holds that part if it is ``then``, ``else`` or ``propertyNames``; empty = another."""


class Reading:
    """What a walk finds. Its values are shared with other readings: copy what is going to be changed.

    Args:
        kind: of document.
        is_own: nobody changes later what is read, so that parts of it can be remembered.
    """

    def __init__(self, kind: str, *, is_own: bool = False) -> None:
        self._kind = kind
        self._is_own = is_own
        self.data: Json = None
        """The complete data, if nothing is violated."""
        self.violations: list[Violation] = []
        self.long_forms: _LongForms = []
        """Paths of short forms, and the map with a ``kind`` that each means."""

    def walk(self, raw: Json, data: Json, node: Json, file: File, path: DataPath, under: str = "") -> Json:
        """Return the complete value at a path.

        Args:
            raw: the value as written, which is checked.
            data: the value as completed by the parts of the schema that were walked before.
            node: the part of the schema.
            file: the part's file.
            path: where the value is.
            under: see :class:`Violation`.
        """
        if not isinstance(node, dict):
            return data
        if "$ref" in node:
            data = self._follow(raw, data, str(node["$ref"]), file, path)
        if isinstance(raw, _SHORT) and (long_form := _long_form(raw, node)) is not None:
            self.long_forms.append((path, long_form))
            raw = data = long_form
        for keyword, wanted in node.items():
            rule = _RULES.get(keyword)
            if rule is not None and isinstance(raw, rule[0]) and rule[1](raw, wanted):
                self._add(path, keyword, wanted, raw, node, under)
        if isinstance(raw, dict) and isinstance(data, dict):
            if not _OF_MAPS.isdisjoint(node):
                data = self._map(raw, data, node, file, path)
        elif isinstance(raw, list) and isinstance(data, list):
            if "items" in node:
                data = [self.walk(entry, data[at], node["items"], file, (*path, at)) for at, entry in enumerate(raw)]
        elif "type" in node:
            data = _typed(data, node["type"])
        if "allOf" in node:
            for part in as_list(node["allOf"]):
                data = self.walk(raw, data, part, file, path)
        if "if" in node:
            branch = "then" if matches(raw, node["if"]) else "else"
            data = self.walk(raw, data, node.get(branch), file, path, branch)
        return data

    def _follow(self, raw: Json, data: Json, reference: str, file: File, path: DataPath) -> Json:
        """Return the complete value at a path as the target of a ``$ref`` says, which is remembered if it is valid."""
        node, file = referred(reference, file)
        key = (id(node), json.dumps(raw), "" if raw is data else json.dumps(data))
        known = _READ.get(key)
        if known is not None:
            self.long_forms += [((*path, *at), dict(long_form)) for at, long_form in known[1]]
            return known[0]
        if not self._is_own:
            is_same, raw = raw is data, copied(raw)
            data = raw if is_same else copied(data)
        reading = Reading(self._kind, is_own=True)
        data = reading.walk(raw, data, node, file, path)
        if not reading.violations and len(key[1]) <= _REMEMBERED_CHARACTERS:
            if len(_READ) >= _REMEMBERED:
                _READ.clear()
            _READ[key] = data, [(at[len(path) :], dict(long_form)) for at, long_form in reading.long_forms]
        self.violations += reading.violations
        self.long_forms += reading.long_forms
        return data

    def _map(self, raw: dict[str, Json], data: dict[str, Json], node: Schema, file: File, path: DataPath) -> Json:
        """Return the complete map: the keys that the schema knows, in its order, before others."""
        known, others = part_of(node, "properties"), node.get("additionalProperties")
        for key in as_list(node.get("required")):
            if key not in raw:
                self._add(path, "required", key, raw, node)
        if others is False and not raw.keys() <= known.keys():
            self._add(path, "additionalProperties", others, raw, node)
        if "propertyNames" in node:
            for key in raw:
                self.walk(key, key, node["propertyNames"], file, path, "propertyNames")
        whole: dict[str, Json] = {}
        for key in dict.fromkeys((*known, *data)):
            part = known.get(key, others)
            if key in raw:
                whole[key] = self.walk(raw[key], data[key], part, file, (*path, key))
            elif key in data:  # of what is not written, nothing is said
                whole[key] = Reading(self._kind, is_own=self._is_own).walk(data[key], data[key], part, file, ())
            elif isinstance(part, dict) and "default" in part:
                whole[key] = _default(part, file)
        return whole

    def _add(self, path: DataPath, keyword: str, wanted: Json, raw: Json, node: Schema, under: str = "") -> None:
        self.violations.append(Violation(self._kind, path, keyword, wanted, raw, node, under))


def _default(part: Schema, file: File) -> Json:
    """Return the complete default of a part of a permanently loaded schema."""
    if id(part) not in _DEFAULTS:
        _DEFAULTS[id(part)] = Reading("", is_own=True).walk(part["default"], part["default"], part, file, ())
    return _DEFAULTS[id(part)]


_DEFAULTS: Final[dict[int, Json]] = {}
_READ: Final[dict[tuple[int, str, str], tuple[Json, _LongForms]]] = {}
"""Part of a permanently loaded schema, a value as written and, if it differs, as completed before -> what was found.

The experiments of a study have equal values everywhere except for the parts that vary.
"""


def read(data: Json, kind: str, plugins: Plugins | None = None) -> Reading:
    """Return what the schema of a kind says about data.

    Args:
        data: plain data, in long or short forms. It may be changed later: what is remembered of it stays.
        kind: of document, such as ``Experiment``.
        plugins: those whose names and settings it may have; None = those of this package.
    """
    reading, file = Reading(kind), File(kind.lower(), plugins)
    reading.data = reading.walk(data, data, schema(*file), file, ())
    return reading


def complete(data: Json, kind: str, plugins: Plugins | None = None) -> Json:
    """Return a copy of valid data with every default filled in and numbers converted to their declared types."""
    return copied(read(data, kind, plugins).data)


def complete_key(data: Json, kind: str, key: str, plugins: Plugins | None = None) -> Json:
    """Return the complete value of a key of a document of a kind."""
    node = node_at(kind, (key,), plugins)
    return copied(Reading(kind).walk(data, data, node, File(kind.lower(), plugins), (key,)))


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a document."""
    reading = read({"metadata": {"name": text}}, "Policy")
    return all(violation.path != ("metadata", "name") for violation in reading.violations)


def _long_form(data: str | float, node: Schema) -> dict[str, Json] | None:
    """Return the map with a ``kind`` that ``data`` stands for, if the schema allows the short form."""
    if "kind" not in part_of(node, "properties"):
        return None
    types = as_list(node.get("type"))
    if isinstance(data, str):
        is_word = "string" in types and data in as_list(part_of(node, "then").get("enum"))
        return {"kind": data} if is_word else None
    low, high = node.get("minimum"), node.get("maximum")
    if isinstance(data, bool) or not isinstance(low, int) or not isinstance(high, int) or not low <= data <= high:
        return None
    if "number" in types:
        return {"kind": "constant", "value": data}
    return {"kind": "constant", "value": int(data)} if "integer" in types and data == int(data) else None


def _typed(data: Json, types: Json) -> Json:
    """Return ``1e6`` as an integer where one is expected, ``8`` as ``8.0`` where a number is."""
    allowed = types if isinstance(types, list) else [types]
    if isinstance(data, float) and "integer" in allowed and data.is_integer():
        return int(data)
    if type(data) is int and "number" in allowed and "integer" not in allowed and "boolean" not in allowed:
        return float(data)
    return data


def matches(data: Json, condition: Json) -> bool:
    """Return whether an ``if`` of the schemas holds: ``type``, ``required``, ``anyOf``, ``const`` or ``enum``."""
    if not isinstance(condition, dict):
        return True
    for keyword in ("type", "const", "enum"):
        if keyword in condition and _RULES[keyword][1](data, condition[keyword]):
            return False
    if "anyOf" in condition and not any(matches(data, branch) for branch in as_list(condition["anyOf"])):
        return False
    if not isinstance(data, dict):
        return True
    if any(key not in data for key in as_list(condition.get("required"))):
        return False
    return all(matches(data[key], part) for key, part in part_of(condition, "properties").items() if key in data)


def _is_no(value: Json, types: str | list[str]) -> bool:
    """Return whether a value has none of the types."""
    whole = isinstance(value, float) and value.is_integer()
    names = _NAMES.get(int if whole else type(value), frozenset())
    return types not in names if isinstance(types, str) else names.isdisjoint(types)


def _differs(value: Json, wanted: Json) -> bool:
    return not equal(value, wanted)


def _is_none_of(value: Json, words: list[Json]) -> bool:
    return not any(equal(value, word) for word in words)


def _repeats(items: list[Json], wanted: bool) -> bool:
    """Return whether items that should be ``wanted`` unique are not."""
    return wanted and len(set(map(_identity, items))) < len(items)


def _identity(value: Json) -> Hashable:
    """Return what has the same value only for values that are equal as in JSON."""
    if isinstance(value, dict):
        return dict, frozenset((key, _identity(part)) for key, part in value.items())
    return (list, *map(_identity, value)) if isinstance(value, list) else (isinstance(value, bool), value)


def _is_no_multiple(value: float, unit: float) -> bool:
    if isinstance(value, bool):
        return False
    return value % unit != 0 if isinstance(unit, int) else not (value / unit).is_integer()


def _lacks(value: str, pattern: str) -> bool:
    return re.search(pattern, value) is None


def _number(is_beyond: Callable[[float, float], bool]) -> _Rule:
    """Return a rule for numbers, which no boolean is."""
    return (int, float), lambda value, limit: is_beyond(value, limit) and not isinstance(value, bool)


def _size(kind: type, is_beyond: Callable[[int, int], bool]) -> _Rule:
    return kind, lambda value, limit: is_beyond(len(value), limit)


_SHORT: Final = (str, int, float)
_OF_MAPS: Final = frozenset({"properties", "additionalProperties", "required", "propertyNames"})
"""Keywords about the keys of a map."""
_NAMES: Final[Mapping[type, frozenset[str]]] = {
    dict: frozenset({"object"}),
    list: frozenset({"array"}),
    str: frozenset({"string"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    bool: frozenset({"boolean"}),
    type(None): frozenset({"null"}),
}
"""Type of a value -> its names in schemas."""
_RULES: Final[Mapping[str, _Rule]] = {
    "type": (object, _is_no),
    "const": (object, _differs),
    "enum": (object, _is_none_of),
    "minimum": _number(lt),
    "maximum": _number(gt),
    "exclusiveMinimum": _number(le),
    "exclusiveMaximum": _number(ge),
    "multipleOf": ((int, float), _is_no_multiple),
    "minLength": _size(str, lt),
    "maxLength": _size(str, gt),
    "minItems": _size(list, lt),
    "maxItems": _size(list, gt),
    "minProperties": _size(dict, lt),
    "maxProperties": _size(dict, gt),
    "uniqueItems": (list, _repeats),
    "pattern": (str, _lacks),
}
"""Keyword -> the type of values that it limits, and whether one violates it."""
