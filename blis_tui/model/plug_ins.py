"""Plug points and plug-ins: every place where a spec names an implementation, and all that may be named there.

An implementation describes itself where it is defined::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Settings:
        capacity_tokens: float = setting("Tokens the bucket holds at most.", default=1e4, exclusiveMinimum=0)

    @ADMISSION.plugin("token-bucket", "A request is admitted when the bucket holds its input tokens.", Settings)
    class TokenBucket: ...

Schemas, reference pages and factories follow from that. Importing a module registers nothing; a registry is a value.
``blis_tui.spec.plug_points`` lists the plug points, and ``blis_tui.spec.shipped`` the built-in plug-ins.
"""

from __future__ import annotations

import inspect
import pickle
import sys
from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from functools import cache, lru_cache
from importlib import import_module
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, cast, get_args, get_origin

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import BlisError, PolicyError, in_words
from blis_tui.model.keys import AUTO, Key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType, ModuleType

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
F = TypeVar("F")

_MARK: Final = "__blis_plugin__"
_OWN: Final = __name__.partition(".")[0]

_REMEMBERED: Final = 256
"""Number of settings classes whose fields are cached; some scripts of plug-ins are loaded again and again."""

_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", Mapping: "object", tuple: "array"}


@dataclass(frozen=True, slots=True)
class NoSettings:
    """The settings class of plug-ins without settings."""


class Stateless:
    """A plug-in without settings, or without a memory."""

    def __init__(self, settings: NoSettings) -> None:
        """Take the settings, of which there are none."""

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()


def setting(doc: str, *, default: F | None = cast("None", MISSING), **limits: object) -> F:  # noqa: B008  (a constant)
    """Define a field of a settings class, with its description, default and limits.

    Args:
        doc: its meaning, with its unit; becomes the schema's description.
        default: its value if a spec omits it; None makes it optional. Without a default, specs must have it.
        limits: further keywords of JSON Schema, such as ``minimum=0`` or ``exclusiveMinimum=0``.
    """
    about = Key(doc=doc, limits=limits, default=MISSING if default is None else default, optional=default is None)
    return field(default=cast("F", default), metadata={"key": about})


def setting_or(doc: str, words: Sequence[str], *, default: F, **limits: object) -> F:
    """Define a setting that is a number or one of some words such as ``none``, for which the class gets None.

    With the word ``auto``, that is what documents get that omit it: the loader replaces it by what suits the hardware,
    and the class gets ``default`` without a loader.
    """
    about = Key(doc=doc, limits=limits, default=AUTO if AUTO in words else default, words=words)
    return field(default=default, metadata={"key": about})


def nested(
    doc: str, point: PlugPoint[[], T], reference: str, default: Sequence[Mapping[str, object]]
) -> tuple[tuple[str, T], ...]:
    """Define a field of a settings class that lists plug-ins of another plug point; the class gets each with its name.

    Args:
        doc: as for :func:`setting`.
        point: the other plug point.
        reference: the schema of the list, such as ``#/$defs/scorers``.
        default: the default as written in a spec.
    """
    about = Key(doc=doc, limits={"$ref": reference, "default": list(default)}, optional=True)
    return field(default=(), metadata={"key": about, "point": point})


def json_type(annotation: object) -> str:
    """Return the JSON Schema type for a setting of this type.

    Raises:
        KeyError: documents have no such values.
    """
    if isinstance(annotation, UnionType):  # `int | None`: may be omitted
        (annotation,) = (argument for argument in get_args(annotation) if argument is not NoneType)
    return _TYPES[get_origin(annotation) or annotation]  # type: ignore[index]  # what is no type is not in the table


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a user's plug-ins."""

    name: str
    """Name of the package, or of the script's file."""
    version: str
    """The package's version, or ``sha256:`` and the digest of the script."""
    asked: str
    """The name to load it by: the package's name, or the script's absolute path."""
    code: str
    """The digest of the sources, as a package under development changes without a new version."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One implementation with its description."""

    path: str
    """The key of its plug point."""
    name: str
    summary: str
    """One sentence; becomes the schema's description."""
    settings: type
    """A frozen dataclass whose fields are made by :func:`setting`."""
    make: Callable[..., object]
    module: str
    origin: Origin | None = None
    """Its origin; None = built in."""
    of_blis: bool = False
    """Whether it only serves comparisons with the simulator BLIS; lists have it last."""


class Named(Protocol):
    """A plug-in as named in a spec."""

    @property
    def kind(self) -> str:
        """Its name."""

    @property
    def settings(self) -> Mapping[str, object]:
        """Its settings."""


class Point:
    """A plug point, regardless of its plug-ins' signature.

    Attributes:
        path: its key in specs, such as ``policy.admission``.
        noun: the kind of plug-in, such as ``admission policy``.
        protocol: the protocol of its implementations.
        members: the attributes that every implementation must have: all that the protocol names.
    """

    def __init__(self, path: str, noun: str, protocol: type) -> None:
        self.path = path
        self.noun = noun
        self.protocol = protocol
        public = [name for name in vars(protocol) if not name.startswith("_")]
        self.members = tuple(sorted({*protocol.__annotations__, *public}))


FOR_BLIS: Final = "For comparing with BLIS."
"""Ends the summaries of such plug-ins."""


class PlugPoint(Point, Generic[P, T]):
    """A place where a spec names an implementation, which is called with its settings and ``P`` and returns a ``T``."""

    def plugin(
        self,
        name: str,
        summary: str,
        settings: type[S] = cast("type", NoSettings),  # noqa: B008  (a constant)
        *,
        of_blis: bool = False,
    ) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
        """Mark a class or function as the implementation that a spec calls ``name``; it is called with its settings.

        ``of_blis``: it only serves comparisons with the simulator BLIS, which its summary then says.
        """
        about = f"{summary} {FOR_BLIS}" if of_blis else summary

        def mark(make: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
            setattr(make, _MARK, Plugin(self.path, name, about, settings, make, make.__module__, of_blis=of_blis))
            return make

        return mark


class Registry:
    """All plug-ins that specs may name; immutable.

    Args:
        plugins: plug-ins that are loaded already.
        origins: the origins of those that are not built in.
        shipped: plug point -> name -> the plug-in's module, which is imported when the plug-in is requested.
        modules: the modules that users requested, with plug-ins, kinds of records or panes.

    Attributes:
        origins: as above.
        modules: as above.
    """

    def __init__(
        self,
        plugins: Iterable[Plugin] = (),
        origins: Iterable[Origin] = (),
        shipped: Mapping[str, Mapping[str, str]] | None = None,
        modules: Iterable[str] = (),
    ) -> None:
        self.origins = tuple(origins)
        self.modules = tuple(modules)
        self._plugins = {(plugin.path, plugin.name): plugin for plugin in plugins}
        self._shipped = {} if shipped is None else shipped

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """Return all plug-ins; this imports them all."""
        paths = dict.fromkeys((*self._shipped, *(path for path, _ in self._plugins)))
        return tuple(plugin for path in paths for plugin in self.of(path))

    @property
    def own(self) -> tuple[Plugin, ...]:
        """Return the plug-ins that are not built in."""
        return tuple(plugin for plugin in self._plugins.values() if plugin.origin is not None)

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names that specs may use at a plug point."""
        return (*self._shipped.get(path, ()), *(name for at, name in self._plugins if at == path))

    def of(self, path: str) -> tuple[Plugin, ...]:
        """Return the plug-ins of a plug point; this imports them all."""
        return tuple(self.find(path, name) for name in self.names(path))

    def find(self, path: str, name: str, noun: str = "plug-in") -> Plugin:
        """Return the plug-in of that name at a plug point, importing no other.

        Raises:
            PolicyError: there is none.
        """
        plugin = self._plugins.get((path, name))
        if plugin is not None:
            return plugin
        module = self._shipped.get(path, {}).get(name)
        if module is None:
            known = ", ".join(self.names(path))
            raise PolicyError(f"no {noun} `{name}`", help=f"known: {known}; `--plugins` adds others")
        return _marked(module)[path, name]

    def used(self, path: str, config: Named) -> Iterator[Plugin]:
        """Iterate over the plug-in that a spec names at a plug point, and those that its settings name."""
        plugin = self.find(path, config.kind)
        yield plugin
        for declared in fields(plugin.settings):
            if "point" in declared.metadata:
                for part in cast("tuple[Named, ...]", config.settings.get(declared.name, ())):
                    yield from self.used(declared.metadata["point"].path, part)

    def create(
        self, point: PlugPoint[P, T], name: str, settings: Mapping[str, object], *args: P.args, **more: P.kwargs
    ) -> T:
        """Create what a spec names, with its settings and the arguments of the plug point.

        Raises:
            PolicyError: there is no such plug-in, it has no such setting, or one is missing.
        """
        plugin = self.find(point.path, name, point.noun)
        there, words, points = _fields_of(plugin.settings)
        for key in settings:
            if key not in there:
                message = f"{point.noun} `{name}` has no setting `{key}`"
                raise PolicyError(message, help=f"it has: {', '.join(there)}" if there else "it has none")
        for key, required in there.items():
            if required and key not in settings:
                raise PolicyError(f"{point.noun} `{name}` lacks the setting `{key}`")
        given = dict(settings)
        for key, meant in words:
            if given.get(key) == AUTO and AUTO in meant:
                del given[key]
            elif given.get(key) in meant:
                given[key] = None
        for key, within in points:
            if key in given:
                parts = cast("tuple[Named, ...]", given[key])
                given[key] = tuple((part.kind, self.create(within, part.kind, part.settings)) for part in parts)
        if plugin.origin is None:
            return cast("T", plugin.make(plugin.settings(**given), *args, **more))
        return cast("T", _made(point, plugin, lambda: plugin.make(plugin.settings(**given), *args, **more)))


class _Fields(NamedTuple):
    """The fields of a settings class: whether each is required; those with words; those that name plug-ins."""

    required: Mapping[str, bool]
    words: tuple[tuple[str, Mapping[str, str] | Sequence[str]], ...]
    points: tuple[tuple[str, PlugPoint[..., object]], ...]


@lru_cache(maxsize=_REMEMBERED)
def _fields_of(settings: type) -> _Fields:
    """Return the fields of a settings class, which every simulation asks for."""
    known = fields(settings)
    return _Fields(
        {declared.name: declared.default is MISSING for declared in known},
        tuple((declared.name, declared.metadata["key"].words) for declared in known if declared.metadata["key"].words),
        tuple((declared.name, declared.metadata["point"]) for declared in known if "point" in declared.metadata),
    )


def _made(point: Point, plugin: Plugin, make: Callable[[], object]) -> object:
    """Create a user's plug-in; if that fails or it is unsuitable, raise an error with the place."""
    subject = f"the {point.noun} `{plugin.name}` of {plugin.origin.name if plugin.origin else plugin.module}"
    doing = "cannot be made" if inspect.isclass(plugin.make) else "fails"
    try:
        made = make()
        missing = [member for member in point.members if not hasattr(made, member)]
        doing = "cannot be saved, as checkpoints need it"
        pickle.dumps(made)
    except BlisError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        message = f"{subject} {doing}: {in_words(error)}"
        raise PolicyError(message, help=place_in_plugin(error, (plugin.module,)) or None) from error
    if missing:
        raise PolicyError(f"{subject} has no `{missing[0]}`", help=f"it needs: {', '.join(point.members)}")
    return made


def plugins_in(modules: Iterable[ModuleType]) -> tuple[Plugin, ...]:
    """Return what modules mark as plug-ins, in order of definition."""
    plugins: list[Plugin] = []
    for module in modules:
        for value in vars(module).values():
            if getattr(value, "__module__", None) == module.__name__ and _MARK in getattr(value, "__dict__", {}):
                plugin = value.__dict__[_MARK]
                if not any(plugin is known for known in plugins):  # it may have several names in its module
                    plugins.append(plugin)
    return tuple(plugins)


@cache
def _marked(module: str) -> Mapping[tuple[str, str], Plugin]:
    """Return what a module marks as plug-ins, by plug point and name."""
    return {(plugin.path, plugin.name): plugin for plugin in plugins_in((import_module(module),))}


def place_in_plugin(error: BaseException, modules: Iterable[str] = ()) -> str:
    """Describe the innermost line of a plug-in in an error's traceback; empty = there is none.

    Args:
        error: the caught error.
        modules: modules of the plug-ins in use, in addition to those found in the traceback. All modules of their
            packages count.
    """
    frames = _frames(error)
    through = [name for name in dict.fromkeys(_module_of(frame) for frame, _ in frames) if _has_plugins(name)]
    packages = {_package(name) for name in (*modules, *through)} - {_OWN}
    places = [(frame, line) for frame, line in frames if _package(_module_of(frame)) in packages]
    if not places:
        return ""
    frame, line = places[-1]
    return f"it happens at {frame.f_code.co_filename}:{line} in `{frame.f_code.co_qualname}`"


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """Return the frames in an error's traceback, with the line of each."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return frames


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _package(module: str) -> str:
    return module.partition(".")[0]


def _has_plugins(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and bool(plugins_in((module,)))
