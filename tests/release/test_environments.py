"""The wheel in clean environments of each supported Python, with what an index has for it, does what it should."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui._version import __version__
from blis_tui.golden.bundle import pack
from blis_tui.golden.golden_store import Baseline
from blis_tui.golden.session import on_ci
from tests.interpreters import PYTHONS_VARIABLE, interpreter
from tests.wheels import ROOT, SCRIPTS, checked, uv

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS: Final = [match[1] for one in PROJECT["classifiers"] if (match := re.fullmatch(r".*Python :: (3\.\d+)", one))]


OTHERS: Final = """
import importlib.metadata
import blis_tui, blis_tui.tui.app
from blis_tui.base.errors import SpecError
from blis_tui.golden.bundle import unpacked, verified
with unpacked("run.blis") as found:
    print(verified(found), found.at, "of", found.golden.baseline.python)
try:
    blis_tui.load("wrong.blis.yaml")
except SpecError as error:
    print(error.diagnostics[0].code, importlib.metadata.version("blis-tui"), end="")
"""
"""What a run does not import: the terminal interface, what opens bundles, and what says where a document is wrong."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of this Python."""
    path = tmp_path_factory.mktemp("bundle") / "run.blis"
    pack(str(path), "kv-pressure", overrides=["workload.requests=40"], at="300")
    return path


def test_the_supported_pythons_are_stated() -> None:
    assert PYTHONS == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


@pytest.mark.parametrize("version", PYTHONS)
def test_installed_alone_it_gives_the_bytes_of_the_golden(
    version: str, wheel: Path, bundle: Path, tmp_path: Path
) -> None:
    """With its dependencies as they are now, in nothing but that: none of the development tools are there."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on PATH, below ~/.pyenv/versions or in {PYTHONS_VARIABLE}")
    checked(uv(), "venv", "--quiet", "--python", python, str(tmp_path / "clean"))
    programs = tmp_path / "clean" / SCRIPTS
    install = [uv(), "pip", "install", "--python", str(programs / "python"), str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and not on_ci():
        pytest.skip(f"no package index: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    (tmp_path / "wrong.blis.yaml").write_text("apiVersion: blis/v1\nkind: Experiment\n", encoding="utf-8")
    shutil.copy(bundle, tmp_path / "run.blis")
    blis = str(programs / "blis-tui")
    report = checked(blis, "run", "quickstart", env=clean, cwd=tmp_path)
    assert report == (ROOT / "golden" / "quickstart.report.json").read_text(encoding="utf-8")
    told = checked(str(programs / "python"), "-c", OTHERS, env=clean, cwd=tmp_path)
    assert told == f" 300 of {Baseline.here().python}\nBLIS1002 {__version__}"
