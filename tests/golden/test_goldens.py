"""Every shipped experiment gives the bytes it gave before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import regenerate
from .store import COMMAND, difference, experiments, golden_names, orphans, produce

if TYPE_CHECKING:
    from pathlib import Path

EXPERIMENTS = experiments()
SMALL = "fcfs"


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_same_bytes_as_the_golden_files(experiment: str) -> None:
    found = [difference(name, content) for name, content in produce(experiment).items()]
    if any(found):
        pytest.fail("\n\n".join(filter(None, found)), pytrace=False)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_same_bytes_with_all_invariants_checked_after_every_event(experiment: str) -> None:
    found = [difference(name, content) for name, content in produce(experiment, "--check", "all").items()]
    if any(found):
        pytest.fail("\n\n".join(filter(None, found)), pytrace=False)


def test_every_golden_file_belongs_to_an_experiment() -> None:
    left = orphans(EXPERIMENTS)
    if left:
        pytest.fail(f"no experiment gives {', '.join(left)}: remove them with `{COMMAND}`.", pytrace=False)


def test_there_are_experiments() -> None:
    assert SMALL in EXPERIMENTS


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    assert COMMAND in difference("new.report.json", b"{}\n", tmp_path)


def test_a_difference_is_shown_as_a_short_diff(tmp_path: Path) -> None:
    (tmp_path / "a.report.json").write_bytes(b"".join(b"%d\n" % line for line in range(1000)))
    assert difference("a.report.json", b"".join(b"%d\n" % line for line in range(1000)), tmp_path) == ""
    text = difference("a.report.json", b"0\n", tmp_path)
    assert "\n-1\n" in text
    assert "(more lines differ)" in text
    assert len(text.splitlines()) < 50


def test_line_ends_count(tmp_path: Path) -> None:
    (tmp_path / "a.report.json").write_bytes(b"{}\r\n")
    assert "line ends" in difference("a.report.json", b"{}\n", tmp_path)


def test_regenerating_writes_only_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    report, records = golden_names(SMALL)
    assert regenerate.main([SMALL], tmp_path) == 0
    assert capsys.readouterr().out == f"new  golden/{report}\nnew  golden/{records}\n"
    assert regenerate.main([SMALL], tmp_path) == 0
    assert capsys.readouterr().out == "nothing changed\n"
    (tmp_path / report).write_bytes(b"{}\n")
    assert regenerate.main([SMALL], tmp_path) == 0
    assert capsys.readouterr().out == f"changed  golden/{report}\n"


def test_regenerating_removes_what_belongs_to_no_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(regenerate, "experiments", lambda: [SMALL])
    (tmp_path / "README.md").touch()
    (tmp_path / "gone.report.json").touch()
    assert regenerate.main([], tmp_path) == 0
    assert "removed  golden/gone.report.json" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["README.md", *golden_names(SMALL)])


def test_regenerating_an_unknown_experiment_names_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    assert regenerate.main(["nope"], tmp_path) == 2
    assert SMALL in capsys.readouterr().err


def test_regenerating_is_refused_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    assert regenerate.main([SMALL], tmp_path) == 2
    assert "CI" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
