"""Result files appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING

from blis_tui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def atomic_text(path: str | Path) -> Iterator[IO[str]]:
    r"""A text file (UTF-8, ``\n``) that takes the place of ``path`` when the block ends, and never before.

    Special files such as ``/dev/stdout`` are written directly.

    Raises:
        InputError: the file cannot be written.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8", newline="\n") as out:
                yield out
            return
        with NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as out:
            try:
                yield out
                out.close()
                _keep_mode(out.name)
                Path(out.name).replace(target)
            except BaseException:
                out.close()
                Path(out.name).unlink()
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
