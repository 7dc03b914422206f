"""The location of an experiment's goldens, independent of where pytest starts, and the commands to decide on them.

A project is a folder that configures pytest. What it sets for goldens holds for ``pytest`` and ``blis-tui golden``.
"""

from __future__ import annotations

import os
import tomllib
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from shlex import quote, split
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.golden.golden_store import files_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from blis_tui.golden.golden_store import GoldenFiles
    from blis_tui.model.plug_ins import Registry

SCRIPT: Final = ".py"
"""Ends the names of plug-ins that are scripts; others are names of packages."""

_INI_FILES: Final = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}
"""Files that may contain a pytest configuration besides ``pyproject.toml``, and the section of each."""

_TOML: Final = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with a pytest configuration, and its settings for goldens."""

    root: Path
    spec_root: Path
    golden_dir: Path
    plugins: tuple[str, ...] = ()
    """Users' plug-ins that its experiments may name: paths of scripts, and packages."""
    spec_glob: tuple[str, ...] = ("*.blis.yaml", "*.study.yaml")
    """Patterns of the files with tests."""
    test_paths: tuple[str, ...] = ()
    """Where pytest looks for tests if nothing is named, below the root; empty = everywhere."""
    checks: tuple[str, ...] = ("observers", "checkpoint", "hash-seed")
    """Ways to repeat a run that must give the same bytes."""

    @classmethod
    def at(cls, root: Path, settings: Mapping[str, object]) -> Project:
        """Return the project with the settings of its pytest configuration."""
        spec_root, golden_dir = (
            root / str(settings.get(name, default))
            for name, default in (("blis_spec_root", "."), ("blis_golden_dir", "golden"))
        )
        plugins = tuple(
            str(root / word) if word.endswith(SCRIPT) else word for word in _words(settings, "blis_plugins")
        )
        more: dict[str, tuple[str, ...]] = {}
        for field, name in (("spec_glob", "blis_spec_glob"), ("test_paths", "testpaths"), ("checks", "blis_checks")):
            if name in settings:
                more[field] = _words(settings, name)
        return cls(root, spec_root, golden_dir, plugins, **more)

    def registry(self, more: Iterable[str] = ()) -> Registry | None:
        """Return what experiments may name: the project's plug-ins, and ``more``; None = only those of this package.

        Raises:
            PolicyError: a plug-in does not exist or cannot be used.
            InputError: a script cannot be read.
        """
        names = (*self.plugins, *more)
        if not names:
            return None
        from blis_tui.spec.user_plugins import load_plugins  # noqa: PLC0415  (only needed with plug-ins)

        return load_plugins(names)

    def files(self, spec: Path, case: str) -> GoldenFiles:
        """Return the golden files of a case.

        Raises:
            InputError: the spec is outside the project, so its goldens have no place.
        """
        for root in (self.spec_root, self.root):
            with suppress(ValueError):  # it is not below that folder
                return files_of(spec, case, folder=self.golden_dir, root=root)
        raise InputError(
            f"{relative_to_cwd(spec)} is not below {relative_to_cwd(self.root)}, the root folder of the tests",
            help="its golden has no place: start pytest in a folder above both, or with --rootdir",
        )

    def review_command(self) -> str:
        """Return the command that shows results and decides on them, for the current folder."""
        return f"blis-tui golden review{self.options()}"

    def options(self) -> str:
        """Return the options that make ``blis-tui golden`` use these goldens from the current folder."""
        elsewhere = self.root.resolve() != present().root.resolve()
        root = f" --root {quote(relative_to_cwd(self.root))}" if elsewhere else ""
        return root + _folder_option(self.golden_dir, chosen(self.root if elsewhere else None))


def project_of(spec: Path, run: Project) -> Project:
    """Return the project of the nearest configured folder above an experiment, at most that of the run.

    Raises:
        InputError: a configuration on the way cannot be read.
    """
    return _nearest(takewhile(lambda folder: folder != run.root, spec.parents)) or run


def project_of_experiment(spec: Path) -> Project:
    """Return the project of the nearest configured folder above an experiment, else of the working directory.

    Raises:
        InputError: a configuration on the way cannot be read.
    """
    return _nearest(spec.parents) or Project.at(Path.cwd(), {})


def project_of_folder(folder: Path) -> Project:
    """Return the project of a folder: of the nearest configured folder from it upwards, else of itself.

    If none is configured, the nearest with a ``pyproject.toml`` is the root of the tests, as for pytest.

    Raises:
        InputError: a configuration on the way cannot be read.
    """
    folders = (folder, *folder.parents)
    return _nearest(folders) or Project.at(next((path for path in folders if (path / _TOML).is_file()), folder), {})


def present() -> Project:
    """Return the project of the current folder, with paths relative to it.

    Raises:
        InputError: a configuration on the way cannot be read.
    """
    here = project_of_folder(Path.cwd())
    root, spec_root, golden_dir = (
        Path(relative_to_cwd(folder)) for folder in (here.root, here.spec_root, here.golden_dir)
    )
    return replace(here, root=root, spec_root=spec_root, golden_dir=golden_dir)


def chosen(root: Path | None = None, golden_dir: Path | None = None) -> Project:
    """Return the project that options of ``blis-tui golden`` choose; the current one for omitted options.

    Raises:
        InputError: a configuration on the way cannot be read.
    """
    project = present() if root is None else Project.at(root, configuration(root) or {})
    return project if golden_dir is None else replace(project, golden_dir=golden_dir)


def _nearest(folders: Iterable[Path]) -> Project | None:
    """Return the project of the first folder with a pytest configuration."""
    for folder in folders:
        settings = configuration(folder)
        if settings is not None:
            return Project.at(folder, settings)
    return None


def configuration(folder: Path) -> Mapping[str, object] | None:
    """Return the ``blis_`` settings of a folder's pytest configuration, and where it has tests; None if it has none.

    Raises:
        InputError: it cannot be read.
    """
    for name, section in _INI_FILES.items():
        ini = ConfigParser(interpolation=None, strict=False)
        try:
            read = ini.read(folder / name, encoding="utf-8")
        except (ConfigParserError, ValueError) as error:
            raise InputError(f"{folder / name}: {error}") from error
        if ini.has_section(section):
            return _ours(ini[section])
        if read and name.endswith("pytest.ini"):  # counts even without a section
            return {}
    toml = folder / _TOML
    try:
        table = tomllib.loads(toml.read_text(encoding="utf-8")).get("tool", {}).get("pytest")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(f"{toml}: {error}") from error
    return None if table is None else _ours(table.get("ini_options", table))  # pytest 9 needs no `ini_options`


def _ours(settings: Mapping[str, object]) -> Mapping[str, object]:
    return {name: value for name, value in settings.items() if name.startswith("blis_") or name == "testpaths"}


def _words(settings: Mapping[str, object], name: str) -> tuple[str, ...]:
    """Return a setting that is a list, or a text with its words. Raises InputError if a quote in it does not end."""
    setting = settings.get(name)
    try:
        return tuple(
            split(setting) if isinstance(setting, str) else map(str, setting) if isinstance(setting, list) else ()
        )
    except ValueError as error:
        raise InputError(f"`{name}` of pytest's configuration: {error}") from error


def relative_to_cwd(path: Path) -> str:
    """Return a path relative to the current folder."""
    return Path(os.path.relpath(path)).as_posix()


def plugins_option(names: Iterable[str]) -> str:
    """Return the options that make a command of ``blis-tui`` load plug-ins, from the current folder."""
    shown = (relative_to_cwd(Path(name)) if name.endswith(SCRIPT) else name for name in names)
    return "".join(f" --plugins {quote(name)}" for name in shown)


def accept_command(files: GoldenFiles) -> str:
    """Return the command that accepts a waiting result, for the current folder."""
    return f"blis-tui golden review --accept {quote(files.name)}{_folder_option(files.folder, present())}"


def _folder_option(folder: Path, project: Project) -> str:
    """Return the option for the folder of the golden files; empty if it is the project's."""
    return "" if folder.resolve() == project.golden_dir.resolve() else f" --golden-dir {quote(relative_to_cwd(folder))}"
