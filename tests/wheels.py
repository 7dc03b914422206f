"""The distributions of this checkout, built once for all tests that install them, and environments with them."""

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
    """The program that builds and installs; without it the test is skipped."""
    found = shutil.which("uv", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip("uv is not installed (extra `dev`)")
    return found


def build(folder: Path, source: Path = ROOT, *kinds: str) -> tuple[Path, ...]:
    """What was built, without a network: a source distribution and a wheel of it, or what ``kinds`` name."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"building a wheel offline needs {' and '.join(missing)}")
    command = [uv(), "build", "--offline", "--no-build-isolation", "--python", sys.executable]
    checked(*command, *kinds, "--out-dir", str(folder), str(source))
    return tuple(
        sorted((path for path in folder.iterdir() if path.suffix in {".gz", ".whl"}), key=lambda one: one.suffix)
    )


def environment(wheel: Path, folder: Path) -> Path:
    """The folder of programs of a fresh environment with a wheel; dependencies are borrowed from this one."""
    venv.create(folder, with_pip=False)
    programs = folder / SCRIPTS
    # What pip makes of a wheel is tried where the Dockerfile and the workflows call it; it takes ten times as long.
    checked(
        uv(), "pip", "install", "--offline", "--no-cache", "--python", str(programs / "python"), "--no-deps", str(wheel)
    )
    # Its .pth files are not read from there, so an editable install of this checkout stays out of sight.
    site = next(iter(packages(folder)))
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return programs


def with_borrowed(folder: Path, *needed: str) -> Path:
    """The folder of programs of an environment with pip, pytest and what these distributions need, all borrowed.

    Blis-tui itself is not in it, but what it needs is.
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
    """Where bytecode is kept apart from the sources, by their paths, compile nothing again for another path."""
    if sys.pycache_prefix is not None and real.is_dir():
        kept, other = (Path(sys.pycache_prefix, one.relative_to(one.anchor)) for one in (real, link))
        kept.mkdir(parents=True, exist_ok=True)
        other.parent.mkdir(parents=True, exist_ok=True)
        other.symlink_to(kept)


def _closure(names: set[str]) -> set[str]:
    """Distributions, and all that they need here."""
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
    """The folders with installed packages of a virtual environment."""
    return (path for path in environment.rglob("site-packages") if path.is_dir())


def checked(*command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """What a program prints; if it fails, that is the message."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=env, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
