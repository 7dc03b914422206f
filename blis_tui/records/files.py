"""Result files appear whole or not at all."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

from blis_tui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def atomic_text(path: str | Path) -> Iterator[TextIO]:
    r"""A text file (UTF-8, ``\n``) that takes the place of ``path`` when the block ends, and never before.

    Special files such as ``/dev/stdout`` are written directly.

    Raises:
        InputError: the file cannot be written.
    """
    with atomic_bytes(path) as raw:
        out = TextIOWrapper(raw, encoding="utf-8", newline="\n")
        yield out
        out.flush()
        out.detach()


@contextmanager
def atomic_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """As :func:`atomic_text`, for bytes."""
    target = Path(os.path.realpath(path))  # a link stays a link
    special = target.exists() and not target.is_file()
    try:
        opened = target.open("wb") if special else _beside(target)
    except OSError as error:
        raise _unwritable(path, error) from error
    name = "" if special else opened.name
    try:
        yield opened
        try:
            opened.close()
            if name:
                _keep_mode(name)
                Path(name).replace(target)
        except OSError as error:
            raise _unwritable(path, error) from error
    except BaseException:
        opened.close()
        if name:
            Path(name).unlink(missing_ok=True)
        raise


def _beside(target: Path) -> BinaryIO:
    """A new file in the same folder, so that it can take the target's place."""
    opened = NamedTemporaryFile("wb", dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
    return cast("BinaryIO", opened)


def _unwritable(path: str | Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path}: {error.strerror or error}")


def write_standard_output(text: str) -> None:
    """Print exactly these bytes. Raises InputError when there is no standard output or it cannot be written."""
    try:
        if sys.stdout is None:
            raise InputError("there is no standard output", help="write the report to a file with -o")
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable("standard output", error) from error


def _keep_mode(name: str) -> None:
    """Give a temporary file (made private) the permissions that an ordinary new file would have."""
    mask = os.umask(0)
    os.umask(mask)
    Path(name).chmod(0o666 & ~mask)


def write_text(path: str | Path, text: str) -> None:
    """Write a whole file. Raises InputError when it cannot be written."""
    with atomic_text(path) as out:
        out.write(text)
