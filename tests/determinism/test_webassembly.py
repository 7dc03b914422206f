"""Same bytes from WebAssembly: 32-bit pointers, another libm, another version of Python.

Pyodide is fetched with npm once and kept in pytest's cache, or in the folder ``BLIS_TUI_PYODIDE`` names. Without
Node.js, npm or a network the test is skipped, except in CI: there it fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from zipfile import ZipFile

import pytest

from blis_tui.golden.session import on_ci

from .elsewhere import ROOT, RUNNER, assert_same_elsewhere, parse

if TYPE_CHECKING:
    from .conftest import Jobs
    from .runner import Outcome

VERSION = "314.0.7"
FOLDER_VARIABLE = "BLIS_TUI_PYODIDE"
SCRIPT = Path(__file__).with_name("pyodide_runner.mjs")
INSTALL_TIMEOUT_S = 300
RUN_TIMEOUT_S = 600


def give_up(reason: str) -> NoReturn:
    """Skip the test, or fail it where nobody would notice that it is skipped."""
    if on_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def node() -> str:
    """The program Node.js."""
    found = shutil.which("node")
    if found is None:
        give_up("no Node.js")
    return found


@pytest.fixture(scope="module")
def pyodide(node: str, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with pyodide in it."""
    if named := os.environ.get(FOLDER_VARIABLE):
        cache = Path(named)
    elif pytestconfig.pluginmanager.has_plugin("cacheprovider"):
        cache = pytestconfig.cache.mkdir(f"pyodide-{VERSION}")
    else:
        cache = tmp_path_factory.mktemp("pyodide")
    folder = cache / "node_modules" / "pyodide"
    if not (folder / "pyodide.asm.wasm").is_file():
        install(cache)
    return folder


def install(folder: Path) -> None:
    """Fetch pyodide, or give up with the reason why not."""
    npm = shutil.which("npm")
    if npm is None:
        give_up("no npm to fetch pyodide with")
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--prefix", str(folder), "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            [npm, "install", *options, f"pyodide@{VERSION}"],
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        give_up(f"npm did not fetch pyodide within {INSTALL_TIMEOUT_S} s")
    if done.returncode:
        give_up(f"npm cannot fetch pyodide: {done.stderr.strip()[-300:]}")


def bundle(path: Path, resolved: Jobs) -> None:
    """Pack the package's sources, its tables, the runner, and the jobs with their traces."""
    jobs: Jobs = {}
    with ZipFile(path, "w") as archive:
        for suffix in ("py", "json"):
            for source in sorted((ROOT / "blis_tui").rglob(f"*.{suffix}")):
                archive.write(source, source.relative_to(ROOT))
        for table in sorted((ROOT / "specs" / "latency" / "operators").glob("*.json")):
            archive.write(table, table.relative_to(ROOT))
        archive.write(RUNNER, RUNNER.name)
        for name, job in resolved.items():
            jobs[name] = job
            if job["trace"] is not None:
                trace = Path(str(job["trace"]))
                archive.write(trace, f"traces/{trace.name}")
                jobs[name] = {**job, "trace": f"/checkout/traces/{trace.name}"}
        archive.writestr("jobs.json", json.dumps(jobs))


@pytest.mark.slow
def test_webassembly(node: str, pyodide: Path, resolved: Jobs, baseline: dict[str, Outcome], tmp_path: Path) -> None:
    archive = tmp_path / "bundle.zip"
    bundle(archive, resolved)
    done = subprocess.run(
        [node, str(SCRIPT), str(pyodide), str(archive)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = parse(done.stdout)
    assert found.platform == "emscripten"
    assert_same_elsewhere(baseline, found)


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_fails_in_ci(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(outcome, match="no npm to fetch pyodide with"):
        install(tmp_path)
