"""Schemas as the single source of types, ranges and defaults: look up, check, fill in.

jsonschema finds the problems of an invalid document; a valid one is accepted quickly without it. This module also fills
in defaults and converts ``8`` to ``8.0`` where a number is expected, so that equal experiments have equal digests. It
walks schema and data together, and supports the subset that the schemas use: ``$ref``, ``properties``, ``items``,
``additionalProperties``, ``allOf`` and ``if``/``then``/``else``.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, cast

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.source import as_list, as_map, copied
from blis_tui.spec.fast_validator import FastValidator
from blis_tui.spec.library import schema_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jsonschema.protocols import Validator
    from referencing import Registry

    from blis_tui.base.source import DataPath, Json
    from blis_tui.model.plug_ins import Registry as Plugins

Schema: TypeAlias = "dict[str, Json]"

KINDS: Final = ("Experiment", "Model", "Hardware", "Workload", "Policy", "Latency", "Study")
"""Kinds of document; each has a schema with its lower-case name."""

EXTENDING: Final = "extending"
"""The schema of experiments that extend others, for editors: that of experiments, with nulls that drop keys."""
_REMEMBERED: Final = 512
_REMEMBERED_CHARACTERS: Final = 32 * 1024
_Found = TypeVar("_Found")


class PlaceCache(Generic[_Found]):
    """A cache of results for values at places of the schemas, which never change.

    The experiments of a study have equal values everywhere except for the parts that vary.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], _Found] = {}

    @staticmethod
    def key(node: Schema, value: Json) -> tuple[int, str]:
        """Return the cache key of a value at a place, which is a part of a permanently loaded schema."""
        return id(node), json.dumps(value)

    def get(self, key: tuple[int, str]) -> _Found | None:
        """Return the cached result; None if there is none."""
        return self._found.get(key)

    def put(self, key: tuple[int, str], *, found: _Found) -> None:
        """Cache a result unless the value is large."""
        if len(self._found) >= _REMEMBERED:
            self._found.clear()
        if len(key[1]) <= _REMEMBERED_CHARACTERS:
            self._found[key] = found


class File(NamedTuple):
    """The file of a part of a schema, in which references without a file name are resolved."""

    name: str
    plugins: Plugins | None


@cache
def schema(name: str, plugins: Plugins | None = None) -> Schema:
    """Return the schema ``name``, such as ``model``.

    Args:
        name: its file, without the suffixes.
        plugins: the plug-ins it offers at plug points; None = those in the file, that is, of this package.

    Raises:
        InputError: the installation is incomplete.
    """
    if plugins is not None:
        from blis_tui.spec.branches import with_plugins  # noqa: PLC0415  (only needed with plug-ins)

        return with_plugins(name, schema(name), plugins)
    path = schema_path(name)
    try:
        loaded: Schema = json.loads(path.read_text(encoding="utf-8"))
        if EXTENDING in str(loaded.get("then")):  # for editors; here a document has inherited before it is checked
            loaded |= as_map(loaded.pop("else"))
            del loaded["if"], loaded["then"]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", help="the installation is incomplete") from error
    return loaded


@dataclass(frozen=True, slots=True)
class Violation:
    """A keyword of a schema that a value violates."""

    kind: str
    """Kind of the document that contains the value."""
    path: DataPath
    keyword: str
    wanted: Json
    """The keyword's value, such as the limit of ``minimum``."""
    instance: Json
    schema: Schema
    """The part of the schema that holds the keyword."""
    schema_path: tuple[str, ...]
    message: str


def violations(data: Json, kind: str, plugins: Plugins | None = None) -> Iterator[Violation]:
    """Yield every leaf violation of the schema for ``kind``."""
    name = kind.lower()
    if _fast_validator(name, plugins).allows_document(data, schema(name, plugins)):
        return
    for error in _validator(name, plugins).iter_errors(data):
        yield Violation(
            kind=kind,
            path=tuple(error.absolute_path),
            keyword=str(error.validator),
            wanted=cast("Json", error.validator_value),
            instance=cast("Json", error.instance),
            schema=cast("Schema", error.schema) if isinstance(error.schema, dict) else {},
            schema_path=tuple(str(step) for step in error.absolute_schema_path),
            message=error.message,
        )


@cache
def _fast_validator(name: str, plugins: Plugins | None) -> FastValidator:
    """Return the fast checker, which does not need jsonschema."""

    def resolve(reference: str) -> tuple[Json, FastValidator]:
        node, file = referred(reference, File(name, plugins))
        return node, _fast_validator(*file)

    return FastValidator(resolve)


@cache
def _validator(name: str, plugins: Plugins | None) -> Validator:
    """Return the jsonschema validator for documents of a kind."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415  (importing it takes longer than loading most runs)

    return Draft202012Validator({"$ref": f"{name}.schema.json"}, registry=_registry(plugins))


@cache
def _registry(plugins: Plugins | None) -> Registry[bool | Mapping[str, object]]:
    """Return a registry with all schemas loaded; one that retrieves them would do so for each reference."""
    from referencing import Registry  # noqa: PLC0415  (as above)
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415  (as above)

    registry: Registry[bool | Mapping[str, object]] = Registry()
    for name in ("common", *(kind.lower() for kind in KINDS)):
        contents = DRAFT202012.create_resource(schema(name, plugins))
        registry = registry.with_resource(f"{name}.schema.json", contents)
    return registry.crawl()


def complete(data: Json, kind: str, plugins: Plugins | None = None) -> Json:
    """Return a copy of valid data with every default filled in and numbers converted to their declared types."""
    file = File(kind.lower(), plugins)
    return _walk(copied(data), schema(*file), file)


def short_forms(data: Json, kind: str, plugins: Plugins | None = None) -> Iterator[tuple[DataPath, dict[str, Json]]]:
    """Yield the short forms in a document of a kind: the path, and the map with a ``kind`` that each means."""
    file = File(kind.lower(), plugins)
    yield from _short_forms(data, schema(*file), file, ())


def _short_forms(data: Json, node: Json, file: File, path: DataPath) -> Iterator[tuple[DataPath, dict[str, Json]]]:
    if not isinstance(node, dict) or not isinstance(data, dict | list | str | int | float):
        return
    if "$ref" in node:
        memory = _without_short_forms(file.plugins)
        place = PlaceCache.key(node, data)
        if not memory.get(place):
            found = list(_short_forms(data, *_follow({"$ref": node["$ref"]}, file), path))
            memory.put(place, found=not found)
            yield from found
    long_form = _long_form(data, node)
    if long_form is not None:
        yield path, long_form
    elif isinstance(data, dict):
        for key, part in _part(node, "properties").items():
            if key in data:
                yield from _short_forms(data[key], part, file, (*path, key))
    elif isinstance(data, list):
        for at, item in enumerate(data):
            yield from _short_forms(item, node.get("items"), file, (*path, at))
    for part in as_list(node.get("allOf")) if isinstance(data, dict) else ():
        yield from _short_forms(data, part, file, path)
    if "if" in node:
        yield from _short_forms(data, node.get("then" if matches(data, node["if"]) else "else"), file, path)


@cache
def _without_short_forms(plugins: Plugins | None) -> PlaceCache[bool]:  # noqa: ARG001  (a cache per set of plug-ins)
    return PlaceCache()


def _long_form(data: Json, node: Schema) -> dict[str, Json] | None:
    """Return the map with a ``kind`` that ``data`` stands for, if the schema allows the short form."""
    if "kind" not in _part(node, "properties"):
        return None
    types = as_list(node.get("type"))
    if isinstance(data, str) and "string" in types and data in as_list(_part(node, "then").get("enum")):
        return {"kind": data}
    if isinstance(data, bool) or not isinstance(data, int | float):
        return None
    low, high = node.get("minimum"), node.get("maximum")
    if not isinstance(low, int) or not isinstance(high, int) or not low <= data <= high:
        return None
    if "number" in types:
        return {"kind": "constant", "value": data}
    return {"kind": "constant", "value": int(data)} if "integer" in types and data == int(data) else None


def default(kind: str, *path: str) -> Json:
    """Return the default of a property of a document of a kind, such as ``default("Experiment", "policy")``."""
    return copied(node_at(kind, path).get("default"))


def node_at(kind: str, path: DataPath) -> Schema:
    """Return the schema of the value at a path of a document of a kind; empty if the path leaves plain maps and lists.

    ``kind`` of a map adds keys that this does not follow.
    """
    found: Json = _document(kind)
    file = File(kind.lower(), None)
    for key in path:
        node, file = _follow(found, file)
        found = node.get("items") if isinstance(key, int) else _part(node, "properties").get(key)
    return as_map(found)


def properties_of(kind: str, definition: str = "document") -> tuple[str, ...]:
    """Return the keys of a definition in the schema of a kind."""
    return tuple(_part(_part(_part(schema(kind.lower()), "$defs"), definition), "properties"))


def property_of(kind: str, name: str) -> Json:
    """Return the schema of a key of a document of a kind; None if there is no such key."""
    return _part(_document(kind), "properties").get(name)


def takes_null(kind: str, path: DataPath) -> bool:
    """Return whether null is a value of the key at a path of documents of a kind, such as ``workload.requests``."""
    found = [(_document(kind), File(kind.lower(), None))]
    for step in path:
        found = [below for node, file in found for below in _below(node, file, str(step))]
    return any("null" in as_list(node.get("type")) for node, _ in found)


def _below(node: Json, file: File, key: str) -> Iterator[tuple[Schema, File]]:
    """Yield what a schema says of a key, under any condition."""
    node, file = _follow(node, file)
    if key in (known := _part(node, "properties")):
        yield _follow(known[key], file)
    for part in (node.get("then"), node.get("else"), *as_list(node.get("allOf"))):
        if isinstance(part, dict):
            yield from _below(part, file, key)


def _document(kind: str) -> Schema:
    return _part(_part(schema(kind.lower()), "$defs"), "document")


def _part(node: Schema, key: str) -> Schema:
    return as_map(node.get(key))


def _follow(node: Json, file: File) -> tuple[Schema, File]:
    """Return the schema that ``node`` stands for (its ``$ref`` followed), and its file."""
    while isinstance(node, dict) and isinstance(reference := node.get("$ref"), str):
        node, file = referred(reference, file)
    return as_map(node), file


def referred(reference: str, file: File) -> tuple[Json, File]:
    """Return the target of a ``$ref`` in a file, and the target's file."""
    name, _, pointer = reference.partition("#")
    file = File(name.removesuffix(".schema.json") or file.name, file.plugins)
    target: Json = schema(*file)
    for step in filter(None, pointer.split("/")):
        target = as_map(target).get(step)
    return target, file


def _walk(data: Json, node: Json, file: File) -> Json:
    if not isinstance(node, dict):
        return data
    if "$ref" in node:
        memory, key = _completed(file.plugins), PlaceCache.key(node, data)
        known = memory.get(key)
        if known is None:
            target, where = _follow({"$ref": node["$ref"]}, file)
            known = (_walk(data, target, where),)
            memory.put(key, found=known)
        data = copied(known[0])
    data = _typed(data, node.get("type"))
    if isinstance(data, dict):
        _fill(data, node, file)
    elif isinstance(data, list) and "items" in node:
        data = [_walk(item, node["items"], file) for item in data]
    for part in as_list(node.get("allOf")):
        data = _walk(data, part, file)
    if "if" in node:
        data = _walk(data, node.get("then" if matches(data, node["if"]) else "else"), file)
    return data


@cache
def _completed(plugins: Plugins | None) -> PlaceCache[tuple[Json]]:  # noqa: ARG001  (a cache per set of plug-ins)
    return PlaceCache()


def _fill(data: dict[str, Json], node: Schema, file: File) -> None:
    known = _part(node, "properties")
    for key, part in known.items():
        if key not in data and isinstance(part, dict) and "default" in part:
            data[key] = copied(part["default"])
        if key in data:
            data[key] = _walk(data[key], part, file)
    others = node.get("additionalProperties")
    if isinstance(others, dict):
        for key in data.keys() - known.keys():
            data[key] = _walk(data[key], others, file)
    in_schema_order = {key: data[key] for key in (*known, *data) if key in data}
    data.clear()
    data.update(in_schema_order)


def _typed(data: Json, types: Json) -> Json:
    """Return ``1e6`` as an integer where one is expected, ``8`` as ``8.0`` where a number is."""
    allowed = set(as_list(types)) if isinstance(types, list) else {types}
    if isinstance(data, float) and "integer" in allowed and data.is_integer():
        return int(data)
    if type(data) is int and "number" in allowed and not allowed & {"integer", "boolean"}:
        return float(data)
    return data


def matches(data: Json, condition: Json) -> bool:
    """Return whether an ``if`` of the schemas holds: ``type``, ``required``, ``anyOf``, ``const`` or ``enum``."""
    if not isinstance(condition, dict):
        return True
    if "anyOf" in condition and not any(matches(data, one) for one in as_list(condition["anyOf"])):
        return False
    names = {"object": dict, "string": str, "array": list}
    if isinstance(wanted := condition.get("type"), str) and not isinstance(data, names.get(wanted, object)):
        return False
    if "const" in condition and data != condition["const"]:
        return False
    if "enum" in condition and data not in as_list(condition["enum"]):
        return False
    if not isinstance(data, dict):
        return True
    if any(key not in data for key in as_list(condition.get("required"))):
        return False
    return all(matches(data[key], part) for key, part in _part(condition, "properties").items() if key in data)
