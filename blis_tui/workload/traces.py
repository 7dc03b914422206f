"""Reading a recorded workload from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.errors import InputError
from blis_tui.workload import trace_azure, trace_requests
from blis_tui.workload.trace_table import TraceTable
from blis_tui.workload.trace_text import Problems, read_text

if TYPE_CHECKING:
    from blis_tui.spec.model import Trace

__all__ = ["FORMATS", "TraceTable", "read_trace"]

_READERS: Final = {"azure": trace_azure.read, "requests": trace_requests.read}

FORMATS: Final = tuple(_READERS)
"""The names of all trace formats, sorted."""


def read_trace(trace: Trace) -> TraceTable:
    """Read a trace file whole; rows are sorted by arrival, stably.

    Raises:
        InputError: the file cannot be read, has changed, or its format is unknown.
        TraceError: it is not a trace of that format; carries all problems found, up to fifty.
    """
    read = _READERS.get(trace.format)
    if read is None:
        raise InputError(f"no trace format {trace.format!r}", help=f"the formats are {', '.join(FORMATS)}")
    problems = Problems(trace.path)
    return TraceTable(read(read_text(trace.path, problems, trace.sha256), problems))
