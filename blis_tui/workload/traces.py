"""Reading a recorded workload from a file, in one of the formats of ``blis_tui.workload.formats``."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.registry import PlugPoint
from blis_tui.spec.model import Trace
from blis_tui.workload.trace_table import TraceColumns, TraceTable
from blis_tui.workload.trace_text import Problems, TraceText, open_trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.registry import Registry

TRACES: Final = PlugPoint[[TraceText, Trace, Problems], TraceColumns](
    "workload.trace.format", "trace format", TraceColumns
)
"""They get the file's text, what the workload says about it, and where to note what is wrong with it."""

_MOST_CHECKED_BYTES: Final = 4 * 1024 * 1024
"""Of a longer file, only so much is checked: some hundred thousand requests, within seconds."""
_US_PER_S: Final = 1_000_000


def check_trace(trace: Trace, plugins: Registry) -> None:
    """Look for wrong rows, in as much of the file as takes some seconds at most. Raises as :func:`read_trace`."""
    problems = Problems(trace.path)
    with open_trace(trace.path, problems, most=_MOST_CHECKED_BYTES) as text:
        columns = plugins.create(TRACES, trace.format, {}, text, trace, problems)
        if not text.cut:
            _table(columns, trace, problems)


def read_trace(trace: Trace, plugins: Registry) -> TraceTable:
    """Read a trace file whole; rows are sorted by arrival, stably.

    Raises:
        InputError: the file cannot be read, or has changed.
        PolicyError: its format is unknown.
        TraceError: it is not a trace of that format; carries all problems found, up to fifty.
    """
    plugins.find(TRACES.path, trace.format, TRACES.noun)
    problems = Problems(trace.path)
    with open_trace(trace.path, problems, trace.sha256) as text:
        columns = plugins.create(TRACES, trace.format, {}, text, trace, problems)
    return _table(columns, trace, problems)


def _table(columns: TraceColumns, trace: Trace, problems: Problems) -> TraceTable:
    """What of a file is replayed, and when.

    Raises:
        TraceError: nothing is, or there are no times.
    """
    rows = len(columns.input_tokens)
    if columns.arrival_us is None:
        if trace.rate_per_s is None:
            message = f"a file of the format `{trace.format}` does not say when requests arrive"
            problems.fail(1, "", message, "write below `trace:` how many arrive in a second: `rate_per_s: 2`")
        gap_us = _US_PER_S / trace.rate_per_s
        places: Iterable[int] = range(rows)
        if columns.session_id is not None:  # it is the sessions that arrive
            numbers = {name: number for number, name in enumerate(dict.fromkeys(columns.session_id))}
            places = (numbers[name] for name in columns.session_id)
        columns = replace(columns, arrival_us=array("q", (int(place * gap_us) for place in places)))
    elif trace.rate_per_s is not None:
        message = "`rate_per_s` does not apply: the file says when requests arrive"
        problems.fail(1, "", message, "remove it; `scale_rate` changes the load")
    if trace.pacing == "answers" and not any(columns.session_id or ()):
        message = "`pacing: answers` needs sessions, and the file names none"
        problems.fail(1, "", message, "remove it, or say which column names them: `columns: {session_id: NAME}`")
    window_us = None
    if trace.slice is not None:
        start_s, end_s = trace.slice
        window_us = (int(start_s * _US_PER_S), None if end_s is None else int(end_s * _US_PER_S))
    table = TraceTable(columns, limit=trace.limit, window_us=window_us, scale=trace.scale_rate)
    if not len(table):
        arrivals = columns.arrival_us or (0,)
        message = "no request arrives within `slice`"
        span = f"from {min(arrivals) / _US_PER_S:g} to {max(arrivals) / _US_PER_S:g} seconds"
        problems.fail(1, "", message, f"arrivals of the file are {span}")
    return table
