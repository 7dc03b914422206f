"""The release workflow does what it says: its lines run here, as far as there is no GitHub and no other machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from blis_tui._version import __version__
from tests.wheels import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

JOBS: Final = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS: Final = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
DATED: Final[Mapping[str, tuple[str, str]]] = {
    "CHANGELOG.md": (f"## {__version__} (unreleased)", f"## {__version__} (2026-12-01)"),
    "CITATION.cff": ("url:", "date-released: 2026-12-01\nurl:"),
    "pyproject.toml": ("https://example.org/blis-tui", "https://git.example.com/tools/blis-tui"),
}
"""What a release changes, where none was made yet."""


def scripts(job: str) -> list[str]:
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """As GitHub runs a step."""
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the first job looks at."""
    (tmp_path / "blis_tui").mkdir()
    for name in ("blis_tui/_version.py", *DATED):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def release(folder: Path, *but: str) -> None:
    for name, (old, new) in DATED.items():
        if name not in but:
            text = (folder / name).read_text(encoding="utf-8")
            (folder / name).write_text(text.replace(old, new), encoding="utf-8")


def agrees(folder: Path, tag: str) -> bool:
    return all(run(script, folder, TAG=tag).returncode == 0 for script in scripts("agree"))


def test_a_tag_is_released_when_all_speak_of_its_version(checkout: Path) -> None:
    release(checkout)
    assert agrees(checkout, f"v{__version__}")
    assert not agrees(checkout, "v9.9.9")


@pytest.mark.parametrize("forgotten", DATED)
def test_what_was_forgotten_stops_it(forgotten: str, checkout: Path) -> None:
    release(checkout, forgotten)
    assert not agrees(checkout, f"v{__version__}")


def test_each_supported_python_is_built_for_and_tried() -> None:
    assert JOBS["install"]["strategy"]["matrix"]["python"] == PYTHONS
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"cp{python.replace('.', '')}-*" for python in PYTHONS]


def test_compiled_wheels_round_as_python_does() -> None:
    """Python rounds a product before it adds to it; GCC for ARM does not, unless it is told."""
    assert "-ffp-contract=off" in PROJECT["tool"]["cibuildwheel"]["environment"]["CFLAGS"].split()


def test_what_is_built_is_what_the_tests_build_and_install() -> None:
    assert scripts("build") == ["pip install uv", "uv build --out-dir dist"]
    assert 'uv(), "build"' in (ROOT / "tests" / "wheels.py").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.nightly
def test_the_plain_wheel_is_tried_as_written(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "golden").symlink_to(ROOT / "golden")
    path = f"{installed}{os.pathsep}{os.environ['PATH']}"
    _, tried = scripts("install")
    assert run(tried, tmp_path, PATH=path).returncode == 0
    (tmp_path / "golden").unlink()
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden/quickstart.report.json").write_text("{}", encoding="utf-8")
    assert run(tried, tmp_path, PATH=path).returncode != 0


@pytest.mark.slow
@pytest.mark.nightly
def test_a_wheel_that_is_not_compiled_is_not_taken_for_one(installed: Path, tmp_path: Path) -> None:
    """The compiled one is built in ``tests/determinism/test_compiled.py``."""
    first, *_ = PROJECT["tool"]["cibuildwheel"]["test-command"]
    assert first == "blis-tui --version | grep compiled"
    assert run(first, tmp_path, PATH=f"{installed}{os.pathsep}{os.environ['PATH']}").returncode == 1


def test_the_notes_of_a_release_are_its_part_of_the_change_log(tmp_path: Path) -> None:
    newer = "## 0.2.0 (2027-01-01), engine 2\n\n- new\n\n### Fixed\n\n- this\n\n"
    older = "## 0.1.0 (2026-12-01), engine 1\n\n- old\n"
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{newer}{older}", encoding="utf-8")
    (script,) = scripts("attach")
    made = script.splitlines()[0]
    notes = {}
    for tag in ("v0.2.0", "v0.1.0"):
        assert run(made, tmp_path, TAG=tag).returncode == 0
        notes[tag] = (tmp_path / "notes.md").read_text(encoding="utf-8")
    assert notes == {"v0.2.0": newer, "v0.1.0": older}


def test_nothing_else_can_go_wrong_in_a_line() -> None:
    """Each is a script that bash reads, and what it uses of other steps is there."""
    for job, one in JOBS.items():
        for step in one["steps"]:
            assert ("run" in step) != ("uses" in step)
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
        assert all(subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0 for script in scripts(job))
        needs: Any = one.get("needs", [])
        assert {needs} <= JOBS.keys() if isinstance(needs, str) else set(needs) <= JOBS.keys()
