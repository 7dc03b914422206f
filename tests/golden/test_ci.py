"""What ``spec init`` writes for GitHub and GitLab, and the action, do what they say: run in a project that changed."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from blis_tui.spec.authoring.project import NAME, own_wheel, project_files
from tests.golden.projects import blis_in
from tests.prefork import write_program
from tests.wheels import checked, with_borrowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "golden.md").read_text(encoding="utf-8")
GITHUB: Final = ".github/workflows/blis.yml"
GITLAB: Final = ".gitlab-ci.yml"
INSTALLS: Final = "pip install -r requirements.txt"
RECORDER: Final = """\
#!{python} -IS
import json, sys
with open("{name}.json", "a") as out:
    print(json.dumps(sys.argv[1:]), file=out)
"""


def changed(project: Path) -> None:
    """Another order of the queue: its golden no longer holds."""
    policy = project / "specs" / "policies" / "house.yaml"
    policy.write_text(policy.read_text(encoding="utf-8").replace("kind: fcfs", "kind: sjf"), encoding="utf-8")


def unreadable(project: Path) -> None:
    """No valid document any more: the first check fails, and there is no result to tell of."""
    policy = project / "specs" / "policies" / "house.yaml"
    policy.write_text(policy.read_text(encoding="utf-8").replace("kind: fcfs", "kind: fastest"), encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    assert blis_in(folder, "spec", "init", "demo").returncode == 0
    return folder / "demo"


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """A new project, and programs of those names: ours, and recorders of what ``gh`` and ``curl`` are told."""
    shutil.copytree(made, tmp_path / "demo")
    (tmp_path / "bin").mkdir()
    for name, module in (("blis-tui", "blis_tui"), ("pytest", "pytest")):
        write_program(tmp_path / "bin" / name, module)
    for name in ("gh", "curl"):
        tool = tmp_path / "bin" / name
        tool.write_text(RECORDER.format(python=sys.executable, name=name), encoding="utf-8")
        tool.chmod(0o755)
    return tmp_path / "demo"


@pytest.fixture
def machine(tmp_path: Path) -> Mapping[str, str]:
    """A machine of its own for :func:`shell`: nothing of ours is installed, and no package index is there."""
    programs = with_borrowed(tmp_path / "machine", "hatchling", "hatch-fancy-pypi-readme")
    return {
        "PATH": f"{programs}{os.pathsep}{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": "",
        "PYTEST_ADDOPTS": "-p no:cacheprovider -o blis_checks=observers",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # as pip has it, this turns isolation off
        "PIP_COMPILE": "0",
        "PIP_NO_WARN_CONFLICTS": "0",  # as pip has it, too
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def shell(project: Path, script: str, environment: Mapping[str, str]) -> int:
    """The exit code of a script, as both systems run it: it ends with the first line that fails."""
    ours = ("CI", "GITHUB", "PYTEST", "BLIS")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{project.parent / 'bin'}{os.pathsep}{clean['PATH']}"
    pytest_alone = {
        "PYTEST_ADDOPTS": "-p blis_tui.pytest_plugin -p no:cacheprovider -o blis_checks=observers",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # others take long to import
    }
    env = {**clean, **pytest_alone, "PATH": path, "PYTHONPATH": str(ROOT), "CI": "true", **environment}
    return subprocess.run(["bash", "-e", "-c", script], cwd=project, env=env, check=False).returncode


def on_github(project: Path, event: str, machine: Mapping[str, str] | None = None) -> Sequence[str]:
    """Run the steps of the workflow, on a machine of its own the installation, too; those that failed."""
    (job,) = yaml.safe_load((project / GITHUB).read_text(encoding="utf-8"))["jobs"].values()
    values = {"${{ github.token }}": "secret", "${{ github.event.number }}": "7"}
    return steps(project, job["steps"], event, values, machine)


def as_action(
    project: Path, event: str, known: Mapping[str, int] = MappingProxyType({}), **inputs: str
) -> Sequence[str]:
    """Run the steps of the action, without the installation and what is known to end so; those that failed."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert inputs.keys() <= action["inputs"].keys()
    asked = {name: inputs.get(name, one["default"]) for name, one in action["inputs"].items()}
    values = {f"${{{{ inputs.{name} }}}}": text for name, text in asked.items()}
    assert {step["shell"] for step in action["runs"]["steps"] if "run" in step} == {"bash"}
    return steps(project, action["runs"]["steps"], event, values | {"${{ github.event.number }}": "7"}, known=known)


def steps(
    folder: Path,
    listed: Sequence[Mapping[str, Any]],
    event: str,
    values: Mapping[str, str],
    machine: Mapping[str, str] | None = None,
    known: Mapping[str, int] = MappingProxyType({}),
) -> Sequence[str]:
    """Run the steps that run something, but without a machine for the installation; those that failed."""
    failed: list[str] = []
    for step in listed:
        if "uses" in step or not _runs(step.get("if", ""), event, failed=bool(failed)):
            continue
        script = step["run"]
        if script.startswith("pip ") and machine is None:
            continue
        environment = dict(machine or {})
        environment |= {name: values[text] for name, text in step.get("env", {}).items()}
        environment["GITHUB_STEP_SUMMARY"] = str(folder / "summary.md")
        where = step.get("working-directory", ".")
        code = known.get(script)
        if shell(folder / values.get(where, where), script, environment) if code is None else code:
            failed.append(script)
    return failed


def _runs(condition: str, event: str, *, failed: bool) -> bool:
    """What a step's condition comes to; without one it runs while none has failed."""
    known = {
        "": not failed,
        "failure()": failed,
        "failure() && github.event_name == 'pull_request'": failed and event == "pull_request",
    }
    return known[condition]


def on_gitlab(project: Path, environment: Mapping[str, str]) -> tuple[bool, int]:
    """Run the job; whether it succeeds, and the exit code of what comes after it."""
    job = yaml.safe_load((project / GITLAB).read_text(encoding="utf-8"))["blis"]
    assert job["script"][0] == INSTALLS
    server = {"CI_API_V4_URL": "https://gitlab.example/api/v4", "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "5"}
    code = shell(project, "\n".join(job["script"][1:]), environment)
    return code == 0, shell(project, "\n".join(job["after_script"]), {**server, **environment})


def test_the_page_names_both_files_and_their_commands() -> None:
    shown = re.search(r"`\.gitlab-ci\.yml`.*?```sh\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    for name in (GITHUB, GITLAB):
        assert f"`{name}`" in PAGE
        assert all(command in project_files()[name] for command in shown[1].splitlines())


def test_github_tells_what_changed(project: Path) -> None:
    changed(project)
    assert on_github(project, "pull_request") == ["pytest --blis-obsolete=fail --blis-update=new"]
    text = (project / "golden-report.md").read_text(encoding="utf-8")
    assert text.startswith("### Golden tests: 1 changed, of 1 golden\n")
    assert "first divergence: event " in text
    assert (project / "summary.md").read_text(encoding="utf-8") == text
    arguments = (project / "gh.json").read_text(encoding="utf-8")
    assert arguments == '["pr", "comment", "7", "--body-file", "golden-report.md"]\n'


def test_the_action_tells_what_changed_in_its_folder(project: Path) -> None:
    """Without a token on the page of the run only."""
    changed(project)
    (script,) = as_action(project.parent, "pull_request", folder="demo", token="secret")  # noqa: S106  (no secret)
    assert "pytest --blis-obsolete=fail" in script
    text = (project / "golden-report.md").read_text(encoding="utf-8")
    assert text.startswith("### Golden tests: 1 changed, of 1 golden\n")
    assert (project.parent / "summary.md").read_text(encoding="utf-8") == text
    arguments = (project / "gh.json").read_text(encoding="utf-8")
    assert arguments == '["pr", "comment", "7", "--body-file", "golden-report.md"]\n'
    (project / "gh.json").unlink()
    (project.parent / "summary.md").unlink()
    known = {script: 1}
    assert as_action(project.parent, "pull_request", known, folder="demo", token="") == [script]
    assert (project.parent / "summary.md").read_text(encoding="utf-8") == text
    assert not (project / "gh.json").exists()


def test_the_action_knows_the_plug_ins_of_a_project(project: Path) -> None:
    """``check`` by its input, ``pytest`` and ``golden`` by the configuration of pytest."""
    policies = ROOT / "tests" / "plugins"
    for name in ("my_policies.py", "cache_probes.py"):
        shutil.copy(policies / name, project)
    with (project / "pytest.ini").open("a", encoding="utf-8") as out:
        out.write("blis_plugins = my_policies.py cache_probes.py\n")
    policy = project / "specs" / "policies" / "house.yaml"
    text = policy.read_text(encoding="utf-8")
    policy.write_text(text.replace("scheduling:", "routing: {kind: cache-then-least}\nscheduling:"), encoding="utf-8")
    (script,) = as_action(project, "push", plugins="my_policies.py  cache_probes.py")
    assert "pytest --blis-obsolete=fail" in script
    text = (project / "golden-report.md").read_text(encoding="utf-8")
    assert text.startswith("### Golden tests: 1 changed, of 1 golden\n")


def test_gitlab_tells_what_changed_where_it_may(project: Path) -> None:
    changed(project)
    assert on_gitlab(project, {"BLIS_TOKEN": "secret"}) == (False, 0)
    text = (project / "golden-report.md").read_text(encoding="utf-8")
    assert text.startswith("### Golden tests: 1 changed, of 1 golden\n")
    arguments = (project / "curl.json").read_text(encoding="utf-8")
    assert '"body@golden-report.md", "https://gitlab.example/api/v4/projects/3/merge_requests/5/notes"' in arguments
    assert (project / "golden.xml").is_file()
    (project / "curl.json").unlink()
    (after,) = yaml.safe_load((project / GITLAB).read_text(encoding="utf-8"))["blis"]["after_script"]
    assert shell(project, after, {"CI_MERGE_REQUEST_IID": "5"}) == 0
    assert (project / "golden-report.md").read_text(encoding="utf-8") == text
    assert not (project / "curl.json").exists(), "without a token nothing is sent"


def test_where_all_holds_nothing_is_told(project: Path) -> None:
    assert as_action(project, "pull_request", token="secret") == []  # noqa: S106  (no secret)
    assert on_gitlab(project, {"BLIS_TOKEN": "secret"}) == (True, 0)
    assert [name for name in ("golden-report.md", "gh.json", "curl.json") if (project / name).exists()] == []


def test_where_a_document_is_wrong_the_log_says_it_and_no_comment(project: Path) -> None:
    unreadable(project)
    assert on_github(project, "pull_request") == ["blis-tui check specs"]
    assert not (project / "gh.json").exists()


@pytest.mark.slow
@pytest.mark.nightly
def test_github_does_all_of_that_with_nothing_but_the_project(project: Path, machine: Mapping[str, str]) -> None:
    """Its lines as written, the installation first, which GitLab has too: blis-tui is in the project. All holds."""
    assert on_github(project, "pull_request", machine) == []
    assert [name for name in ("golden-report.md", "gh.json") if (project / name).exists()] == []
    (job,) = yaml.safe_load((project / GITHUB).read_text(encoding="utf-8"))["jobs"].values()
    assert INSTALLS in [step.get("run") for step in job["steps"]]


@pytest.mark.slow
@pytest.mark.nightly
def test_the_action_installs_its_own_checkout(project: Path, machine: Mapping[str, str]) -> None:
    """What it does then is tested above."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    (install,) = [step["run"] for step in action["runs"]["steps"] if step.get("run", "").startswith("pip ")]
    here = {**machine, "GITHUB_ACTION_PATH": str(ROOT)}
    assert shell(project.parent, f"{install} && test -x machine/bin/blis-tui", here) == 0


@pytest.mark.slow
@pytest.mark.nightly
def test_the_wheel_of_a_project_is_that_which_was_installed(wheel: Path, installed: Path, tmp_path: Path) -> None:
    """Made by an installation of the wheel, and by this one, out of a checkout."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    checked(str(installed / "blis-tui"), "spec", "init", "demo", env=clean, cwd=tmp_path)
    with zipfile.ZipFile(wheel) as built, zipfile.ZipFile(tmp_path / "demo" / "wheels" / NAME) as carried:
        names = {one for one in built.namelist() if not one.endswith(("/RECORD", "/WHEEL"))}
        assert {one for one in carried.namelist() if not one.endswith(("/RECORD", "/WHEEL"))} == names
        assert [name for name in names if built.read(name) != carried.read(name)] == []
        ours = own_wheel()
        assert ours is not None
        with zipfile.ZipFile(io.BytesIO(ours)) as edited:
            modules = {name for name in names if name.startswith("blis_tui/")}
            assert [module for module in modules if built.read(module) != edited.read(module)] == []
            assert {one for one in edited.namelist() if one.startswith("blis_tui/")} == modules
