"""The files of ``schemas/``, made from the keys (``model.keys``) and the plug-ins, and entries for SchemaStore.

``make docs`` writes them; a test fails when they are stale. Keywords keep the order of the existing file: new
ones come last, and nothing else moves.
"""

from __future__ import annotations

import inspect
import json
import sys
import tomllib
from dataclasses import MISSING
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.base.source import as_list, as_map
from blis_tui.engine.latency.model import LATENCY
from blis_tui.model.keys import GROUP, WHICH, keys_of
from blis_tui.output.result_files import write_tree
from blis_tui.spec.compose import TEST_KEYS
from blis_tui.spec.definitions import DEFINITIONS, METADATA, SHAPES, SHARED
from blis_tui.spec.library import schema_path, suffix
from blis_tui.spec.plug_points import POINTS, with_plugins
from blis_tui.spec.schema import EXTENDING, KINDS, schema
from blis_tui.spec.shipped import builtin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.base.source import Json
    from blis_tui.model.keys import Key, Variants
    from blis_tui.spec.definitions import Definition

_Part: TypeAlias = "dict[str, Json]"
_Keys: TypeAlias = "Mapping[str, tuple[Key, str]]"
"""Keys by field name, with the types of the fields."""

NAMES: Final = tuple(DEFINITIONS)
"""All schemas."""

_TYPES: Final = {
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "Mapping": "object",
    "tuple": "array",
}
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ROOT: Final = Path(__file__).parents[1]
_PROJECT: Final = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def address(name: str) -> str:
    """Where a schema is published: its ``$id``."""
    return f"{_PROJECT['urls']['Homepage']}/raw/HEAD/schemas/{name}.schema.json"


def catalog() -> str:
    """Entries for the catalog of https://www.schemastore.org, for kinds whose file names identify them."""
    entries = [
        {
            "name": f"blis-tui {kind.lower()}",
            "description": str(schema(kind.lower())["description"]),
            "fileMatch": [f"*{suffix(kind)}"],
            "url": address(kind.lower()),
        }
        for kind in KINDS
        if suffix(kind) != ".yaml"
    ]
    return json.dumps({"schemas": entries}, indent=2, ensure_ascii=False) + "\n"


def text_of(name: str) -> str:
    """What the file of a schema must contain."""
    made = _in_order_of(schema(name), _remembering(name, declared(name)))
    return _as_text(with_plugins(name, as_map(made), builtin()))


def declared(name: str) -> _Part:
    """A schema from the keys alone, without plug-ins."""
    file = _File(name)
    for where, definition in DEFINITIONS[name].items():
        file.define(where, definition)
    document = DEFINITIONS[name].get("document")
    where_it_is: _Part = {"$schema": _DIALECT, "$id": address(name)}
    if document is None:
        return {**where_it_is, **SHARED, "$defs": file.made}
    required = ["apiVersion", "kind", "metadata", *document.required]
    head: _Part = {"title": document.kind, "description": _about(document), "$ref": "#/$defs/document"}
    return {**where_it_is, **head, "required": list(required), "$defs": file.made}


def published(name: str) -> str:
    """The content of a schema's file, in which experiments that extend others may have nulls."""
    made = as_map(json.loads(text_of(name)))
    if name == "experiment":
        del made["$ref"]
        inherits: _Part = {"$ref": f"{EXTENDING}.schema.json#/$defs/experiment-document"}
        rule: _Part = {"if": {"required": ["extends"]}, "then": inherits, "else": {"$ref": "#/$defs/document"}}
        made = {key: value for key, value in made.items() if key != "$defs"} | rule | {"$defs": made["$defs"]}
    return _as_text(made)


def extending() -> str:
    """The content of the schema for experiments that extend others."""
    about = "An experiment that extends another one: `key: null` drops a key that it inherits."
    head: _Part = {"$schema": _DIALECT, "$id": address(EXTENDING), "title": "Extending experiment"}
    relaxed = _Relaxed()
    relaxed.reference("#/$defs/document", "experiment")
    while relaxed.waiting:
        relaxed.define(relaxed.waiting.pop())
    definitions: _Part = {where: relaxed.made[where] for where in sorted(relaxed.made)}
    return _as_text({**head, "description": about, "$ref": "#/$defs/experiment-document", "$defs": definitions})


class _Relaxed:
    """Copies of definitions in which keys may be null or missing, except in lists, which replace inherited ones."""

    def __init__(self) -> None:
        self.made: _Part = {}
        self.waiting: list[tuple[str, str]] = []
        """Definitions to be copied: their file, and their path."""
        self._files: dict[str, _Part] = {}

    def reference(self, to: str, file: str) -> str:
        """Return the reference to the copy of a definition that ``file`` refers to."""
        name, _, where = to.partition("#/$defs/")
        file = name.removesuffix(".schema.json") or file
        copy = _copy_of(file, where)
        if copy not in self.made:
            self.made[copy] = {}
            self.waiting.append((file, where))
        return f"#/$defs/{copy}"

    def define(self, which: tuple[str, str]) -> None:
        """Add the copy of a definition."""
        file, where = which
        if file not in self._files:
            self._files[file] = as_map(json.loads(text_of(file)))
        self.made[_copy_of(file, where)] = self._copy(_at(self._files[file], ("$defs", *where.split("/"))), file)

    def _copy(self, node: Json, file: str) -> Json:
        if isinstance(node, list):
            return [self._copy(one, file) for one in node]
        if not isinstance(node, dict):
            return node
        made: _Part = {}
        for word, value in node.items():
            if word == "$ref":
                made[word] = self.reference(str(value), file)
            elif word == "required":
                continue  # what is required may be inherited
            elif word == "additionalProperties" and isinstance(value, dict):
                made[word] = self._or_null("", value, file)
            elif word == "properties":
                made[word] = {key: self._or_null(key, part, file) for key, part in as_map(value).items()}
            else:
                made[word] = self._copy(value, file) if word in _HOLDING else _absolute(value, file)
        return made

    def _or_null(self, key: str, part: Json, file: str) -> Json:
        if key in _OWN:
            return _absolute(part, file)
        copy = as_map(self._copy(part, file))
        about = {"description": copy.pop("description")} if "description" in copy else {}
        return {**about, "anyOf": [copy, {"type": "null"}]}


def _copy_of(file: str, where: str) -> str:
    """Return the name of a definition's copy."""
    return f"{file}-{where.replace('/', '-')}"


_HOLDING: Final = ("then", "else", "allOf")
"""Keywords whose values are schemas of the same value."""
_OWN: Final = ("apiVersion", "kind", "metadata", "extends", *TEST_KEYS)
"""Keys that no experiment inherits."""


def _absolute(node: Json, file: str) -> Json:
    """Return a part of a schema with references that say their file."""
    if isinstance(node, list):
        return [_absolute(one, file) for one in node]
    if not isinstance(node, dict):
        return node
    named = {word: _absolute(value, file) for word, value in node.items()}
    if str(node.get("$ref", "")).startswith("#"):
        named["$ref"] = f"{file}.schema.json{node['$ref']}"
    return named


def _as_text(made: Json) -> str:
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def map_of(kind: type) -> tuple[_Part, _Part]:
    """The schema of the map that a class describes, and the definitions that it needs."""
    file = _File("")
    return file.map(keys_of(kind)), file.made


def _remembering(name: str, made: _Part) -> _Part:
    """Add what the existing file says about plug-ins: their order, and the names of their definitions."""
    old = as_map(schema(name)["$defs"])
    definitions = as_map(made["$defs"])
    for row in POINTS:
        if row.schema == name:
            _remember(_at(old, row.below), _at(definitions, row.below), "kind")
    if name == LATENCY.path:
        _remember(as_map(old["document"]), as_map(definitions["document"]), "step_time")
    made["$defs"] = {**definitions, **{where: part for where, part in old.items() if where not in definitions}}
    return made


def _remember(old: _Part, made: _Part, key: str) -> None:
    """The plug-ins of a plug point in the order of the existing file."""
    inner = as_map(as_map(old.get("properties")).get(key)), as_map(as_map(made.get("properties")).get(key))
    for before, now in ((old, made), inner):
        now.update({word: before[word] for word in ("enum", "enumDescriptions", "allOf") if word in before})


def _at(node: _Part, path: tuple[str, ...]) -> _Part:
    for step in path:
        node = as_map(node[step])
    return node


def _about(definition: Definition) -> str:
    """Description of a definition: the first sentence of its class."""
    return definition.doc or (inspect.getdoc(definition.of) or "").splitlines()[0]


class _File:
    """A schema under construction."""

    def __init__(self, name: str) -> None:
        self.made: _Part = {}
        self._references = {
            definition.of: f"{'' if file == name else f'{file}.schema.json'}#/$defs/{where}"
            for file, definitions in DEFINITIONS.items()
            for where, definition in definitions.items()
            if definition.of is not None
        }

    def define(self, where: str, definition: Definition) -> None:
        """Add a definition."""
        made: _Part = {} if definition.nameless else {"description": _about(definition)}
        if definition.point:
            made |= _plugged(definition.short)
        if definition.of is not None:
            made |= self.map(keys_of(definition.of), is_open=definition.open)
        if definition.kind:
            about = f"What this document is: `{definition.kind}`."
            made["properties"] = {
                "apiVersion": {"description": "Version of the document format.", "const": "blis/v1"},
                "kind": {"description": about, "const": definition.kind},
                "metadata": {"description": "Name and purpose of this document.", "$ref": METADATA},
                **as_map(made["properties"]),
            }
        self.made[where] = {**made, **_plain(definition.limits)}

    def map(self, keys: _Keys, *, is_open: bool = False) -> _Part:
        """The schema of a map with these keys."""
        properties: _Part = {}
        required: list[Json] = []
        for name, (one, annotation) in keys.items():
            called = one.name or name
            if one.kind == GROUP:
                within = {
                    key: (each._replace(group=""), kind) for key, (each, kind) in keys.items() if each.group == called
                }
                properties[called] = {"description": one.doc, **self.map(within), **_more(one)}
            elif not one.group:
                properties[called] = self._node(name, one, annotation)
            if one.is_required and not one.group:
                required.append(called)
        made: _Part = {"type": "object", "properties": properties}
        if required:
            made["required"] = required
        return made if is_open else {**made, "additionalProperties": False}

    def _node(self, name: str, key: Key, annotation: str) -> _Part:
        """The schema of a key's value."""
        about: _Part = {"description": key.doc} if key.doc else {}
        return {**about, **self._kind(name, key, annotation), **_more(key)}

    def _kind(self, name: str, key: Key, annotation: str) -> _Part:
        kind = key.kind
        if key.point:
            return {} if annotation == "str" or "$ref" in key.limits else _plugged("string")
        if key.variants is not None:
            return self._variants(key.variants, name)
        if key.words and annotation.startswith(("int", "float")):
            number = "integer" if annotation.startswith("int") else "number"
            return {"type": [number, "string"], "if": {"type": "string"}, "then": {"enum": list(key.words)}}
        if key.words:
            texts = {"enumDescriptions": list(key.words.values())} if isinstance(key.words, dict) else {}
            return {"enum": list(key.words), **texts}
        if key.within is not None:
            return {"properties": self.map(keys_of(key.within))["properties"]}
        if key.values is not None:
            return {"additionalProperties": {**self._of_class(key.values, described=True), **_plain(key.each)}}
        if isinstance(kind, str):
            return {"$ref": kind} if "#" in kind else self.map(keys_of(SHAPES[kind]))
        if isinstance(kind, tuple):
            return {"type": "array", "items": {**self._each(kind[0]), **_plain(key.each)}}
        if isinstance(kind, type) and kind.__name__ not in _TYPES:
            return self._of_class(kind, described=False)
        if kind is not None and not isinstance(kind, type):
            return self.map({name: (each, "") for name, each in kind.items()})
        annotation = kind.__name__ if isinstance(kind, type) else annotation
        types = [_TYPES[word.partition("[")[0]] for word in annotation.split(" | ") if word.partition("[")[0] in _TYPES]
        types += ["null"] if key.default is None else []
        return {"type": types[0] if len(types) == 1 else list(types)} if types else {}

    def _each(self, kind: type | str) -> _Part:
        """The schema of a list's items."""
        return {"$ref": kind} if isinstance(kind, str) else self._of_class(kind, described=True)

    def _of_class(self, kind: type, *, described: bool) -> _Part:
        if kind in self._references:
            return {"$ref": self._references[kind]}
        about: _Part = {"description": (inspect.getdoc(kind) or "").splitlines()[0]} if described else {}
        return {**about, **self.map(keys_of(kind))}

    def _variants(self, variants: Variants, prefix: str) -> _Part:
        """A map whose ``kind`` decides its other keys, and the definitions of its kinds."""
        alone: list[Json] = []
        rules: list[Json] = []
        for name, (about, kind) in variants.kinds.items():
            keys = {} if kind is None else keys_of(kind)
            if not any(key.is_required for key, _ in keys.values()):
                alone.append(name)
            condition: _Part = {"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]}
            rules.append({"if": condition, "then": {"$ref": f"#/$defs/{variants.prefix or prefix}-{name}"}})
            made = self.map(keys)
            made["properties"] = {"kind": {"description": about, "const": name}, **as_map(made["properties"])}
            made["required"] = ["kind", *as_list(made.get("required"))]
            if variants.has_keys:
                self.made[f"{variants.prefix or prefix}-{name}"] = {"description": about, **made}
        texts: _Part = {"enum": [*variants.kinds], "enumDescriptions": [about for about, _ in variants.kinds.values()]}
        made = {
            "type": ["object", "string"],
            "required": ["kind"],
            "properties": {"kind": {"description": variants.which, **texts}},
        }
        made |= {"allOf": rules} if variants.has_keys else {"additionalProperties": False}
        return {**made, "if": {"type": "string"}, "then": {"enum": alone}}


def _more(key: Key) -> _Part:
    return {**_plain(key.limits), **({} if key.default is MISSING else {"default": _json(key.default)})}


def _plugged(short: str) -> _Part:
    """A map with a ``kind``, whose names and other keys plug-ins decide."""
    made: _Part = {"type": ["object", short], "required": ["kind"], "properties": {"kind": {"description": WHICH}}}
    return {**made, "if": {"type": "string"}, "then": {}} if short == "string" else made


def _plain(limits: Mapping[str, object]) -> _Part:
    return {key: _json(value) for key, value in limits.items()}


def _json(value: object) -> Json:
    """Convert to what JSON would read back."""
    found: Json = json.loads(json.dumps(value))
    return found


def _in_order_of(old: Json, new: Json, key: str = "") -> Json:
    """``new`` in the order of ``old``: keywords and rules, but not the keys of documents."""
    if isinstance(old, list) and isinstance(new, list):
        listed = sorted(new, key=lambda one: old.index(one) if one in old else len(old)) if key == "allOf" else new
        return [_in_order_of(before, now) for before, now in zip_longest(old[: len(new)], listed)]
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    first = [] if key == "properties" else [word for word in old if word in new]
    return {word: _in_order_of(old.get(word), new[word], word) for word in dict.fromkeys((*first, *new))}


if __name__ == "__main__":
    folder = schema_path("latency").parent
    files = {f"{name}.schema.json": published(name) for name in NAMES}
    write_tree(folder, {**files, f"{EXTENDING}.schema.json": extending()}, replace=True)
    (_ROOT / "docs" / "schemastore.json").write_text(catalog(), encoding="utf-8")
    sys.stderr.write(f"wrote {len(files) + 1} schemas to {folder}\n")
