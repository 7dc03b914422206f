"""The schemas as a tree of keys, for ``explain``, ``new``, completion and the reference pages.

Everything is read from ``schemas/``, except for the unit, which is part of a key's name.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from blis_tui.base.classes import dataclass
from blis_tui.base.source import as_list, as_map
from blis_tui.model.keys import SMALLEST
from blis_tui.spec.schema import File, referred, schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.base.source import Json
    from blis_tui.model.plug_ins import Registry

_Part: TypeAlias = "dict[str, Json]"

_TYPES: Final = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "object": "map",
    "array": "list",
    "null": "null",
}
_UNITS: Final = {
    "_tb_per_s": "TB/s",
    "_gb_per_s": "GB/s",
    "_tokens_per_s": "tokens/s",
    "_per_s": "1/s",
    "_per_hour_usd": "US dollars per hour",
    "_us": "microseconds",
    "_ms": "milliseconds",
    "_s": "seconds",
    "_gib": "GiB",
    "_tflops": "TFLOPS",
    "_tokens": "tokens",
    "_blocks": "blocks",
    "_watts": "watts",
}
"""Suffix of a key's name -> unit; the first match counts."""

_UNIT_OF_PARENT: Final = frozenset(
    {"mean", "std_dev", "min", "max", "value", "xm", "bf16", "fp8", "idle", "peak", "memory_bound"}
)
"""Keys without a unit in their names, which have that of their parent: `input_tokens.mean` is in tokens."""

DISCRIMINATORS: Final = ("kind", "step_time")
"""Keys whose value determines which other keys exist."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A word that a key accepts."""

    value: str
    description: str


@dataclass(frozen=True, slots=True)
class Variant:
    """The keys of a map for one value of its ``kind``."""

    value: str
    description: str
    keys: Mapping[str, Key]


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a document with everything that its schema says."""

    name: str
    path: tuple[str, ...]
    """Keys from the document's root, without list positions."""
    description: str
    type: str
    required: bool = False
    default: Json = None
    has_default: bool = False
    range: str = ""
    choices: tuple[Choice, ...] = ()
    examples: tuple[Json, ...] = ()
    document: str = ""
    """The kind of document allowed here by name, by path or inline; empty = none."""
    is_list: bool = False
    """Whether it is a list; ``children`` are then those of an entry."""
    open: bool = False
    """Whether it accepts arbitrary keys."""
    children: Mapping[str, Key] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()
    only: str = ""
    """The value of ``kind`` that it requires; empty = it always exists."""

    @property
    def dotted(self) -> str:
        """The path for ``--set``, without list positions."""
        return ".".join(self.path)

    def shown(self, kind: str) -> str:
        """Return the path for ``explain``, for a key of a document of a kind."""
        return self.dotted if kind == "Experiment" else f"{kind}.{self.dotted}"

    @property
    def unit(self) -> str:
        """The unit, as stated by the name; texts have none."""
        if self.type == "text":
            return ""
        named = self.path[-2] if self.name in _UNIT_OF_PARENT and len(self.path) > 1 else self.name
        return next((unit for ending, unit in _UNITS.items() if f"_{named}".endswith(ending)), "")

    def as_variant(self, variant: Variant) -> Key:
        """Return the key with the children of one ``kind`` only."""
        own = {name: key for name, key in self.children.items() if name not in variant.keys}
        return replace(
            self, description=variant.description, children={**own, **variant.keys}, variants=(), only=variant.value
        )

    @property
    def discriminator(self) -> tuple[Choice, ...]:
        """The words that determine which keys exist below; empty if nothing does."""
        return next((self.children[name].choices for name in DISCRIMINATORS if name in self.children), ())

    def names(self) -> tuple[str, ...]:
        """Return all keys directly below, including those of every variant."""
        listed = [*self.children, *(name for variant in self.variants for name in variant.keys)]
        return tuple(dict.fromkeys(listed))

    def walk(self) -> Iterator[Key]:
        """Yield this key and everything below, in the order of the schema."""
        yield self
        for child in self.children.values():
            yield from child.walk()
        for variant in self.variants:
            for child in variant.keys.values():
                yield from child.walk()


@cache
def root(kind: str, plugins: Registry | None = None) -> Key:
    """Return the tree of a kind of document, such as ``Policy``; its ``children`` are the top-level keys.

    ``plugins`` are the plug-ins that it may name; None = those of this package.

    Raises:
        InputError: the installation lacks the schema.
    """
    name = kind.lower()
    return replace(_Builder(File(name, plugins)).key(schema(name, plugins), (), required=False), name=kind)


@cache
def every_key(kind: str, plugins: Registry | None = None) -> tuple[Key, ...]:
    """Return all keys of a kind of document in the order of :meth:`Key.walk`, the root first."""
    return tuple(root(kind, plugins).walk())


@dataclass(frozen=True, slots=True)
class _Builder:
    """Converts parts of a schema file to keys."""

    file: File
    inside: frozenset[str] = frozenset()
    """References that are being followed; a recursive one ends the tree."""

    def key(self, part: Json, path: tuple[str, ...], *, required: bool, only: str = "") -> Key:
        node, builder = self.merged(part)
        document = ""
        then = node.get("then")
        if node.get("if") == {"type": "object"} and isinstance(then, dict):
            document = str(then.get("$ref", "")).partition(".")[0].capitalize()
            body, inside = self.merged(then)
            keep: _Part = {name: node[name] for name in ("description", "default", "examples") if name in node}
            node, builder = {**body, **keep}, inside
        entry, entry_builder = builder.merged(node["items"]) if "items" in node else (node, builder)
        variants = entry_builder.variants(entry, path)
        choices = {variant.value: variant.description for variant in variants}
        children = entry_builder.children(entry, path, skip_header=bool(document))
        if node.get("x-partial"):
            children = {name: replace(key, default=None, has_default=False) for name, key in children.items()}
        for name in DISCRIMINATORS:
            if variants and name in children:
                known = children[name].choices
                described = tuple(
                    Choice(choice.value, choice.description or choices.get(choice.value, "")) for choice in known
                )
                children[name] = replace(children[name], choices=described)
        name = path[-1] if path else ""
        return Key(
            name=name,
            path=path,
            description=str(node.get("description", "")),
            type="name, path or map" if document else _type(node, entry),
            required=required,
            default=node.get("default"),
            has_default="default" in node,
            range=range_of(node) or range_of(entry),
            choices=() if "properties" in node else _choices(node),
            examples=tuple(as_list(node.get("examples"))),
            document=document,
            is_list="items" in node,
            open=isinstance(entry.get("additionalProperties"), dict) or _is_open(entry),
            children=children,
            variants=variants,
            only=only,
        )

    def merged(self, part: Json) -> tuple[_Part, _Builder]:
        """Return the part merged into the target of its ``$ref``, and the builder for the target's references."""
        node = as_map(part)
        if not isinstance(reference := node.get("$ref"), str):
            return node, self
        own: _Part = {key: value for key, value in node.items() if key != "$ref"}
        target, file = referred(reference, self.file)
        place = f"{file.name}#{reference.partition('#')[2]}"
        if place in self.inside:
            return {"type": "object", **own}, self
        base, builder = _Builder(file, self.inside | {place}).merged(target)
        # A referenced definition says what a key accepts, but not its default.
        both = {**{key: value for key, value in base.items() if key != "default"}, **own}
        if "required" in both:
            both["required"] = [*_texts(node.get("required")), *_texts(base.get("required"))]
        return both, builder

    def children(self, node: _Part, path: tuple[str, ...], *, skip_header: bool) -> dict[str, Key]:
        if "properties" not in node and "anyOf" in as_map(node.get("if")):  # one of two kinds of map, by its keys
            kinds = [self.merged(node.get(branch)) for branch in ("else", "then")]
            sides = [inside.children({**kind, "required": []}, path, skip_header=False) for kind, inside in kinds]
            return {**sides[0], **{name: key for name, key in sides[1].items() if name not in sides[0]}}
        required = _texts(node.get("required")) + _texts(as_map(node.get("else")).get("required"))
        hidden = ("apiVersion", "kind") if skip_header else ()
        return {
            name: self.key(part, (*path, name), required=name in required)
            for name, part in as_map(node.get("properties")).items()
            if name not in hidden
        }

    def variants(self, node: _Part, path: tuple[str, ...]) -> tuple[Variant, ...]:
        variants = []
        known = as_map(node.get("properties"))
        for rule in as_list(node.get("allOf")):
            value = _condition(as_map(rule))
            if value is None:
                continue
            then, builder = self.merged(as_map(rule).get("then"))
            required = _texts(then.get("required"))
            keys = {
                name: builder.key(part, (*path, name), required=name in required, only=value)
                for name, part in as_map(then.get("properties")).items()
                if name not in known
            }
            variants.append(Variant(value, str(then.get("description", "")), keys))
        return tuple(variants)


def _condition(rule: _Part) -> str | None:
    """Return the value of ``kind`` in a rule of ``allOf``."""
    properties = as_map(as_map(rule.get("if")).get("properties"))
    for name in DISCRIMINATORS:
        wanted = as_map(properties.get(name)).get("const")
        if isinstance(wanted, str):
            return wanted
    return None


def _choices(node: _Part) -> tuple[Choice, ...]:
    """Return the words that a key accepts, with their meanings."""
    if "const" in node:
        return (Choice(str(node["const"]), ""),)
    words = node.get("enum")
    if words is None and "string" in str(node.get("type")):
        words = as_map(node.get("then")).get("enum")
        node = as_map(node.get("then"))
    texts = [str(text) for text in as_list(node.get("enumDescriptions"))]
    listed = [str(word) for word in as_list(words)]
    texts += [""] * (len(listed) - len(texts))
    return tuple(Choice(word, text) for word, text in zip(listed, texts, strict=False))


def _type(node: _Part, entry: _Part) -> str:
    """Return what a key accepts, in words."""
    if "items" in node:
        inner = _type(entry, {})
        listed = "list" if inner == "list" else f"list of {_PLURALS.get(inner, inner)}"
        types = node.get("type")
        others = (
            [_TYPES[str(name)] for name in types if name not in ("array", "null")] if isinstance(types, list) else []
        )
        return " or ".join([*others, listed])
    types = node.get("type")
    names = [str(name) for name in types] if isinstance(types, list) else [str(types)] if types else []
    words = as_list(as_map(node.get("then")).get("enum"))
    if words and "properties" in node:
        return "map, or its kind alone"
    if words and "string" in names:
        names.remove("string")
    if not names and ("enum" in node or "const" in node):
        return "word"
    nouns = [_TYPES.get(name, name) for name in names] + [f"`{word}`" for word in words]
    if not nouns:
        return "map" if "properties" in node else "anything"
    return nouns[0] if len(nouns) == 1 else ", ".join(nouns[:-1]) + f" or {nouns[-1]}"


_PLURALS: Final = {
    "map": "maps",
    "map, or its kind alone": "maps, or their kinds alone",
    "number": "numbers",
    "whole number": "whole numbers",
    "text": "texts",
}


def range_of(node: _Part) -> str:
    """Return the limits of a number or a size, in words."""
    low, high = node.get("minimum"), node.get("maximum")
    above, below = node.get("exclusiveMinimum"), node.get("exclusiveMaximum")
    if low == SMALLEST:
        low, above = None, 0
    parts = []
    if above is not None:
        parts.append(f"more than {_number(above)}")
    if low is not None and high is not None:
        parts.append(f"{_number(low)} to {_number(high)}")
    elif low is not None:
        parts.append(f"at least {_number(low)}")
    elif high is not None:
        parts.append(f"at most {_number(high)}")
    if below is not None:
        parts.append(f"less than {_number(below)}")
    fewest, most = node.get("minItems"), node.get("maxItems")
    if fewest is not None and fewest == most:
        parts.append(f"exactly {fewest} entries" if fewest else "empty")
    else:
        parts += [f"at least {fewest} {'entry' if fewest == 1 else 'entries'}"] if fewest else []
        parts += [f"at most {most} entries"] if most is not None else []
    return ", ".join(parts)


def _number(value: Json) -> str:
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def _is_open(node: _Part) -> bool:
    return (
        node.get("type") == "object"
        and "properties" in node
        and "additionalProperties" not in node
        and ("allOf" not in node)
    )


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(str(text) for text in as_list(value))
