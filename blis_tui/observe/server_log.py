"""Steps from an engine's log, each line with the client's time, because vLLM's own times are whole seconds.

Source of the format: vLLM 0.32.0, ``v1/metrics/loggers.py`` (``--enable-logging-iteration-details``).
"""

from __future__ import annotations

import os
import re
import stat
import time
from typing import TYPE_CHECKING, Final

from blis_tui.errors import InputError
from blis_tui.observe.recording import Step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

_ITERATION: Final = re.compile(
    rb"Iteration\((\d{1,12})\): (\d{1,9}) context requests, (\d{1,9}) context tokens, (\d{1,9}) generation requests, "
    rb"(\d{1,9}) generation tokens, iteration elapsed time: (\d{1,9}(?:\.\d{1,9})?) ms( \(dummy\))?"
    rb"(?:, \w{1,99} KV cache usage: (\d{1,2}(?:\.\d+)?|100(?:\.0+)?)%)?"
)
_READ_BYTES: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 16


def step_of(line: bytes, end_us: int | None) -> Step | None:
    """Return the step in a line of a log; None = it contains none."""
    found = _ITERATION.search(line)
    if found is None or found[7]:
        return None
    number, prefills, prefill_tokens, decodes, decode_tokens = (int(text) for text in found.groups()[:5])
    return Step(
        number=number,
        end_us=end_us,
        duration_us=round(float(found[6]) * 1000),
        prefill_requests=prefills,
        prefill_tokens=prefill_tokens,
        decode_requests=decodes,
        decode_tokens=decode_tokens,
        kv_share=None if found[8] is None else float(found[8]) / 100,
    )


class Tail:
    """The end of a growing file, line by line.

    Raises:
        InputError: it cannot be read, or is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise InputError(f"cannot read {path}: it is not a regular file")
            self._file: FileIO = path.open("rb", buffering=0)
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error

    def lines(self) -> Iterator[tuple[bytes, int]]:
        """Yield complete lines since the last call, with their times in nanoseconds of ``monotonic_ns``.

        The time is the file's last modification, so late reading does not matter; of several lines, only the last one
        has its exact time. A truncated file is read from its start.
        """
        while True:
            try:
                if os.fstat(self._file.fileno()).st_size < self._file.tell():
                    self._file.seek(0)
                    self._rest = b""
                read = self._file.read(_READ_BYTES)
                written_ns = _written_ns(self._file)
            except OSError:
                return
            if not read:
                return
            *found, rest = (self._rest + read).split(b"\n")
            self._rest = rest[-_LONGEST_LINE:]
            for line in found:
                yield line, written_ns

    def close(self) -> None:
        """Stop watching."""
        self._file.close()


def _written_ns(file: FileIO) -> int:
    """Return when a file was last written, in nanoseconds of ``monotonic_ns``."""
    age_ns = time.time_ns() - os.fstat(file.fileno()).st_mtime_ns
    return time.monotonic_ns() - max(age_ns, 0)
