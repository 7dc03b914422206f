"""Reads user-named files: regular ones only, plain or compressed, and never more than a stated limit.

A named pipe would wait for ever, a device may have no end, and a file of gigabytes instead of a document is a mistake.
Each is reported as one error before anything is read.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import zlib
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, cast

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


MAX_DEPTH: Final = 100
"""Maximum nesting depth of maps and lists in a document."""
_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"
_MOST_DIGITS: Final = 100
_SHOWN: Final = 100
"""Length of the shown end of a place in a document."""
_ENDLESS: Final = 10**_MOST_DIGITS
"""No number of a document is as large; sums, products and squares of smaller ones are finite."""
MAX_TRACE_BYTES: Final = 1024 * 1024 * 1024
"""Maximum size of recorded workloads: some 30 million requests."""

# Opening a pipe for reading waits for a writer; non-blocking, it is opened, recognized, and closed again.
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_CHUNK: Final = 1 << 20
_KINDS: Final = (
    (stat.S_ISFIFO, "it is a pipe, not a file"),
    (stat.S_ISCHR, "it is a device, not a file"),
    (stat.S_ISBLK, "it is a device, not a file"),
)


_ALIKE: Final = 0.75
"""From this share of equal letters on, a file may be the one that was meant."""
_OPENED: Final[dict[str | Path, None]] = {}
"""The files read so far."""


class TooLargeError(InputError):
    """A file is larger than the limit for its kind."""


def real_path(path: str | Path) -> Path:
    """Return the absolute path without links; a loop of links is kept (``Path.resolve`` raises before Python 3.13)."""
    return Path(os.path.realpath(path))


def unmerged_line(lines: Iterable[str]) -> int | None:
    """Where git has left the first mark of a merge that is not resolved, counted from 0; None = nowhere."""
    return next((at for at, line in enumerate(lines) if line.startswith("<<<<<<< ")), None)


def opened_inputs() -> tuple[str | Path, ...]:
    """Return the files opened for reading since the list was last cleared."""
    return tuple(_OPENED)


def note_opened(path: str | Path) -> None:
    """Count a file as opened for reading whose content is still known."""
    _OPENED[path] = None


def clear_opened_inputs() -> None:
    """Clear the list of opened files, at the beginning of a command."""
    _OPENED.clear()


@contextmanager
def open_input(path: str | Path, shown: str | None = None, *, limit: int) -> Iterator[BinaryIO]:
    """Open a regular file for reading bytes.

    Args:
        path: the file.
        shown: its name in messages (default: the path).
        limit: maximum size in bytes.

    Raises:
        InputError: it cannot be opened or read, or is not a regular file.
        TooLargeError: it is larger.
    """
    name = str(path) if shown is None else shown
    try:
        with open(path, "rb", opener=lambda file, _: os.open(file, _FLAGS)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                what = next((text for is_one, text in _KINDS if is_one(status.st_mode)), "it is not a file")
                raise InputError(f"cannot read {name}: {what}")
            if status.st_size > limit:
                raise _too_large(name, limit)
            _OPENED[path] = None
            yield file
    except FileNotFoundError as error:
        raise InputError(f"cannot read {name}: {error.strerror}", help=_meant(Path(path))) from error
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from error
    except ValueError as error:  # a path with a NUL character
        raise InputError(f"cannot read {name!r}: {error}") from error


def _meant(missing: Path) -> str | None:
    """Return a hint at the file that was probably meant, beside the one that is missing; None = there is none."""
    try:
        beside = sorted(path.name for path in missing.parent.iterdir())
    except OSError:
        return f"there is no folder {missing.parent}"
    near = get_close_matches(missing.name, beside, n=1, cutoff=_ALIKE)
    return f"did you mean `{missing.parent / near[0]}`?" if near else None


def read_input(path: str | Path, shown: str | None = None, *, limit: int) -> bytes:
    """Return the content of a regular file. Raises as :func:`open_input`."""
    with open_input(path, shown, limit=limit) as file:
        raw = file.read(limit + 1) or b""
    if len(raw) > limit:  # it grew, or its file system does not report sizes
        raise _too_large(str(path) if shown is None else shown, limit)
    return raw


def input_digest(path: str | Path, *, limit: int) -> str:
    """Return the SHA-256 of a regular file's content in hexadecimal. Raises as :func:`open_input`."""
    from hashlib import sha256  # noqa: PLC0415  (only traces need it)

    digest = sha256()
    with open_input(path, limit=limit) as file:
        while limit >= 0 and (chunk := file.read(_CHUNK)):
            digest.update(chunk)
            limit -= len(chunk)
    if limit < 0:
        raise InputError(f"cannot read {path}: it grows while being read")
    return digest.hexdigest()


def parse_json(text: str | bytes) -> object:
    """Return the value of a JSON text, with numbers and texts that can be counted with and written.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has a number that is not finite or has more than a hundred
            digits, or half a character (a lone surrogate), which no file can hold.
    """
    text = text if isinstance(text, str) else text.decode(json.detect_encoding(text))
    try:
        value: object = json.loads(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # Python reads integers of up to 4,300 digits
        raise ValueError("it has a number with too many digits") from error
    # Not a number, and infinities, are not between the bounds either.
    if [scalar for scalar in _scalars(value) if isinstance(scalar, int | float) and not -_ENDLESS < scalar < _ENDLESS]:
        raise ValueError(next(_wrong_numbers(value, "")))
    if _may_have_half_characters(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError(r"it has half a character (a lone surrogate, \ud800 to \udfff)") from error
    return value


def parse_foreign_json(raw: bytes) -> object:
    """Return the value of JSON from another program, of which only some fields are wanted, and nothing is promised.

    What :func:`parse_json` refuses is made harmless: such numbers become None, half characters a replacement character.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    text = raw.decode("utf-8-sig", errors="replace")
    try:
        value: object = _FOREIGN.decode(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _scalars(value)
    return _with_whole_characters(value) if _may_have_half_characters(text) else value


def _scalars(value: object) -> list[object]:
    """Return all the single values in the value of a JSON text. Raises ValueError if it is nested too deeply."""
    level: list[object] = [value]
    scalars: list[object] = []
    for _ in range(MAX_DEPTH + 1):
        containers = [node for node in level if isinstance(node, dict | list)]
        scalars += level if not containers else [node for node in level if not isinstance(node, dict | list)]
        if not containers:
            return scalars
        level = [
            inner
            for container in containers
            for inner in (container.values() if isinstance(container, dict) else container)
        ]
    raise ValueError(_TOO_DEEP)


def _wrong_numbers(value: object, place: str) -> Iterator[str]:
    """Say of each number that is not finite or too long where it is, in a value not nested too deeply."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _wrong_numbers(inner, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _wrong_numbers(inner, f"{place}[{index}]")
    elif isinstance(value, int | float) and not -_ENDLESS < value < _ENDLESS:
        endless = f"has more than {_MOST_DIGITS} digits" if value - value == 0 else f"is {value}, not a number"
        yield f"`{place[-_SHOWN:]}` {endless}"


def _may_have_half_characters(text: str) -> bool:
    return r"\ud" in text or r"\uD" in text


def _with_whole_characters(value: object) -> object:
    """Return a value, nested no deeper than ``MAX_DEPTH``, without half characters."""
    if isinstance(value, dict):
        return {_with_whole_characters(key): _with_whole_characters(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_whole_characters(element) for element in value]
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _MOST_DIGITS else None


def _float(digits: str) -> float | None:
    return value if -_ENDLESS < (value := float(digits)) < _ENDLESS else None


_FOREIGN: Final = json.JSONDecoder(parse_constant=lambda _: None, parse_int=_integer, parse_float=_float)


def _too_large(name: str, limit: int) -> TooLargeError:
    return TooLargeError(f"{name} is larger than {limit // 1024 // 1024} MiB")


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
    total = 0
    with packing.damage_reported():
        for piece in _pieces(packing.opened(file)):
            total += len(piece)
            if total > most:
                message = f"the {packing.kind} file of {size:,} bytes expands to more than {most:,} bytes"
                raise DamagedError(message, "is it a recorded workload? expand it and look")
    file.seek(0)
    yield from _pieces(packing.opened(file))


def beginning(file: BinaryIO, name: str, count: int) -> bytes:
    """Return the first bytes of a file's content, decompressed if necessary. Arguments and errors: :func:`unpacked`."""
    packing = _packing(file, name)
    if packing is None:
        return file.read(count)
    with packing.damage_reported():
        return packing.opened(file).read(count)


class _Packing(NamedTuple):
    """A kind of compression: its name, how a file of it is read, and what is raised if it is damaged."""

    kind: str
    opened: Callable[[BinaryIO], BinaryIO]
    errors: tuple[type[Exception], ...]

    @contextmanager
    def damage_reported(self) -> Iterator[None]:
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
    from blis_tui.base.errors import install_command  # noqa: PLC0415  (only needed by this error)

    raise InputError(message, help=f"{install_command('zstd')}, or expand the file")
