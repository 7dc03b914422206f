"""Plug points and plug-ins: every place where a spec names an implementation, and all that may be named there.

An implementation describes itself where it is defined::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Settings:
        capacity_tokens: float = setting("Tokens the bucket holds at most; it starts full.", default=1e4, above=0)

    @ADMISSION.plugin("token-bucket", "A request is admitted when the bucket holds its input tokens.", Settings)
    class TokenBucket: ...

That is all: whoever makes a registry looks through modules for what is so marked, and schemas, reference pages and
factories follow from it. Nothing is registered by importing a module; a registry is a value.
"""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, cast, get_args, get_origin

from blis_tui.errors import BlisError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
F = TypeVar("F")

_MARK: Final = "__blis_plugin__"

_PACKAGES: Final = (
    "blis_tui.cluster.admission",
    "blis_tui.cluster.deciders",
    "blis_tui.cluster.gateway",
    "blis_tui.cluster.routing",
    "blis_tui.cluster.scoring",
    "blis_tui.engine.batching",
    "blis_tui.engine.latency",
    "blis_tui.engine.preemption",
    "blis_tui.engine.scheduling",
    "blis_tui.workload",
    "blis_tui.workload.formats",
)
"""Where this package's own plug-ins are: every module in these packages is looked through."""


_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", Mapping: "object", tuple: "array"}


@dataclass(frozen=True, slots=True)
class NoSettings:
    """For plug-ins that have none."""


def setting(doc: str, *, default: F | None = cast("None", MISSING), **limits: object) -> F:  # noqa: B008  (a constant)
    """A field of a settings class: a sentence about it, what it is by default, and limits.

    Args:
        doc: what it means, with its unit; it becomes the schema's description.
        default: its value where a spec says nothing, None meaning that specs may leave it out; without a default they
            must say it.
        limits: further keywords of JSON Schema, such as ``minimum=0`` or ``exclusiveMinimum=0``.
    """
    return field(default=cast("F", default), metadata={"doc": doc, "limits": limits})


def nested(
    doc: str, point: PlugPoint[[], T], reference: str, default: Sequence[Mapping[str, object]]
) -> tuple[tuple[str, T], ...]:
    """A field of a settings class that lists plug-ins of another plug point; the class gets each with its name.

    Args:
        doc: as for :func:`setting`.
        point: whose plug-ins.
        reference: the schema of the list, such as ``#/$defs/scorers``.
        default: what a spec that says nothing means, as it would say it.
    """
    limits = {"$ref": reference, "default": list(default)}
    return field(default=(), metadata={"doc": doc, "limits": limits, "point": point})


def json_type(annotation: object) -> str:
    """The type that a schema gives a setting of this type.

    Raises:
        KeyError: a document has no such values.
    """
    if isinstance(annotation, UnionType):  # `int | None`: may be left out
        (annotation,) = (one for one in get_args(annotation) if one is not NoneType)
    return _TYPES[get_origin(annotation) or annotation]  # type: ignore[index]  # what is no type, is not in the table


@dataclass(frozen=True, slots=True)
class Origin:
    """Where plug-ins of users come from."""

    name: str
    """Of the package, or of the script's file."""
    version: str
    """The package's version, or ``sha256:`` and the digest of the script."""
    asked: str
    """What asks for it again: the package's name, or the script's absolute path."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One implementation, as it describes itself."""

    path: str
    """Of its plug point."""
    name: str
    summary: str
    """One sentence; it becomes the schema's description."""
    settings: type
    """A frozen dataclass whose fields are made by :func:`setting`."""
    make: Callable[..., object]
    module: str
    origin: Origin | None = None
    """Where it comes from; None = it is this package's own."""


class Named(Protocol):
    """A plug-in as a spec names it."""

    @property
    def kind(self) -> str:
        """Its name."""

    @property
    def settings(self) -> Mapping[str, object]:
        """What it is told."""


class PlugPoint(Generic[P, T]):
    """A place where a spec names an implementation.

    Attributes:
        path: where in a spec, such as ``policy.admission``.
        noun: what stands there, such as ``admission policy``.
        members: what every implementation must have: all that the protocol names.
    """

    def __init__(self, path: str, noun: str, protocol: type) -> None:
        self.path = path
        self.noun = noun
        public = [name for name in vars(protocol) if not name.startswith("_")]
        self.members = tuple(sorted({*protocol.__annotations__, *public}))

    def plugin(
        self,
        name: str,
        summary: str,
        settings: type[S] = cast("type", NoSettings),  # noqa: B008  (a constant)
    ) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
        """Mark a class or function as the implementation that a spec calls ``name``; it is called with its settings."""

        def mark(make: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
            setattr(make, _MARK, Plugin(self.path, name, summary, settings, make, make.__module__))
            return make

        return mark


class Registry:
    """All plug-ins that specs may name; it never changes.

    Attributes:
        origins: where those come from that are not this package's own.
    """

    def __init__(self, plugins: Iterable[Plugin], origins: Iterable[Origin] = ()) -> None:
        self.origins = tuple(origins)
        self._plugins = {(plugin.path, plugin.name): plugin for plugin in plugins}

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """All of them."""
        return tuple(self._plugins.values())

    def of(self, path: str) -> tuple[Plugin, ...]:
        """The plug-ins of a plug point."""
        return tuple(plugin for plugin in self.plugins if plugin.path == path)

    def find(self, path: str, name: str, noun: str = "plug-in") -> Plugin:
        """The plug-in of that name at a plug point.

        Raises:
            PolicyError: there is none.
        """
        plugin = self._plugins.get((path, name))
        if plugin is None:
            known = ", ".join(one.name for one in self.of(path))
            raise PolicyError(f"no {noun} `{name}`", help=f"known: {known}; `--plugins` brings others")
        return plugin

    def create(
        self, point: PlugPoint[P, T], name: str, settings: Mapping[str, object], *args: P.args, **more: P.kwargs
    ) -> T:
        """Make what a spec names, with its settings and whatever the plug point passes on.

        Raises:
            PolicyError: there is no such plug-in, it has no such setting, or lacks one.
        """
        plugin = self.find(point.path, name, point.noun)
        there = {one.name: one.default is MISSING for one in fields(plugin.settings)}
        for key in settings:
            if key not in there:
                message = f"{point.noun} `{name}` has no setting `{key}`"
                raise PolicyError(message, help=f"it has: {', '.join(there)}" if there else "it has none")
        for key, required in there.items():
            if required and key not in settings:
                raise PolicyError(f"{point.noun} `{name}` lacks the setting `{key}`")
        given = dict(settings)
        for one in fields(plugin.settings):
            if "point" in one.metadata and one.name in given:
                within = one.metadata["point"]
                parts = cast("tuple[Named, ...]", given[one.name])
                given[one.name] = tuple((part.kind, self.create(within, part.kind, part.settings)) for part in parts)
        try:
            made = plugin.make(plugin.settings(**given), *args, **more)
            if plugin.origin is not None:
                pickle.dumps(made)  # as checkpoints will
                for member in point.members:
                    if not hasattr(made, member):
                        message = f"the {point.noun} `{name}` of {plugin.origin.name} has no `{member}`"
                        raise PolicyError(message, help=f"it needs: {', '.join(point.members)}")  # noqa: TRY301
        except Exception as error:
            if plugin.origin is None or isinstance(error, BlisError):
                raise
            message = f"the {point.noun} `{name}` of {plugin.origin.name} cannot be made"
            raise PolicyError(message, help=f"{type(error).__name__}: {error}") from error
        return cast("T", made)


def plugins_in(modules: Iterable[ModuleType]) -> tuple[Plugin, ...]:
    """What modules mark as plug-ins, in order of definition."""
    return tuple(
        value.__dict__[_MARK]
        for module in modules
        for value in vars(module).values()
        if getattr(value, "__module__", None) == module.__name__ and _MARK in getattr(value, "__dict__", {})
    )


@cache
def builtin() -> Registry:
    """This package's own plug-ins."""
    modules = []
    for name in _PACKAGES:
        package = importlib.import_module(name)
        modules += [importlib.import_module(f"{name}.{info.name}") for info in pkgutil.iter_modules(package.__path__)]
    return Registry(plugins_in(modules))
