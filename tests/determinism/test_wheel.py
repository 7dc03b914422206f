"""Same bytes from an installed wheel, with the specifications and schemas it carries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from .cases import AS_IT_IS, EXPERIMENTS
from .elsewhere import ROOT, RUNNER, run_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]
"""In one process: what they share takes long to make."""

GOLDEN = ROOT / "golden"

NEEDED = ("pip", "hatchling")
SCRIPTS = "Scripts" if os.name == "nt" else "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, built without a network."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"building a wheel offline needs {' and '.join(missing)}")
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT))
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel."""
    return environment(wheel, tmp_path_factory.mktemp("installed"))


def environment(wheel: Path, folder: Path) -> Path:
    """The folder of programs of a fresh environment with a wheel; dependencies are borrowed from this one."""
    venv.create(folder, with_pip=False)
    programs = folder / SCRIPTS
    pip("--python", str(programs / "python"), "install", "--no-deps", "--no-index", str(wheel))
    # Its .pth files are not read from there, so an editable install of this checkout stays out of sight.
    site = next(iter(packages(folder)))
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return programs


def packages(environment: Path) -> Iterator[Path]:
    """The folders with installed packages of a virtual environment."""
    return (path for path in environment.rglob("site-packages") if path.is_dir())


def pip(*arguments: str) -> None:
    """Run pip; its output is the message if it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_experiments_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Loaded by name, from the wheel's own data, outside of the checkout: they give the bytes of the goldens."""
    jobs = tmp_path / "jobs.json"
    jobs.write_text(json.dumps({name: {} for name in EXPERIMENTS}), encoding="utf-8")
    runner = tmp_path / "runner.py"
    shutil.copy(RUNNER, runner)
    found = run_elsewhere(jobs, (str(installed / "python"),), checkout=False, runner=runner)
    assert found.package.is_relative_to(installed.parent)
    assert found.specs.is_relative_to(found.package.parent / "_data")
    assert list(found.outcomes) == list(EXPERIMENTS)
    for name, outcome in found.outcomes.items():
        golden = f"{name}@{AS_IT_IS[name]}" if name in AS_IT_IS else name
        assert outcome.report.encode() == (GOLDEN / f"{golden}.report.json").read_bytes()
        header = json.loads((GOLDEN / f"{golden}.golden.json").read_text(encoding="utf-8"))
        assert outcome.records == header["records"]["sha256"]


def test_program_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(installed / "blis-tui"), "run", "quickstart"], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == (GOLDEN / "quickstart.report.json").read_bytes()


def test_files_of_the_wheel(installed: Path) -> None:
    """Nothing but the package, its data and its metadata; every specification and schema of the checkout."""
    site = next(iter(packages(installed.parent)))
    assert {path.name.partition("-")[0] for path in site.iterdir()} <= {"blis_tui", "borrowed.pth", "__pycache__"}
    for folder in ("specs", "schemas"):
        carried = {path.relative_to(site / "blis_tui/_data"): path.read_bytes() for path in files(site, folder)}
        assert carried == {path.relative_to(ROOT): path.read_bytes() for path in (ROOT / folder).rglob("*.*")}
    assert (site / "blis_tui/py.typed").is_file()


def files(site: Path, folder: str) -> Iterator[Path]:
    return (site / "blis_tui/_data" / folder).rglob("*.*")
