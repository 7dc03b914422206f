"""``golden report``: what a comment says of changed goldens is what the stored results say, computed another way."""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.golden.case import cases_of
from blis_tui.golden.comment import STYLES, Style, comment
from blis_tui.golden.golden_divergence import record_lines
from blis_tui.golden.golden_store import HEADER, REPORT, files_of
from blis_tui.golden.produce import produce
from blis_tui.golden.session import GoldenSettings, run_case
from tests.golden.projects import SPEC, blis_in, project, pytest_in
from tests.golden.test_studies import STUDY

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "golden.md").read_text(encoding="utf-8")
EXPECTING: Final = (
    SPEC + "expect:\n  - {metric: requests.completed, equals: 25}\n  - {metric: latency.ttft_ms.p99, max: 500}\n"
)
LARGER: Final = EXPECTING.replace("kv_blocks: 60", "kv_blocks: 40")


def run(folder: Path, text: str, mode: str, name: str = "demo.blis.yaml") -> None:
    """Run the golden tests of a file as pytest does."""
    spec = folder / name
    spec.write_text(text, encoding="utf-8")
    for case in cases_of(spec):
        files = files_of(spec, case.name, folder=folder / "golden", root=folder)
        run_case(case, files, name, GoldenSettings(mode=mode, checks=()))


def comment_on(folder: Path, style: Style = STYLES["markdown"]) -> tuple[str, bool]:
    return comment(folder / "golden", folder, (), None, style)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project where a smaller KV cache waits for a decision, as CI leaves it."""
    folder = project(tmp_path_factory.mktemp("changed"), EXPECTING)
    assert pytest_in(folder, "--blis-update=unseen").returncode == 0
    (folder / "demo.blis.yaml").write_text(LARGER, encoding="utf-8")
    assert pytest_in(folder, "--blis-update=new", CI="1").returncode == 1
    return folder


@pytest.fixture(scope="module")
def reports(changed: Path) -> tuple[dict[str, object], dict[str, object]]:
    """Both stored reports: golden, now."""
    path = changed / "golden" / f"demo{REPORT}"
    new = path.with_name(path.name + ".new")
    return json.loads(path.read_text(encoding="utf-8")), json.loads(new.read_text(encoding="utf-8"))


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value of a report, by its dotted path."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        yield path, value
        return
    for name, one in inner:
        yield from leaves(one, f"{path}.{name}" if path else str(name))


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of a table."""
    (table,) = re.findall(rf"^\| {title} \|.*\n\|[-:|]+\n((?:\|.*\n)*)", text, re.MULTILINE)
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def test_the_page_shows_this_comment(changed: Path) -> None:
    shown = blis_in(changed, "golden", "report")
    assert (shown.returncode, shown.stderr) == (1, "")
    (page,) = re.findall(r"^````markdown\n(.*?)^````$", PAGE, re.MULTILINE | re.DOTALL)
    rest = shown.stdout
    for part in page.split("…\n"):  # what is left out
        assert part.strip("\n") in rest, shown.stdout
        rest = rest[rest.index(part.strip("\n")) :]


def test_figures_are_those_of_the_stored_reports(
    changed: Path, reports: tuple[dict[str, object], dict[str, object]]
) -> None:
    text, holds = comment_on(changed)
    assert not holds
    old, new = (dict(leaves(report)) for report in reports)
    table = rows(text, "metric")
    assert len(table) == 12
    for path, before, after, change in table:
        was, now = old[path], new[path]
        assert isinstance(was, int | float)
        assert isinstance(now, int | float)
        assert was != now
        assert float(before.replace(",", "")) == pytest.approx(was, rel=1e-5)
        assert float(after.replace(",", "")) == pytest.approx(now, rel=1e-5)
        assert float(change.removesuffix("%")) == pytest.approx(100 * (now / was - 1), abs=0.0051)
    assert {"latency.ttft_ms.p99", "kv.preemptions"} <= {path for path, *_ in table}


def test_no_difference_is_left_unsaid(changed: Path, reports: tuple[dict[str, object], dict[str, object]]) -> None:
    """Where no map or list is on one side only, differences are the values that differ."""
    old, new = (dict(leaves(report)) for report in reports)
    one_sided = {path for path in old.keys() ^ new.keys() if not path.startswith("warnings.")}
    assert one_sided == set()
    count = len([path for path in old.keys() & new.keys() if old[path] != new[path]])
    text, _ = comment_on(changed, STYLES["github"])
    total_text = re.search(r"All ([\d,]+) differences", text)
    assert total_text is not None
    total = int(total_text[1].replace(",", ""))
    warned = abs(len(reports[0]["warnings"]) - len(reports[1]["warnings"]))  # type: ignore[arg-type]
    assert total == count + warned
    assert f"\n{total - 12:,} more differences.\n" in text


def test_expectations_stand_before_and_now(changed: Path, reports: tuple[dict[str, object], dict[str, object]]) -> None:
    p99 = [dict(leaves(report))["latency.ttft_ms.p99"] for report in reports]
    assert isinstance(p99[0], float)
    assert isinstance(p99[1], float)
    assert p99[0] <= 500 < p99[1]
    text, _ = comment_on(changed)
    (line,) = [line for line in text.splitlines() if "`latency.ttft_ms.p99 at most 500" in line]
    assert f"| holds (`{p99[0]:,.6g}`) | **fails** (`{p99[1]:,.6g}`) |" in line


def test_the_event_is_the_first_that_differs_and_the_command_opens_there(changed: Path, tmp_path: Path) -> None:
    streams = []
    for text in (EXPECTING, LARGER):
        (tmp_path / "one.blis.yaml").write_text(text, encoding="utf-8")
        (case,) = cases_of(tmp_path / "one.blis.yaml")
        streams.append(list(record_lines(case.load())))
    first = next(pair for pair in zip_longest(*streams) if pair[0] != pair[1])
    event = min(json.loads(line)["event"] for line in first if line is not None)
    shown = blis_in(changed, "golden", "report", "demo").stdout
    assert f"first divergence: event {event}\n" in shown
    assert f"```sh\nblis-tui tui demo.blis.yaml --at {event}\n```" in shown


def test_a_comment_is_cut_after_whole_goldens(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        run(tmp_path, SPEC, "new", f"{name}.blis.yaml")
    whole, _ = comment_on(tmp_path)
    assert [f"#### `{name}`: new" in whole for name in "abc"] == [True] * 3
    most = len(whole) - 1
    cut, _ = comment_on(tmp_path, Style(folds=True, most=most))
    assert [f"#### `{name}`: new" in cut for name in "abc"] == [True, True, False]
    assert cut.endswith("\n… and 1 more: see the log of the tests\n")
    assert len(cut) <= most
    assert whole.startswith("### Golden tests: 3 new, of 3 goldens\n")


def test_where_nothing_changed_it_says_so(tmp_path: Path) -> None:
    run(project(tmp_path), SPEC, "unseen")
    shown = blis_in(tmp_path, "golden", "report", "--format", "gitlab")
    assert (shown.returncode, shown.stdout) == (0, "### Golden tests: 1 golden, nothing has changed\n")


def test_a_golden_that_breaks_what_it_expects_is_told_although_nothing_waits(tmp_path: Path) -> None:
    run(tmp_path, EXPECTING.replace("max: 500", "max: 1"), "unseen")
    text, holds = comment_on(tmp_path)
    assert not holds
    assert text.startswith("### Golden tests: 1 failing, of 1 golden\n")
    assert "**fails**" in text


def test_the_table_of_a_new_golden_is_a_block_of_its_own(tmp_path: Path) -> None:
    folder = project(tmp_path, f"{SPEC}expect: [{{metric: requests.completed, equals: 25}}]\n")
    (case,) = cases_of(folder / "demo.blis.yaml")
    files = files_of(folder / "demo.blis.yaml", case.name, folder=folder / "golden", root=folder)
    files.write(produce(case.load(), spec="demo.blis.yaml", case=case.name), pending=True)
    text, _ = comment_on(tmp_path)
    assert "#### `demo`: new\n\n`demo.blis.yaml`\n\nIt has no golden yet.\n\n| expected | golden | now |\n" in text


def test_obsolete_and_broken_goldens_are_told(tmp_path: Path) -> None:
    for name in ("gone", "torn"):
        run(tmp_path, SPEC, "unseen", f"{name}.blis.yaml")
    (tmp_path / "gone.blis.yaml").unlink()
    (tmp_path / "golden" / f"torn{HEADER}").write_text("{", encoding="utf-8")
    text, holds = comment_on(tmp_path)
    assert not holds
    assert "#### `gone`: obsolete\n" in text
    assert "#### `torn`: broken\n" in text
    assert "torn.golden.json is not a golden file" in text


def test_a_study_says_what_has_become_of_its_answer(tmp_path: Path) -> None:
    (tmp_path / "demo.blis.yaml").write_text(SPEC, encoding="utf-8")
    run(tmp_path, STUDY, "unseen", "sizes.study.yaml")
    (tmp_path / "demo.blis.yaml").write_text(SPEC.replace("requests: 25", "requests: 20"), encoding="utf-8")
    run(tmp_path, STUDY, "new", "sizes.study.yaml")
    text, holds = comment_on(tmp_path, STYLES["github"])
    assert not holds
    assert "#### `sizes.study`: changed" in text
    assert re.search(r"^\d of \d runs changed$", text, re.MULTILINE)
    assert "first divergence" not in text


def test_names_stay_code(tmp_path: Path) -> None:
    """A name neither mentions people, nor links, nor ends a table or a block."""
    evil = "a`b @team [x](http:y)|```"
    run(tmp_path, EXPECTING, "unseen", f"{evil}.blis.yaml")
    run(tmp_path, LARGER, "new", f"{evil}.blis.yaml")
    text, _ = comment_on(tmp_path)
    bare = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    bare = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", bare)
    assert "####" in bare
    assert [mark for mark in ("@team", "http:y", "`") if mark in bare] == []


def test_names_do_not_act_on_terminals_or_hide_text(tmp_path: Path) -> None:
    evil = "a\x1b[2J\u202eb"
    run(tmp_path, EXPECTING, "unseen", f"{evil}.blis.yaml")
    run(tmp_path, LARGER, "new", f"{evil}.blis.yaml")
    text, _ = comment_on(tmp_path)
    assert [character for character in text if character in "\x1b\u202e"] == []
    assert "#### `a" in text


def test_what_is_not_as_expected_comes_first_and_by_name(tmp_path: Path) -> None:
    for name, text in (("a", SPEC), ("b", EXPECTING)):
        run(tmp_path, text, "unseen", f"{name}.blis.yaml")
        run(tmp_path, text.replace("kv_blocks: 60", "kv_blocks: 40"), "new", f"{name}.blis.yaml")
    text, _ = comment_on(tmp_path)
    assert "\n**Expectations fail**: `b`.\n" in text
    assert re.findall(r"^#### `(.)`", text, re.MULTILINE) == ["b", "a"]


def test_it_says_how_to_accept_what_is_meant(changed: Path) -> None:
    """The command, typed where the report was made, finds what waits."""
    elsewhere = ("--golden-dir", f"{changed.name}/golden", "--root", changed.name)
    for folder, options in ((changed, ()), (changed.parent, elsewhere)):
        shown = blis_in(folder, "golden", "report", *options)
        command = re.search(r"^If this is intended: run `pytest` and `blis-tui (.*?)`", shown.stdout, re.MULTILINE)
        assert command is not None, shown.stderr
        listed = blis_in(folder, *command[1].split())
        assert listed.stdout.splitlines()[0] == "demo", listed.stderr
