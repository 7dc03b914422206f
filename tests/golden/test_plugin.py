"""The pytest plugin in projects of its users: real processes, real files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import InputError
from blis_tui.golden.project import configuration

from .projects import SPEC, blis_in, files, project, pytest_in

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN = ["demo.golden.json", "demo.report.json"]
WAITING = ["demo.golden.json.new", "demo.report.json.new"]


@pytest.fixture(scope="module")
def first_accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose golden is accepted, to be copied."""
    folder = project(tmp_path_factory.mktemp("accepted"))
    assert pytest_in(folder, "--blis-update=unseen").returncode == 0
    assert files(folder) == GOLDEN
    return folder


@pytest.fixture
def accepted(first_accepted: Path, tmp_path: Path) -> Path:
    """A project of its own whose golden is accepted."""
    return shutil.copytree(first_accepted, tmp_path, dirs_exist_ok=True)


def test_a_new_result_waits_until_it_is_accepted(tmp_path: Path) -> None:
    folder = project(tmp_path, checks=None)
    first = pytest_in(folder)
    assert first.returncode == 1
    assert "there is no golden yet: demo" in first.stdout
    assert "blis-tui golden review" in first.stdout
    assert files(folder) == WAITING
    status = blis_in(folder, "golden", "status", "--json")
    assert status.returncode == 1
    assert [(load["name"], load["golden"], load["pending"]) for load in json.loads(status.stdout)] == [
        ("demo", False, True)
    ]
    assert blis_in(folder, "golden", "accept").stdout == "accepted demo\n"
    assert files(folder) == GOLDEN
    assert pytest_in(folder).returncode == 0
    status = blis_in(folder, "golden", "status")
    assert status.stdout.splitlines()[-1] == "1 golden test: 1 up to date"
    again = blis_in(folder, "golden", "review", "--accept", "demo")
    assert (again.returncode, again.stderr.splitlines()[0]) == (3, "error: no result of demo is waiting")
    both = blis_in(folder, "golden", "review", "--accept", "--reject", "demo")
    assert (both.returncode, both.stderr.splitlines()[-1]) == (2, "Error: --accept and --reject exclude each other")
    assert status.returncode == 0


def test_goldens_lie_beside_the_project_of_their_experiment(tmp_path: Path) -> None:
    """Wherever pytest starts, and what it advises works there."""
    assert blis_in(tmp_path, "spec", "init", "demo").returncode == 0
    once = ("-o", "blis_checks=observers")
    assert pytest_in(tmp_path, *once).returncode == 0
    spec = tmp_path / "demo" / "specs" / "demo.blis.yaml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("seed: 1\n", "seed: 7\n"), encoding="utf-8")
    changed = pytest_in(tmp_path, *once, GITHUB_ACTIONS="true")
    assert changed.returncode == 1
    assert not (tmp_path / "golden").exists()
    advised = "blis-tui golden review --accept demo --golden-dir demo/golden"
    assert f"    {advised}\n" in changed.stdout
    assert "blis-tui golden review --root demo\n" in changed.stdout
    assert "blis-tui tui demo/specs/demo.blis.yaml --at " in changed.stdout
    assert "::error file=demo/specs/demo.blis.yaml,line=1::" in changed.stdout
    shown = blis_in(tmp_path, "golden", "diff", "--root", "demo")
    assert shown.stdout.startswith("demo: the result of case `default` differs from its golden\n")
    assert blis_in(tmp_path, *advised.split()[1:]).stdout == "accepted demo\n"
    for folder in (tmp_path, tmp_path / "demo"):
        assert pytest_in(folder, *once).returncode == 0


@pytest.mark.parametrize(
    ("name", "text", "settings"),
    [
        ("pytest.ini", "[pytest]\naddopts = -q\nblis_golden_dir = results\n", {"blis_golden_dir": "results"}),
        (".pytest.ini", "", {}),
        ("tox.ini", "[pytest]\nblis_spec_root = specs\n", {"blis_spec_root": "specs"}),
        ("tox.ini", "[tox]\n", None),
        ("setup.cfg", "[tool:pytest]\n", {}),
        ("setup.cfg", "[metadata]\n", None),
        ("pyproject.toml", "[tool.pytest.ini_options]\nblis_golden_dir = 'g'\n", {"blis_golden_dir": "g"}),
        ("pyproject.toml", "[tool.pytest]\nblis_golden_dir = 'g'\nminversion = '9'\n", {"blis_golden_dir": "g"}),
        ("pyproject.toml", "[project]\nname = 'x'\n", None),
        ("other.ini", "[pytest]\n", None),
    ],
)
def test_a_project_is_where_pytest_is_configured(
    tmp_path: Path, name: str, text: str, settings: dict[str, str] | None
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert configuration(tmp_path) == settings


@pytest.mark.parametrize(("name", "text"), [("pytest.ini", "nothing"), ("pyproject.toml", "[")])
def test_a_broken_configuration_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(name)):
        configuration(tmp_path)


def test_on_ci_nothing_is_ever_written(tmp_path: Path) -> None:
    folder = project(tmp_path)
    assert pytest_in(folder, CI="1").returncode == 1
    assert files(folder) == []


def test_a_changed_policy_is_shown_with_its_first_divergent_event(accepted: Path) -> None:
    policy = "policy: {metadata: {name: blis}, scheduling: {kind: sjf}, batching: {kind: blis}}"
    (accepted / "demo.blis.yaml").write_text(SPEC.replace("policy: blis", policy), encoding="utf-8")
    run = pytest_in(accepted)
    assert run.returncode == 1
    assert "  - policy.scheduling.kind       fcfs\n  + policy.scheduling.kind       sjf\n" in run.stdout
    assert "first divergence: event " in run.stdout
    assert "\n  - event " in run.stdout
    assert "\n  + event " in run.stdout
    assert "instance 0: " in run.stdout
    assert files(accepted) == sorted(GOLDEN + WAITING)
    shown = blis_in(accepted, "golden", "diff", "demo")
    assert "first divergence: event " in shown.stdout
    assert blis_in(accepted, "golden", "reject", "demo").stdout == "rejected demo\n"
    assert files(accepted) == GOLDEN


def test_a_result_that_is_golden_again_no_longer_waits(accepted: Path) -> None:
    (accepted / "demo.blis.yaml").write_text(SPEC.replace("kv_blocks: 60", "kv_blocks: 61"), encoding="utf-8")
    assert pytest_in(accepted).returncode == 1
    (accepted / "demo.blis.yaml").write_text(SPEC, encoding="utf-8")
    assert pytest_in(accepted).returncode == 0
    assert files(accepted) == GOLDEN


@pytest.mark.parametrize(
    ("mode", "missing", "changed"),
    [
        ("no", [], GOLDEN),
        ("new", WAITING, GOLDEN + WAITING),
        ("unseen", GOLDEN, GOLDEN + WAITING),
        ("always", GOLDEN, GOLDEN),
    ],
)
def test_modes_write_what_they_say(tmp_path: Path, mode: str, missing: list[str], changed: list[str]) -> None:
    folder = project(tmp_path)
    code = pytest_in(folder, f"--blis-update={mode}").returncode
    assert (files(folder), code) == (missing, 0 if missing == GOLDEN else 1)
    pytest_in(folder, "--blis-update=always")
    (folder / "demo.blis.yaml").write_text(SPEC.replace("requests: 25", "requests: 24"), encoding="utf-8")
    code = pytest_in(folder, f"--blis-update={mode}").returncode
    assert (files(folder), code) == (sorted(changed), 0 if mode == "always" else 1)


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        ((), {"BLIS_UPDATE": "all"}, "BLIS_UPDATE is 'all': choose from auto, no, new, unseen, always"),
        (("-o", "blis_checks=observers seeds"), {}, "blis_checks: no check is named 'seeds'; known are observers, "),
        (("--blis-report=nowhere/out.html",), {}, "--blis-report: no file can be written as nowhere/out.html"),
        (("--blis-report=golden",), {}, "--blis-report: no file can be written as golden"),
    ],
)
def test_a_setting_that_cannot_be_is_told_before_anything_runs(
    accepted: Path, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    run = pytest_in(accepted, *arguments, **environment)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in run.stderr
    assert run.stdout.strip() == ""


def test_a_report_that_cannot_be_written_is_told(accepted: Path) -> None:
    (accepted / "conftest.py").write_text(
        "from pathlib import Path\ndef pytest_runtestloop():\n    Path('out/x.html').parent.rmdir()\n",
        encoding="utf-8",
    )
    (accepted / "out").mkdir()
    run = pytest_in(accepted, "--blis-report=out/x.html")
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "--blis-report: cannot write out/x.html: No such file or directory\n" in run.stdout
    assert run.stderr == ""


def test_goldens_of_another_python_are_not_overwritten_unless_forced(accepted: Path) -> None:
    header = accepted / "golden" / "demo.golden.json"
    header.write_text(header.read_text().replace('"python": "CPython 3.', '"python": "CPython 2.'), encoding="utf-8")
    (accepted / "demo.blis.yaml").write_text(SPEC.replace("requests: 25", "requests: 24"), encoding="utf-8")
    refused = pytest_in(accepted, "--blis-update=always")
    assert refused.returncode == 1
    assert "goldens are updated only where they were written" in refused.stdout
    assert pytest_in(accepted).returncode == 1
    accept = blis_in(accepted, "golden", "accept")
    assert (accept.returncode, accept.stdout) == (3, "")
    assert "accept it with --force" in accept.stderr
    assert blis_in(accepted, "golden", "accept", "--force").returncode == 0
    assert pytest_in(accepted, "--blis-update=always", "--blis-force").returncode == 0


def test_cases_and_matrix_are_items_of_their_own(tmp_path: Path) -> None:
    cases = (
        "cases: {tight: {engine.kv_blocks: 50}, wide: {engine.kv_blocks: 500}}\nmatrix: {cluster.instances: [1, 2]}\n"
    )
    folder = project(tmp_path, SPEC + cases + "tags: [quick]\n")
    assert pytest_in(folder, "--blis-update=unseen", "-p", "xdist", "-n", "2").returncode == 0
    names = ["tight,instances=1", "tight,instances=2", "wide,instances=1", "wide,instances=2"]
    assert files(folder) == sorted(f"demo@{name}.{kind}.json" for name in names for kind in ("golden", "report"))
    assert "2 passed, 2 deselected" in pytest_in(folder, "-k", "wide").stdout
    assert "4 passed" in pytest_in(folder, "-m", "quick").stdout
    assert "1 passed" in pytest_in(folder, "demo.blis.yaml::tight,instances=2").stdout


@pytest.mark.parametrize(("key", "summary"), [("skip", "1 skipped"), ("xfail", "1 xfailed")])
def test_skip_and_xfail_give_their_reason(tmp_path: Path, key: str, summary: str) -> None:
    folder = project(tmp_path, SPEC + f"{key}: waiting for a better cache\n")
    run = pytest_in(folder, "-ra")
    assert run.returncode == 0
    assert summary in run.stdout
    assert "waiting for a better cache" in run.stdout


def test_an_invalid_experiment_is_a_failure_with_its_diagnostics(tmp_path: Path) -> None:
    folder = project(tmp_path, SPEC.replace("kv_blocks", "kv_block"))
    (folder / "test_other.py").write_text("def test_other():\n    pass\n", encoding="utf-8")
    run = pytest_in(folder)
    assert run.returncode == 1
    assert "1 failed, 1 passed" in run.stdout
    assert "did you mean `kv_blocks`?" in run.stdout
    assert "Traceback" not in run.stdout


def test_other_documents_are_no_tests(tmp_path: Path) -> None:
    folder = project(tmp_path)
    text = "apiVersion: blis/v1\nkind: Policy\nmetadata: {name: p}\n"
    (folder / "policy.blis.yaml").write_text(text, encoding="utf-8")
    assert "1 passed" in pytest_in(folder, "--blis-update=always").stdout


def test_failed_expectations_fail_although_the_bytes_are_golden(tmp_path: Path) -> None:
    folder = project(tmp_path, SPEC + "expect: [{metric: requests.completed, min: 99}]\n")
    message = "expectation failed: requests.completed is 25, expected"
    first = pytest_in(folder, "--blis-update=new")
    assert "there is no golden yet" in first.stdout
    assert message in first.stdout
    pytest_in(folder, "--blis-update=always")
    run = pytest_in(folder)
    assert run.returncode == 1
    assert message in run.stdout


@pytest.mark.parametrize(("action", "code"), [("ignore", 0), ("warn", 0), ("fail", 1), ("delete", 0)])
def test_obsolete_goldens_are_found_on_full_runs_only(accepted: Path, action: str, code: int) -> None:
    (accepted / "demo.blis.yaml").rename(accepted / "other.blis.yaml")
    first = pytest_in(accepted, "other.blis.yaml", "--blis-update=always", f"--blis-obsolete={action}")
    assert "obsolete" not in first.stdout
    assert "obsolete" not in pytest_in(accepted, "-k", "default", f"--blis-obsolete={action}").stdout
    assert "demo.golden.json" in files(accepted)
    workers = ("-p", "xdist", "-n", "1") if action in ("fail", "delete") else ()
    run = pytest_in(accepted, f"--blis-obsolete={action}", *workers)
    assert run.returncode == code
    assert ("obsolete goldens" in run.stdout) == (action != "ignore")
    assert ("demo.golden.json" in files(accepted)) == (action != "delete")
    assert blis_in(accepted, "golden", "status").returncode == (0 if action == "delete" else 1)


@pytest.mark.parametrize(("changed", "result"), [(False, "the same"), (True, "another")])
def test_a_renamed_experiment_is_told_with_its_golden(accepted: Path, changed: bool, result: str) -> None:
    """Nothing but its name has changed, so that its new result needs no review."""
    (accepted / "demo.blis.yaml").rename(accepted / "other.blis.yaml")
    if changed:
        report = accepted / "golden" / "demo.report.json"
        report.write_text(report.read_text().replace('"completed": 25', '"completed": 24'))
    message = f"demo: its experiment is now other.blis.yaml::default, with {result} result\n"
    for workers in ((), ("-p", "xdist", "-n", "1")):
        assert message in pytest_in(accepted, *workers).stdout
    (accepted / "other.blis.yaml").write_text(SPEC.replace("requests: 25", "requests: 24"))
    assert "its experiment is now" not in pytest_in(accepted).stdout


def test_half_a_golden_says_what_to_do(accepted: Path) -> None:
    for name in ("demo.report.json", "demo.golden.json"):
        path = accepted / "golden" / name
        for damaged in (None, b"", b"{", b"[]"):
            text = path.read_bytes()
            path.unlink() if damaged is None else path.write_bytes(damaged)
            output = pytest_in(accepted).stdout
            if damaged is None and name == "demo.golden.json":
                assert "there is no golden yet: demo\n" in output
            else:
                assert "restore it, or delete this golden's files: then pytest offers a new one for review" in output
            path.write_bytes(text)


@pytest.mark.parametrize("what", ["skipped", "crashed", "invalid", "deleted"])
def test_workers_find_the_same_obsolete_goldens(accepted: Path, what: str) -> None:
    """Only they collect tests; one that crashes cannot tell which."""
    (accepted / "other.blis.yaml").write_text(SPEC, encoding="utf-8")
    if what == "skipped":
        (accepted / "demo.blis.yaml").write_text(f"{SPEC}skip: because\n", encoding="utf-8")
    elif what == "crashed":
        text = "import os\n\ndef pytest_runtest_call(item):\n    os._exit(3)\n"
        (accepted / "conftest.py").write_text(text, encoding="utf-8")
    elif what == "invalid":
        (accepted / "demo.blis.yaml").write_text(SPEC.replace("model:", "modell:"), encoding="utf-8")
    else:
        (accepted / "demo.blis.yaml").unlink()
    workers = ("-p", "xdist", "-n", "1", "--max-worker-restart=0")
    ended = pytest_in(accepted, *workers, "--blis-update=unseen", "--blis-obsolete=delete")
    assert ("obsolete goldens" in ended.stdout) == (what == "deleted")
    assert files(accepted)[:2] == (["other.golden.json", "other.report.json"] if what == "deleted" else GOLDEN)


def test_where_a_part_cannot_be_collected_nothing_is_obsolete(accepted: Path) -> None:
    (accepted / "part").mkdir()
    (accepted / "demo.blis.yaml").rename(accepted / "part" / "demo.blis.yaml")
    (accepted / "part" / "conftest.py").write_text("1 / 0\n", encoding="utf-8")
    (accepted / "other.blis.yaml").write_text(SPEC, encoding="utf-8")
    ended = pytest_in(accepted, "--blis-update=unseen", "--continue-on-collection-errors", "--blis-obsolete=delete")
    assert "1 passed, 1 error" in ended.stdout
    assert files(accepted)[:2] == GOLDEN


def test_what_a_part_of_the_project_has_no_test_for_is_not_obsolete(accepted: Path) -> None:
    """Neither where pytest starts in a folder of the project, nor where it is told to leave one out."""
    part = accepted / "part"
    part.mkdir()
    shutil.copy(accepted / "demo.blis.yaml", part / "other.blis.yaml")
    assert pytest_in(part, "--blis-update=unseen", "--blis-obsolete=delete").returncode == 0
    for left_out in ("--ignore=demo.blis.yaml", "--ignore-glob=*demo*"):
        assert pytest_in(accepted, left_out, "--blis-obsolete=delete").returncode == 0
    assert files(accepted) == [*GOLDEN, "part"]
    assert len(list((accepted / "golden" / "part").iterdir())) == len(GOLDEN)


def test_a_folder_of_a_project_has_its_goldens(accepted: Path) -> None:
    """`golden` finds them from there, and what pytest advises there works there."""
    with (accepted / "pytest.ini").open("a", encoding="utf-8") as ini:
        ini.write("blis_golden_dir = results\n")
    (accepted / "golden").rename(accepted / "results")
    part = accepted / "part"
    part.mkdir()
    shutil.copy(accepted / "demo.blis.yaml", part / "other.blis.yaml")
    ran = pytest_in(part)
    assert "    blis-tui golden review --accept part/other\n" in ran.stdout
    assert "review them with: blis-tui golden review\n" in ran.stdout
    for folder in (part, accepted):
        listed = blis_in(folder, "golden", "status").stdout.splitlines()
        assert listed[-1] == "2 golden tests: 1 up to date, 1 new; 1 new result waiting"
    assert blis_in(part, "golden", "status", "--format", "diff").stdout.startswith("part/other: a new golden\n")
    there = blis_in(accepted.parent, "golden", "review", "--root", accepted.name).stdout
    assert f"    blis-tui golden review --accept part/other --root {accepted.name}\n" in there
    assert blis_in(part, "golden", "review", "--accept", "part/other").stdout == "accepted part/other\n"
    assert blis_in(part, "golden", "status").returncode == 0


def test_where_nothing_is_configured_the_root_is_that_of_pytest(tmp_path: Path) -> None:
    """The nearest folder with a ``pyproject.toml``, whatever is in it."""
    (tmp_path / "part").mkdir()
    part = project(tmp_path / "part")
    (part / "pytest.ini").unlink()
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    ran = pytest_in(part, "-o", "blis_checks=observers")
    assert "    blis-tui golden review --accept part/demo\n" in ran.stdout
    assert "review them with: blis-tui golden review\n" in ran.stdout
    assert blis_in(part, "golden", "review", "--accept", "part/demo").stdout == "accepted part/demo\n"
    assert files(tmp_path) == ["part"]


def test_redacted_and_tolerated_values_do_not_count(accepted: Path) -> None:
    changed = SPEC.replace("beta: [5000, 20, 30]", "beta: [5001, 20, 30]")
    (accepted / "demo.blis.yaml").write_text(changed, encoding="utf-8")
    run = pytest_in(accepted, "--blis-update=no")
    paths = [line.split()[1] for line in run.stdout.splitlines() if line.startswith(("  - /", "  + /"))]
    assert "/latency/ttft_ms/p50" in paths
    report = json.loads((accepted / "golden" / "demo.report.json").read_text())
    numbers = [f"/latency/{name}/{key}" for name, values in report["latency"].items() for key in values]
    numbers += [
        f"/slo_classes/standard/{name}/{key}" for name in ("ttft_ms", "e2e_ms") for key in report["latency"]["e2e_ms"]
    ]
    numbers += [f"/instances/0/itl_ms/{key}" for key in report["latency"]["itl_ms"]]
    numbers += ["/duration_us", "/throughput/requests_per_s", "/throughput/output_tokens_per_s"]
    tolerance = ", ".join(f"{path}: {{rel: 0.5}}" for path in numbers)
    settings = (
        f"golden: {{records: false, redact: [/meta/spec_sha256, /instances, /warnings], tolerance: {{{tolerance}}}}}\n"
    )
    (accepted / "demo.blis.yaml").write_text(changed + settings, encoding="utf-8")
    run = pytest_in(accepted, "--blis-update=no")
    assert run.returncode == 0, run.stdout


def test_reports_for_people_and_machines(accepted: Path) -> None:
    (accepted / "demo.blis.yaml").write_text(SPEC.replace("policy: blis", "policy: sjf"), encoding="utf-8")
    run = pytest_in(accepted, "--blis-report=out.html", "--junitxml=out.xml", GITHUB_ACTIONS="true")
    assert "::error file=demo.blis.yaml,line=1::demo: the result of case `default` differs" in run.stdout
    html = (accepted / "out.html").read_text(encoding="utf-8")
    assert "1 test, 1 failed" in html
    assert "first divergence: event" in html
    assert "<script" not in html
    assert "http" not in html
    assert "demo.blis.yaml" in (accepted / "out.xml").read_text(encoding="utf-8")


def test_review_without_a_terminal_lists_the_commands(tmp_path: Path) -> None:
    folder = project(tmp_path)
    pytest_in(folder)
    run = blis_in(folder, "golden", "review")
    assert run.stdout.splitlines() == [
        "demo",
        "    blis-tui golden status --format diff demo",
        "    blis-tui golden review --accept demo",
        "    blis-tui golden review --reject demo",
    ]
    missing = blis_in(folder, "golden", "accept", "nothing")
    assert (missing.returncode, missing.stderr.splitlines()[0]) == (3, "error: nothing matches nothing")
    for style in ("table", "json", "diff", "github"):
        assert blis_in(folder, "golden", "status", "nothing", "--format", style).returncode == 3


def test_a_conflict_that_a_merge_has_left_is_told_as_one(accepted: Path) -> None:
    header = accepted / "golden" / "demo.golden.json"
    ours = header.read_text(encoding="utf-8").splitlines(keepends=True)
    header.write_text("".join([ours[0], "<<<<<<< HEAD\n", *ours[1:3], "=======\n", ">>>>>>> other\n", *ours[3:]]))
    message = "golden/demo.golden.json is not a golden file of format 1: a merge has left a conflict at line 2"
    assert message in pytest_in(accepted).stdout
    assert message in blis_in(accepted, "golden", "status").stdout


def test_what_has_changed_is_told_where_nothing_can_be_written(accepted: Path) -> None:
    (accepted / "golden" / "demo.report.json.new").mkdir()
    (accepted / "demo.blis.yaml").write_text(SPEC.replace("kv_blocks: 60", "kv_blocks: 50"), encoding="utf-8")
    run = pytest_in(accepted)
    assert "first divergence: event" in run.stdout
    assert "the new result is not kept: cannot write" in run.stdout
    assert "golden review" not in run.stdout


def test_a_result_of_what_the_experiment_no_longer_is_has_no_first_event(accepted: Path) -> None:
    """It was changed, tested, and changed back: this run of it is the golden's, not that of the result."""
    before = (accepted / "demo.blis.yaml").read_text(encoding="utf-8")
    (accepted / "demo.blis.yaml").write_text(before.replace("kv_blocks: 60", "kv_blocks: 50"), encoding="utf-8")
    pytest_in(accepted)
    assert "first divergence: event" in blis_in(accepted, "golden", "status", "--format", "diff").stdout
    (accepted / "demo.blis.yaml").write_text(before, encoding="utf-8")
    for layout in ("diff", "github"):
        status = blis_in(accepted, "golden", "status", "--format", layout)
        assert (status.returncode, status.stderr) == (1, "")
        assert "has changed since this result was made: run pytest again" in status.stdout
        assert "first divergence" not in status.stdout
    assert pytest_in(accepted).returncode == 0


def test_two_files_never_share_a_golden(tmp_path: Path) -> None:
    project(tmp_path, SPEC + "cases:\n  small: {engine.kv_blocks: 50}\n")
    (tmp_path / "demo@small.blis.yaml").write_text(SPEC, encoding="utf-8")
    done = pytest_in(tmp_path, "--blis-update=unseen")
    assert "1 failed, 1 passed" in done.stdout
    same = "demo@small.blis.yaml: a case `small` of demo.blis.yaml would have the same golden, `demo@small`"
    assert same in done.stdout
    assert "= help: rename the file; `NAME@CASE` is what the golden of a case is called" in done.stdout
    (tmp_path / "demo@small.blis.yaml").rename(tmp_path / "other@small.blis.yaml")
    assert pytest_in(tmp_path, "--blis-update=unseen").returncode == 0


def test_a_link_to_an_experiment_has_a_golden_of_its_own(tmp_path: Path) -> None:
    """Wherever the file lies; otherwise both would write the same golden in turn."""
    (tmp_path / "project").mkdir()
    folder = project(tmp_path / "project")
    (tmp_path / "outside.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "link.blis.yaml").symlink_to("demo.blis.yaml")
    (folder / "far.blis.yaml").symlink_to(tmp_path / "outside.yaml")
    assert pytest_in(folder, "--blis-update=unseen").returncode == 0
    assert files(folder) == [f"{name}.{kind}.json" for name in ("demo", "far", "link") for kind in ("golden", "report")]
    assert pytest_in(folder).returncode == 0
    assert "3 golden tests: 3 up to date" in blis_in(folder, "golden", "status").stdout


def test_an_experiment_outside_the_root_folder_is_told(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder / "ci").mkdir()
    (folder / "pytest.ini").rename(folder / "ci" / "pytest.ini")
    ended = pytest_in(folder, "-c", "ci/pytest.ini", ".")
    assert "demo.blis.yaml is not below ci, the root folder of the tests" in ended.stdout
    assert "1 failed" in ended.stdout
    assert pytest_in(folder, "-c", "ci/pytest.ini", "--rootdir=.", "--blis-update=unseen").returncode == 0
    assert files(folder) == GOLDEN


def test_a_name_that_is_too_long_for_a_file_is_told(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder / "demo.blis.yaml").rename(folder / f"{'x' * 240}.blis.yaml")
    run = pytest_in(folder)
    assert "the new result is not kept: cannot write" in run.stdout
    assert "Traceback" not in run.stdout


def test_a_folder_of_goldens_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder / "golden").write_text("in the way", encoding="utf-8")
    run = pytest_in(folder)
    assert "there is no golden yet: demo\nthe new result is not kept: cannot write" in run.stdout


def test_accepting_where_nothing_can_be_written_is_an_error(tmp_path: Path) -> None:
    folder = project(tmp_path)
    pytest_in(folder)
    (folder / "golden" / "demo.report.json").mkdir()
    run = blis_in(folder, "golden", "review", "--accept")
    assert run.returncode == 3
    assert "Traceback" not in run.stderr
    assert run.stderr == "error: cannot write golden/demo.report.json: Is a directory\n"
    assert files(folder) == ["demo.golden.json.new", "demo.report.json", "demo.report.json.new"]


def test_a_damaged_golden_is_told_and_not_believed(accepted: Path) -> None:
    (accepted / "golden" / "demo.golden.json").write_text("{}", encoding="utf-8")
    run = pytest_in(accepted)
    assert run.returncode == 1
    assert "is not a golden file of format 1" in run.stdout
    assert "Traceback" not in run.stdout
    assert pytest_in(accepted, "--blis-update=always").returncode == 0
    assert pytest_in(accepted).returncode == 0


def test_collecting_other_projects_costs_no_heavy_import(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "import sys\ndef test_x():\n    heavy = {'yaml', 'jsonschema', 'blis_tui.runs.simulation'}\n"
        "    assert not heavy & set(sys.modules)\n",
        encoding="utf-8",
    )
    options = ["-p", "blis_tui.pytest_plugin", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout


def test_a_result_that_is_not_kept_says_how_to_keep_it(accepted: Path) -> None:
    """On CI nothing is written by default, so there is nothing to review."""
    (accepted / "demo.blis.yaml").write_text(SPEC.replace("policy: blis", "policy: sjf"), encoding="utf-8")
    (accepted / "more.blis.yaml").write_text(SPEC.replace("name: demo", "name: more"), encoding="utf-8")
    run = pytest_in(accepted, CI="true")
    assert run.stdout.count("\nthe new result is not kept: to review and accept it, run pytest with") >= 2, run.stdout
    assert "result is waiting" not in run.stdout
    assert not [*(accepted / "golden").glob("*.new")]
    run = pytest_in(accepted, "--blis-update=new", CI="true")
    assert "not kept" not in run.stdout
