"""Reading a recorded workload from a file: the trace formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.registry import PlugPoint
from blis_tui.spec.model import Trace
from blis_tui.workload.trace_requests import read
from blis_tui.workload.trace_table import TraceColumns, TraceTable
from blis_tui.workload.trace_text import Problems, read_text

if TYPE_CHECKING:
    from blis_tui.registry import NoSettings, Registry

TRACES: Final = PlugPoint[[str, Trace, Problems], TraceColumns]("workload.trace.format", "trace format", TraceColumns)
"""They get the file's text, what the workload says about it, and where to note what is wrong with it."""

_AZURE: Final = {"arrival": "TIMESTAMP", "input_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"}


@TRACES.plugin("requests", "CSV with a header, whose columns are known by their names or named in `columns`.")
def requests(settings: NoSettings, text: str, trace: Trace, problems: Problems) -> TraceColumns:
    """The file says what its columns are, or the workload does."""
    del settings
    return read(text, trace.columns, trace.time_unit, problems)


@TRACES.plugin("azure", "The public Azure LLM inference trace: TIMESTAMP, ContextTokens, GeneratedTokens.")
def azure(settings: NoSettings, text: str, trace: Trace, problems: Problems) -> TraceColumns:
    """The format says what its columns are, where the workload does not."""
    del settings
    return read(text, {**_AZURE, **trace.columns}, trace.time_unit, problems)


_MOST_CHECKED_BYTES: Final = 4 * 1024 * 1024
"""Of a longer file, only so much is checked: some hundred thousand requests, within seconds."""


def check_trace(trace: Trace, plugins: Registry) -> None:
    """Look for wrong rows, in as much of the file as takes some seconds at most. Raises as :func:`read_trace`."""
    problems = Problems(trace.path)
    text = read_text(trace.path, problems, most=_MOST_CHECKED_BYTES)
    plugins.create(TRACES, trace.format, {}, text, trace, problems)


def read_trace(trace: Trace, plugins: Registry) -> TraceTable:
    """Read a trace file whole; rows are sorted by arrival, stably.

    Raises:
        InputError: the file cannot be read, or has changed.
        PolicyError: its format is unknown.
        TraceError: it is not a trace of that format; carries all problems found, up to fifty.
    """
    plugins.find(TRACES.path, trace.format, TRACES.noun)
    problems = Problems(trace.path)
    text = read_text(trace.path, problems, trace.sha256)
    return TraceTable(plugins.create(TRACES, trace.format, {}, text, trace, problems))
