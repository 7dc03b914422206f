"""On a disk that is really full, files are whole or as they were before."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from blis_tui.base.errors import InputError
from blis_tui.cli.standard_streams import ExitCode
from blis_tui.output import result_files
from blis_tui.output.result_files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 64 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder)]
    if not sys.platform.startswith("linux") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system may be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, *, left: int) -> None:
    """Use all room but so many bytes, which are a multiple of a page."""
    with (disk / "fill").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017  (it is sought)
        file.truncate(file.tell() - left)


@pytest.mark.parametrize("how", ["unnamed", "named"])
@pytest.mark.parametrize("left", [0, 4096, 8192, 16384])
@pytest.mark.parametrize("old", [True, False])
def test_a_file_fits_or_the_old_one_stays(
    how: str, left: int, old: bool, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "named":
        monkeypatch.setattr(result_files, "_UNNAMED", None)
    target, content = disk / "report.json", "new " * 3000
    if old:
        write_text(target, "old")
    fill(disk, left=left)
    if left < len(content):
        with pytest.raises(InputError, match=r"cannot write .*report.json: No space left on device"):
            write_text(target, content)
        content = "old"
    else:
        write_text(target, content)
    there = {path.name: path.read_text() for path in disk.iterdir() if path.name != "fill"}
    assert there == ({} if content == "old" and not old else {"report.json": content})


@pytest.mark.parametrize(
    "command",
    [
        "run quickstart -o FILE",
        "run quickstart --format table -o REPORT --requests FILE",
        "bundle quickstart -o FILE.blis",
        "spec resolve quickstart -o FILE",
        "spec init FILE",
    ],
)
def test_a_command_leaves_what_was_there(command: str, disk: Path) -> None:
    name = next(word for word in command.split() if word.startswith("FILE"))
    (disk / name).write_text("old")
    fill(disk, left=4096)
    before = {path.name: path.read_bytes() for path in disk.iterdir()}
    if command.startswith("spec init"):
        command = command.replace("FILE", "project")
    ended = subprocess.run(
        [sys.executable, "-m", "blis_tui", *command.split()],
        cwd=disk,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(disk.parent)},
    )
    assert ended.returncode == ExitCode.IO, ended.stderr
    (error,) = [line for line in ended.stderr.splitlines() if line.startswith("error")]
    assert error.startswith("error: cannot write ")
    assert error.endswith("No space left on device")
    assert {path.name: path.read_bytes() for path in disk.iterdir()} == before
