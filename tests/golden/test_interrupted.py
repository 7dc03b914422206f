"""Report and header of a golden change together, wherever the process is killed, and only to what was shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import InputError
from blis_tui.golden.golden_store import ACCEPTED, HEADER, REPORT, GoldenFiles
from blis_tui.golden.review import ReplacedError, accept, reject, waiting

from .projects import SPEC, blis_in, files, project, pytest_in

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN = ["demo.golden.json", "demo.report.json"]
KILLED = 9
KILLED_AT = """
import os, sys
from pathlib import Path
from blis_tui.cli.main import cli
left = int(sys.argv.pop(1))
def counted(function):
    def call(*args, **kwargs):
        global left
        if left == 0: os._exit(9)
        left -= 1
        return function(*args, **kwargs)
    return call
os.link = counted(os.link)
Path.replace = counted(Path.replace)
Path.unlink = counted(Path.unlink)
cli()
"""
"""Runs a command, and kills it before a later one of the calls that change a folder."""


@pytest.fixture(scope="module")
def first_changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a golden and another result that waits, to be copied."""
    folder = project(tmp_path_factory.mktemp("changed"))
    assert pytest_in(folder, "--blis-update=always").returncode == 0
    (folder / "demo.blis.yaml").write_text(SPEC.replace("policy: blis", "policy: sjf"), encoding="utf-8")
    assert pytest_in(folder).returncode == 1
    return folder


@pytest.fixture
def changed(first_changed: Path, tmp_path: Path) -> Path:
    """Such a project of its own."""
    return shutil.copytree(first_changed, tmp_path, dirs_exist_ok=True)


def content(folder: Path, pending: str = "") -> dict[str, bytes]:
    return {kind: (folder / "golden" / f"demo{kind}{pending}").read_bytes() for kind in (HEADER, REPORT)}


def killed(folder: Path, step: int) -> bool:
    """Accept the result, and kill the process at a step; return whether there was such a step."""
    command = [sys.executable, "-c", KILLED_AT, str(step), "golden", "review", "--accept", "demo"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == KILLED


@pytest.fixture(scope="module")
def interrupted(first_changed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Such projects, each with the process killed a step later; in the last one it was not."""
    made: list[Path] = []
    root = tmp_path_factory.mktemp("interrupted")
    while not made or killed(made[-1], len(made) - 1):
        made.append(shutil.copytree(first_changed, root / str(len(made))))
    return made


@pytest.mark.skipif(sys.platform == "win32", reason="files are replaced in other steps")
@pytest.mark.parametrize("repair", ["review", "pytest"])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_golden(
    repair: str, first_changed: Path, interrupted: list[Path], tmp_path: Path
) -> None:
    old, new = content(first_changed), content(first_changed, ".new")
    found = []
    *killed_at, whole = interrupted
    for at in killed_at:
        folder = shutil.copytree(at, tmp_path / at.name)
        if repair == "pytest":
            ended = pytest_in(folder, "--blis-update=new")
        else:
            ended = blis_in(folder, "golden", "review")
            assert ended.returncode == 0, ended.stderr
        there = [name for name in files(folder) if not name.startswith(".blis-tui-")]  # these go when they are old
        if content(folder) == new:
            assert there == GOLDEN
        else:
            assert content(folder) == old
            assert content(folder, ".new") == new
            assert there == sorted([*GOLDEN, *(f"{name}.new" for name in GOLDEN)])
        found.append(content(folder) == new)
    assert files(whole) == GOLDEN
    assert content(whole) == new
    assert found == sorted(found), "once it is decided, it stays so"
    assert set(found) == {False, True}


def test_where_nothing_may_be_written_a_half_golden_is_told(changed: Path) -> None:
    new = waiting(GoldenFiles(changed / "golden", "demo"))
    (changed / "golden" / f"demo{ACCEPTED}").write_text("{}")
    ended = pytest_in(changed, "--blis-update=no")
    assert ended.returncode == 1
    assert "was being replaced when a process was killed" in ended.stdout
    assert "broken" in blis_in(changed, "golden", "status").stdout
    for command in (("review",), ("review", "--accept")):
        ended = blis_in(changed, "golden", *command)
        assert (ended.returncode, ended.stdout) == (3, "")
        assert "it has not the texts of a golden" in ended.stderr
    assert pytest_in(changed, "--blis-update=always").returncode == 0
    assert files(changed) == GOLDEN
    assert GoldenFiles(changed / "golden", "demo").read() == new


@pytest.mark.parametrize("decide", [accept, reject])
def test_what_was_not_shown_is_not_decided_on(decide: object, changed: Path) -> None:
    files = GoldenFiles(changed / "golden", "demo")
    old, shown = files.read(), waiting(files)
    later = replace(shown, report=shown.report.replace('"completed": 25', '"completed": 24'))
    assert later != shown
    files.write(later, pending=True)
    with pytest.raises(ReplacedError, match="demo has got another new result since this one was shown"):
        decide(files, shown=shown)  # type: ignore[operator]
    assert (files.read(), waiting(files)) == (old, later)
    files.drop_pending()
    with pytest.raises(InputError, match="no new result of demo is waiting"):
        accept(files, shown=shown)


def test_a_waiting_pair_is_never_of_two_results(changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header is what makes a result wait."""
    files = GoldenFiles(changed / "golden", "demo")
    shown = waiting(files)
    later = replace(shown, report=shown.report.replace('"completed": 25', '"completed": 24'))

    def refuse(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(KeyboardInterrupt):
        files.write(later, pending=True)
    assert not files.exists(pending=True)


def test_records_are_stored_of_goldens_and_not_of_what_waits(tmp_path: Path) -> None:
    """A first result that nobody has accepted does not keep the goldens behind it from having theirs."""
    folder = project(tmp_path)
    pytest_in(folder, "--blis-update=always")
    (folder / "another.blis.yaml").write_text(SPEC.replace("demo", "another"), encoding="utf-8")
    pytest_in(folder)
    assert "another.golden.json.new" in files(folder)
    done = blis_in(folder, "golden", "record")
    assert (done.returncode, done.stdout) == (0, "waits for its first review: another\nstored demo\n")
    assert "demo.records.jsonl.gz" in files(folder)
