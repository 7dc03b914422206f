"""Keys of documents, each stated once: what it means, its unit, its range, and what holds where a document is silent.

A key is a field of a frozen dataclass, made by one of the functions below; the field's type is the key's. Schemas,
reference pages, defaults and decoding (``blis_tui.spec.decode``) follow from that. What a document says but no record
holds, because something else follows from it, is a class variable made by :func:`said`::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Cluster:
        instances: ClassVar[Said] = said(int, "Number of engine instances.", default=1, minimum=1)
        routing_latency_us: int = key("Time from admission to arrival at an instance.", default=0, minimum=0)
"""

from __future__ import annotations

from dataclasses import MISSING, Field, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, cast

from blis_tui.classes import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

F = TypeVar("F")

Kind: TypeAlias = "type | tuple[type | str] | Mapping[str, Key] | str | None"
"""What stands at a key: a plain type; the class of a map (in a tuple: a list of such); a map with these keys; the name
of a definition that other code has; or what the field's type or the limits say (None)."""

GROUP: Final = "group"
"""The kind of a map whose keys are fields of the record around it."""
WHICH: Final = "The kind; it determines the other keys."
"""The description of a ``kind`` whose map has other keys."""
AUTO: Final = "auto"
"""The word for a number that is worked out from others before a record is made; other words stand for None."""


class Said(Protocol):
    """What a document says that no record holds."""


class Variants(NamedTuple):
    """What a map may be whose ``kind`` decides its other keys."""

    kinds: Mapping[str, tuple[str, type | None]]
    """What each kind means, and the class of its other keys; None = it has none."""
    prefix: str
    """What the names of their definitions begin with; empty = the key."""
    which: str
    """The description of ``kind``."""

    @property
    def has_keys(self) -> bool:
        """Whether any of them has other keys."""
        return any(keys is not None for _, keys in self.kinds.values())


class Key(NamedTuple):
    """One key of a document."""

    doc: str
    """What it means, with its unit; it becomes the schema's description."""
    limits: Mapping[str, object]
    """Further keywords of JSON Schema: ranges, patterns, examples."""
    default: object = MISSING
    """What holds where a document is silent, as it would say it; the loader fills it in. MISSING = nothing."""
    optional: bool = False
    """Whether documents may leave it out with nothing filled in."""
    name: str = ""
    """Its name in documents, where the field has another one."""
    group: str = ""
    """The key of the map that it stands in; empty = it stands beside the others."""
    kind: Kind = None
    """What stands there; None = what the field's type or the limits say."""
    each: Mapping[str, object] = MappingProxyType({})
    """The same for each in a list, or for each value of a map."""
    within: type | None = None
    """The class of keys that a map may have among others."""
    values: type | None = None
    """The class of the values of a map whose keys are data."""
    words: Mapping[str, str] | Sequence[str] = ()
    """Words that may stand there, with what each means."""
    point: str = ""
    """The plug point whose plug-ins may stand there."""
    variants: Variants | None = None
    """For a map whose ``kind`` decides its other keys."""

    @property
    def is_required(self) -> bool:
        """Whether documents must say it."""
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
    """A plain value.

    Args:
        doc: what it means, with its unit.
        default: what the loader fills in.
        absent: what a record has where a document leaves it out; nothing is filled in.
        optional: whether a document may leave it out, and what a record has then follows from something else.
        name: its name in documents, where the field has another one.
        group: the key of the map that it stands in (see :func:`group_of`).
        kind: what stands there, where the field's type does not say it.
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
    """One of some words, each with what it means."""
    optional = absent is not MISSING
    about = Key(doc=doc, limits=limits, default=default, optional=optional, name=name, group=group, words=words)
    return _field(about, absent if optional else cast("F", default))


def amount(doc: str, words: Sequence[str], *, default: F | str, **limits: object) -> F:
    """A number or a word: ``auto`` is replaced before a record is made, every other word means None."""
    about = Key(doc=doc, limits=limits, default=default, words=words)
    return _field(about, cast("F", None if isinstance(default, str) and default != AUTO else MISSING))


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
    """A map of its own, or a list of such.

    Args:
        doc: what it means.
        kind: the class that says its keys; in a tuple, that of each in a list.
        default: what the loader fills in.
        absent: what a record has where a document leaves it out; nothing is filled in.
        filled: whether a record then has one of its own, with all defaults.
        optional: as of :func:`key`.
        required: whether it must be there although a record has something without it.
        name: as of :func:`key`.
        group: as of :func:`key`.
        each: further keywords of JSON Schema for each in a list.
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
    """A map whose ``kind`` decides its other keys; no plug-ins can join.

    Args:
        doc: what it means.
        kinds: what each kind means, and the class of its other keys.
        default: what the loader fills in.
        absent: what a record has where a document leaves it out.
        prefix: what the names of their definitions in the schema begin with; empty = the key's.
        which: the description of ``kind``.
        limits: further keywords of JSON Schema.
    """
    alone = not any(keys for _, keys in kinds.values())
    found = Variants(kinds, prefix, which or ("The kind." if alone else WHICH))
    optional = absent is not MISSING
    return _field(Key(doc=doc, limits=limits, default=default, optional=optional, variants=found), absent)


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
    """A plug-in: a ``PluginConfig``, or its bare name where the plug-ins of that plug point have no settings.

    Args:
        point: the key of the plug point, such as ``policy.routing``.
        doc: what it means.
        default: what the loader fills in.
        absent: as of :func:`key`.
        optional: as of :func:`key`.
        name: as of :func:`key`.
        group: as of :func:`key`.
        ref: where the schemas say what may stand there; empty = here.
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


def said(
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
) -> Said:
    """A key that is no field of a record: what is made of it, other code says."""
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
    return cast("Said", field(metadata={"key": about}))


def entry(kind: Kind, doc: str, *, default: object = MISSING, **limits: object) -> Key:
    """A key of a map whose keys are data, such as service classes."""
    return Key(doc=doc, limits=limits, default=default, optional=default is MISSING, kind=kind)


def group_of(doc: str, *, default: object = MISSING, required: bool = False, name: str = "", **limits: object) -> Said:
    """The map that some of the fields stand in, which is none of the record."""
    return said(GROUP, doc, default=default, required=required, name=name, raw=limits)


def _field(about: Key, default: F | None) -> F:
    if isinstance(default, dict | list):
        return cast("F", field(default_factory=default.copy, metadata={"key": about}))
    return field(default=cast("F", default), metadata={"key": about})


def keys_of(kind: type) -> dict[str, tuple[Key, str]]:
    """The keys that a class says, by the names of its fields and with their types, in its order."""
    own = vars(kind)
    there = {**own, **own.get("__dataclass_fields__", {})}  # class variables are no fields
    types = own.get("__annotations__", {})
    listed = [(name, there.get(name)) for name in (types or there)]
    return {
        name: (one.metadata["key"], str(types.get(name, "")))
        for name, one in listed
        if isinstance(one, Field) and "key" in one.metadata
    }
