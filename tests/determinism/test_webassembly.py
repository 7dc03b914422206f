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
from typing import TYPE_CHECKING, Any, NoReturn
from zipfile import ZipFile

import pytest
import yaml

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.golden.bundle import pack
from blis_tui.golden.golden_store import Baseline
from blis_tui.golden.session import on_ci

from .elsewhere import ROOT, RUNNER, assert_same_elsewhere, parsed

if TYPE_CHECKING:
    from .conftest import Jobs
    from .runner import Outcome

VERSION = "314.0.7"
FOLDER_VARIABLE = "BLIS_TUI_PYODIDE"
SCRIPT = Path(__file__).with_name("pyodide_runner.mjs")
INSTALL_TIMEOUT_S = 300
RUN_TIMEOUT_S = 600


PROGRAM = """
import json, sys
from pathlib import Path
import runner

jobs = runner.run_jobs(json.loads(Path("/checkout/jobs.json").read_text(encoding="utf-8")))
needed = "yaml" in sys.modules

from blis_tui.debugger.debugger import Debugger
from blis_tui.golden.bundle import unpacked, verified

with unpacked("/checkout/run.blis") as found:
    debugger = Debugger(found.case.load())
    list(debugger.seek(int(found.at)))
    opened = {
        "python": list(sys.version_info[:2]),
        "difference": verified(found),
        "digest": debugger.digest(),
        "baseline": found.golden.baseline.python,
    }
json.dumps({"jobs": jobs, "jobs need YAML": needed, "opened": opened})
"""
"""First what needs the standard library alone, then what needs PyYAML, too: without its C."""


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


def archive(path: Path, resolved: Jobs) -> None:
    """Pack what a wheel carries (``test_wheel`` says so), PyYAML, the runner, the jobs with their traces, and a run."""
    jobs: Jobs = {}
    with ZipFile(path, "w") as target:
        carried = {"blis_tui": "blis_tui", "specs": "blis_tui/_data/specs", "schemas": "blis_tui/_data/schemas"}
        for folder, name in carried.items():
            for source in sorted((ROOT / folder).rglob("*.*")):
                if "__pycache__" not in source.parts:
                    target.write(source, f"{name}/{source.relative_to(ROOT / folder)}")
        for source in Path(yaml.__file__).parent.glob("*.py"):
            target.write(source, f"yaml/{source.name}")
        target.write(RUNNER, RUNNER.name)
        for name, job in resolved.items():
            jobs[name] = job
            if job["trace"] is not None:
                trace = Path(str(job["trace"]))
                target.write(trace, f"traces/{trace.name}")
                jobs[name] = {**job, "trace": f"/checkout/traces/{trace.name}"}
        target.writestr("jobs.json", json.dumps(jobs))
        run = path.with_name("run.blis")
        pack(str(run), "kv-pressure", overrides=["workload.requests=60"], at="500")
        target.write(run, run.name)


@pytest.fixture(scope="module")
def found(node: str, pyodide: Path, resolved: Jobs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program says in WebAssembly, which takes seconds to start."""
    folder = tmp_path_factory.mktemp("webassembly")
    archive(folder / "archive.zip", resolved)
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [node, str(SCRIPT), str(pyodide), str(folder / "archive.zip"), str(folder / "program.py")],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


@pytest.mark.slow
@pytest.mark.nightly
def test_webassembly(found: dict[str, Any], baseline: dict[str, Outcome]) -> None:
    """With the standard library alone."""
    elsewhere = parsed(found["jobs"])
    assert elsewhere.platform == "emscripten"
    assert not found["jobs need YAML"]
    assert_same_elsewhere(baseline, elsewhere)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.xdist_group("determinism")
def test_a_bundle_opens(found: dict[str, Any]) -> None:
    """It gives the same results, and has the same state where it opens."""
    opened = found["opened"]
    assert opened["difference"] == ""
    assert opened["python"] == [3, 14]
    debugger = Debugger(blis_tui.load("kv-pressure", set={"workload.requests": 60}))
    list(debugger.seek(500))
    assert opened["digest"] == debugger.digest()
    assert opened["baseline"] == Baseline.here().python


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_fails_in_ci(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(outcome, match="no npm to fetch pyodide with"):
        install(tmp_path)
