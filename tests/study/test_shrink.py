"""The smallest workload that still breaks what is expected: tried out once more, file by file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.base.errors import InputError
from blis_tui.cli.main import cli
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.spec.authoring.provenance import compose
from blis_tui.study.shrink import shrink
from tests.golden.projects import blis_in, pytest_in

if TYPE_CHECKING:
    from click.testing import Result

OVERRIDES: Final = ["workload.requests=40"]
BOUND: Final[dict[str, object]] = {"metric": "latency.ttft_ms.p99", "max": 15.0}
"""Broken with seed 1."""


def bound(seed: int, requests: int) -> dict[str, object]:
    """One that the whole workload breaks."""
    whole = blis_tui.run("kv-pressure", set={"workload.requests": requests}, seed=seed).latency.ttft_ms.p99 or 0.0
    return {**BOUND, "max": round(0.8 * whole, 3)}


def breaks(text: str, folder: Path, expect: dict[str, object]) -> bool:
    """Whether the requests of a table break it, by a run of its own."""
    trace = folder / "part.csv"
    trace.write_text(text, encoding="utf-8")
    settings = {"workload": {"trace": {"file": str(trace)}}, "expect": [expect]}
    return not blis_tui.run("kv-pressure", set=settings).ok


@pytest.mark.parametrize(("seed", "requests"), [(1, 40), (42, 50)])
def test_what_is_left_breaks_it_and_without_any_one_request_it_holds(seed: int, requests: int, tmp_path: Path) -> None:
    wish = bound(seed, requests)
    found = shrink("kv-pressure", overrides=[f"workload.requests={requests}"], seed=seed, expect=[wish])
    assert found.requests == requests
    assert found.minimal
    assert 1 < len(found.rows) < requests
    head, *rows = found.csv().splitlines(keepends=True)
    assert breaks(head + "".join(rows), tmp_path, wish)
    for number in range(len(rows)):
        assert not breaks(head + "".join(rows[:number] + rows[number + 1 :]), tmp_path, wish)


def test_lengths_are_halved_as_often_as_it_is_still_broken(tmp_path: Path) -> None:
    wish = {**BOUND, "max": 40.0}
    found = shrink("kv-pressure", overrides=["workload.requests=50"], seed=1, expect=[wish])
    at = found.columns.index("requested_output_tokens")
    for number, row in enumerate(found.rows):
        half = (*row[:at], str(int(row[at]) // 2), *row[at + 1 :])
        rows = [*found.rows[:number], half, *found.rows[number + 1 :]]
        text = "\n".join(",".join(one) for one in [found.columns, *rows]) + "\n"
        # One that is shorter may let those before it be halved again: only the last one's lengths are at their end.
        if number == len(found.rows) - 1 and int(row[at]) > 1:
            assert not breaks(text, tmp_path, wish)
    assert int(found.rows[-1][at]) > 1


def test_what_holds_of_the_whole_is_not_looked_at() -> None:
    """Fewer requests break it, but that is not what was wrong."""
    exactly: dict[str, object] = {"metric": "requests.completed", "equals": 40}
    found = shrink("kv-pressure", overrides=OVERRIDES, seed=1, expect=[exactly, BOUND], most_runs=20)
    assert [verdict.metric for verdict in found.broken] == ["latency.ttft_ms.p99"]
    assert found.expect == (BOUND,)


def test_a_run_whose_course_is_not_as_expected_is_shrunk_too() -> None:
    overrides = ["workload.requests=16", "engine.kv_blocks=200"]
    found = shrink("kv-pressure", overrides=overrides, expect=[{"never": "preempted"}])
    assert [verdict.metric for verdict in found.broken] == ["never preempted"]
    assert found.broken[0].event is not None
    assert 1 < len(found.rows) < 16


def test_where_runs_do_not_suffice_what_was_found_is_given() -> None:
    found = shrink("kv-pressure", overrides=OVERRIDES, seed=1, expect=[BOUND], most_runs=4)
    assert (found.runs, found.minimal) == (4, False)
    assert found.broken


@pytest.mark.parametrize("expect", [[{"metric": "requests.completed", "min": 1}], []])
def test_where_nothing_is_broken_there_is_nothing_to_find(expect: list[dict[str, object]]) -> None:
    with pytest.raises(InputError, match="all expectations hold"):
        shrink("quickstart", expect=expect)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A folder in which the command was called, and what it said."""
    folder = tmp_path_factory.mktemp("shrunk")
    command = ["shrink", "kv-pressure", "--set", "workload.requests=40", "--expect", "latency.ttft_ms.p99<=15"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n", encoding="utf-8")
        return folder, CliRunner().invoke(cli, [*command, "-o", "small", "--seed", "1"])


def test_the_command_writes_a_trace_an_experiment_that_replays_it_and_its_golden(
    small: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, done = small
    monkeypatch.chdir(folder)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in folder.iterdir()) == ["golden", "pytest.ini", "small.blis.yaml", "small.csv"]
    lines = (folder / "small.csv").read_text(encoding="utf-8").count("\n")
    assert done.stdout.startswith(f"{lines - 1} of 40 requests are left after ")
    assert "without any one of them, the expectation holds\nFAIL  latency.ttft_ms.p99 is " in done.stdout
    assert done.stdout.endswith("wrote small.csv, small.blis.yaml and golden/small.golden.json\n")
    run = CliRunner().invoke(cli, ["run", "small.blis.yaml"])
    assert run.exit_code == ExitCode.CHECK_FAILED
    failed = next(line for line in done.stdout.splitlines() if line.startswith("FAIL"))
    assert failed in run.stderr
    report = blis_tui.run("small.blis.yaml")
    assert report.to_json() == run.stdout == (folder / "golden" / "small.report.json").read_text(encoding="utf-8")
    assert not report.ok


def test_what_it_writes_is_the_same_on_every_machine(small: tuple[Path, Result], tmp_path: Path) -> None:
    """Shipped files are named by what they are of, others from the experiment's folder."""
    folder, _ = small
    text = (folder / "small.blis.yaml").read_text(encoding="utf-8")
    assert "# blis-tui/specs/hardware/h100.yaml:" in text
    assert str(Path(blis_tui.__file__).parents[1]) not in text
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.yaml").write_text(
        "apiVersion: blis/v1\nkind: Policy\nmetadata: {name: mine}\n", encoding="utf-8"
    )
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        source = tmp_path / name / "here.blis.yaml"
        source.write_text(HERE, encoding="utf-8")
    one, two = (compose(str(tmp_path / name / "here.blis.yaml")).to_yaml() for name in ("one", "two"))
    assert one == two
    assert "# here.blis.yaml:4\n" in one
    assert "# ../policies/mine.yaml:3\n" in one


HERE: Final = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: here}
seed: 3
model: qwen3-14b
hardware: h100
workload: chatbot
policy: ../policies/mine.yaml
"""


def test_its_golden_test_passes_as_long_as_the_expectation_is_broken(
    small: tuple[Path, Result], tmp_path: Path
) -> None:
    """And fails when the result is another one, when it holds, and when something else is broken."""
    folder, _ = small
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    spec = tmp_path / "small.blis.yaml"
    text = spec.read_text(encoding="utf-8")
    assert pytest_in(tmp_path, "-o", "blis_checks=").returncode == 0
    changes = {
        "  max: 15.0": ("  max: 3000.0", "it holds now: remove it from golden.xfail: latency.ttft_ms.p99 is "),
        "xfail: [latency.ttft_ms.p99]": ("xfail: []", "expectation failed: latency.ttft_ms.p99 is "),
        "xfail: [": (
            "xfail: [kv.preemptions, ",
            "golden.xfail: `kv.preemptions` is not an expectation of the experiment",
        ),
    }
    for old, (new, message) in changes.items():
        assert old in text
        spec.write_text(text.replace(old, new), encoding="utf-8")
        run = pytest_in(tmp_path, "-o", "blis_checks=", "--blis-update=always")
        assert (run.returncode, message in run.stdout) == (1, True), run.stdout
        assert blis_in(tmp_path, "golden", "report").returncode == 1
    spec.write_text(text.replace("kv_blocks: 600", "kv_blocks: 590"), encoding="utf-8")
    assert "differs from its golden" in pytest_in(tmp_path, "-o", "blis_checks=").stdout


def test_a_golden_is_written_only_where_one_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["shrink", "kv-pressure", "--set", "workload.requests=30", "--expect", "latency.ttft_ms.p99<=30"]
    assert CliRunner().invoke(cli, [*command, "-o", "small", "--no-golden", "--runs", "3"]).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.blis.yaml", "small.csv"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["quickstart", "-o", "small"], "--expect 'latency.ttft_ms.p99<="),
        (["-", "-o", "small"], "write the experiment to a file"),
        (["kv-pressure", "--expect", "latency.ttft<=3", "-o", "small"], "--> --expect\n  |\n1 | latency.ttft<=3"),
        (["kv-pressure", "--expect", "fast", "-o", "small"], "--> --expect"),
        (["kv-pressure", "--expect", "latency.ttft_ms.p99<=1", "-o", "no/small"], "no/small"),
    ],
)
def test_bad_input_is_one_error_and_writes_nothing(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["shrink", *arguments])
    assert done.exit_code in (ExitCode.USAGE, ExitCode.IO)
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_guide_says_how_many_are_left() -> None:
    page = (Path(__file__).parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
    assert "blis-tui shrink kv-pressure --expect 'latency.ttft_ms.p99<=500'" in page
    found = shrink("kv-pressure", expect=[{"metric": "latency.ttft_ms.p99", "max": 500}])
    assert f"Here {len(found.rows)} of {found.requests} requests are left" in " ".join(page.split())
