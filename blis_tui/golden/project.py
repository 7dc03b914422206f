"""Where the goldens of an experiment lie, wherever pytest starts, and the commands that decide about them there."""

from __future__ import annotations

import os
import tomllib
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.errors import InputError
from blis_tui.golden.store import files_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.golden.store import GoldenFiles

_INI_FILES: Final = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}
"""Files that may hold a pytest configuration, and their section for it; beside them ``pyproject.toml``."""


@dataclass(frozen=True, slots=True)
class Project:
    """A folder where pytest is configured, and what is said there about goldens."""

    root: Path
    spec_root: Path
    golden_dir: Path

    @classmethod
    def at(cls, root: Path, settings: Mapping[str, str]) -> Project:
        """With the settings of its pytest configuration."""
        spec_root, golden_dir = settings.get("blis_spec_root", "."), settings.get("blis_golden_dir", "golden")
        return cls(root, root / spec_root, root / golden_dir)

    def files(self, spec: Path, case: str) -> GoldenFiles:
        """The golden of a case."""
        try:
            return files_of(spec, case, folder=self.golden_dir, root=self.spec_root)
        except ValueError:  # the spec lies elsewhere: by its place below the root
            return files_of(spec, case, folder=self.golden_dir, root=self.root)

    def review_command(self) -> str:
        """What shows and decides, as one types it in the present folder."""
        root = from_here(self.root)
        option = "" if root == "." else f" --root {quote(root)}"
        return f"blis-tui golden review{_folder_option(self.golden_dir)}{option}"


def project_of(spec: Path, run: Project) -> Project:
    """That of the nearest folder above an experiment where pytest is configured, at most that of the run.

    Raises:
        InputError: a configuration on the way cannot be read.
    """
    for folder in spec.parents:
        if folder == run.root:
            break
        settings = configuration(folder)
        if settings is not None:
            return Project.at(folder, settings)
    return run


def home_of(spec: Path) -> Project:
    """That of the nearest folder above an experiment where pytest is configured, else the working directory.

    Raises:
        InputError: a configuration on the way cannot be read.
    """
    here = Path.cwd()
    return project_of(spec, Project.at(Path(spec.anchor), {})) if _configured(spec) else Project.at(here, {})


def _configured(spec: Path) -> bool:
    return any(configuration(folder) is not None for folder in spec.parents)


def configuration(folder: Path) -> Mapping[str, str] | None:
    """The ``blis_`` settings of a folder's pytest configuration; None where it has none.

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
        if read and name.endswith("pytest.ini"):  # counts without a section, too
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


def from_here(path: Path) -> str:
    """A path as one writes it in the present folder."""
    return Path(os.path.relpath(path)).as_posix()


def accept_command(files: GoldenFiles) -> str:
    """What accepts a waiting result, as one types it in the present folder."""
    return f"blis-tui golden review --accept {quote(files.name)}{_folder_option(files.folder)}"


def _folder_option(folder: Path) -> str:
    """What ``blis-tui golden`` must be told about the folder of the golden files, where it is not the usual one."""
    shown = from_here(folder)
    return "" if shown == "golden" else f" --golden-dir {quote(shown)}"
