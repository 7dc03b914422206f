"""Same bytes from a compiled installation, and from checkpoints that cross between one and plain Python."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.wheels import environment, packages

from .elsewhere import ROOT, RUNNER, assert_same, assert_same_elsewhere, run_elsewhere
from .runner import simulate

if TYPE_CHECKING:
    from blis_tui.model import Experiment

    from .conftest import Halfway, Jobs
    from .runner import Outcome

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.xdist_group("determinism")]
"""In one process: what they share takes long to make."""

CARRIED = ("blis_tui", "specs", "schemas", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
COMPARING = (
    "tests/oracle",
    "tests/plugins/test_plug_points.py::test_all_of_them_pass_the_check_together",
    "specs/experiments/disaggregation.blis.yaml::disaggregated",
)
"""Tests that hold the engine against something else: another implementation, itself event by event with a plug-in at
each plug point, goldens; all experiments are run and resumed above."""
TOOLS = ("hatch-mypyc", "hatchling", "mypy", "setuptools")
QUICK = ("-Wno-all", "-Wno-sign-compare", "-fno-stack-protector", "-fno-asynchronous-unwind-tables")
"""Of generated code, no warnings, and nothing that only a debugger or an attacker meets."""
ALIKE = ("-O0", "-g0", "-fPIC", "-fwrapv", *QUICK)
"""What a header is compiled with must be what its users are compiled with; otherwise the compiler reads it as text."""
EACH_FIRST = """
import importlib, os, sys
for name in sys.argv[1:]:
    if not (child := os.fork()):
        importlib.import_module(name)
        os._exit(0)
    if ended := os.waitpid(child, 0)[1]:
        print(name, os.waitstatus_to_exitcode(ended))
    assert "blis_tui" not in sys.modules
"""
"""Imports each of these modules in a copy of a process that has imported none, and says which of them cannot be."""
ELSEWHERE = (
    "test_they_agree_on_worlds_from_seeds",
    "test_the_report_counts_dummy_batches_and_waiting_as_the_oracle_does",
)
"""They draw as many worlds whatever share is asked for; tests beside them draw others of the same kinds."""


@pytest.fixture(scope="module")
def compiled(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with a compiled wheel of this checkout.

    The wheel is kept in pytest's cache, for the next run over the same sources with the same tools.
    """
    if find_spec("hatch_mypyc") is None or (compiler := shutil.which("cc")) is None:
        pytest.skip("compiling needs hatch-mypyc and a C compiler")
    source = tmp_path_factory.mktemp("source")
    for name in CARRIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    # Not optimised, the results are the same, and the compiler needs a third of the time; without looking for what
    # could be warned of in generated code, a tenth.
    text = (source / "pyproject.toml").read_text(encoding="utf-8")
    quick = text.replace('opt_level = "3"', 'opt_level = "0", debug_level = "0"')
    (source / "pyproject.toml").write_text(quick, encoding="utf-8")
    folder = tmp_path_factory.mktemp("wheel")
    if pytestconfig.pluginmanager.has_plugin("cacheprovider"):
        folder = pytestconfig.cache.mkdir("compiled")
    kept = folder / made_of(source, compiler)
    if not kept.is_dir():
        for other in folder.iterdir():
            shutil.rmtree(other)
        build(source, kept)
    (wheel,) = kept.glob("*.whl")
    return environment(wheel, tmp_path_factory.mktemp("compiled"))


def made_of(source: Path, compiler: str) -> str:
    """A name for what is compiled from these sources with the tools that are here."""
    banner = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    tools = [
        banner,
        sys.version,
        *(version(name) for name in TOOLS if find_spec(name.replace("-", "_")) is not None),
    ]
    digest = hashlib.sha256("\n".join([*tools, *QUICK, os.environ.get("CFLAGS", "")]).encode())
    for path in sorted(path for path in source.rglob("*.*") if path.is_file() and "__pycache__" not in path.parts):
        digest.update(path.relative_to(source).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:24]


def build(source: Path, target: Path) -> None:
    """A compiled wheel; the folder is there only when all of it is."""
    start = source / "start"
    start.mkdir()
    flags = " ".join((os.environ.get("CFLAGS", ""), *QUICK, "-include", str(first_header(start))))
    # Python would look for garbage in all that mypy made before it ends, which takes a sixth of the time.
    (start / "sitecustomize.py").write_text("import atexit, gc\n\natexit.register(gc.freeze)\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"],
        cwd=source,
        env={**os.environ, "HATCH_BUILD_HOOK_ENABLE_MYPYC": "1", "PYTHONPATH": str(start), "CFLAGS": flags},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    half = target.with_suffix(".half")
    shutil.move(source / "dist", half)
    half.rename(target)


def first_header(folder: Path) -> Path:
    """A header for each source to begin with: Python's own, which each needs and which is the most of nearly all.

    Its assertions are of macros that mypyc uses. It asks for them without optimisation, but no release has them.
    """
    header = folder / "first.h"
    header.write_text("#define NDEBUG\n#include <Python.h>\n", encoding="utf-8")
    compiler, include = shutil.which("cc") or "cc", sysconfig.get_path("include")
    subprocess.run([compiler, *ALIKE, f"-I{include}", "-x", "c-header", header], check=True, capture_output=True)
    return header


def python(compiled: Path, *arguments: str, cwd: Path, **environment: str) -> str:
    """What its interpreter prints; nothing but the installation may be found."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    done = subprocess.run(
        [compiled / "python", "-P", *arguments],
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-5000:]}{done.stderr[-2000:]}"
    return done.stdout


def test_it_says_what_it_is(compiled: Path, tmp_path: Path) -> None:
    assert python(compiled, "-m", "blis_tui", "--version", cwd=tmp_path).endswith(", compiled)\n")
    shown = subprocess.run([sys.executable, "-m", "blis_tui", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.endswith(", plain Python)\n")


def test_runs_and_checkpoints_both_ways(
    compiled: Path,
    resolved: Jobs,
    loaded: dict[str, Experiment],
    baseline: dict[str, Outcome],
    halfway: Halfway,
    tmp_path: Path,
) -> None:
    """Reports, tables, records and digests: from the beginning, from checkpoints of plain Python, and from its own.

    Plain Python goes on from its checkpoints, too.
    """
    runner = Path(shutil.copy(RUNNER, tmp_path / "runner.py"))
    saved = {name: tmp_path / str(number) for number, name in enumerate(resolved)}
    jobs = json.loads(halfway.jobs.read_text(encoding="utf-8"))
    for name, path in saved.items():
        jobs[f"{name}, saved"] = {**resolved[name], "save": str(path), "events": baseline[name].events // 2}
    (tmp_path / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")

    found = run_elsewhere(tmp_path / "jobs.json", (str(compiled / "python"),), checkout=False, runner=runner)
    assert found.package.is_relative_to(compiled.parent)
    from_the_middle = {name: halfway.expected[f"{name}, resumed"] for name in saved}
    own = {f"{name}, saved": outcome for name, outcome in from_the_middle.items()}
    assert_same_elsewhere({**baseline, **halfway.expected, **own}, found)
    for name, path in saved.items():
        assert_same({name: from_the_middle[name]}, {name: simulate(loaded[name], checkpoint=path.read_bytes())})


def test_against_the_oracle_itself_and_goldens(compiled: Path, tmp_path: Path) -> None:
    """Plain Python agrees with the oracle in more worlds: of each kind of them, a tenth is enough here."""
    for name in ("tests", "specs", "golden", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    output = python(
        compiled,
        *("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *COMPARING),
        *("-k", " and ".join(f"not {name}" for name in ELSEWHERE)),
        cwd=tmp_path,
        BLIS_TUI_ORACLE_SHARE="0.1",
        PYTHONDONTWRITEBYTECODE="1",  # of the checkout's tests, under the names that they have here
    )
    assert "skipped" not in output


def test_any_module_may_be_the_first(compiled: Path, tmp_path: Path) -> None:
    """A compiled class that is used before its module is imported is no exception, but the end of the process."""
    (site,) = packages(compiled.parent)
    names = [path.relative_to(site).with_name(path.name.partition(".")[0]) for path in site.rglob("blis_tui/**/*.so")]
    assert len(names) > 20
    modules = sorted(name.as_posix().replace("/", ".") for name in names)
    assert python(compiled, "-c", EACH_FIRST, *modules, cwd=tmp_path) == ""
