"""Result files: they appear whole or not at all, one or a tree of them, and leave nothing behind.

Content is written to a temporary file in the same folder, which replaces the old file once the disk has all of it.
Until then, a full disk or a killed process leaves the old file as it was. All files that this package replaces are
written here.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import zlib
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, TYPE_CHECKING, BinaryIO, Final, TextIO

from blis_tui.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from _typeshed import ReadableBuffer


_BUFFER_BYTES: Final = 64 * 1024
_UNNAMED: Final = getattr(os, "O_TMPFILE", None)
"""Flag to open an unnamed file, which vanishes with the process; supported by Linux on most file systems."""
_DESCRIPTORS: Final = Path("/proc/self/fd")
"""Where such a file can be given a name."""
_STALE_S: Final = 60.0
"""A hidden file this old without a lock was left behind by a killed process; a younger one may not be locked yet."""
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
"""What pipes, devices and some file systems answer if asked to write everything to the disk."""
_DIRECT: Final = os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""Flags that make a pipe without a reader an error, instead of an endless wait."""


@contextmanager
def atomic_text(path: str | Path, *, asked_for: bool = True) -> Iterator[TextIO]:
    r"""Open a text file (UTF-8, ``\n``) that replaces ``path`` when the block ends, and never before.

    Special files such as ``/dev/stdout`` are written directly. Arguments are those of :func:`atomic_bytes`.

    Raises:
        InputError: the file cannot be written.
    """
    with atomic_bytes(path, asked_for=asked_for) as raw:
        out = TextIOWrapper(raw, encoding="utf-8", newline="\n")
        yield out
        out.flush()
        out.detach()


@contextmanager
def atomic_bytes(path: str | Path, *, asked_for: bool = True) -> Iterator[BinaryIO]:
    """Do the same as :func:`atomic_text` for bytes.

    Args:
        path: the file.
        asked_for: whether a user has asked for it. Then a ``KeyboardInterrupt`` gets a note of what became of the file,
            and it is on the disk before it replaces the old one. Caches and temporary folders need neither.
    """
    if not str(path):
        raise InputError("cannot write: the name of the file is empty")
    try:
        place = _place(Path(path))
        opened = BufferedWriter(_Target(place.descriptor, path), _BUFFER_BYTES)
    except OSError as error:
        raise write_error_text(path, error) from error
    try:
        yield opened
        try:
            opened.flush()
            if asked_for:
                _settle(opened)
            place.publish(opened)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise write_error_text(path, error) from error
    except BaseException as error:
        with suppress(OSError, InputError):  # what could not be written before cannot be written now
            opened.close()
        place.forget()
        if asked_for and isinstance(error, KeyboardInterrupt):
            error.add_note(f"{path} {place.left}")
        raise


class _Target(FileIO):
    """A file being written; its write errors name the requested path."""

    def __init__(self, descriptor: int, shown: str | Path) -> None:
        super().__init__(descriptor, "wb")
        self._shown = shown

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:  # the reader of a pipe is gone, which is not an error here
            raise
        except OSError as error:
            raise write_error_text(self._shown, error) from error


class _TempFile:
    """Where content is written; this base class writes special files directly."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @property
    def left(self) -> str:
        """Describe the state of the file after an interruption."""
        return "is cut short"

    def publish(self, opened: BinaryIO) -> None:
        """Make the whole content visible under the file's name, and close the written file."""
        opened.close()

    def forget(self) -> None:
        """Leave the original file as it was."""


class _UnnamedTempFile(_TempFile):
    """An unnamed file."""

    def __init__(self, descriptor: int, target: Path) -> None:
        super().__init__(descriptor)
        self._target = target

    @property
    def left(self) -> str:
        return _left(self._target)

    def publish(self, opened: BinaryIO) -> None:
        os.fchmod(self.descriptor, _permissions(self._target))
        try:
            self._name()
        except OSError:  # a system that lets nobody name it: hours of computation must not depend on that
            self._copy()
        opened.close()

    def _name(self) -> None:
        try:
            self._link(self._target)
        except FileExistsError:  # a link does not replace a file
            _remove_left_behind(self._target, self.descriptor)
            from tempfile import mkstemp  # noqa: PLC0415  (a run that only prints its report does not need it)

            reserved, name = mkstemp(dir=self._target.parent, prefix=_prefix(self._target))
            os.close(reserved)
            Path(name).unlink()
            self._link(Path(name))
            try:
                Path(name).replace(self._target)
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise

    def _link(self, name: Path) -> None:
        """Give the file a name."""
        source = _DESCRIPTORS / str(self.descriptor)
        # Python calls linkat(), the only way to follow the link there, only if it is given a folder, which is not used.
        os.link(source, name, src_dir_fd=self.descriptor, follow_symlinks=True)

    def _copy(self) -> None:
        from shutil import copyfileobj  # noqa: PLC0415  (imports all of Python's compression modules)

        other = _HiddenTempFile(self._target)
        try:
            with BufferedWriter(FileIO(other.descriptor, "wb")) as copy:
                with FileIO(self.descriptor, closefd=False) as content:
                    content.seek(0)
                    copyfileobj(content, copy)
                copy.flush()
                _settle(copy)
                other.publish(copy)
        except OSError:
            other.forget()
            raise


class _HiddenTempFile(_TempFile):
    """A hidden file, for systems without unnamed ones; the process holds a lock on it."""

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
        self._file.chmod(_permissions(self._target))  # it was created private
        self._file.replace(self._target)

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)


def _settle(opened: IO[bytes] | IO[str]) -> None:
    """Wait until the disk has the content: some file systems report only then that it does not fit. Raises OSError."""
    try:
        os.fsync(opened.fileno())
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def _permissions(target: Path) -> int:
    """Return those of the file to be replaced, or of ordinary new files."""
    with suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode) & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _left(target: Path) -> str:
    return "stays as it was" if target.exists() else "was not written"


def _place(path: Path) -> _TempFile:
    """Choose where to write the content of a file. Raises OSError."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return _TempFile(_open_special(path, mode))
    target = Path(os.path.realpath(path))  # a link stays a link
    if _UNNAMED is not None and _DESCRIPTORS.is_dir():
        with suppress(OSError):  # unsupported by this file system; other errors recur with the other way
            return _UnnamedTempFile(os.open(target.parent, _UNNAMED | os.O_RDWR, 0o666), target)
    return _HiddenTempFile(target)


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
    """Return the prefix of temporary file names for this target."""
    return f".blis-tui-{zlib.crc32(os.fsencode(target.name)):08x}-"


def _remove_left_behind(target: Path, descriptor: int) -> None:
    """Delete files that killed processes left behind while writing this target; ``descriptor``: a new file."""
    now_s = os.fstat(descriptor).st_mtime
    for path in target.parent.glob(f"{_prefix(target)}*"):
        with suppress(OSError), path.open("rb") as file:
            if path.stat().st_mtime < now_s - _STALE_S and _lock(file.fileno()):
                path.unlink()


def _lock(descriptor: int) -> bool:
    """Lock a file; return False if another process holds the lock, or locks are unsupported."""
    if sys.platform == "win32":
        return False
    import fcntl  # noqa: PLC0415  (not on all systems)

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_error_text(path: str | Path, error: OSError) -> InputError:
    """What to say of a file that cannot be written."""
    return InputError(f"cannot write {path}: {error.strerror or error}")


@contextmanager
def reporting_write_errors(path: str | Path) -> Iterator[None]:
    """Raise InputError instead of OSError in a block that only makes, moves or deletes files at ``path``."""
    try:
        yield
    except OSError as error:
        raise write_error_text(path, error) from error


class AtomicFiles:
    """Files that belong together: none is replaced before the disk has the content of all."""

    def __init__(self, opened: ExitStack) -> None:
        self._stack = opened
        self._files: list[tuple[str | Path, BinaryIO | TextIO]] = []

    def text(self, path: str | Path) -> TextIO:
        """Open a file as :func:`atomic_text` does."""
        file = self._stack.enter_context(atomic_text(path))
        self._files.append((path, file))
        return file

    def bytes(self, path: str | Path) -> BinaryIO:
        """Open a file as :func:`atomic_bytes` does."""
        file = self._stack.enter_context(atomic_bytes(path))
        self._files.append((path, file))
        return file

    def settle(self) -> None:
        """Have everything on the disk. Raises InputError."""
        for path, file in self._files:
            file.flush()
            with reporting_write_errors(path):
                _settle(file)


@contextmanager
def atomic_files() -> Iterator[AtomicFiles]:
    """Open files that appear together when the block ends, all or none.

    Raises:
        InputError: one of them cannot be written.
    """
    with ExitStack() as opened:
        files = AtomicFiles(opened)
        yield files
        files.settle()


def write_text(path: str | Path, text: str) -> None:
    """Write a whole file. Raises InputError if it cannot be written."""
    with atomic_text(path) as out:
        out.write(text)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a whole file. Raises InputError if it cannot be written."""
    with atomic_bytes(path) as out:
        out.write(content)


_SHOWN: Final = 4
"""Maximum number of existing files that an error names."""


def check_room(folder: Path, files: Iterable[str], *, replace: bool) -> None:
    """Refuse a folder that :func:`write_tree` would refuse.

    Raises:
        InputError: it is no folder, or a file exists (and ``replace`` is off).
    """
    with reporting_write_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is not a folder")
        there = [name for name in files if os.path.lexists(folder / name)]
    if there and not replace:
        shown = ", ".join(there[:_SHOWN]) + (f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else "")
        raise InputError(f"{folder} already has {shown}", help="choose another folder, or replace them with --force")


def write_tree(folder: Path, files: Mapping[str, str | bytes], *, replace: bool) -> None:
    """Write files below a folder: all of them or, after any error, none.

    Everything is written beside the folder first and then moved into it; with ``replace`` its other files stay.

    Raises:
        InputError: a file exists (and ``replace`` is off), or something cannot be written.
    """
    check_room(folder, files, replace=replace)
    with reporting_write_errors(folder):
        target = folder.absolute()
        above = next(parent for parent in target.parents if parent.is_dir())
        staged = Path(mkdtemp(prefix=f".{target.name}.", dir=above))
        try:
            for name, text in files.items():
                path = staged / name
                path.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(path, text if isinstance(text, bytes) else text.encode())
            _move(staged, target, files)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def _move(staged: Path, target: Path, files: Iterable[str]) -> None:
    """Move the staged files: a new folder at once, an existing one (perhaps the working folder) file by file."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        mask = os.umask(0)
        os.umask(mask)
        staged.chmod(0o777 & ~mask)  # temporary folders are private
        staged.replace(target)
        return
    for name in files:
        path = target / name
        blocked = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), None)
        if blocked is not None or path.is_dir():
            raise InputError(f"cannot write {path}: {blocked or path} is in the way")
    for name in files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).replace(target / name)
