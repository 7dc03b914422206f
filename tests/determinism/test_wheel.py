"""Same bytes from an installed wheel, with the specifications and schemas it carries."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.processes import heed_ctrl_c
from tests.wheels import packages

from .cases import AS_IT_IS
from .elsewhere import ROOT, RUNNER, run_elsewhere

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

GOLDEN = ROOT / "golden"
RUN = ("kv-pressure", "mixture-of-experts", "prompts-first", "schedulers", "trace-replay")
"""Experiments that read all kinds of data: models, hardware, policies, measured operators, a trace. As each file of the
wheel is the checkout's, the others say nothing more."""


def test_experiments_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Loaded by name, from the wheel's own data, outside of the checkout: they give the bytes of the goldens."""
    jobs = tmp_path / "jobs.json"
    jobs.write_text(json.dumps({name: {"unwatched": True} for name in RUN}), encoding="utf-8")
    runner = tmp_path / "runner.py"
    shutil.copy(RUNNER, runner)
    found = run_elsewhere(jobs, (str(installed / "python"),), checkout=False, runner=runner)
    assert found.package.is_relative_to(installed.parent)
    assert found.specs.is_relative_to(found.package.parent / "_data")
    assert tuple(found.outcomes) == RUN
    for name, outcome in found.outcomes.items():
        golden = f"{name}@{AS_IT_IS[name]}" if name in AS_IT_IS else name
        assert outcome.report.encode() == (GOLDEN / f"{golden}.report.json").read_bytes()


def test_program_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(installed / "blis-tui"), "run", "quickstart"], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == (GOLDEN / "quickstart.report.json").read_bytes()


def test_files_of_the_wheel(installed: Path) -> None:
    """Nothing but the package, its data and its metadata; what the package, specs and schemas are here."""
    site = next(iter(packages(installed.parent)))
    assert {path.name.partition("-")[0] for path in site.iterdir()} <= {"blis_tui", "borrowed.pth", "__pycache__"}
    for folder in ("specs", "schemas"):
        assert files(site / "blis_tui/_data" / folder) == files(ROOT / folder)
    package = {path: content for path, content in files(site / "blis_tui").items() if path.parts[0] != "_data"}
    assert package == files(ROOT / "blis_tui")
    assert Path("py.typed") in package


def files(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*.*")
        if path.is_file() and "__pycache__" not in path.parts
    }


README = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", "")
"""Each command on one line."""
SHOWN = re.compile(r"^(?:\$ )?(blis-tui\b.*?)(?:  +#.*)?$", re.MULTILINE)
"""A command of a page, without what is said about it."""

SHORT = "--requests 10 --warm-up 0 --set rate_per_s=40 --set clients.0.output_tokens=20"
"""A server answers in real time."""


@pytest.fixture(scope="module")
def shell(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """An empty folder but for the README's experiment, with the wheel's programs on the path."""
    folder = tmp_path_factory.mktemp("clean")
    (experiment,) = re.findall(r"^```yaml\n(.*?name: mine.*?)^```", README, re.MULTILINE | re.DOTALL)
    (folder / "mine.blis.yaml").write_text(experiment, encoding="utf-8")
    path = f"{installed}{os.pathsep}{os.environ['PATH']}"
    # A person types these lines, so none of what a CI system sets: goldens are kept differently there.
    ours = ("PYTHONPATH", "PYTEST", "BLIS_", "CI", "GITHUB_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    own = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("STATE", "CACHE")}
    return Shell(folder, {**environment, **own, "PATH": path, "TERM": "xterm-256color"})


@dataclass(frozen=True)
class Shell:
    """Where commands are typed."""

    folder: Path
    environment: dict[str, str]

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a line to its end."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, command: str, **streams: int) -> subprocess.Popen[bytes]:
        """Run a line beside this process."""
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
            preexec_fn=heed_ctrl_c,  # noqa: PLW1509  (there are no threads)
            stdin=streams.get("stdin"),
            stdout=streams.get("stdout"),
            stderr=streams.get("stderr"),
        )


def test_commands_of_the_readme_run_as_written(shell: Shell) -> None:
    """All that end by themselves: one run as it is, the others of few short requests, the plan of few runs.

    A plan asks for its own number of requests, fewer for a lower percentile. The sweep starts processes.
    """
    commands = [
        line
        for line in SHOWN.findall(README)
        if not re.match(r"blis-tui( (tui|serve|observe|twin|serve-api)\b|$)", line)
    ]
    assert len(commands) > 10
    experiment = shell.folder / "mine.blis.yaml"
    whole = experiment.read_text(encoding="utf-8")
    for command in commands:
        planned = f"{command.replace('p99', 'p90')} --seeds 1 --duration 8 --jobs 1"
        done = shell.run(planned if command.startswith("blis-tui plan") else command)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if command == "blis-tui run mine.blis.yaml":  # it has run as it is
            few = whole.replace("requests: 2000", "requests: 40")
            experiment.write_text(few.replace("mean: 200, std_dev: 80", "mean: 10, std_dev: 4"), encoding="utf-8")
    text = experiment.read_text(encoding="utf-8")
    assert "requests: 40\n" in text
    assert "mean: 10," in text
    experiment.write_text(whole, encoding="utf-8")
    assert {path.name for path in shell.folder.iterdir()} >= {
        *("requests.csv", "events.jsonl", "run.html", "run.pftrace", "metrics.txt", "runs.csv", "demo")
    }


def test_a_server_of_the_readme_is_observed_as_written(shell: Shell) -> None:
    """At another port, with fewer and shorter requests, and without a log, which a simulated server does not write."""
    lines = {name: line for line in SHOWN.findall(README) for name in [line.split()[1:2]] for name in name}
    served = shell.start(f"{lines['serve-api']} --port 0", stderr=subprocess.PIPE)
    try:
        assert served.stderr is not None
        address = re.search(rb"http://\S+", served.stderr.readline())
        assert address is not None
        observe = lines["observe"].replace("http://127.0.0.1:8000", address[0].decode())
        for command in (observe.replace("--requests 200 --log server.log", SHORT), lines["twin"]):
            done = shell.run(command)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
    finally:
        served.send_signal(signal.SIGINT)
        served.communicate(timeout=60)
    assert served.returncode == 0
    assert "requests   10 answered on both sides" in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("command", re.findall(r"^blis-tui(?: tui .*?)?(?=  +#|$)", README, re.MULTILINE))
def test_screens_of_the_readme_open_as_written(command: str, shell: Shell) -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (40, 140))
    screen = shell.start(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"quit" not in seen:
        seen += os.read(ours, 65_536)
    os.write(ours, b"q")
    with suppress(OSError):  # the end of what a pseudo-terminal shows is an error on Linux
        while os.read(ours, 65_536):
            pass
    assert screen.wait(timeout=60) == 0
    os.close(ours)


def assert_decided_as_the_guide_says(lines: Sequence[str], project: Shell) -> None:
    """Each line of the block but the last, in its order, beside a result that waits; at the end it waits as before."""
    verbs = ["status", "status --format diff", "status --format github", "review --reject", "record"]
    asked = [line.partition(" golden ")[2].removesuffix(" demo") for line in lines]
    assert asked == verbs
    goldens = project.folder / "golden"
    before = {path.name: path.read_bytes() for path in goldens.iterdir()}
    _, diff, report, reject = done = [project.run(line) for line in lines[:-1]]
    assert [process.returncode for process in done] == [1, 1, 1, 0]
    assert "first divergence: event " in diff.stdout
    assert report.stdout.startswith("### Golden tests: 1 changed, of 1 golden")
    assert reject.stdout == "rejected demo\n"
    assert len(list(goldens.iterdir())) < len(before)
    for name, content in before.items():
        (goldens / name).write_bytes(content)


@pytest.mark.skipif(find_spec("pre_commit") is None, reason="pre-commit is not installed")
def test_the_hook_of_the_guide_finds_what_is_wrong(shell: Shell, tmp_path: Path) -> None:
    """As written, in a repository of git, with what is installed; the one that this checkout offers checks the same."""
    page = (ROOT / "docs" / "golden.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(# \.pre-commit-config\.yaml\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / ".pre-commit-config.yaml").write_text(block, encoding="utf-8")
    (tmp_path / "mine.blis.yaml").write_text((shell.folder / "mine.blis.yaml").read_text(encoding="utf-8"))
    (tmp_path / "other.yaml").write_text("no: document\n", encoding="utf-8")
    hook = f"{sys.executable} -m pre_commit run --all-files"
    here = replace(shell, folder=tmp_path)
    assert here.run(f"git init -q && git add . && {hook}").returncode == 0
    (tmp_path / "mine.blis.yaml").write_text("kind: Experiment\n", encoding="utf-8")
    wrong = here.run(f"git add . && {hook}")
    assert (wrong.returncode, "BLIS1002" in wrong.stdout) == (1, True)
    assert (
        here.run(f"{sys.executable} -m pre_commit validate-manifest {ROOT / '.pre-commit-hooks.yaml'}").returncode == 0
    )
    (local,) = yaml.safe_load(block)["repos"][0]["hooks"]
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {key: offered[key] for key in local if key != "language"} == {
        key: local[key] for key in local if key != "language"
    }


def test_goldens_are_kept_as_the_guide_says(shell: Shell) -> None:
    """What ``spec init`` wrote, with a change: its test fails, is looked at and accepted, and holds.

    That it holds as it was written is seen in tests/cli/test_spec_commands.py.
    """
    page = (ROOT / "docs" / "golden.md").read_text(encoding="utf-8")
    guide = page[page.index("```sh\n") : page.index("git add golden")]
    review = SHOWN.findall(guide)
    assert review == ["blis-tui golden review"]
    assert re.search(r"^pytest ", guide, re.MULTILINE)
    # That it is found by itself is seen in tests/golden/test_ci.py, and that runs are repeated in other processes in
    # tests/golden/test_plugin.py; all other plugins that are here take seconds.
    options = "-p blis_tui.pytest_plugin -o blis_checks=observers"
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": options}
    project = Shell(shell.folder / "demo", {**shell.environment, **alone})
    if not project.folder.exists():  # the README has that line, too
        assert shell.run("blis-tui spec init demo").returncode == 0
    policy = project.folder / "specs/policies/house.yaml"
    policy.write_text(policy.read_text(encoding="utf-8").replace("kind: fcfs", "kind: sjf"), encoding="utf-8")
    changed = project.run("python -m pytest -q")
    assert changed.returncode == 1
    assert "blis-tui golden review --accept" in changed.stdout
    block = page[page.index("blis-tui golden status") :]
    lines = SHOWN.findall(block[: block.index("```")])
    assert_decided_as_the_guide_says(lines, project)
    # Without a terminal to answer in, it lists what can be done.
    (accept,) = re.findall(r"^ +(blis-tui golden review --accept .*)$", project.run(review[0]).stdout, re.MULTILINE)
    assert project.run(accept).returncode == 0
    assert project.run("python -m pytest -q").returncode == 0
    assert project.run(lines[-1]).stdout == "stored demo\n"
    assert (project.folder / "golden" / "demo.records.jsonl.gz").is_file()
