"""Result files appear whole or not at all."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

from blis_tui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer

_BUFFER_BYTES: Final = 64 * 1024


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
    temporary: Path | None = None
    try:
        if target.exists() and not target.is_file():
            opened = BufferedWriter(_Target(target, path), _BUFFER_BYTES)
        else:
            from tempfile import mkstemp  # noqa: PLC0415  (a run that only prints its report needs none)

            descriptor, name = mkstemp(dir=target.parent, prefix=f".{target.name}.")
            temporary = Path(name)
            opened = BufferedWriter(_Target(descriptor, path), _BUFFER_BYTES)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield opened
        try:
            opened.close()
            if temporary is not None:
                _keep_mode(temporary)
                temporary.replace(target)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(path, error) from error
    except BaseException:
        with suppress(OSError, InputError):  # what it could not take before, it cannot take now
            opened.close()
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise


class _Target(FileIO):
    """A file that is to be written; when it takes no more, the error names the file that was asked for."""

    def __init__(self, file: Path | int, shown: str | Path) -> None:
        super().__init__(file, "wb")
        self._shown = shown

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:  # nobody reads a pipe any more: no fault of anybody
            raise
        except OSError as error:
            raise _unwritable(self._shown, error) from error


def _unwritable(path: str | Path, error: OSError) -> InputError:
    return InputError(f"cannot write {path}: {error.strerror or error}")


def write_standard_output(text: str) -> None:
    """Print exactly these bytes. Raises InputError when there is no standard output or it cannot be written."""
    try:
        if sys.stdout is None:
            raise InputError("there is no standard output", help="write the report to a file with -o")
        sys.stdout.buffer.write(text.encode(errors="replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable("standard output", error) from error


def _keep_mode(file: Path) -> None:
    """Give a temporary file (made private) the permissions that an ordinary new file would have."""
    mask = os.umask(0)
    os.umask(mask)
    file.chmod(0o666 & ~mask)


def write_text(path: str | Path, text: str) -> None:
    """Write a whole file. Raises InputError when it cannot be written."""
    with atomic_text(path) as out:
        out.write(text)
