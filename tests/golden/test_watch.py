"""Which golden tests a change is about: everything that a test reads counts, and only when it is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.base.errors import InputError
from blis_tui.golden.golden_store import HEADER
from blis_tui.golden.project import Project, relative_to_cwd
from blis_tui.golden.review import accept
from blis_tui.golden.watch import Round, Verdict, Watch, divergence_text, spec_files
from tests.golden.projects import SPEC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SMALL: Final = SPEC.replace("requests: 25", "requests: 6")
BASED: Final = "apiVersion: blis/v1\nkind: Experiment\nmetadata: {name: based}\nextends: ./base.yaml\n"
TRACED: Final = """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: traced}
model: llama-3.1-8b-instruct
hardware: h100
latency: {kind: blackbox, alpha: [0, 0, 0], beta: [5000, 20, 30]}
workload: {trace: {file: trace.csv}}
"""
TRACE: Final = "arrival_time_us,input_tokens,output_tokens\n0,100,20\n1000,90,10\n"
PLUGIN: Final = """\
from blis_tui.plugins import ROUTING


@ROUTING.plugin("mine", "The first instance.")
class Mine:
    rule = "The first."

    def __init__(self, settings):
        pass

    def choose(self, request, fleet, context):
        place = 0
        return place, "the first"

    def state(self):
        return ()
"""


def watch(folder: Path, *paths: Path, plugins: Sequence[str] = ()) -> Watch:
    """The watched project, which repeats no runs."""
    return Watch(Project.at(folder, {"blis_checks": ""}), paths, plugins)


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.blis.yaml").write_text(text, encoding="utf-8")


def names(found: Round | None) -> list[str]:
    return [] if found is None else [test.files.name for test in found.tests]


def settled(watched: Watch) -> Round:
    """What a change is about, at the look after the one that sees it."""
    assert watched.look() is None
    found = watched.look()
    assert found is not None
    return found


def verdicts(watched: Watch, found: Round) -> list[tuple[str, str]]:
    return [(verdict.status, verdict.name) for verdict in (*found.verdicts, *map(watched.run, found.tests))]


def test_a_test_runs_again_when_something_that_it_reads_changes(tmp_path: Path) -> None:
    write(tmp_path, demo=SMALL, based=BASED, traced=TRACED)
    (tmp_path / "base.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "trace.csv").write_text(TRACE, encoding="utf-8")
    with watch(tmp_path) as watched:
        assert watched.begin() == ()
        assert [test.files.name for test in watched.tests] == ["based", "demo", "traced"]
        assert (watched.look(), watched.look()) == (None, None)
        (tmp_path / "base.yaml").write_text(SMALL.replace("requests: 6", "requests: 7"), encoding="utf-8")
        assert names(settled(watched)) == ["based"]
        (tmp_path / "trace.csv").write_text(TRACE + "2000,80,5\n", encoding="utf-8")
        found = settled(watched)
        assert verdicts(watched, found) == [("missing", "traced")]
        write(tmp_path, demo=SMALL.replace("requests: 6", "requests: 5"))
        assert names(settled(watched)) == ["demo"]
        (tmp_path / "unread.csv").write_text(TRACE, encoding="utf-8")
        assert (watched.look(), watched.look()) == (None, None)


def test_a_change_counts_when_it_is_complete(tmp_path: Path) -> None:
    write(tmp_path, demo=SMALL)
    with watch(tmp_path) as watched:
        watched.begin()
        for end in (200, 250, 300):
            write(tmp_path, demo=SMALL[:end])
            assert watched.look() is None
        write(tmp_path, demo=SMALL.replace("requests: 6", "requests: 7"))
        found = settled(watched)
        assert (found.verdicts, names(found)) == ((), ["demo"])


def test_a_new_file_is_watched_and_a_deleted_one_is_gone(tmp_path: Path) -> None:
    write(tmp_path, demo=SMALL)
    with watch(tmp_path) as watched:
        watched.begin()
        write(tmp_path, other=SMALL)
        assert verdicts(watched, settled(watched)) == [("missing", "other")]
        (tmp_path / "demo.blis.yaml").unlink()
        assert verdicts(watched, settled(watched)) == [("gone", relative_to_cwd(tmp_path / "demo.blis.yaml"))]
        assert [test.files.name for test in watched.tests] == ["other"]


def test_an_invalid_experiment_is_told_until_it_is_valid(tmp_path: Path) -> None:
    write(tmp_path, demo=SMALL, based=BASED)
    with watch(tmp_path) as watched:
        (problem,) = watched.begin()
        assert problem.status == "error"
        assert "base.yaml" in problem.line()
        assert "\n" not in problem.line()
        (tmp_path / "base.yaml").write_text(SMALL, encoding="utf-8")  # nothing has read it: it was not there
        found = next(one for one in (watched.look() for _ in range(100)) if one is not None)
        assert (found.verdicts, names(found)) == ((), ["based"])


def test_a_changed_plugin_is_loaded_anew(tmp_path: Path) -> None:
    uses = SMALL.replace("policy: blis", "policy: {routing: {kind: mine}}")
    write(tmp_path, demo=SMALL, uses=uses)
    script = tmp_path / "mine.py"
    script.write_text(PLUGIN, encoding="utf-8")
    with watch(tmp_path, plugins=[str(script)]) as watched:
        assert watched.begin() == ()
        script.write_text(PLUGIN.replace("place = 0", "place = 1 // 0"), encoding="utf-8")
        found = settled(watched)
        assert names(found) == ["uses"]
        verdict = watched.run(found.tests[0])
        assert verdict.status == "error"
        assert "mine.py:12" in verdict.text
        script.write_text("def broken(\n", encoding="utf-8")
        found = settled(watched)
        assert [one.status for one in found.verdicts] == ["error"], "one plug-in, one error"
        assert "mine.py:1" in found.verdicts[0].text
        script.write_text(PLUGIN, encoding="utf-8")
        assert ("missing", "uses") in verdicts(watched, settled(watched))


def test_decisions_of_this_process_and_of_others(tmp_path: Path) -> None:
    write(tmp_path, demo=SMALL)
    with watch(tmp_path) as watched:
        watched.begin()
        (test,) = watched.tests
        first = watched.run(test)
        assert divergence_text(first) == "demo has no golden to diverge from"
        watched.accept(first)
        assert (watched.look(), watched.look()) == (None, None), "what it writes itself is no change"
        write(tmp_path, demo=SMALL.replace("policy: blis", "policy: sjf").replace("requests: 6", "requests: 9"))
        (test,) = settled(watched).tests
        changed = watched.run(test)
        assert changed.status == "changed"
        assert divergence_text(changed).startswith("first divergence: event ")
        accept(test.files)  # as another process does
        assert not watched.is_current(test)
        assert verdicts(watched, settled(watched)) == [("equal", "demo")]
        assert test.files.file(HEADER).is_file()


def test_what_is_skipped_or_known_to_fail(tmp_path: Path) -> None:
    write(tmp_path, no=SMALL + "skip: too long\n", bad=SMALL + "xfail: known\n")
    with watch(tmp_path) as watched:
        watched.begin()
        found = {verdict.name: (verdict.status, verdict.text) for verdict in map(watched.run, watched.tests)}
    assert found == {"no": ("skipped", "too long"), "bad": ("xfail", "known")}


def test_where_tests_are(tmp_path: Path) -> None:
    for name in ("a.blis.yaml", "sub/b.study.yaml", "build/c.blis.yaml", ".git/d.blis.yaml", "env/e.blis.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    (tmp_path / "env" / "pyvenv.cfg").write_text("", encoding="utf-8")
    found = [path.relative_to(tmp_path).as_posix() for path in spec_files(tmp_path, ("*.blis.yaml", "*.study.yaml"))]
    assert found == ["a.blis.yaml", "sub/b.study.yaml"]


def test_a_damaged_golden_is_an_error_of_its_test(tmp_path: Path) -> None:
    write(tmp_path, demo=SMALL)
    with watch(tmp_path) as watched:
        watched.begin()
        (test,) = watched.tests
        watched.accept(watched.run(test))
        test.files.file(HEADER).write_text("{", encoding="utf-8")
        verdict = watched.run(test)
        assert (verdict.status, "demo.golden.json" in verdict.text) == ("error", True)
        with pytest.raises(InputError, match="no new result of demo is waiting"):
            watched.accept(Verdict(name="demo", status="equal", test=test))
