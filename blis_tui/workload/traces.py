"""Reading a recorded workload from a file."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.errors import InputError
from blis_tui.workload.trace_requests import read
from blis_tui.workload.trace_table import TraceTable
from blis_tui.workload.trace_text import Problems, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model import Trace

__all__ = ["FORMATS", "TraceTable", "read_trace"]

_COLUMNS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "azure": {"arrival": "TIMESTAMP", "input_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"},
        "requests": {},
    }
)
"""Format -> its columns, where the format says them and not the file."""

FORMATS: Final = tuple(_COLUMNS)
"""The names of all trace formats, sorted."""


def read_trace(trace: Trace) -> TraceTable:
    """Read a trace file whole; rows are sorted by arrival, stably.

    Raises:
        InputError: the file cannot be read, has changed, or its format is unknown.
        TraceError: it is not a trace of that format; carries all problems found, up to fifty.
    """
    if trace.format not in _COLUMNS:
        raise InputError(f"no trace format {trace.format!r}", help=f"the formats are {', '.join(FORMATS)}")
    problems = Problems(trace.path)
    columns = {**_COLUMNS[trace.format], **trace.columns}
    return TraceTable(read(read_text(trace.path, problems, trace.sha256), columns, trace.time_unit, problems))
