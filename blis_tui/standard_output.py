"""Standard output, which may be closed, broken or full."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.errors import InputError


def write_standard_output(text: str) -> None:
    """Write exactly this, at once.

    Raises:
        InputError: there is no standard output, or it cannot be written.
    """
    if sys.stdout is None:
        raise _unwritable("there is no standard output", help="`-o` writes to a file, where a command has it")
    try:
        sys.stdout.buffer.write(text.encode(errors="replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(f"cannot write standard output: {error.strerror or error}") from error


def _unwritable(message: str, help: str | None = None) -> InputError:  # noqa: A002  (as InputError calls it)
    from blis_tui.errors import InputError  # noqa: PLC0415  (every command comes here, and few need it)

    return InputError(message, help=help)
