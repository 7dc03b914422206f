"""Result files appear whole or not at all, wherever they are written, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from blis_tui.base.errors import InputError
from blis_tui.output import result_files
from blis_tui.output.result_files import atomic_files, atomic_text, write_text

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are neither pipes nor signals like these")

WAITING = """
import sys, time
from blis_tui.output import result_files
if sys.argv[2] == "named": result_files._UNNAMED = None
with result_files.atomic_text(sys.argv[1]) as out:
    out.write("half of it")
    out.flush()
    print("ready", flush=True)
    time.sleep(1000)
"""


def writing(target: Path, how: str) -> subprocess.Popen[str]:
    """A process that has written half a file."""
    child = subprocess.Popen([sys.executable, "-c", WAITING, target, how], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def kill(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate()


def age(path: Path) -> None:
    """Make it as old as what was left behind long ago."""
    os.utime(path, (1, 1))


@pytest.fixture(params=["unnamed", "named"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to write: where files without names are possible, and where they are not."""
    if request.param == "named":
        monkeypatch.setattr(result_files, "_UNNAMED", None)


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files have names here from the start")
def test_who_is_killed_while_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    child = writing(tmp_path / "report.json", "unnamed")
    kill(child)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("how")
def test_what_was_left_behind_goes_when_the_file_is_written_again(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    write_text(target, "old")
    child = writing(target, "named")
    (left,) = (path for path in tmp_path.iterdir() if path != target)
    age(left)
    write_text(target, "while it writes")
    assert left.exists()
    kill(child)
    write_text(tmp_path / "other.json", "not its file")
    assert left.exists()
    write_text(target, "new")
    assert not left.exists()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "report.json": "new",
        "other.json": "not its file",
    }


@pytest.mark.usefixtures("how")
def test_a_young_file_of_another_process_is_left_alone(tmp_path: Path) -> None:
    """It may have been made just now, and not be held yet."""
    target = tmp_path / "report.json"
    young = target.with_name(f"{result_files._prefix(target)}young")
    young.touch()
    for text in ("new", "newer"):
        write_text(target, text)
    assert young.exists()


@pytest.mark.usefixtures("how")
def test_both_ways_make_the_same_file(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250 + ".json")
    for text in ("first", "second"):
        write_text(target, text)
        assert target.read_text() == text
    with pytest.raises(ZeroDivisionError), atomic_text(target) as out:
        out.write(f"{1 / 0}")
    (tmp_path / "ordinary").touch()
    assert target.stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == [target.name, "ordinary"]


def test_a_file_that_can_be_given_no_name_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no")

    monkeypatch.setattr(os, "link", refuse)
    write_text(tmp_path / "report.json", "all of it\n" * 100_000)
    assert (tmp_path / "report.json").read_text() == "all of it\n" * 100_000
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files have names here from the start")
def test_a_file_without_a_name_is_given_one_and_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy needs the room of the file once more."""
    copied: list[object] = []
    monkeypatch.setattr(result_files._UnnamedTempFile, "_copy", copied.append)
    for text in ("first", "second"):
        write_text(tmp_path / "report.json", text)
        assert (tmp_path / "report.json").read_text() == text
    assert copied == []


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("fails", ["fsync", "link", "replace"])
@pytest.mark.parametrize("old", [True, False])
def test_whichever_step_fails_the_old_file_stays(
    fails: str, old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.json"
    if old:
        write_text(target, "old")
    monkeypatch.setattr(Path if fails == "replace" else os, fails, full)
    if fails == "link":  # then it is copied, and there is no room for that either
        monkeypatch.setattr(result_files._HiddenTempFile, "publish", full)
    if fails == "replace" and not old and result_files._UNNAMED is not None:
        pytest.skip("nothing is replaced")
    with pytest.raises(InputError, match=r"cannot write .*report.json: No space left on device"):
        write_text(target, "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == ({"report.json": "old"} if old else {})


@pytest.mark.usefixtures("how")
def test_files_that_belong_together_are_replaced_together(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        write_text(path, "old")

    def write(*more: Path) -> None:
        with atomic_files() as together:
            for path in (first, *more, second):
                together.text(path).write("new")

    with pytest.raises(InputError, match=r"cannot write .*full"):
        write(Path("/dev/full"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"first": "old", "second": "old"}
    write()
    assert (first.read_text(), second.read_text()) == ("new", "new")


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_replaced_file_keeps_its_permissions(mode: int, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    target.chmod(mode)
    write_text(target, "new")
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", mode)


def test_a_pipe_that_nobody_reads_is_an_error_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=r"cannot write .*pipe: it is a pipe that no process reads"):
        write_text(pipe, "text")
    assert pipe.is_fifo()


def test_a_pipe_that_is_read_gets_everything(tmp_path: Path) -> None:
    pipe, text = tmp_path / "pipe", "line\n" * 200_000  # more than a pipe holds at once
    os.mkfifo(pipe)
    found: list[str] = []
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)

    def read() -> None:
        with os.fdopen(reader) as stream:
            found.append(stream.read())

    reading = threading.Thread(target=read)
    with atomic_text(pipe) as out:
        reading.start()
        out.write(text)
    reading.join()
    assert found == [text]


def test_standard_output_may_be_named_as_a_file(tmp_path: Path) -> None:
    write = "from blis_tui.output.result_files import write_text; write_text('/dev/stdout', 'all of it')"
    for shell in (f'"{sys.executable}" -c "{write}" | cat', f'"{sys.executable}" -c "{write}" > out; cat out'):
        run = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, cwd=tmp_path, check=True)
        assert run.stdout == "all of it"


@pytest.mark.usefixtures("how")
@pytest.mark.parametrize("name", ["", ".", "missing/report.json", "file/report.json"])
def test_places_where_no_file_can_be_are_errors_before_anything_is_computed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write"), atomic_text(name):
        pytest.fail("it was opened")


APART = {
    "output/result_files.py": "all others write with it, one file or a tree of them",
    "live/observe/recording.py": "a recording grows while it is made",
    "spec/authoring/explain.py": "examples for the documentation, in a temporary folder",
    "golden/other_process.py": "what a process says, in a file without a name",
}
"""Modules that write, make or move files themselves."""
WRITING = re.compile(
    r"\.write_(text|bytes)\(|\bopen\([^)\n]*[\"'][rb]*[wax+]|os\.(link|open|rename|replace)\(|\.rename\(|mkstemp|TemporaryFile\("
    r"|\.replace\((self\.|path|target|staged)|copyfile|shutil\.(copy|move)"
)


def test_one_module_writes_files() -> None:
    package = Path(result_files.__file__).parents[1]
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if WRITING.search(path.read_text(encoding="utf-8"))
    }
    reading = {"base/input_files.py", "cli/main.py"}  # with `os.open`
    assert found - reading == set(APART)
