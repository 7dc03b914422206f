"""``blis-tui golden review`` on a real terminal, with real keys."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .projects import SPEC, files, project, pytest_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

GOLDEN = ["demo.golden.json", "demo.report.json"]
_LISTENS_S = 0.05
"""A prompt that has stood for so long is most often listened at."""
_ANSWERS_S = 0.25
"""A key that has had no answer for so long is pressed again."""


def review(folder: Path, keys: Sequence[str], meanwhile: Callable[[], object] = lambda: None) -> str:
    """Press ``keys`` at one prompt each, after something has happened; returns what the terminal showed."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "blis_tui", "golden", "review"], cwd=folder, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    shown = b""
    waiting = list(keys)
    idle_s = _LISTENS_S
    for _ in range(2000):
        if not select.select([master], [], [], idle_s)[0]:
            # A key pressed before the program listens is lost, so it is pressed until something happens.
            if waiting and shown.rstrip().endswith(b"[q]uit:"):
                meanwhile()
                meanwhile = _nothing
                os.write(master, waiting[0].encode())
                idle_s = _ANSWERS_S
            continue
        idle_s = _LISTENS_S
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if waiting and shown.rstrip().endswith(b"[q]uit:"):
            waiting.pop(0)
        shown += part
    os.close(master)
    assert process.poll() is not None or not waiting, shown.decode()
    assert process.wait(timeout=30) == 0, shown.decode()
    assert not waiting
    return shown.decode()


def _nothing() -> None:
    """What happens the second time."""


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


def test_accept_after_another_look(changed: Path) -> None:
    shown = review(changed, "xda")
    assert shown.count("first divergence: event") == 2
    assert "--- 1 of 1 ---" in shown
    assert files(changed) == GOLDEN
    assert pytest_in(changed).returncode == 0


def test_reject(changed: Path) -> None:
    before = (changed / "golden" / "demo.report.json").read_bytes()
    review(changed, "r")
    assert files(changed) == GOLDEN
    assert (changed / "golden" / "demo.report.json").read_bytes() == before


@pytest.mark.parametrize("key", ["s", "q"])
def test_skip_and_quit_leave_it_waiting(changed: Path, key: str) -> None:
    review(changed, key)
    assert len(files(changed)) == 4


def test_several_keys_at_once_decide_about_nothing(changed: Path) -> None:
    before = (changed / "golden" / "demo.report.json").read_bytes()
    review(changed, ["sq", "ar", "rs", "s"])
    assert len(files(changed)) == 4
    assert (changed / "golden" / "demo.report.json").read_bytes() == before


@pytest.mark.parametrize("key", ["a", "r"])
def test_a_result_that_came_meanwhile_is_shown_before_it_is_decided_on(key: str, changed: Path) -> None:
    before = (changed / "golden" / "demo.report.json").read_bytes()

    def another() -> None:
        (changed / "demo.blis.yaml").write_text(SPEC.replace("requests: 25", "requests: 26"), encoding="utf-8")
        assert pytest_in(changed).returncode == 1

    shown = review(changed, [key, "s"], another)
    first, _, second = shown.partition("demo has got another new result since this one was shown:")
    assert "workload.requests" not in first
    assert "workload.requests" in second
    assert len(files(changed)) == 4
    assert (changed / "golden" / "demo.report.json").read_bytes() == before
