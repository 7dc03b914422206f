"""Files as they are stored: plain, or compressed with gzip or Zstandard, as their first bytes tell."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from blis_tui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK: Final = 1 << 20
"""Bytes that are expanded at a time."""
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_SHORT: Final = 64 * CHUNK
"""Whatever a file expands to, so much is read."""
_MOST_TIMES: Final = 250
"""A longer one may expand to so many times its size; traces expand to some 3 to 20 times theirs."""


class DamagedError(Exception):
    """A compressed file cannot be expanded; says why, and what to do."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


def unpacked(file: BinaryIO, name: str, *, limit: int) -> Iterator[bytes]:
    """The content of a file in pieces of at most ``CHUNK`` bytes, expanded where it is compressed.

    Args:
        file: opened for reading, at its beginning.
        name: what messages call it.
        limit: the most bytes it may expand to.

    Raises:
        DamagedError: it is damaged, or expands to more than a recorded workload would.
        InputError: it is compressed with Zstandard, and nothing is installed that reads that.
    """
    head = file.read(len(_ZSTD))
    size = file.seek(0, 2)
    file.seek(0)
    source, kind = file, ""
    errors: tuple[type[Exception], ...] = ()
    most = limit
    if head.startswith(_GZIP):
        source, kind, errors = cast("BinaryIO", gzip.GzipFile(fileobj=file)), "gzip", (EOFError, zlib.error, OSError)
    elif head == _ZSTD:
        source, errors = _zstd(file, name)
        kind = "Zstandard"
    if kind:
        most = min(limit, max(_SHORT, _MOST_TIMES * size))
    try:
        while chunk := source.read(min(CHUNK, most + 1)):
            most -= len(chunk)
            if most < 0:
                expanded = min(limit, max(_SHORT, _MOST_TIMES * size))
                message = f"the {kind} file of {size:,} bytes expands to more than {expanded:,} bytes"
                raise DamagedError(message, "is it a recorded workload? expand it and look")
            yield chunk
    except errors as error:
        raise DamagedError(f"the {kind} file is damaged: {error}", "copy it again, or expand it by hand") from error


def _zstd(file: BinaryIO, name: str) -> tuple[BinaryIO, tuple[type[Exception], ...]]:
    """A reader of Zstandard, and what it raises."""
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415  (Python 3.14)
    except ImportError:
        try:
            from backports import zstd  # noqa: PLC0415  (an extra)
        except ImportError as error:
            message = f"{name} is compressed with Zstandard, which needs the extra `zstd` before Python 3.14"
            raise InputError(message, help="pip install 'blis-tui[zstd]', or expand the file") from error
    return cast("BinaryIO", zstd.ZstdFile(file)), (EOFError, zstd.ZstdError)
