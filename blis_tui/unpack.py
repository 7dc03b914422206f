"""Reads files that are plain or compressed with gzip or Zstandard, detected by their first bytes."""

from __future__ import annotations

import gzip
import zlib
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, cast

from blis_tui.classes import NamedTuple
from blis_tui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK: Final = 1 << 20
"""Number of bytes decompressed at a time."""
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_SHORT: Final = 64 * CHUNK
"""Up to this decompressed size, any compression ratio is accepted."""
_MOST_TIMES: Final = 100
"""Maximum compression ratio of larger files; traces have ratios of some 3 to 20."""


class DamagedError(Exception):
    """A compressed file cannot be decompressed; carries the reason and advice."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


def unpacked(file: BinaryIO, name: str, *, limit: int) -> Iterator[bytes]:
    """Iterate over the content of a file in pieces of at most ``CHUNK`` bytes, decompressed if necessary.

    A compressed file is decompressed twice: the first time only to verify that it is intact and not too large.

    Args:
        file: opened for reading.
        name: its name in messages.
        limit: maximum decompressed size in bytes.

    Raises:
        DamagedError: it is damaged, or its decompressed size is implausible for a recorded workload.
        InputError: it is compressed with Zstandard, and no installed library reads that.
    """
    size = file.seek(0, 2)
    packing = _packing(file, name)
    if packing is None:
        yield from _pieces(file)
        return
    most = min(limit, max(_SHORT, _MOST_TIMES * size))
    found = 0
    with packing.told():
        for piece in _pieces(packing.opened(file)):
            found += len(piece)
            if found > most:
                message = f"the {packing.kind} file of {size:,} bytes expands to more than {most:,} bytes"
                raise DamagedError(message, "is it a recorded workload? expand it and look")
    file.seek(0)
    yield from _pieces(packing.opened(file))


def beginning(file: BinaryIO, name: str, count: int) -> bytes:
    """Return the first bytes of a file's content, decompressed if necessary. Arguments and errors: :func:`unpacked`."""
    packing = _packing(file, name)
    if packing is None:
        return file.read(count)
    with packing.told():
        return packing.opened(file).read(count)


class _Packing(NamedTuple):
    """A kind of compression: its name, how a file of it is read, and what is raised if it is damaged."""

    kind: str
    opened: Callable[[BinaryIO], BinaryIO]
    errors: tuple[type[Exception], ...]

    @contextmanager
    def told(self) -> Iterator[None]:
        """Raise ``DamagedError`` instead."""
        try:
            yield
        except self.errors as error:
            message = f"the {self.kind} file is damaged: {error}"
            raise DamagedError(message, "copy it again, or expand it by hand") from error


def _packing(file: BinaryIO, name: str) -> _Packing | None:
    """Return how a file is compressed; None = not at all. The file is then at its beginning."""
    file.seek(0)
    head = file.read(len(_ZSTD))
    file.seek(0)
    if head.startswith(_GZIP):
        return _Packing("gzip", _gzip, (EOFError, zlib.error, OSError))
    if head == _ZSTD:
        zstd = _zstd(name)
        return _Packing("Zstandard", zstd.ZstdFile, (EOFError, zstd.ZstdError))
    return None


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(CHUNK):
        yield piece


def _gzip(file: BinaryIO) -> BinaryIO:
    return cast("BinaryIO", gzip.GzipFile(fileobj=file))


class _Zstandard(Protocol):
    """The used part of the library's interface."""

    ZstdError: type[Exception]

    def ZstdFile(self, file: BinaryIO, /) -> BinaryIO: ...  # noqa: N802  (its name)


def _zstd(name: str) -> _Zstandard:
    """Return the library that reads Zstandard: the standard one from Python 3.14 on, otherwise an extra."""
    for library in ("compression.zstd", "backports.zstd"):
        try:
            return cast("_Zstandard", import_module(library))
        except ImportError:
            continue
    message = f"{name} is compressed with Zstandard, which needs the extra `zstd` before Python 3.14"
    from blis_tui.extras import install_command  # noqa: PLC0415  (only needed by this error)

    raise InputError(message, help=f"{install_command('zstd')}, or expand the file")
