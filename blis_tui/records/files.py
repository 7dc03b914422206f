"""Result files appear whole or not at all."""

from __future__ import annotations

import os
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
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as out:
                yield out
            return
        with NamedTemporaryFile("wb", dir=target.parent, prefix=f".{target.name}.", delete=False) as temporary:
            try:
                yield cast("BinaryIO", temporary)
                temporary.close()
                _keep_mode(temporary.name)
                Path(temporary.name).replace(target)
            except BaseException:
                temporary.close()
                Path(temporary.name).unlink()
                raise
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error


def _keep_mode(name: str) -> None:
    """Give a temporary file (made private) the permissions that an ordinary new file would have."""
    mask = os.umask(0)
    os.umask(mask)
    Path(name).chmod(0o666 & ~mask)


def write_text(path: str | Path, text: str) -> None:
    """Write a whole file. Raises InputError when it cannot be written."""
    with atomic_text(path) as out:
        out.write(text)
