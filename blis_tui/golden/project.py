"""The location of an experiment's goldens, independent of where pytest starts, and the commands to decide on them."""

from __future__ import annotations

import os
import tomllib
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.errors import InputError
from blis_tui.golden.store import files_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from blis_tui.golden.store import GoldenFiles

_INI_FILES: Final = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}
"""Files that may contain a pytest configuration besides ``pyproject.toml``, and the section of each."""


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with a pytest configuration, and its settings for goldens."""

    root: Path
    spec_root: Path
    golden_dir: Path

    @classmethod
    def at(cls, root: Path, settings: Mapping[str, str]) -> Project:
        """Return the project with the settings of its pytest configuration."""
        spec_root, golden_dir = settings.get("blis_spec_root", "."), settings.get("blis_golden_dir", "golden")
        return cls(root, root / spec_root, root / golden_dir)

    def files(self, spec: Path, case: str) -> GoldenFiles:
        """Return the golden files of a case."""
        try:
            return files_of(spec, case, folder=self.golden_dir, root=self.spec_root)
        except ValueError:  # the spec is not below `spec_root`: use its place below the root
            return files_of(spec, case, folder=self.golden_dir, root=self.root)

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

    Raises:
        InputError: a configuration on the way cannot be read.
    """
    return _nearest((folder, *folder.parents)) or Project.at(folder, {})


def present() -> Project:
    """Return the project of the current folder, with paths relative to it.

    Raises:
        InputError: a configuration on the way cannot be read.
    """
    here = project_of_folder(Path.cwd())
    return Project(*[Path(relative_to_cwd(folder)) for folder in (here.root, here.spec_root, here.golden_dir)])


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


def configuration(folder: Path) -> Mapping[str, str] | None:
    """Return the ``blis_`` settings of a folder's pytest configuration; None if it has none.

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
    toml = folder / "pyproject.toml"
    try:
        table = tomllib.loads(toml.read_text(encoding="utf-8")).get("tool", {}).get("pytest")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(f"{toml}: {error}") from error
    return None if table is None else _ours(table.get("ini_options", table))  # pytest 9 needs no `ini_options`


def _ours(settings: Mapping[str, object]) -> Mapping[str, str]:
    return {name: str(value) for name, value in settings.items() if name.startswith("blis_")}


def relative_to_cwd(path: Path) -> str:
    """Return a path relative to the current folder."""
    return Path(os.path.relpath(path)).as_posix()


def accept_command(files: GoldenFiles) -> str:
    """Return the command that accepts a waiting result, for the current folder."""
    return f"blis-tui golden review --accept {quote(files.name)}{_folder_option(files.folder, present())}"


def _folder_option(folder: Path, project: Project) -> str:
    """Return the option for the folder of the golden files; empty if it is the project's."""
    return "" if folder.resolve() == project.golden_dir.resolve() else f" --golden-dir {quote(relative_to_cwd(folder))}"
