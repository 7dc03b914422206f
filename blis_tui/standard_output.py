"""Standard output, reserved for results; it may be closed, broken or full."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from io import TextIOBase
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.errors import InputError


class _PluginOutput(TextIOBase):
    """Replaces standard output for plug-ins: what they print goes to standard error, if there is one."""

    def __init__(self, results: TextIO | None) -> None:
        self.results = results

    def write(self, text: str, /) -> int:
        return len(text) if sys.stderr is None else sys.stderr.write(text)

    def flush(self) -> None:
        if sys.stderr is not None:
            sys.stderr.flush()

    @property
    def buffer(self) -> BinaryIO:
        return sys.stderr.buffer


@contextmanager
def reserved_for_results() -> Iterator[None]:
    """Within the block, reserve standard output for :func:`write_standard_output`; plug-ins' output is redirected."""
    results = sys.stdout
    sys.stdout = others = cast("TextIO", _PluginOutput(standard_output()))
    try:
        yield
    finally:
        if sys.stdout is others:
            sys.stdout = results


def standard_output() -> TextIO | None:
    """Return the stream for results; None = there is no standard output."""
    return sys.stdout.results if isinstance(sys.stdout, _PluginOutput) else sys.stdout


def write_standard_output(text: str) -> None:
    """Write exactly this text, and flush.

    Raises:
        InputError: there is no standard output, or it cannot be written.
    """
    stream = standard_output()
    if stream is None:
        raise _unwritable("there is no standard output", help="`-o` writes to a file, where a command has it")
    try:
        _write_whole(stream.buffer, text.encode(errors="replace"))
        stream.buffer.flush()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as error:
        error.add_note("standard output is cut short")
        raise
    except OSError as error:
        raise _unwritable(f"cannot write standard output: {error.strerror or error}") from error


def _write_whole(out: BinaryIO, content: bytes) -> None:
    """Write everything, also if the stream has no buffer (``python -u``): then one write may take only a part."""
    left = memoryview(content)
    while left:
        written: int | None = out.write(left)
        if written is None:  # a stream that does not wait, and has no room
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        left = left[written:]


def _unwritable(message: str, help: str | None = None) -> InputError:  # noqa: A002  (as in InputError)
    from blis_tui.errors import InputError  # noqa: PLC0415  (imported by every command, needed by few)

    return InputError(message, help=help)
