"""Failures of commands: one message on standard error, and an exit code."""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from blis_tui.cli.standard_streams import tell

if TYPE_CHECKING:
    from collections.abc import Callable

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
            if (code := _told(error)) is None:
                raise
            sys.exit(code)

    return wrapper


def _told(error: BaseException) -> ExitCode | None:
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

    said = printable(error.strerror or str(error))
    if error.filename is not None:
        return f"{printable(os.fsdecode(error.filename))}: {said}"
    try:
        os.getcwd()  # noqa: PTH109  (pathlib is not needed for anything else here)
    except OSError:
        return "the working directory does not exist any more\n  = help: change to another one"
    return said


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
