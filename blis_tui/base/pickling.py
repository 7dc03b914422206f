"""Pickling of attributes by name, the same for compiled and interpreted classes.

Compiled classes have neither ``__slots__`` nor a ``__dict__``. With this base class, both kinds pickle alike, so that
checkpoints can move between compiled and plain Python installations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

from blis_tui.base.classes import mypyc_attr

if TYPE_CHECKING:
    from collections.abc import Iterable

COMPILED: Final = not __file__.endswith(".py")
"""Whether this installation is compiled."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Picklable:
    """Pickles as the attributes that are set, by name."""

    __slots__ = ()

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        kind = type(self)
        names = _NAMES.get(kind)
        if names is None:
            attributes: list[str] = []
            for base in kind.__mro__:
                # Compiled classes list their own attributes and those of their bases.
                slots = base.__dict__.get("__mypyc_attrs__") or base.__dict__.get("__slots__")
                if slots:
                    attributes += slots if base.__module__.startswith(_PACKAGE_PREFIX) else _slots(base)
            names = _NAMES[kind] = tuple(attributes)
        values: dict[str, object] = {}
        for name in names:
            try:
                values[name] = getattr(self, name)
            except AttributeError:
                continue
        values.update(getattr(self, "__dict__", {}))
        return None, values


_NAMES: Final[dict[type, tuple[str, ...]]] = {}
"""Class -> possible attributes of its objects."""


def own_attributes(instance: object) -> dict[str, object]:
    """Return the attributes that a plug-in's class adds to those of this package's classes."""
    if is_internal_class(type(instance)):
        return {}
    names = [name for base in type(instance).__mro__ if not is_internal_class(base) for name in _slots(base)]
    values = {name: getattr(instance, name) for name in names if hasattr(instance, name)}
    values.update(getattr(instance, "__dict__", {}))
    return values


def is_internal_class(kind: type) -> bool:
    """Whether a class belongs to this package."""
    return kind.__module__.startswith(_PACKAGE_PREFIX)


def is_internal_object(instance: object) -> bool:
    """Whether a function is one of this package, or an object of a class of it."""
    module: str | None = getattr(instance, "__module__", None)  # None of methods of built-in objects
    return module is not None and module.startswith(_PACKAGE_PREFIX)


def stateful_plugins(*parts: object) -> tuple[Stateful, ...]:
    """Return parts of plug-ins that have a ``state()``, at plug points where it is optional (for digests)."""
    plugged = [part.plugged if isinstance(part, ValidatedPlugin) else part for part in parts]
    return tuple(
        [
            cast("Stateful", plugin)
            for plugin in plugged
            if not is_internal_class(type(plugin)) and hasattr(plugin, "state")
        ]
    )


class Stateful(Protocol):
    """An object with a ``state()``."""

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers as plain values."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ValidatedPlugin(Picklable):
    """Wraps a plug-in and validates its answers.

    Attributes:
        plugged: the plug-in.
    """

    __slots__ = ("plugged",)

    def __init__(self, plugged: object) -> None:
        self.plugged = plugged


_PACKAGE_PREFIX: Final = f"{__name__.partition('.')[0]}."


def _slots(kind: type) -> list[str]:
    """Return the attributes that a class has slots for, by their (mangled) names in objects."""
    slots: str | Iterable[str] = kind.__dict__.get("__slots__", ())
    names, owner = [slots] if isinstance(slots, str) else [*slots], kind.__name__.lstrip("_")
    return [
        f"_{owner}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    ]
