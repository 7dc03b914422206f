"""How a command fails: one message on standard error, and the exit code that goes with it."""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from blis_tui.cli.exit_codes import ExitCode
from blis_tui.cli.files import tell

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that the package's own errors become a message and an exit code instead of a traceback."""

    @wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        from blis_tui import errors  # noqa: PLC0415  (heavy imports only when a command runs)

        try:
            command(*args, **kwargs)
        except errors.BlisError as error:
            tell(_text(error))
            sys.exit(_exit_code(error))

    return wrapper


def _text(error: Exception) -> str:
    from blis_tui import errors  # noqa: PLC0415

    if isinstance(error, errors.SpecError):
        return str(error)
    if isinstance(error, errors.TraceError):
        from blis_tui.spec.diagnostics import render_text  # noqa: PLC0415
        from blis_tui.spec.trace_errors import from_trace_error  # noqa: PLC0415

        return render_text(from_trace_error(error))
    return f"error: {error}"


def _exit_code(error: Exception) -> ExitCode:
    from blis_tui import errors  # noqa: PLC0415

    if isinstance(error, errors.InvariantError):
        return ExitCode.CHECK_FAILED
    if isinstance(error, errors.SimulationError):
        return ExitCode.SIMULATION
    return ExitCode.IO if isinstance(error, errors.InputError) else ExitCode.USAGE
