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
import yaml

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.golden.bundle import pack
from blis_tui.golden.session import on_ci
from blis_tui.golden.store import Baseline

from .elsewhere import ROOT, RUNNER, assert_same_elsewhere, parse

if TYPE_CHECKING:
    from .conftest import Jobs
    from .runner import Outcome

VERSION = "314.0.7"
FOLDER_VARIABLE = "BLIS_TUI_PYODIDE"
SCRIPT = Path(__file__).with_name("pyodide_runner.mjs")
INSTALL_TIMEOUT_S = 300
RUN_TIMEOUT_S = 600


JOBS = """
import json
from pathlib import Path
import runner

json.dumps(runner.run_jobs(json.loads(Path("/checkout/jobs.json").read_text(encoding="utf-8"))))
"""
OPENED = """
import json, sys
from blis_tui.debugger.debugger import Debugger
from blis_tui.golden.bundle import unpacked, verified

with unpacked("/checkout/run.blis") as found:
    debugger = Debugger(found.case.load())
    list(debugger.seek(int(found.at)))
    answer = {
        "platform": sys.platform,
        "python": list(sys.version_info[:2]),
        "difference": verified(found),
        "digest": debugger.digest(),
        "baseline": found.golden.baseline.python,
    }
json.dumps(answer)
"""


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
    found = parse(in_webassembly(node, pyodide, archive, JOBS))
    assert found.platform == "emscripten"
    assert_same_elsewhere(baseline, found)


def in_webassembly(node: str, pyodide: Path, archive: Path, program: str) -> str:
    """What a program's last expression comes to, where the archive is unpacked."""
    path = archive.with_name("program.py")
    path.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [node, str(SCRIPT), str(pyodide), str(archive), str(path)],
        cwd=archive.parent,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_bundle_opens_with_the_wheel(node: str, pyodide: Path, wheel: Path, tmp_path: Path) -> None:
    """Beside PyYAML, without its C. It gives the same results, and has the same state where it opens."""
    pack(str(tmp_path / "run.blis"), "kv-pressure", overrides=["workload.requests=60"], at="500")
    archive = tmp_path / "wheel.zip"
    shutil.copy(wheel, archive)
    with ZipFile(archive, "a") as added:
        added.write(tmp_path / "run.blis", "run.blis")
        for source in Path(yaml.__file__).parent.glob("*.py"):
            added.write(source, f"yaml/{source.name}")
    found = json.loads(in_webassembly(node, pyodide, archive, OPENED))
    assert found["difference"] == ""
    assert (found["platform"], found["python"]) == ("emscripten", [3, 14])
    debugger = Debugger(blis_tui.load("kv-pressure", set={"workload.requests": 60}))
    list(debugger.seek(500))
    assert found["digest"] == debugger.digest()
    assert found["baseline"] == Baseline.here().python


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_fails_in_ci(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(outcome, match="no npm to fetch pyodide with"):
        install(tmp_path)
