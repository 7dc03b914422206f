"""The distributions of this checkout, built once for all tests, and environments with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[1]
SCRIPTS: Final = "Scripts" if os.name == "nt" else "bin"
NEEDED: Final = ("pip", "hatchling", "hatch_fancy_pypi_readme")
_TIMEOUT_S: Final = 170


def uv() -> str:
    """The program that builds and installs; the test is skipped without it."""
    found = shutil.which("uv", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip("uv is not installed (extra `dev`)")
    return found


def build(folder: Path, source: Path = ROOT, *kinds: str) -> tuple[Path, ...]:
    """Build without a network: a source distribution and a wheel from it, or what ``kinds`` names."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"building a wheel offline needs {' and '.join(missing)}")
    command = [uv(), "build", "--offline", "--no-build-isolation", "--python", sys.executable]
    checked(*command, *kinds, "--out-dir", str(folder), str(source))
    return tuple(
        sorted((path for path in folder.iterdir() if path.suffix in {".gz", ".whl"}), key=lambda path: path.suffix)
    )


def environment(wheel: Path, folder: Path) -> Path:
    """The ``bin`` folder of a fresh environment with a wheel; it borrows the dependencies of this environment."""
    venv.create(folder, with_pip=False)
    programs = folder / SCRIPTS
    # The Dockerfile and the workflows try pip itself, which takes ten times as long.
    checked(
        uv(), "pip", "install", "--offline", "--no-cache", "--python", str(programs / "python"), "--no-deps", str(wheel)
    )
    # .pth files are not read from there, so an editable install of this checkout stays invisible.
    site = next(iter(packages(folder)))
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return programs


def with_borrowed(folder: Path, *needed: str) -> Path:
    """The ``bin`` folder of an environment with pip, pytest and the needs of these distributions, all borrowed.

    It has the dependencies of blis-tui, but not blis-tui itself.
    """
    venv.create(folder, with_pip=False)
    site = next(iter(packages(folder)))
    for name in _closure({"pip", "pytest", "blis-tui", *needed}) - {"blis-tui"}:
        tops = {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}
        for top in (site / one for one in tops):
            if not top.exists():
                real = Path(str(distribution(name).locate_file(top.name)))
                top.symlink_to(real)
                _share_bytecode(real, top)
    for module in ("pip", "pytest"):
        program = folder / SCRIPTS / module
        program.write_text(f'#!/bin/sh\nexec "$(dirname "$0")/python" -m {module} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return folder / SCRIPTS


def _share_bytecode(real: Path, link: Path) -> None:
    """If bytecode is kept by the paths of the sources, reuse it for the other path instead of compiling again."""
    if sys.pycache_prefix is not None and real.is_dir():
        kept, other = (Path(sys.pycache_prefix, path.relative_to(path.anchor)) for path in (real, link))
        kept.mkdir(parents=True, exist_ok=True)
        other.parent.mkdir(parents=True, exist_ok=True)
        other.symlink_to(kept)


def _closure(names: set[str]) -> set[str]:
    """Distributions with all of their dependencies here."""
    known: set[tuple[str, str]] = set()
    waiting = [(name, "") for name in names]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in known:
            continue
        known.add((name, extra))
        for needed in map(Requirement, distribution(name).requires or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(needed.name), one) for one in ("", *needed.extras)]
    return {name for name, _ in known}


def packages(environment: Path) -> Iterator[Path]:
    """The package folders of a virtual environment."""
    return (path for path in environment.rglob("site-packages") if path.is_dir())


def checked(*command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """The output of a program; if it fails, the test fails with that output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=env, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
