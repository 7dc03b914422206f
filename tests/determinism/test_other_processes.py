"""Same bytes from other processes: other hash seeds and environments, other versions of Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.golden.bundle import pack
from tests.interpreters import PYTHONS_VARIABLE, interpreter

from .elsewhere import ROOT, assert_same_elsewhere, run_elsewhere

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Halfway
    from .runner import Outcome

CIRCUMSTANCES = {
    "3.11": (("-S",), {"PYTHONHASHSEED": "random"}),
    "3.12": (("-S",), {"PYTHONHASHSEED": "0", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}),
    "3.13": (("-S", "-OO"), {"PYTHONHASHSEED": "random", "LC_ALL": "C", "TZ": "Asia/Kathmandu"}),
    "3.14": (("-S",), {"PYTHONHASHSEED": "1"}),
}
"""Options and environment of each interpreter. Without site packages (``-S``): a resolved document needs the standard
library only."""
ELSEWHERE = {
    "PYTHONHASHSEED": "4711",
    "LC_ALL": "C",
    "TZ": "Asia/Kathmandu",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
}


def others() -> list[str]:
    """The versions of Python that are here, beside this one."""
    here = ".".join(map(str, sys.version_info[:2]))
    return [version for version in CIRCUMSTANCES if version != here and interpreter(version) is not None]


@pytest.mark.slow
def test_a_process_with_another_hash_seed_locale_and_time_zone(
    halfway: Halfway, baseline: dict[str, Outcome], tmp_path: Path
) -> None:
    """Runs that go on where one of this process was saved; whole ones where no other version of Python runs those."""
    jobs = json.loads(halfway.jobs.read_text(encoding="utf-8"))
    expected = halfway.expected if others() else {**baseline, **halfway.expected}
    asked = tmp_path / "jobs.json"
    asked.write_text(json.dumps({name: jobs[name] for name in expected}), encoding="utf-8")
    found = run_elsewhere(asked, (sys.executable, "-OO"), environment=ELSEWHERE)
    assert_same_elsewhere(expected, found)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("version", CIRCUMSTANCES)
def test_version_of_python(version: str, jobs: Path, baseline: dict[str, Outcome]) -> None:
    if version == ".".join(map(str, sys.version_info[:2])) and others():
        pytest.skip("every other test runs it, and another version shows that the standard library is enough")
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on PATH, below ~/.pyenv/versions or in {PYTHONS_VARIABLE}")
    options, environment = CIRCUMSTANCES[version]
    found = run_elsewhere(jobs, (python, *options), environment=environment)
    assert found.python.startswith(f"{version}.")
    assert_same_elsewhere(baseline, found)


OPEN: Final = """
import json, sys, zipfile
from blis_tui.golden.golden_store import ChainRecorder
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.build import build_experiment
with zipfile.ZipFile(sys.argv[1]) as bundle:
    header, report = (bundle.read(f"golden/kv-pressure.{kind}.json").decode() for kind in ("golden", "report"))
simulation, recorder = Simulation(build_experiment(json.loads(header)["document"])), ChainRecorder()
simulation.subscribe("all", recorder)
simulation.run()
assert simulation.report().to_json() == report
assert recorder.finish(simulation.events).sha256 == json.loads(header)["records"]["sha256"]
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("packed") / "run.blis"
    pack(str(target), "kv-pressure")
    return target


@pytest.mark.parametrize("version", [version for version in CIRCUMSTANCES if version != "3.11"])
def test_a_bundle_gives_the_same_results_elsewhere(version: str, bundle: Path) -> None:
    """With nothing but the standard library."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on PATH, below ~/.pyenv/versions or in {PYTHONS_VARIABLE}")
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-S", "-c", OPEN, str(bundle)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
