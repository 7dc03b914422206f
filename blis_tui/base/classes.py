"""Data classes and named tuples that are cheap to define.

The standard library generates and compiles the methods of each data class at import. That took more than half of the
time before a run began, although most of the methods are never called. The :func:`dataclass` here compiles only
``__init__``, and only after several objects have been created. Everything else works as in the standard library:
``fields``, ``replace``, ``asdict``, patterns, pickling, slots, and inheritance. ``typing`` also compiles each
annotation of a named tuple; the :class:`NamedTuple` here compiles none. Type checkers see the standard library's
versions.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from copy import copy
from dataclasses import MISSING, Field, FrozenInstanceError
from inspect import get_annotations
from itertools import chain
from operator import attrgetter, ge, gt, le, lt
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  (re-exported)
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414  (re-exported)

    from mypy_extensions import mypyc_attr as mypyc_attr  # noqa: PLC0414  (re-exported)

    Method = Callable[..., object]

_Class = TypeVar("_Class", bound=type)

_FIELDS: Final = "__dataclass_fields__"
_PARAMETERS: Final = "__dataclass_params__"
_FACTORY: Final = object()
"""Placeholder for an argument that a factory creates."""
_UNCOMPILED: Final = 32
"""Number of objects whose creation without a compiled ``__init__`` takes less time than compiling one."""


def _dataclass(
    cls: type | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    eq: bool = True,
    order: bool = False,
) -> type | Callable[[type], type]:
    """Do the same as :func:`dataclasses.dataclass`, in modules that postpone annotations; no ``InitVar``."""

    def make(cls: type) -> type:
        fields = _fields(cls, kw_only=kw_only)
        setattr(cls, _FIELDS, fields)
        setattr(cls, _PARAMETERS, _FROZEN if frozen else _OPEN)
        if "__match_args__" not in cls.__dict__:
            names = [field.name for field in fields.values() if field.init and not field.kw_only]
            setattr(cls, "__match_args__", tuple(names))  # noqa: B010  (mypy rejects the assignment)
        if slots:
            cls = _with_slots(cls, tuple(fields))
        methods: dict[str, Method | None] = {"__init__": _init(cls), "__repr__": _repr}
        if eq:
            methods |= _comparisons(fields.values(), frozen=frozen, order=order)
        if frozen:
            methods |= {"__setattr__": _set, "__delattr__": _delete}
        if frozen and slots:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        # A class that defines `__eq__` has `__hash__` set to None by Python.
        own = cls.__dict__
        for name, method in methods.items():
            if name not in own or (name == "__hash__" and own[name] is None and "__eq__" in own):
                setattr(cls, name, method)
        return cls

    return make if cls is None else make(cls)


def _mypyc_attr(**_: object) -> Callable[[_Class], _Class]:
    """Stand in for the mypyc decorator when nothing is compiled."""
    return lambda cls: cls


class _NamedTuples(type):
    """Creates a named tuple from the body of a class."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
        if not bases:
            return super().__new__(cls, name, bases, body)
        fields: list[str] = [*body.get("__annotations__", ())]  # type: ignore[misc]
        defaults = [body.pop(field) for field in fields if field in body]
        made = namedtuple(name, fields, defaults=defaults, module=str(body["__module__"]))  # type: ignore[misc]  # noqa: PYI024
        for key, value in body.items():
            setattr(made, key, value)
        if len(bases) > 1:  # a generic one: its parameters are for readers and type checkers
            setattr(made, "__class_getitem__", classmethod(lambda cls, _: cls))  # noqa: B010  (mypy rejects it otherwise)
        return made


class _NamedTuple(metaclass=_NamedTuples):
    """Does the same as :class:`typing.NamedTuple`, in modules that postpone annotations."""


if not TYPE_CHECKING:
    dataclass = _dataclass
    mypyc_attr = _mypyc_attr
    NamedTuple = _NamedTuple


def _parameters(*, frozen: bool) -> object:
    """Return the object that the standard library looks up in a base class."""
    documented = type("", (), {"__doc__": "Else its signature would be made one."})
    parameters = copy(getattr(dataclasses.dataclass(init=False, repr=False, eq=False)(documented), _PARAMETERS))
    parameters.frozen = frozen
    return parameters


_OPEN: Final = _parameters(frozen=False)
_FROZEN: Final = _parameters(frozen=True)
_FIELD: Final[object] = vars(dataclasses)["_FIELD"]


def _fields(cls: type, *, kw_only: bool) -> dict[str, Field[object]]:
    """Return the fields of a class, those of its bases first."""
    collected: dict[str, Field[object]] = {}
    for base in cls.__mro__[-1:0:-1]:
        collected |= base.__dict__.get(_FIELDS, {})
    for name, annotation in get_annotations(cls).items():
        if annotation == "KW_ONLY":
            kw_only = True
        elif not annotation.startswith("ClassVar"):
            collected[name] = _field(cls, name, annotation, kw_only=kw_only)
    return collected


def _field(cls: type, name: str, annotation: str, *, kw_only: bool) -> Field[object]:
    default = cls.__dict__.get(name, MISSING)
    field: Field[object] = default if isinstance(default, Field) else dataclasses.field(default=default)
    field.name, field.type = name, annotation
    field._field_type = _FIELD  # type: ignore[attr-defined]  # noqa: SLF001  (`fields` looks for it)
    if field.kw_only is MISSING:
        field.kw_only = kw_only
    if field.default.__class__.__hash__ is None:
        raise ValueError(f"mutable default {type(field.default)} for field {name} is not allowed: use default_factory")
    if isinstance(default, Field):
        if field.default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, field.default)
    return field


def _with_slots(cls: type, names: tuple[str, ...]) -> type:
    """Recreate the class with slots for those fields that no base has a slot for."""
    taken = set(chain.from_iterable([base.__dict__.get("__slots__", ()) for base in cls.__mro__[1:]]))
    left_out = {*names, "__dict__", "__weakref__"}
    content = {name: value for name, value in cls.__dict__.items() if name not in left_out}
    content["__slots__"] = tuple([name for name in names if name not in taken])
    made = type(cls)(cls.__name__, cls.__bases__, content)
    made.__qualname__ = cls.__qualname__
    return made


def _init(cls: type) -> Method:
    """Create an ``__init__`` that serves the first few objects, and then replaces itself by a compiled one."""
    fields: tuple[Field[object], ...] = ()
    put: Method = setattr
    finish: Method | None = None
    made = 0

    def __init__(self: object, *args: object, **kwargs: object) -> None:  # noqa: N807  (an actual special method)
        nonlocal fields, put, finish, made
        if not made:
            fields = dataclasses.fields(cls)
            finish = getattr(cls, "__post_init__", None)
            if getattr(cls, _PARAMETERS).frozen:
                put = object.__setattr__
        made += 1
        given, left = kwargs, len(args) + len(kwargs) if made <= _UNCOMPILED else -1
        if args:
            names = [field.name for field in fields if field.init and not field.kw_only]
            given = dict(zip(names, args, strict=False)) | kwargs
        for field in fields if left >= 0 else ():
            name = field.name
            if field.init and name in given:
                left -= 1
                put(self, name, given[name])
            elif field.default is not MISSING:
                put(self, name, field.default)
            elif field.default_factory is not MISSING:
                put(self, name, field.default_factory())
            elif field.init:  # the argument is missing
                left = -1
        if left:  # wrong arguments, for which this raises; or compiling pays from now on
            compiled = _compiled_init(cls)
            setattr(cls, "__init__", compiled)  # noqa: B010  (mypy rejects the assignment)
            compiled(self, *args, **kwargs)
        elif finish is not None:
            finish(self)

    return __init__


def _compiled_init(cls: type) -> Method:
    fields = dataclasses.fields(cls)
    frozen = getattr(cls, _PARAMETERS).frozen
    known: dict[str, object] = {"__name__": cls.__module__, "_set": object.__setattr__, "_FACTORY": _FACTORY}
    parameters: tuple[list[str], list[str]] = ([], [])
    lines = []
    for field in fields:
        name = field.name
        parameter, value = name, name if field.init else ""
        if field.default is not MISSING:
            known[f"_default_{name}"] = field.default
            parameter, value = f"{name}=_default_{name}", value or f"_default_{name}"
        elif field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            made = f"_make_{name}()"
            parameter, value = f"{name}=_FACTORY", f"{made} if {name} is _FACTORY else {name}" if value else made
        if field.init:
            parameters[field.kw_only is True].append(parameter)
        if not value:  # `__post_init__` sets it
            continue
        if not frozen:
            lines.append(f"self.{name} = {value}")
        elif isinstance(slot := getattr(cls, name, None), MemberDescriptorType):
            # Calling the slot's setter directly saves its look-up, a third of the time.
            known[f"_set_{name}"] = slot.__set__
            lines.append(f"_set_{name}(self, {value})")
        else:
            lines.append(f'_set(self, "{name}", {value})')
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    fixed, named = parameters
    header = ", ".join(["self", *fixed, *(["*", *named] if named else [])])
    exec("\n ".join([f"def __init__({header}):", *lines, "pass"]), known)  # noqa: S102  (made from our own fields)
    init = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"  # type: ignore[attr-defined]
    return init  # type: ignore[return-value]


@recursive_repr()
def _repr(self: object) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)  # type: ignore[arg-type]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _values(fields: Iterable[Field[object]]) -> Callable[[object], object]:
    """Return a getter of these fields' values as a tuple."""
    names = [field.name for field in fields]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _comparisons(fields: Iterable[Field[object]], *, frozen: bool, order: bool) -> dict[str, Method | None]:
    compared = [field for field in fields if field.compare]
    values = _values(compared)
    methods: dict[str, Method | None] = {"__hash__": None}

    def __eq__(self: object, other: object) -> bool:  # noqa: N807  (an actual special method)
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    methods["__eq__"] = __eq__
    if frozen:
        hashed = [field for field in fields if (field.compare if field.hash is None else field.hash)]
        key = values if hashed == compared else _values(hashed)
        methods["__hash__"] = lambda self: hash(key(self))
    if order:
        methods |= {f"__{compare.__name__}__": _order(compare, values) for compare in (lt, le, gt, ge)}
    return methods


def _order(compare: Method, values: Callable[[object], object]) -> Method:
    return lambda self, other: compare(values(self), values(other)) if type(self) is type(other) else NotImplemented


def _set(self: object, name: str, value: object) -> None:
    _refuse(self, "assign to", name)
    object.__setattr__(self, name, value)


def _delete(self: object, name: str) -> None:
    _refuse(self, "delete", name)
    object.__delattr__(self, name)


def _refuse(self: object, what: str, name: str) -> None:
    """Refuse to set or delete a field; only subclasses of a frozen class may have other attributes that can be set."""
    if _FIELDS in type(self).__dict__ or name in getattr(self, _FIELDS):
        raise FrozenInstanceError(f"cannot {what} field {name!r}")


def _state(self: object) -> list[object]:
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _set_state(self: object, state: list[object]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=True):
        object.__setattr__(self, name, value)
