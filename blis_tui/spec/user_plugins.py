"""Users' plug-ins: from a script, or from an installed package that offers some.

They are imported when a command or a caller names them, and never because a document does: reading a document runs no
code. A package offers its modules as entry points of the group ``blis_tui.policies``.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from dataclasses import MISSING, fields, is_dataclass, replace
from hashlib import sha256
from importlib import import_module
from operator import ge, gt, le, lt
from pathlib import Path
from types import ModuleType, UnionType
from typing import TYPE_CHECKING, Final, get_type_hints

from blis_tui.base.errors import PolicyError, in_words
from blis_tui.base.input_files import read_input, real_path
from blis_tui.engine.records import RECORD_KINDS
from blis_tui.model.plug_ins import Origin, Registry, json_type, plugins_in
from blis_tui.output.plugin_panes import panes_in
from blis_tui.spec.shipped import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from importlib.metadata import EntryPoint

    from blis_tui.model.plug_ins import Plugin
    from blis_tui.output.plugin_panes import PluginPane

GROUP: Final = "blis_tui.policies"
"""Entry point group of packages that offer plug-ins; each value is a module."""

_SCRIPT: Final = "blis_plugins_"
"""Prefix of the module names of scripts; their digest follows."""
_MAX_BYTES: Final = 4 * 1024 * 1024
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LIMITS: Final = {
    "minimum": (ge, "at least"),
    "exclusiveMinimum": (gt, "more than"),
    "maximum": (le, "at most"),
    "exclusiveMaximum": (lt, "less than"),
}
_KEYWORDS: Final[Mapping[str, type | UnionType]] = {
    **dict.fromkeys((*_LIMITS, "multipleOf"), int | float),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), int),
    **dict.fromkeys(("pattern", "$ref"), str),
    **dict.fromkeys(("enum", "examples"), list | tuple),
}
"""Keyword of JSON Schema -> what it can be, as far as settings need them."""
_VALUES: Final = {"boolean": bool, "integer": int, "number": int | float, "string": str}


def require_several(name: str, texts: object) -> None:
    """Refuse one text where several are expected, because it would count as a list of its characters.

    Raises:
        TypeError: it is one.
    """
    if isinstance(texts, str | Path):
        raise TypeError(f"{name} is a list: write {name}=[{str(texts)!r}]")


def load_plugins(names: Iterable[str | Path]) -> Registry:
    """Return a registry of the built-in plug-ins and those of users.

    Args:
        names: paths of scripts (``my_policies.py``) and names of installed packages. Their code runs.

    Raises:
        PolicyError: there is no such package, it cannot be imported, or what it offers cannot be used.
        InputError: a script cannot be read.
        TypeError: ``names`` is one name alone.
    """
    require_several("plugins", names)
    plugins: dict[tuple[str, str], Plugin] = {}
    origins: list[Origin] = []
    imported: list[ModuleType] = []
    for name in dict.fromkeys(str(name) for name in names):
        origin, modules = _script(Path(name)) if name.endswith(".py") else _package(name)
        if origin.asked in [earlier.asked for earlier in origins]:  # another path of the same script
            continue
        offered = plugins_in(modules)
        if not offered and not panes_in(modules):
            raise PolicyError(f"{name} offers no plug-ins", help="mark a class with @ROUTING.plugin(...) or the like")
        for plugin in offered:
            _check(plugin)
            other = plugins.get((plugin.path, plugin.name))
            if other is not None or plugin.name in SHIPPED[plugin.path]:
                whose = "blis-tui" if other is None or other.origin is None else other.origin.name
                raise _unusable(plugin, f"{whose} has one of this name at `{plugin.path}`", _RENAME)
            plugins[plugin.path, plugin.name] = replace(plugin, origin=origin)
        origins.append(origin)
        imported += modules
    _check_panes(panes_in(imported))
    return Registry(plugins.values(), origins, SHIPPED, [module.__name__ for module in imported])


def _script(path: Path) -> tuple[Origin, list[ModuleType]]:
    """Load a single file; equal content is imported once."""
    content = read_input(path, f"the plug-ins {path}", limit=_MAX_BYTES)
    digest = sha256(content).hexdigest()
    where = real_path(path)
    name = f"{_SCRIPT}{digest}"  # the name under which unpickling finds its classes

    def run() -> ModuleType:
        _forget_records(str(where))
        module = sys.modules[name] = ModuleType(name)
        module.__file__ = str(where)
        exec(compile(content, str(where), "exec"), module.__dict__)  # noqa: S102  (the user has asked for it)
        return module

    module = sys.modules.get(name) or _importing(str(path), str(where), run, name)
    return Origin(path.name, f"sha256:{digest}", str(where), digest), [module]


def _forget_records(where: str) -> None:
    """Unregister record kinds of an earlier version of this script, or of scripts that failed to import."""
    for kind, record in tuple(RECORD_KINDS.items()):
        module = sys.modules.get(record.__module__)
        if record.__module__.startswith(_SCRIPT) and (module is None or module.__file__ == where):
            del RECORD_KINDS[kind]


def offers_plugins(name: str) -> bool:
    """Whether an installed distribution of that name offers plug-ins; none of its code runs."""
    return any(_plain(offered) == _plain(name) for offered in _offered())


def _offered() -> dict[str, list[EntryPoint]]:
    """Return the entry points of installed distributions, by distribution name."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (takes 20 ms, and scripts do not need it)

    by_package: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        if entry.dist is not None:
            by_package.setdefault(entry.dist.name, []).append(entry)
    return by_package


def _package(name: str) -> tuple[Origin, list[ModuleType]]:
    """Load the modules that an installed distribution offers."""
    by_package = _offered()
    package = next((package for package in by_package if _plain(package) == _plain(name)), None)
    if package is None:
        known = f"installed: {', '.join(sorted(by_package))}" if by_package else "none is installed"
        script = f"; for the script, write {name}.py" if Path(f"{name}.py").is_file() else ""
        raise PolicyError(f"no installed package `{name[:80]}` offers plug-ins", help=known + script)
    modules = [
        _importing(package, entry.module, lambda entry=entry: import_module(entry.module), "")  # type: ignore[misc]
        for entry in by_package[package]
    ]
    dist = by_package[package][0].dist
    return Origin(package, "" if dist is None else dist.version, package, _sources(modules)), modules


def _sources(modules: Iterable[ModuleType]) -> str:
    """Return the digest of all files in these modules' packages, whether imported or not."""
    digest = sha256()
    for top in dict.fromkeys(module.__name__.partition(".")[0] for module in modules):
        package = sys.modules[top]
        folders = [Path(folder) for folder in getattr(package, "__path__", ())]
        files = [(file.relative_to(folder), file) for folder in folders for file in folder.rglob("*.py")]
        if not folders and package.__file__ is not None:
            files = [(Path(top), Path(package.__file__))]
        for name, file in sorted(files):
            content = read_input(file, f"the plug-ins of {top}", limit=_MAX_BYTES)
            digest.update(f"{name.as_posix()}\0{sha256(content).hexdigest()}\0".encode())
    return digest.hexdigest()


def _plain(name: str) -> str:
    """Normalize a package name as package indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _importing(name: str, where: str, run: Callable[[], ModuleType], drop: str) -> ModuleType:
    """Import a module, converting any failure to one error with its place."""
    try:
        return run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        sys.modules.pop(drop, None)
        if isinstance(error, SyntaxError):
            place = f"{error.filename}:{error.lineno}" if error.filename else where  # null bytes have no line
        else:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == where]
            place = f"{where}:{frames[-1].lineno}" if frames else where
        raise PolicyError(f"{name} cannot be imported: {in_words(error)}", help=f"it happens at {place}") from error


def _check(plugin: Plugin) -> None:
    """Check whether documents can name the plug-in, and check its settings."""
    if plugin.path not in SHIPPED:
        raise _unusable(plugin, f"there is no plug point `{plugin.path}`", f"there are {', '.join(SHIPPED)}")
    if not _NAME.fullmatch(plugin.name):
        raise _unusable(plugin, f"`{plugin.name}` cannot be its name", "lower-case letters, digits and `-`")
    if not is_dataclass(plugin.settings):
        raise _unusable(plugin, "its settings are not a dataclass", "decorate their class with @dataclass(frozen=True)")
    try:
        hints = get_type_hints(plugin.settings)
    except (NameError, TypeError, AttributeError) as error:
        raise _unusable(plugin, f"the types of its settings cannot be read: {error}", None) from error
    for field in fields(plugin.settings):
        if "key" not in field.metadata:
            advice = f'write {field.name}: ... = setting("What it means.", default=...)'
            raise _unusable(plugin, f"its setting `{field.name}` says nothing about itself", advice)
        if field.name == "kind":
            raise _unusable(plugin, "its setting cannot be called `kind`: that key names the plug-in", _RENAME)
        _check_limits(plugin, field.name, field.metadata["key"].limits)
        try:
            kind = "" if "$ref" in field.metadata["key"].limits else json_type(hints[field.name])
        except (KeyError, TypeError, ValueError):
            raise _unusable(
                plugin, f"its setting `{field.name}` has no type that documents know", _TYPES_HELP
            ) from None
        given = field.default
        if given in (MISSING, None, ()) or kind not in _VALUES:
            continue
        if not isinstance(given, _VALUES[kind]) or (kind != "boolean" and isinstance(given, bool)):
            raise _unusable(plugin, f"the default of its setting `{field.name}` is {given!r}", f"it must be {kind}")
        if kept := _broken_limit(given, field.metadata["key"].limits):
            raise _unusable(plugin, f"the default of its setting `{field.name}` is {given!r}", f"it must be {kept}")


def _check_limits(plugin: Plugin, setting: str, limits: Mapping[str, object]) -> None:
    """Check whether the limits of a setting are keywords of JSON Schema, because others would limit nothing."""
    for word, value in limits.items():
        kind = _KEYWORDS.get(word)
        if kind is None:
            message = f"`{word}` of its setting `{setting}` is no keyword of JSON Schema"
            raise _unusable(plugin, message, f"there are {', '.join(_KEYWORDS)}")
        if not isinstance(value, kind) or isinstance(value, bool) or (word == "pattern" and not _compiles(value)):
            raise _unusable(plugin, f"`{word}` of its setting `{setting}` cannot be {value!r}", None)


def _compiles(pattern: object) -> bool:
    try:
        re.compile(str(pattern))
    except re.error:
        return False
    return True


def _broken_limit(given: object, limits: Mapping[str, object]) -> str:
    """Describe which of its own limits a setting's default violates; empty = none."""
    for word, (holds, words) in _LIMITS.items():
        limit = limits.get(word)
        if isinstance(limit, int | float) and isinstance(given, int | float) and not holds(given, limit):
            return f"{words} {limit}, as the setting says"
    choices = limits.get("enum")
    if isinstance(choices, list | tuple) and given not in choices:
        return f"one of {', '.join(map(repr, choices))}, as the setting says"
    return ""


def _check_panes(panes: Iterable[PluginPane]) -> None:
    """Check whether the debugger can distinguish the panes, and has a tab for each."""
    known: dict[str, PluginPane] = {}
    for pane in panes:
        other = known.setdefault(pane.name, pane)
        if other is not pane:
            raise PolicyError(f"{_place(pane.present, pane.module)}: there are two panes `{pane.name}`", help=_RENAME)
        if not 0 < len(pane.name) <= _MOST_NAME or not pane.name.isprintable():
            message = f"a pane cannot be called {pane.name!r}"
            raise PolicyError(f"{_place(pane.present, pane.module)}: {message}", help=f"up to {_MOST_NAME} characters")
        if pane.key and not (len(pane.key) == 1 and pane.key.isprintable() and not pane.key.isspace()):
            message = f"the key of the pane `{pane.name}` is {pane.key!r}"
            raise PolicyError(f"{_place(pane.present, pane.module)}: {message}", help="a single character, or none")


_MOST_NAME: Final = 20
_RENAME: Final = "choose another name"
_TYPES_HELP: Final = "bool, int, float and str are known, and one of them or None"


def _unusable(plugin: Plugin, message: str, advice: str | None) -> PolicyError:
    place = _place(plugin.make, plugin.module)
    return PolicyError(f"{place}: the plug-in `{plugin.name}` cannot be used: {message}", help=advice)


def _place(made: Callable[..., object], module: str) -> str:
    """Return the file and line of a plug-in's class or function."""
    try:
        _, line = inspect.getsourcelines(made)
        return f"{inspect.getsourcefile(made)}:{max(line, 1)}"
    except (OSError, TypeError):
        return module
