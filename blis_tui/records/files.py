"""Result files appear whole or not at all, and leave nothing behind, even where the process is killed."""

from __future__ import annotations

import errno
import os
import stat
import sys
import zlib
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

from blis_tui.errors import InputError
from blis_tui.standard_output import write_standard_output  # noqa: F401  (beside the files, for programs that import it)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer

_BUFFER_BYTES: Final = 64 * 1024
_UNNAMED: Final = getattr(os, "O_TMPFILE", None)
"""Opens a file that has no name yet, and is gone with the process; Linux has it, on most file systems."""
_DESCRIPTORS: Final = Path("/proc/self/fd")
"""Where such a file can be given a name."""
_OLD_S: Final = 60.0
"""A file this old that no process holds was left behind by one that was killed; a younger one may not be held yet."""
_DIRECT: Final = os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""A pipe without a reader is an error, instead of a wait that may have no end."""


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
def atomic_bytes(path: str | Path, *, asked_for: bool = True) -> Iterator[BinaryIO]:
    """As :func:`atomic_text`, for bytes.

    Where a user has asked for the file, a ``KeyboardInterrupt`` gets a note of what became of it.
    """
    if not str(path):
        raise InputError("cannot write: the name of the file is empty")
    try:
        place = _place(Path(path))
        opened = BufferedWriter(_Target(place.descriptor, path), _BUFFER_BYTES)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        yield opened
        try:
            place.publish(opened)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise unwritable(path, error) from error
    except BaseException as error:
        with suppress(OSError, InputError):  # what it could not take before, it cannot take now
            opened.close()
        place.forget()
        if asked_for and isinstance(error, KeyboardInterrupt):
            error.add_note(f"{path} {place.left}")
        raise


class _Target(FileIO):
    """A file that is to be written; when it takes no more, the error names the file that was asked for."""

    def __init__(self, descriptor: int, shown: str | Path) -> None:
        super().__init__(descriptor, "wb")
        self._shown = shown

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:  # the reader of a pipe is gone, which is no error of ours
            raise
        except OSError as error:
            raise unwritable(self._shown, error) from error


class _Place:
    """Where content is written; this one is the file itself, which is special."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @property
    def left(self) -> str:
        """What became of it where the work on it was broken off."""
        return "is cut short"

    def publish(self, opened: BinaryIO) -> None:
        """Let the whole content be the file's, and close what it was written to."""
        opened.close()

    def forget(self) -> None:
        """Leave the file as it was."""


class _UnnamedPlace(_Place):
    """A file without a name."""

    def __init__(self, descriptor: int, target: Path) -> None:
        super().__init__(descriptor)
        self._target = target

    @property
    def left(self) -> str:
        return _left(self._target)

    def publish(self, opened: BinaryIO) -> None:
        opened.flush()
        try:
            self._name()
        except OSError:  # never seen, but what took hours to compute should not depend on it
            self._copy()
        opened.close()

    def _name(self) -> None:
        source = _DESCRIPTORS / str(self.descriptor)
        try:
            os.link(source, self._target, follow_symlinks=True)
        except FileExistsError:  # which a link does not replace
            _remove_left_behind(self._target, self.descriptor)
            from tempfile import mkstemp  # noqa: PLC0415  (a run that only prints its report needs none)

            reserved, name = mkstemp(dir=self._target.parent, prefix=_prefix(self._target))
            os.close(reserved)
            Path(name).unlink()
            os.link(source, name, follow_symlinks=True)
            try:
                Path(name).replace(self._target)
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise

    def _copy(self) -> None:
        from shutil import copyfileobj  # noqa: PLC0415  (imports every compression that Python has)

        other = _HiddenPlace(self._target)
        try:
            with FileIO(self.descriptor, closefd=False) as content, FileIO(other.descriptor, "wb") as copy:
                content.seek(0)
                copyfileobj(content, copy)
                other.publish(copy)
        except OSError:
            other.forget()
            raise


class _HiddenPlace(_Place):
    """A file with a hidden name, where there are no others; the process holds a lock on it."""

    def __init__(self, target: Path) -> None:
        from tempfile import mkstemp  # noqa: PLC0415

        descriptor, name = mkstemp(dir=target.parent, prefix=_prefix(target))
        super().__init__(descriptor)
        _lock(descriptor)
        _remove_left_behind(target, descriptor)
        self._target = target
        self._file = Path(name)

    @property
    def left(self) -> str:
        return _left(self._target)

    def publish(self, opened: BinaryIO) -> None:
        opened.close()
        mask = os.umask(0)
        os.umask(mask)
        self._file.chmod(0o666 & ~mask)  # it was made private; an ordinary new file has these permissions
        self._file.replace(self._target)

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)


def _left(target: Path) -> str:
    return "stays as it was" if target.exists() else "was not written"


def _place(path: Path) -> _Place:
    """Where to write what becomes the file. Raises OSError."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return _Place(_open_special(path, mode))
    target = Path(os.path.realpath(path))  # a link stays a link
    if _UNNAMED is not None and _DESCRIPTORS.is_dir():
        with suppress(OSError):  # not on this file system; what else is wrong the other way shows, too
            return _UnnamedPlace(os.open(target.parent, _UNNAMED | os.O_RDWR, 0o666), target)
    return _HiddenPlace(target)


def _open_special(path: Path, mode: int) -> int:
    """Open a pipe, a terminal or another device."""
    try:
        descriptor = os.open(path, _DIRECT)
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(mode):
            raise OSError(errno.ENXIO, "it is a pipe that no process reads") from error
        raise
    if hasattr(os, "set_blocking"):
        os.set_blocking(descriptor, True)
    return descriptor


def _prefix(target: Path) -> str:
    """How the names of temporary files begin that become this one."""
    return f".blis-tui-{zlib.crc32(os.fsencode(target.name)):08x}-"


def _remove_left_behind(target: Path, descriptor: int) -> None:
    """Delete what processes left behind that were killed while they wrote this file; ``descriptor``: a new one."""
    now_s = os.fstat(descriptor).st_mtime
    for path in target.parent.glob(f"{_prefix(target)}*"):
        with suppress(OSError), path.open("rb") as file:
            if path.stat().st_mtime < now_s - _OLD_S and _lock(file.fileno()):
                path.unlink()


def _lock(descriptor: int) -> bool:
    """Take the lock of a file; False where another process has it, or there are no locks."""
    if sys.platform == "win32":
        return False
    import fcntl  # noqa: PLC0415  (not on all systems)

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def unwritable(path: str | Path, error: OSError) -> InputError:
    """What to say of a file that cannot be written."""
    return InputError(f"cannot write {path}: {error.strerror or error}")


def write_text(path: str | Path, text: str) -> None:
    """Write a whole file. Raises InputError when it cannot be written."""
    with atomic_text(path) as out:
        out.write(text)
