"""The standard streams, which may be closed, broken or full."""

from __future__ import annotations

import sys
from contextlib import suppress

import click


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


def tell(message: str, *, nl: bool = True) -> None:
    """Print a message on standard error; where that takes nothing, the exit code has to do."""
    with suppress(OSError):
        click.echo(message, err=True, nl=nl)
