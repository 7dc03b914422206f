"""Schemas as the single source of types, ranges and defaults: where each is, and what it says of a key."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import InputError
from blis_tui.base.source import as_list, as_map, copied
from blis_tui.spec.library import schema_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.base.source import DataPath, Json
    from blis_tui.model.plug_ins import Registry as Plugins

Schema: TypeAlias = "dict[str, Json]"

KINDS: Final = ("Experiment", "Model", "Hardware", "Workload", "Policy", "Latency", "Study")
"""Kinds of document; each has a schema with its lower-case name."""

EXTENDING: Final = "extending"
"""The schema of experiments that extend others, for editors: that of experiments, with nulls that drop keys."""


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
        from blis_tui.spec.plug_points import with_plugins  # noqa: PLC0415  (only needed with plug-ins)

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


def default(kind: str, *path: str) -> Json:
    """Return the default of a property of a document of a kind, such as ``default("Experiment", "policy")``."""
    return copied(node_at(kind, path).get("default"))


def node_at(kind: str, path: DataPath, plugins: Plugins | None = None) -> Schema:
    """Return the schema of the value at a path of a document of a kind; empty if the path leaves plain maps and lists.

    ``kind`` of a map adds keys that this does not follow.
    """
    below: Json = _document(kind, plugins)
    file = File(kind.lower(), plugins)
    for key in path:
        node, file = _follow(below, file)
        below = node.get("items") if isinstance(key, int) else part_of(node, "properties").get(key)
    return as_map(below)


def properties_of(kind: str, definition: str = "document") -> tuple[str, ...]:
    """Return the keys of a definition in the schema of a kind."""
    return tuple(part_of(part_of(part_of(schema(kind.lower()), "$defs"), definition), "properties"))


def takes_null(kind: str, path: DataPath) -> bool:
    """Return whether null is a value of the key at a path of documents of a kind, such as ``workload.requests``."""
    nodes = [(_document(kind), File(kind.lower(), None))]
    for step in path:
        nodes = [below for node, file in nodes for below in _below(node, file, str(step))]
    return any("null" in as_list(node.get("type")) for node, _ in nodes)


def _below(node: Json, file: File, key: str) -> Iterator[tuple[Schema, File]]:
    """Yield what a schema says of a key, under any condition."""
    node, file = _follow(node, file)
    if key in (known := part_of(node, "properties")):
        yield _follow(known[key], file)
    for part in (node.get("then"), node.get("else"), *as_list(node.get("allOf"))):
        if isinstance(part, dict):
            yield from _below(part, file, key)


def _document(kind: str, plugins: Plugins | None = None) -> Schema:
    return part_of(part_of(schema(kind.lower(), plugins), "$defs"), "document")


def part_of(node: Schema, key: str) -> Schema:
    """Return the map at a key of a part of a schema; empty if there is none."""
    return as_map(node.get(key))


def _follow(node: Json, file: File) -> tuple[Schema, File]:
    """Return the schema that ``node`` stands for (its ``$ref`` followed), and its file."""
    while isinstance(node, dict) and isinstance(reference := node.get("$ref"), str):
        node, file = referred(reference, file)
    return as_map(node), file


@cache
def referred(reference: str, file: File) -> tuple[Json, File]:
    """Return the target of a ``$ref`` in a file, and the target's file."""
    name, _, pointer = reference.partition("#")
    file = File(name.removesuffix(".schema.json") or file.name, file.plugins)
    target: Json = schema(*file)
    for step in filter(None, pointer.split("/")):
        target = as_map(target).get(step)
    return target, file
