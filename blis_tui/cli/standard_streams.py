"""Input and output of commands: files, and standard streams, which may be closed, broken or full; failures."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from enum import IntEnum
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TextIO

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from blis_tui.results.report import Report
    from blis_tui.runs.comparison import Comparison
    from blis_tui.runs.reroute import Hindsight

P = ParamSpec("P")


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    CHECK_FAILED = 1
    """A golden, an expectation or an invariant did not hold."""
    USAGE = 2
    """Invalid arguments, or an invalid specification."""
    IO = 3
    """A file could not be read or written."""
    SIMULATION = 4
    """The simulation could not go on, or code of a plug-in raised an exception."""
    DEFECT = 70
    """A defect of this package: an exception that nothing expects. The code is that of BSD's ``sysexits.h``."""
    INTERRUPTED = 130
    """Ctrl-C, SIGTERM or SIGHUP."""
    READER_GONE = 141
    """Standard output has lost its reader (`blis-tui run … | head`); the code that shells use for SIGPIPE."""


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that errors of this package give a message and an exit code instead of a traceback."""

    @wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        from blis_tui.base.standard_output import reserved_for_results  # noqa: PLC0415  (`--help` is printed by Click)

        if (
            inputs := sys.modules.get("blis_tui.base.input_files")
        ) is not None:  # another command may have run in this process
            inputs.clear_opened_inputs()
        try:
            with reserved_for_results():
                command(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if (code := _report_failure(error)) is None:
                raise
            sys.exit(code)

    return wrapper


def _report_failure(error: BaseException) -> ExitCode | None:
    """Report a failure and return its exit code; None if the error is of an unknown kind."""
    from blis_tui.base import errors  # noqa: PLC0415  (most commands do not fail)

    if isinstance(error, errors.BlisError):
        located = isinstance(error, errors.SpecError | errors.TraceError)
        tell(str(error) if located else f"error: {error}")
        return _exit_code(error)

    from blis_tui.model.plug_ins import place_in_plugin  # noqa: PLC0415  (as above)

    if place := place_in_plugin(error):
        tell(f"error: {errors.in_words(error)}\n  = help: {place}")
        return ExitCode.SIMULATION
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        tell(f"error: {_system_error_text(error)}")
        return ExitCode.IO
    return None


def _system_error_text(error: OSError) -> str:
    """What to say of an error of the system that no code has expected, such as a full disk for temporary files."""
    from blis_tui.base.text import printable  # noqa: PLC0415  (as above)

    text = printable(error.strerror or str(error))
    if error.filename is not None:
        return f"{printable(os.fsdecode(error.filename))}: {text}"
    try:
        os.getcwd()  # noqa: PTH109  (pathlib is not needed for anything else here)
    except OSError:
        return "the working directory does not exist any more\n  = help: change to another one"
    return text


def tell_defect(error: BaseException) -> ExitCode:
    """Print the traceback of an exception that nothing has expected; return the exit code."""
    from traceback import format_exception  # noqa: PLC0415  (as above)

    tell("".join(format_exception(error)), nl=False)
    tell("error: this is a defect of blis-tui: please report it, with the lines above")
    return ExitCode.DEFECT


def _exit_code(error: Exception) -> ExitCode:
    from blis_tui.base import errors  # noqa: PLC0415

    if isinstance(error, errors.InvariantError):
        return ExitCode.CHECK_FAILED
    if isinstance(error, errors.SimulationError):
        return ExitCode.SIMULATION
    return ExitCode.IO if isinstance(error, errors.InputError) else ExitCode.USAGE


_CLEAR_LINE: Final = "\r\x1b[2K"
"""Control sequence that moves to the start of the line and clears it."""


def read_standard_input() -> bytes:
    """Return the content of standard input; if it is too large for a document, enough to detect that.

    Raises:
        InputError: there is no standard input, or it cannot be read.
    """
    from blis_tui.base.errors import InputError  # noqa: PLC0415  (heavy imports only when a command runs)
    from blis_tui.spec.read import MAX_BYTES  # noqa: PLC0415

    if sys.stdin is None:
        raise InputError("there is no standard input", help="name a file instead of `-`")
    try:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read standard input: {error.strerror or error}") from error


def read_standard_input_text() -> str:
    """Return :func:`read_standard_input` as text; invalid UTF-8 stays recognisable."""
    return read_standard_input().decode(errors="surrogateescape")


def tell(message: str, *, nl: bool = True, afresh: bool = False) -> None:
    """Print a message on standard error; if that fails, only the exit code tells.

    Args:
        message: the message; control characters are replaced.
        nl: whether to end the line.
        afresh: whether to replace the current line of the terminal.
    """
    with suppress(OSError):
        click.echo((_CLEAR_LINE if afresh else "") + _shown(message), err=True, nl=nl)


def tell_left_out(*reports: Report | Hindsight | Comparison) -> None:
    """Report what traces' formats left out; entries shared by several reports once."""
    from blis_tui.base.text import printable  # noqa: PLC0415

    for omission in dict.fromkeys(omission for report in reports for omission in report.left_out):
        tell(f"note: left out of the trace: {printable(str(omission))}")


def print_text(text: str, *, nl: bool = True) -> None:
    """Print a text or JSON on standard output, with control characters replaced.

    Raises:
        InputError: there is no standard output, or it cannot be written.
    """
    _write(_shown(text) + "\n" * nl)


def columns(most: int, stream: TextIO | None) -> int:
    """Return the line width of a stream: its terminal's, but at most ``most``."""
    try:
        width = 0 if stream is None else os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # a file, a pipe, or a stream without a file descriptor
        return most
    return min(most, width or most)  # 0: the terminal does not know its width


def results() -> TextIO | None:
    """Return standard output, the destination of results; None if there is none."""
    from blis_tui.base.standard_output import standard_output  # noqa: PLC0415  (`--help` is printed by Click)

    return standard_output()


def print_data(text: str) -> None:
    """Print exactly these bytes (CSV, a document); on a terminal, print like :func:`print_text`.

    Raises:
        InputError: there is no standard output, or it cannot be written.
    """
    stream = results()
    _write(_shown(text) if stream is not None and stream.isatty() else text)


def _shown(text: str) -> str:
    from blis_tui.base.text import printable_lines  # noqa: PLC0415  (`--help` is printed by Click)

    return printable_lines(text)


def _write(text: str) -> None:
    from blis_tui.base.standard_output import write_standard_output  # noqa: PLC0415  (as above)

    write_standard_output(text)


def yaml_files(path: str) -> list[str]:
    """Return a path, or for a folder the YAML files below it in a fixed order, without hidden ones.

    Raises:
        InputError: the folder has none.
    """
    from pathlib import Path  # noqa: PLC0415  (`--help` and `completion` need none, and it takes a tenth of their time)

    from blis_tui.base.errors import InputError  # noqa: PLC0415  (as above)

    if path == "-" or not os.path.isdir(path):  # noqa: PTH112  (Path.is_dir may raise for a name that is too long)
        return [path]
    folder = Path(path)
    paths = [file for ending in ("*.yaml", "*.yml") for file in folder.rglob(ending)]
    seen = [file for file in paths if not any(part.startswith(".") for part in file.relative_to(folder).parts)]
    if not seen:
        raise InputError(f"no documents in {path}: it contains no `*.yaml` or `*.yml` file that is not hidden")
    return sorted(map(str, seen))


def require_different_files(outputs: Mapping[str, str | None]) -> None:
    """Raise UsageError unless each result has its own file."""
    files = [_identity(name) for name in outputs.values() if name not in (None, "-")]
    if len(dict.fromkeys(files)) < len(files):
        raise click.UsageError(f"{', '.join(outputs)} must be different files")


def require_no_overwrite(outputs: Mapping[str, str | None], also: Iterable[Path] = ()) -> None:
    """Raise UsageError if a result would overwrite a file that the command reads (including ``also``)."""
    from blis_tui.base.input_files import opened_inputs  # noqa: PLC0415  (heavy imports only when a command runs)

    read: tuple[str | Path, ...] = (*opened_inputs(), *also)
    taken = {_identity(path): path for path in read}
    for option, name in outputs.items():
        if name not in (None, "-") and (path := taken.get(_identity(name))) is not None:
            raise click.UsageError(f"{option} would overwrite {path}, which this command reads")


def _identity(path: str | Path) -> tuple[object, ...]:
    """Return an identity that is equal for two names of one file; devices, which results may share, all differ."""
    try:
        status = os.stat(path)  # noqa: PTH116  (takes any kind of name)
    except OSError:
        return (os.path.realpath(path),)
    if not stat.S_ISREG(status.st_mode):
        return (object(),)
    return (status.st_dev, status.st_ino)
