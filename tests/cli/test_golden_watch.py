"""``blis-tui golden watch`` as a process: on a terminal with real keys, and without one."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.cli.standard_streams import ExitCode
from tests.golden.projects import SPEC, blis_in, files, project, pytest_in
from tests.processes import heed_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT_S: Final = 60
SJF: Final = SPEC.replace("policy: blis", "policy: sjf")
PROMPT: Final = "[r]un all  [q]uit: "
GOLDEN: Final = ["demo.golden.json", "demo.report.json"]


class Watched:
    """A process that watches a project, with or without a terminal."""

    def __init__(self, folder: Path, *arguments: str, terminal: bool) -> None:
        self._folder = folder
        read, write = pty.openpty() if terminal else os.pipe()
        self._terminal = read
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "BLIS"))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "blis_tui", "golden", "watch", *arguments],
            cwd=folder,
            env=environment,
            stdin=write if terminal else subprocess.DEVNULL,
            stdout=write,
            stderr=write if terminal else subprocess.STDOUT,
            start_new_session=terminal,
            preexec_fn=_own_terminal if terminal else heed_ctrl_c,  # noqa: PLW1509  (no threads)
        )
        os.close(write)
        self.shown = ""

    def until(self, *texts: str) -> str:
        """Read until the texts have come, in this order; return what came since the last time."""
        output, end_s = "", time.monotonic() + LIMIT_S
        while not _in_order(output, texts):
            assert time.monotonic() < end_s, f"{texts}: {self.shown}"
            if select.select([self._terminal], [], [], 0.1)[0]:
                part = os.read(self._terminal, 65536).decode().replace("\r\n", "\n")
                assert part, self.shown
                output += part
                self.shown += part
        return output

    def press(self, key: str, *answer: str) -> str:
        """Press a key at the prompt."""
        os.write(self._terminal, key.encode())
        return self.until(*answer)

    def save(self, text: str, name: str = "demo.blis.yaml") -> None:
        (self._folder / name).write_text(text, encoding="utf-8")

    def end(self) -> int:
        """Wait for its end; return the exit code."""
        return self.process.wait(timeout=LIMIT_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._terminal)


def _own_terminal() -> None:
    """Make standard input the terminal of the new process, whose Ctrl-C reaches it."""
    heed_ctrl_c()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _in_order(output: str, texts: tuple[str, ...]) -> bool:
    at = 0
    for text in texts:
        at = output.find(text, at)
        if at < 0:
            return False
        at += len(text)
    return True


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a golden, to be copied."""
    folder = project(tmp_path_factory.mktemp("first"))
    assert pytest_in(folder, "--blis-update=always").returncode == 0
    return folder


@pytest.fixture
def here(first: Path, tmp_path: Path) -> Path:
    return shutil.copytree(first, tmp_path / "here")


@pytest.fixture
def watched(here: Path) -> Iterator[Watched]:
    """It is watched on a terminal, and asks."""
    process = Watched(here, terminal=True)
    try:
        assert "watching 1 golden test in 1 file\n" in process.until(PROMPT)
        yield process
    finally:
        process.close()


@pytest.fixture
def lines(here: Path) -> Iterator[Watched]:
    """It is watched without a terminal, after a run of everything."""
    process = Watched(here, "--all", terminal=False)
    try:
        process.until("equal     demo\n")
        yield process
    finally:
        process.close()


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "golden").iterdir())}


def test_what_is_accepted_is_what_review_accepts(watched: Watched, here: Path, first: Path, tmp_path: Path) -> None:
    other = shutil.copytree(first, tmp_path / "other")
    (other / "demo.blis.yaml").write_text(SJF, encoding="utf-8")
    assert pytest_in(other).returncode == 1
    assert blis_in(other, "golden", "review", "--accept").returncode == 0

    watched.save(SJF)
    shown = watched.until("changed   demo", "--- golden\n+++ this run", "first divergence: event", "demo: [a]ccept")
    shown += watched.until(PROMPT) if PROMPT not in shown else ""
    assert files(here) == sorted([*GOLDEN, *(f"{one}.new" for one in GOLDEN)])
    assert "first divergence: event" in watched.press("\r", "first divergence: event", "demo: [a]ccept", PROMPT)
    watched.press("a", "accepted demo", PROMPT)
    assert bytes_of(here) == bytes_of(other)
    assert watched.press("r", "equal     demo\n", PROMPT).count("changed") == 0
    watched.press("q")
    assert watched.end() == ExitCode.OK


def test_a_skipped_result_waits_and_is_asked_about_no_more(watched: Watched, here: Path) -> None:
    before = bytes_of(here)
    watched.save(SJF)
    watched.until("demo: [a]ccept", PROMPT)
    watched.press("as", "one key at a time", "demo: [a]ccept", PROMPT)
    assert "no result is waiting" in watched.press("s", "skipped demo", PROMPT) + watched.press("a", PROMPT)
    assert len(files(here)) == 4
    watched.save(SPEC)  # the old result again: nothing waits any more
    watched.until("equal     demo\n", PROMPT)
    assert bytes_of(here) == before


def test_a_spec_that_is_broken_while_it_is_edited_is_an_error_to_go_on_from(watched: Watched) -> None:
    watched.save(SPEC[:200])
    shown = watched.until("error     demo.blis.yaml", "not valid YAML", "demo.blis.yaml:9:3", PROMPT)
    assert "Traceback" not in shown
    watched.save(SPEC)
    watched.until("equal     demo\n", PROMPT)


def test_ctrl_c_on_the_terminal(watched: Watched) -> None:
    assert "interrupted" in watched.press("\x03", "interrupted")
    assert watched.end() == ExitCode.INTERRUPTED


def test_without_a_terminal_there_is_one_line_for_each_verdict(lines: Watched) -> None:
    lines.save(SJF)
    shown = lines.until("changed   demo", "\n")  # one line, and not the beginning of more
    assert shown.startswith("changed   demo  report: ")
    assert "; first divergence: event " in shown
    lines.save("kind: [\n")
    assert lines.until("error", "\n").startswith(
        "error     demo.blis.yaml  demo.blis.yaml:1:8: error[BLIS0001]: not valid YAML"
    )
    lines.process.send_signal(signal.SIGINT)
    lines.until("interrupted", "\n")  # perhaps while the line was still being written, which it then adds
    assert lines.end() == ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "error: cannot watch nowhere: there is no such file or folder\n"),
        (
            ["pytest.ini"],
            "error: pytest.ini is no golden test: pytest runs *.blis.yaml, *.study.yaml\n  = help: rename",
        ),
        (["golden"], "error: there is no golden test in golden\n  = help: pytest runs *.blis.yaml"),
    ],
)
def test_nothing_to_watch_is_one_error(here: Path, arguments: list[str], message: str) -> None:
    done = blis_in(here, "golden", "watch", *arguments)
    assert (done.returncode, done.stdout) == (ExitCode.IO, "")
    assert done.stderr.startswith(message)
