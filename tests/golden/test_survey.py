"""All goldens at a glance, the broken ones included."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from blis_tui.golden.case import cases_of
from blis_tui.golden.comment import STYLES, comment
from blis_tui.golden.golden_divergence import old_experiment, record_lines, repeated
from blis_tui.golden.golden_store import HEADER, REPORT, GoldenFiles, files_of
from blis_tui.golden.produce import produce
from blis_tui.golden.review import accept, difference_text, find, look, survey
from blis_tui.golden.session import GoldenSettings, run_case
from tests.golden.projects import SPEC, blis_in, project

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.golden.case import Case
    from blis_tui.runs.simulation import Simulation


def stored(folder: Path, *, pending: bool = False) -> tuple[Case, GoldenFiles]:
    """A project whose result is stored, as its golden or waiting."""
    return stored_as_is(project(folder) / "demo.blis.yaml", pending=pending)


def stored_as_is(spec: Path, *, pending: bool = False) -> tuple[Case, GoldenFiles]:
    """An experiment's result is stored."""
    case = cases_of(spec)[0]
    files = files_of(spec, case.name, folder=spec.parent / "golden", root=spec.parent)
    files.write(produce(case.load(), spec=spec.name, case=case.name), pending=pending)
    return case, files


def states(folder: Path) -> list[tuple[str, str, bool]]:
    return [(entry.name, entry.state, entry.waiting) for entry in survey(folder / "golden", folder)]


def test_states_follow_what_is_stored(tmp_path: Path) -> None:
    case, files = stored(tmp_path, pending=True)
    assert states(tmp_path) == [("demo", "new", True)]
    accept(files)
    assert states(tmp_path) == [("demo", "golden", False)]
    files.write(produce(case.load(), spec="demo.blis.yaml", case=case.name), pending=True)
    assert states(tmp_path) == [("demo", "changed", True)]
    (tmp_path / "demo.blis.yaml").unlink()
    assert states(tmp_path) == [("demo", "obsolete", True)]
    files.remove()
    assert states(tmp_path) == []


def test_a_golden_renamed_with_its_experiment_is_one_that_changes(tmp_path: Path) -> None:
    _, files = stored(tmp_path)
    (tmp_path / "demo.blis.yaml").rename(tmp_path / "chat.blis.yaml")
    renamed = GoldenFiles(files.folder, "chat")
    for kind in (HEADER, REPORT):
        files.file(kind).rename(renamed.file(kind))
    assert states(tmp_path) == [("chat", "obsolete", False)]  # nothing says yet that it is the same test
    (case,) = cases_of(tmp_path / "chat.blis.yaml")
    renamed.write(produce(case.load(), spec="chat.blis.yaml", case=case.name), pending=True)
    assert states(tmp_path) == [("chat", "changed", True)]
    assert look(renamed, tmp_path).spec == "chat.blis.yaml"
    assert 'and would be `"spec": "chat.blis.yaml",`' in difference_text(renamed, tmp_path)
    text, _ = comment(renamed.folder, tmp_path, (), None, STYLES["github"])
    assert "#### `chat`: changed\n\n`chat.blis.yaml`" in text
    accept(renamed)
    assert states(tmp_path) == [("chat", "golden", False)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1}', "\udcff"])
def test_a_broken_golden_is_listed_with_its_error(tmp_path: Path, text: str) -> None:
    _, files = stored(tmp_path)
    files.file(HEADER).write_bytes(text.encode(errors="surrogateescape"))
    entry = look(files, tmp_path)
    assert (entry.state, entry.spec) == ("broken", "")
    assert "demo.golden.json" in entry.problem


def test_a_broken_experiment_is_told_apart(tmp_path: Path) -> None:
    _, files = stored(tmp_path)
    (tmp_path / "demo.blis.yaml").write_text("kind: [\n", encoding="utf-8")
    entry = look(files, tmp_path)
    assert (entry.state, entry.spec, entry.case) == ("broken", "demo.blis.yaml", "default")
    assert "demo.blis.yaml" in entry.problem


def test_the_old_experiment_is_made_from_what_was_stored(tmp_path: Path) -> None:
    case, files = stored(tmp_path)
    (tmp_path / "demo.blis.yaml").write_text(SPEC.replace("kv_blocks: 60", "kv_blocks: 80"), encoding="utf-8")
    golden, now = files.read(), case.load()
    old = old_experiment(golden, now)
    assert old is not None
    assert (old.pools[0].engine.kv_blocks, now.pools[0].engine.kv_blocks) == (60, 80)
    end = golden.chain.events
    assert repeated(old, golden, 0, end) == list(record_lines(old))
    assert repeated(now, golden, 0, end) is None
    middle = repeated(old, golden, 10, 20)
    assert middle is not None
    assert [json.loads(line)["event"] for line in (middle[0], middle[-1])] == [11, 21], "the next shows that it goes on"


def test_who_watches_a_golden_test_can_stop_it_before_anything_is_written(tmp_path: Path) -> None:
    spec = project(tmp_path, SPEC.replace("requests: 25", "requests: 4000")) / "demo.blis.yaml"
    case = cases_of(spec)[0]
    files = files_of(spec, case.name, folder=tmp_path / "golden", root=tmp_path)

    class Stopped(Exception):  # noqa: N818  (no error)
        pass

    def stop(simulation: Simulation) -> bool:
        assert simulation.events
        raise Stopped

    with pytest.raises(Stopped):
        run_case(case, files, "demo.blis.yaml", GoldenSettings(mode="new", checks=()), stop)
    assert not files.exists(pending=True)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("demo", True),
        ("de*", True),
        ("demo.blis.yaml", True),
        ("./demo.blis.yaml", True),
        ("demo.blis.yaml::default", True),
        ("*.yaml::def*", True),
        ("demo.blis.yaml::other", False),
        ("demos", False),
    ],
)
def test_a_golden_is_named_as_status_and_pytest_name_it(tmp_path: Path, pattern: str, found: bool) -> None:
    stored(tmp_path)
    assert len(find(tmp_path / "golden", [pattern])) == found
    (tmp_path / "golden" / "demo.golden.json").write_text("{}")  # broken: it has a name, and no file or case
    assert len(find(tmp_path / "golden", [pattern])) == (found and ".yaml" not in pattern)


def test_what_no_experiment_has_any_more_is_listed_and_deleted_only_when_asked(tmp_path: Path) -> None:
    _, files = stored(tmp_path)
    _, other = stored(tmp_path)
    (tmp_path / "gone.blis.yaml").write_text(SPEC, encoding="utf-8")
    gone = GoldenFiles(files.folder, "gone")
    gone.write(replace(other.read(), spec="gone.blis.yaml"))
    (tmp_path / "gone.blis.yaml").unlink()
    (tmp_path / "bad.blis.yaml").write_text("kind: [\n", encoding="utf-8")
    GoldenFiles(files.folder, "bad").write(replace(other.read(), spec="bad.blis.yaml"))
    for name in ("lost.report.json", "sub/lost.records.jsonl.gz", "lost.report.json.new", "README.md"):
        (files.folder / name).parent.mkdir(exist_ok=True)
        (files.folder / name).write_text("{}", encoding="utf-8")
    listed = blis_in(tmp_path, "golden", "status")
    assert listed.returncode == 1
    assert [line.split()[:2] for line in listed.stdout.splitlines()[:-1]] == [
        *(["broken", "bad"], ["golden", "demo"], ["obsolete", "gone"]),
        *(["unused", "lost.report.json"], ["unused", "lost.report.json.new"], ["unused", "sub/lost.records.jsonl.gz"]),
    ]
    assert "blis-tui golden review --delete-obsolete" in listed.stderr
    assert blis_in(tmp_path, "golden", "review", "--delete-obsolete", "none").returncode == 3
    assert blis_in(tmp_path, "golden", "review", "--delete-obsolete", "--accept").returncode == 2
    done = blis_in(tmp_path, "golden", "review", "--delete-obsolete", "lost*")
    assert done.stdout == "deleted lost.report.json\ndeleted lost.report.json.new\n"
    done = blis_in(tmp_path, "golden", "review", "--delete-obsolete")
    assert (done.returncode, done.stdout) == (0, "deleted gone\ndeleted sub/lost.records.jsonl.gz\n")
    left = sorted(path.name for path in files.folder.rglob("*.*"))
    assert left == ["README.md", "bad.golden.json", "bad.report.json", "demo.golden.json", "demo.report.json"]
    assert blis_in(tmp_path, "golden", "review", "--delete-obsolete").stderr == "no golden is obsolete\n"


def test_a_review_tells_which_figures_are_within_their_tolerance(tmp_path: Path) -> None:
    bounds = "{/latency/ttft_ms/p99: {rel: 0.5}, /latency/ttft_ms/mean: {abs: 0.25}, /requests/completed: {rel: 1.0}}"
    spec = project(tmp_path, f"{SPEC}golden:\n  tolerance: {bounds}\n") / "demo.blis.yaml"
    _, files = stored_as_is(spec)
    golden = json.loads(files.file(REPORT).read_text(encoding="utf-8"))
    spec.write_text(spec.read_text(encoding="utf-8").replace("kv_blocks: 60", "kv_blocks: 58"), encoding="utf-8")
    (case,) = cases_of(spec)
    files.write(produce(case.load(), spec="demo.blis.yaml", case=case.name), pending=True)
    new = json.loads(files.file(REPORT, pending=True).read_text(encoding="utf-8"))
    text = difference_text(files, tmp_path)
    old, now = (one["latency"]["ttft_ms"] for one in (golden, new))
    assert 0 < abs(now["p99"] - old["p99"]) <= 0.5 * old["p99"]
    assert abs(now["mean"] - old["mean"]) > 0.25
    assert "with a tolerance: 2 differences\n" in text
    assert [line.rpartition(", ")[2] for line in text.splitlines() if line.startswith("    /latency/ttft_ms/")] == [
        "beyond abs 0.25",
        "within rel 0.5",
    ]
