"""Reads recorded workloads, in one of the formats of ``blis_tui.workload.formats``."""

from __future__ import annotations

from array import array
from dataclasses import fields, replace
from itertools import accumulate, repeat
from operator import index
from typing import TYPE_CHECKING, Final, cast

from blis_tui.base.errors import PolicyError
from blis_tui.base.streams import Stream, stream_key
from blis_tui.base.units import in_words
from blis_tui.engine.request import MediaItem
from blis_tui.model import Trace
from blis_tui.model.plug_ins import PlugPoint
from blis_tui.workload.arrivals import PoissonGaps
from blis_tui.workload.traces.cells import check_items
from blis_tui.workload.traces.trace_table import TraceColumns, TraceTable
from blis_tui.workload.traces.trace_text import Problems, TraceText, open_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.model.plug_ins import Registry

TRACES: Final = PlugPoint[[TraceText, Trace, Problems], TraceColumns](
    "workload.trace.format", "trace format", TraceColumns
)
"""Plug-ins get the file's text, the workload's trace settings, and the collector of problems."""

_MOST_CHECKED_BYTES: Final = 4 * 1024 * 1024
"""Maximum number of bytes to check: some hundred thousand requests, within seconds."""
_US_PER_S: Final = 1_000_000


def check_trace(trace: Trace, plugins: Registry) -> None:
    """Check as many rows of a file as take some seconds at most. Raises as :func:`read_trace`."""
    problems = Problems(trace.path)
    with open_trace(trace.path, problems, most=_MOST_CHECKED_BYTES) as text:
        columns = _columns(plugins, text, trace, problems)
        if not text.cut:
            _table(columns, trace, problems)


def read_trace(trace: Trace, plugins: Registry, seed: int = 0) -> TraceTable:
    """Read a whole trace file; rows are sorted by arrival, stably.

    ``seed`` is the experiment's, from which the arrivals of a file without times may be drawn.

    Raises:
        InputError: the file cannot be read, or has changed.
        PolicyError: its format is unknown, or a plug-in's with invalid columns.
        TraceError: it is not a trace of that format; carries all problems found, up to fifty.
    """
    plugins.find(TRACES.path, trace.format, TRACES.noun)
    problems = Problems(trace.path)
    with open_trace(trace.path, problems, trace.sha256) as text:
        columns = _columns(plugins, text, trace, problems)
    return _table(columns, trace, problems, seed)


def _columns(plugins: Registry, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:
    """Read the columns of a file with its format; those of a plug-in are validated.

    Raises:
        PolicyError: they are inconsistent or have impossible numbers.
    """
    kind = trace.format
    if plugins.find(TRACES.path, kind, TRACES.noun).origin is None:
        _check_keys(trace, problems)
    columns = plugins.create(TRACES, kind, {}, text, trace, problems)
    if plugins.find(TRACES.path, kind).origin is None:
        return columns
    rows = len(columns.input_tokens)
    for field in fields(columns):
        cells: Sequence[object] | None = None if field.name == "left_out" else getattr(columns, field.name)
        if cells is not None and len(cells) != rows:
            message = (
                f"the trace format `{kind}` returns {len(cells)} rows of `{field.name}`, and {rows} of `input_tokens`"
            )
            raise PolicyError(message, help="every column has a row for each request")
        least = _LEAST.get(field.name)
        for row, cell in enumerate(cells or () if least is not None else ()):
            if not hasattr(cell, "__index__") or index(cell) < cast("int", least):  # accepts NumPy integers, too
                message = f"row {row} of `{field.name}` of the trace format `{kind}` is {cell!r}"
                raise PolicyError(message, help=f"it must be a whole number, at least {least}")
    _check_media(columns, kind)
    return columns


def _check_media(columns: TraceColumns, kind: str) -> None:
    """Raise PolicyError if a plug-in's media do not fit into the prompts."""
    for row, media in enumerate(columns.media or ()):
        items = columns.media_items[row] if columns.media_items is not None else ()
        try:
            check_items(items or (MediaItem(0, media.tokens, ""),), columns.input_tokens[row], media.tokens)
        except (AttributeError, TypeError, ValueError) as error:
            message = f"row {row} of `media` or `media_items` of the trace format `{kind}` is invalid: {error}"
            raise PolicyError(message, help="give `Media`, and items of it in the order of the prompt") from error


def _check_keys(trace: Trace, problems: Problems) -> None:
    """Reject a setting that the format does not read.

    Raises:
        TraceError: there is one.
    """
    for key, formats in _KEYS.items():
        if trace.format not in formats and getattr(trace, key) != getattr(_PLAIN, key):
            known = f"it belongs to {in_words([f'`{name}`' for name in formats])}: remove it, or name another `format`"
            problems.fail(1, "", f"`{key}` does not apply to files of the format `{trace.format}`", known)


_PLAIN: Final = Trace(path="", format="", sha256="")
_KEYS: Final = {
    "block_size_tokens": ("mooncake", "bailian"),
    "bytes_per_token": ("sharegpt",),
    "tokenizer": ("sharegpt",),
}
"""Key -> the formats that read it."""
_LEAST: Final = {"arrival_us": 0, "input_tokens": 1, "output_tokens": 0, "max_output_tokens": 0}
"""Smallest allowed value of number columns."""


def _table(columns: TraceColumns, trace: Trace, problems: Problems, seed: int = 0) -> TraceTable:
    """Create the table of what is replayed, with arrival times.

    Raises:
        TraceError: nothing is replayed, or there are no times.
    """
    if not len(columns.input_tokens):
        problems.fail(1, "", "the file has no requests", "is it the right one?")
    if columns.arrival_us is None:
        if trace.rate_per_s is None:
            message = f"a file of the format `{trace.format}` does not say when requests arrive"
            problems.fail(1, "", message, "add under `trace:` how many arrive in a second: `rate_per_s: 2`")
        columns = replace(columns, arrival_us=_arrivals(columns, trace.rate_per_s, trace.arrivals, seed))
    elif trace.rate_per_s is not None:
        message = "`rate_per_s` does not apply: the file says when requests arrive"
        problems.fail(1, "", message, "remove it; `scale_rate` changes the load")
    elif trace.arrivals != _PLAIN.arrivals:
        message = "`arrivals` does not apply: the file says when requests arrive"
        problems.fail(1, "", message, "remove it")
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


def _arrivals(columns: TraceColumns, rate_per_s: float, law: str, seed: int) -> array[int]:
    """Return arrivals at a rate: of requests, or of sessions, whose requests keep their distances."""
    places: Sequence[int] = range(len(columns.input_tokens))
    if (names := columns.session_id) is not None:
        numbers: dict[str, int] = {}
        # Requests without a session arrive each by itself.
        places = [numbers.setdefault(name or f"\0{row}", len(numbers)) for row, name in enumerate(names)]
    gap_us, count = _US_PER_S / rate_per_s, max(places, default=-1) + 1
    if law == "poisson":
        gaps, stream = PoissonGaps(None, gap_us), Stream(stream_key(seed, "workload/trace/arrivals"))
        starts = [*accumulate(gaps.sample(stream) for _ in range(count))]
    else:
        starts = [int(place * gap_us) for place in range(count)]
    since = columns.since_start_us or repeat(0)
    return array("q", (starts[place] + later for place, later in zip(places, since, strict=False)))
