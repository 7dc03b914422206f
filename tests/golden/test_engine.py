"""A golden of another engine says that it is one and what to do, as ``docs/golden.md`` does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blis_tui._version import ENGINE
from blis_tui.golden.case import cases_of
from blis_tui.golden.golden_store import HEADER, REPORT, files_of
from blis_tui.golden.session import GoldenSettings, engine_lines, run_case
from tests.golden.projects import SPEC, project
from tests.test_readme import block

PAGE = (Path(__file__).parents[2] / "docs" / "golden.md").read_text(encoding="utf-8")
SECTION = " ".join(PAGE.partition("## When the engine has changed")[2].partition("\n## ")[0].split())


def engine_message(folder: Path, engine: str, spec: str = SPEC) -> str:
    """What the test of a golden says that another engine made, of what is another experiment now."""
    project(folder)
    for mode, text in (("unseen", SPEC), ("no", spec)):
        (folder / "demo.blis.yaml").write_text(text, encoding="utf-8")
        (case,) = cases_of(folder / "demo.blis.yaml")
        files = files_of(case.spec, case.name, folder=folder / "golden", root=folder)
        outcome = run_case(case, files, case.spec.name, GoldenSettings(mode=mode, checks=()))
        for kind in (HEADER, REPORT) if mode == "unseen" else ():
            path = files.file(kind)
            old = path.read_text(encoding="utf-8")
            assert old.count(f'"engine": "{ENGINE}"') == 1
            path.write_text(old.replace(f'"engine": "{ENGINE}"', f'"engine": "{engine}"'), encoding="utf-8")
    assert outcome.status == "changed"
    return outcome.text


def test_where_nothing_else_changed_it_is_said_as_the_page_shows(tmp_path: Path) -> None:
    assert engine_message(tmp_path, "0") == block("text", "nothing else in the report", PAGE).rstrip()


def test_where_figures_changed_too_both_are_told(tmp_path: Path) -> None:
    text = engine_message(tmp_path, "0", SPEC.replace("kv_blocks: 60", "kv_blocks: 90"))
    assert "nothing else" not in text
    assert "CHANGELOG.md, review the difference and accept it" in text
    assert re.search(r"- engine\.kv_blocks +60\b", text)


def test_a_golden_of_a_newer_engine_is_not_to_be_replaced(tmp_path: Path) -> None:
    text = engine_message(tmp_path, str(int(ENGINE) + 1))
    assert "the golden was made by a newer engine: install a blis-tui with engine" in text
    assert "accept it" not in text


@pytest.mark.parametrize(
    ("lines", "advice"),
    [
        (engine_lines("1", "2"), "see `CHANGELOG.md`, look at the difference and accept it."),
        (engine_lines("1", "2"), "compare with a blis-tui of the golden's engine first"),
        (
            engine_lines("1", "2", alone=True),
            "**Nothing else of the report has changed**: `blis-tui golden review --accept`",
        ),
        (engine_lines("2", "1", alone=True), "install a blis-tui of that engine, do not accept the older result"),
    ],
)
def test_the_page_gives_the_advice_of_the_message(lines: list[str], advice: str) -> None:
    message = " ".join(lines)
    assert advice in SECTION
    for words in ("CHANGELOG.md", "compare with a blis-tui", "install a blis-tui", "do not accept"):
        assert (words not in message) or (words in SECTION.replace("`", ""))
    assert ("do not accept" in message) == ("do not accept" in advice)


def test_an_engine_without_a_number_is_only_another_one() -> None:
    assert engine_lines("mine", "1")[-1].endswith("compare with a blis-tui with engine mine first")
