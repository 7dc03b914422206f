"""Keys of documents, each defined once: meaning, unit, range, and default.

A key is a field of a frozen dataclass, made by one of the functions below; the field's type is the key's. Schemas,
reference pages, defaults and decoding (``blis_tui.spec.build``) follow from that. A key that no record holds, because
something else is derived from it, is a class variable made by :func:`document_key`::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Cluster:
        instances: ClassVar[Said] = said(int, "Number of engine instances.", default=1, minimum=1)
        routing_latency_us: int = key("Time from admission to arrival at an instance.", default=0, minimum=0)
"""

from __future__ import annotations

from dataclasses import MISSING, Field, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, cast

from blis_tui.base.classes import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

F = TypeVar("F")

Kind: TypeAlias = "type | tuple[type | str] | Mapping[str, Key] | str | None"
"""The type of a key's value: a plain type; the class of a map (in a tuple: a list of such maps); a map with these keys;
the name of a definition in other code; or None = by the field's type or the limits."""

GROUP: Final = "group"
"""The kind of a map whose keys are fields of the surrounding record."""
WHICH: Final = "The kind; it determines the other keys."
"""Description of a ``kind`` whose map has other keys."""
AUTO: Final = "auto"
"""The word for a number that is derived before a record is created; other words stand for None."""
SMALLEST: Final = 1e-9
"""The smallest amount of a key that must be positive: what is divided by it stays a number that times can hold."""
LARGEST: Final = 10**15
"""The largest amount of a key that has no limit of its own; floats hold whole numbers up to nine times that."""
LARGEST_SEED: Final = 2**63 - 1


class DocumentKey(Protocol):
    """A key that no record holds."""


class Variants(NamedTuple):
    """The variants of a map whose ``kind`` decides its other keys."""

    kinds: Mapping[str, tuple[str, type | None]]
    """The meaning of each kind, and the class of its other keys; None = it has none."""
    prefix: str
    """Prefix of the names of their definitions; empty = the key."""
    which: str
    """Description of ``kind``."""

    @property
    def has_keys(self) -> bool:
        """Whether any variant has other keys."""
        return any(keys is not None for _, keys in self.kinds.values())


class Key(NamedTuple):
    """One key of a document."""

    doc: str
    """Its meaning, with its unit; becomes the schema's description."""
    limits: Mapping[str, object]
    """Further keywords of JSON Schema: ranges, patterns, examples."""
    default: object = MISSING
    """The default as written in a document, which the loader fills in; MISSING = there is none."""
    optional: bool = False
    """Whether documents may omit it without anything being filled in."""
    name: str = ""
    """Its name in documents, if different from the field's."""
    group: str = ""
    """The key of the map that contains it; empty = none."""
    kind: Kind = None
    """The type of its value; None = by the field's type or the limits."""
    each: Mapping[str, object] = MappingProxyType({})
    """Further keywords of JSON Schema for each item of a list, or each value of a map."""
    within: type | None = None
    """The class of keys that a map may have in addition to others."""
    values: type | None = None
    """The class of the values of a map whose keys are data."""
    words: Mapping[str, str] | Sequence[str] = ()
    """Words allowed as its value, with their meanings."""
    point: str = ""
    """The plug point whose plug-ins are allowed."""
    variants: Variants | None = None
    """The variants of a map whose ``kind`` decides its other keys."""

    @property
    def is_required(self) -> bool:
        """Whether documents must have it."""
        return not self.optional and self.default is MISSING


def key(
    doc: str,
    *,
    default: F | None = cast("None", MISSING),  # noqa: B008  (a constant)
    absent: F | None = cast("None", MISSING),  # noqa: B008
    optional: bool = False,
    name: str = "",
    group: str = "",
    kind: Kind = None,
    **limits: object,
) -> F:
    """Define a plain value.

    Args:
        doc: its meaning, with its unit.
        default: what the loader fills in.
        absent: the record's value if a document omits it; nothing is filled in.
        optional: whether a document may omit it; the record's value is then derived from something else.
        name: its name in documents, if different from the field's.
        group: the key of the map that contains it (see :func:`group_of`).
        kind: the type of its value, if the field's type does not tell.
        limits: further keywords of JSON Schema, such as ``minimum=0`` or ``examples=(8,)``.
    """
    about = Key(
        doc=doc,
        limits=limits,
        default=default,
        optional=optional or absent is not MISSING,
        name=name,
        group=group,
        kind=kind,
    )
    return _field(about, default if absent is MISSING else absent)


def choice(
    doc: str,
    words: Mapping[str, str] | Sequence[str],
    *,
    default: str = cast("str", MISSING),
    absent: F | None = cast("None", MISSING),  # noqa: B008
    name: str = "",
    group: str = "",
    **limits: object,
) -> F:
    """Define one of some words, with their meanings."""
    optional = absent is not MISSING
    about = Key(doc=doc, limits=limits, default=default, optional=optional, name=name, group=group, words=words)
    return _field(about, absent if optional else cast("F", default))


def amount(
    doc: str,
    words: Sequence[str],
    *,
    default: F | str,
    made: F | None = cast("None", MISSING),  # noqa: B008
    **limits: object,
) -> F:
    """Define a number or a word: ``auto`` is replaced before a record is created; every other word means None.

    ``made`` is the value of a record that is made without a document; without it, such a record must give the value.
    """
    about = Key(doc=doc, limits=limits, default=default, words=words)
    return _field(about, cast("F", None if isinstance(default, str) and default != AUTO else made))


def part(
    doc: str,
    kind: Kind,
    *,
    default: object = MISSING,
    absent: F | None = cast("None", MISSING),  # noqa: B008
    filled: bool = False,
    optional: bool = False,
    required: bool = False,
    name: str = "",
    group: str = "",
    each: Mapping[str, object] | None = None,
    raw: Mapping[str, object] | None = None,
    **limits: object,
) -> F:
    """Define a map with its own class, or a list of such maps.

    Args:
        doc: its meaning.
        kind: the class that defines its keys; in a tuple, the class of each list item.
        default: what the loader fills in.
        absent: the record's value if a document omits it; nothing is filled in.
        filled: whether an omitted map becomes one with all defaults.
        optional: as for :func:`key`.
        required: whether documents must have it although the record has a default.
        name: as for :func:`key`.
        group: as for :func:`key`.
        each: further keywords of JSON Schema for each list item.
        raw: further keywords of JSON Schema that cannot be names in Python.
        limits: further keywords of JSON Schema.
    """
    about = Key(
        doc=doc,
        limits={**(raw or {}), **limits},
        default=default,
        optional=not required and (optional or filled or absent is not MISSING),
        name=name,
        group=group,
        kind=kind,
        each=each or {},
    )
    if isinstance(kind, type) and (filled or default == {}):
        return cast("F", field(default_factory=kind, metadata={"key": about}))
    return _field(about, absent)


def variants(
    doc: str,
    kinds: Mapping[str, tuple[str, type | None]],
    *,
    default: object = MISSING,
    absent: F | None = cast("None", MISSING),  # noqa: B008
    prefix: str = "",
    which: str = "",
    **limits: object,
) -> F:
    """Define a map whose ``kind`` decides its other keys; plug-ins cannot add variants.

    Args:
        doc: its meaning.
        kinds: the meaning of each kind, and the class of its other keys.
        default: what the loader fills in.
        absent: the record's value if a document omits it.
        prefix: prefix of the names of their definitions in the schema; empty = the key's.
        which: description of ``kind``.
        limits: further keywords of JSON Schema.
    """
    alone = not any(keys for _, keys in kinds.values())
    alternatives = Variants(kinds, prefix, which or ("The kind." if alone else WHICH))
    optional = absent is not MISSING
    return _field(Key(doc=doc, limits=limits, default=default, optional=optional, variants=alternatives), absent)


def plug_in(
    point: str,
    doc: str,
    *,
    default: object = MISSING,
    absent: F | None = cast("None", MISSING),  # noqa: B008
    optional: bool = False,
    name: str = "",
    group: str = "",
    ref: str = "",
    **limits: object,
) -> F:
    """Define a plug-in: a ``PluginConfig``, or its bare name if the plug-ins of that plug point have no settings.

    Args:
        point: the key of the plug point, such as ``policy.routing``.
        doc: its meaning.
        default: what the loader fills in.
        absent: as for :func:`key`.
        optional: as for :func:`key`.
        name: as for :func:`key`.
        group: as for :func:`key`.
        ref: where the schemas define its values; empty = here.
        limits: further keywords of JSON Schema.
    """
    about = Key(
        doc=doc,
        limits={"$ref": ref, **limits} if ref else limits,
        default=default,
        optional=optional or absent is not MISSING,
        name=name,
        group=group,
        point=point,
    )
    return _field(about, absent)


def document_key(
    kind: Kind,
    doc: str,
    *,
    default: object = MISSING,
    required: bool = False,
    name: str = "",
    words: Mapping[str, str] | Sequence[str] = (),
    within: type | None = None,
    values: type | None = None,
    each: Mapping[str, object] | None = None,
    raw: Mapping[str, object] | None = None,
    **limits: object,
) -> DocumentKey:
    """Define a key that is not a field of a record; other code processes it."""
    about = Key(
        doc=doc,
        limits={**(raw or {}), **limits},
        default=default,
        optional=not required and default is MISSING,
        name=name,
        kind=kind,
        words=words,
        within=within,
        values=values,
        each=each or {},
    )
    return cast("DocumentKey", field(metadata={"key": about}))


def entry(kind: Kind, doc: str, *, default: object = MISSING, **limits: object) -> Key:
    """Define a key of a map whose keys are data, such as SLO classes."""
    return Key(doc=doc, limits=limits, default=default, optional=default is MISSING, kind=kind)


def group_of(
    doc: str, *, default: object = MISSING, required: bool = False, name: str = "", **limits: object
) -> DocumentKey:
    """Define a map that contains some of the record's fields, without being a record itself."""
    return document_key(GROUP, doc, default=default, required=required, name=name, raw=limits)


def _field(about: Key, default: F | None) -> F:
    if isinstance(default, dict | list):
        return cast("F", field(default_factory=default.copy, metadata={"key": about}))
    return field(default=cast("F", default), metadata={"key": about})


def keys_of(kind: type) -> dict[str, tuple[Key, str]]:
    """Return the keys that a class defines, by field name and with their types, in class order."""
    own = vars(kind)
    there = {**own, **own.get("__dataclass_fields__", {})}  # class variables are not fields
    types = own.get("__annotations__", {})
    listed = [(name, there.get(name)) for name in (types or there)]
    return {
        name: (declared.metadata["key"], str(types.get(name, "")))
        for name, declared in listed
        if isinstance(declared, Field) and "key" in declared.metadata
    }
