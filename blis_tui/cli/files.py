"""What commands read and where they write: files, and the standard streams, which may be closed, broken or full."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from blis_tui.compare.comparison import Comparison
    from blis_tui.compare.hindsight import Hindsight
    from blis_tui.metrics.report import Report

_AFRESH: Final = "\r\x1b[2K"
"""To the start of the line, and empty it."""


def read_standard_input() -> bytes:
    """What standard input holds; of more than a document may have, enough to tell.

    Raises:
        InputError: there is no standard input, or it cannot be read.
    """
    from blis_tui.errors import InputError  # noqa: PLC0415  (heavy imports only when a command runs)
    from blis_tui.spec.loader import MAX_BYTES  # noqa: PLC0415

    if sys.stdin is None:
        raise InputError("there is no standard input", help="name a file instead of `-`")
    try:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read standard input: {error.strerror or error}") from error


def read_standard_input_text() -> str:
    """As :func:`read_standard_input`, decoded so that what is no text can still be told."""
    return read_standard_input().decode(errors="surrogateescape")


def tell(message: str, *, nl: bool = True, afresh: bool = False) -> None:
    """Print a message on standard error; where that takes nothing, the exit code has to do.

    Args:
        message: what to print; what a terminal would act on is replaced.
        nl: whether to end the line.
        afresh: whether it takes the place of what the terminal's line shows.
    """
    with suppress(OSError):
        click.echo((_AFRESH if afresh else "") + _shown(message), err=True, nl=nl)


def tell_left_out(*reports: Report | Hindsight | Comparison) -> None:
    """Say what of their traces is no request; once what several leave out."""
    from blis_tui.printable import printable  # noqa: PLC0415

    for one in dict.fromkeys(one for report in reports for one in report.left_out):
        tell(f"note: left out of the trace: {printable(str(one))}")


def print_text(text: str, *, nl: bool = True) -> None:
    """Print a text for people, or JSON, on standard output; what a terminal would act on is replaced.

    Raises:
        InputError: there is no standard output, or it cannot be written.
    """
    _write(_shown(text) + "\n" * nl)


def columns(most: int, stream: TextIO | None) -> int:
    """Characters to a line of a text on a stream: those of its terminal, and not more than ``most``."""
    try:
        found = 0 if stream is None else os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # a file, a pipe, or nothing that a file stands behind
        return most
    return min(most, found or most)  # 0: a terminal that does not know


def results() -> TextIO | None:
    """Where results go: standard output; None = there is none."""
    from blis_tui.standard_output import standard_output  # noqa: PLC0415  (`--help` is printed by Click)

    return standard_output()


def print_data(text: str) -> None:
    """Print exactly these bytes (CSV, a document); to a terminal as :func:`print_text` does.

    Raises:
        InputError: there is no standard output, or it cannot be written.
    """
    stream = results()
    _write(_shown(text) if stream is not None and stream.isatty() else text)


def _shown(text: str) -> str:
    from blis_tui.printable import printable_lines  # noqa: PLC0415  (`--help` is printed by Click)

    return printable_lines(text)


def _write(text: str) -> None:
    from blis_tui.standard_output import write_standard_output  # noqa: PLC0415  (as above)

    write_standard_output(text)


def yaml_files(path: str) -> list[str]:
    """A folder as the YAML files below it, in a fixed order; what is hidden belongs to other programs.

    Raises:
        InputError: there are none: it was meant otherwise.
    """
    from pathlib import Path  # noqa: PLC0415  (`--help` and `completion` need none, and it takes a tenth of their time)

    from blis_tui.errors import InputError  # noqa: PLC0415  (as above)

    if path == "-" or not os.path.isdir(path):  # noqa: PTH112  (a name too long for a file is no error here)
        return [path]
    folder = Path(path)
    found = [file for ending in ("*.yaml", "*.yml") for file in folder.rglob(ending)]
    seen = [file for file in found if not any(part.startswith(".") for part in file.relative_to(folder).parts)]
    if not seen:
        raise InputError(f"no documents in {path}: it contains no `*.yaml` or `*.yml` file that is not hidden")
    return sorted(map(str, seen))


def require_different_files(outputs: Mapping[str, str | None]) -> None:
    """Each result needs a file of its own. Raises UsageError."""
    files = [_identity(name) for name in outputs.values() if name not in (None, "-")]
    if len(dict.fromkeys(files)) < len(files):
        raise click.UsageError(f"{', '.join(outputs)} must be different files")


def require_spared(outputs: Mapping[str, str | None], also: Iterable[Path] = ()) -> None:
    """No result may take the place of a file that the command has read, or will (``also``). Raises UsageError."""
    from blis_tui.inputs import noted_inputs  # noqa: PLC0415  (heavy imports only when a command runs)

    read: tuple[str | Path, ...] = (*noted_inputs(), *also)
    taken = {_identity(path): path for path in read}
    for option, name in outputs.items():
        if name not in (None, "-") and (path := taken.get(_identity(name))) is not None:
            raise click.UsageError(f"{option} would overwrite {path}, which this command reads")


def _identity(path: str | Path) -> tuple[object, ...]:
    """Equal for two names of one file; devices, which several results may share, are all different."""
    try:
        status = os.stat(path)  # noqa: PTH116  (a name will do)
    except OSError:
        return (os.path.realpath(path),)
    if not stat.S_ISREG(status.st_mode):
        return (object(),)
    return (status.st_dev, status.st_ino)
