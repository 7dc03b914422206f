"""BurstGPT: requests to ChatGPT and GPT-4 at a university, over months.

Source: https://github.com/HPMLL/BurstGPT (README.md). Times are seconds since the first day of the whole collection;
later releases have the columns ``Session ID``, which is read, and ``Elapsed time``, which is not. A request that failed
has 0 response tokens.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Final

from blis_tui.workload.traces.read import TRACES
from blis_tui.workload.traces.trace_requests import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.model import Trace
    from blis_tui.model.plug_ins import NoSettings
    from blis_tui.workload.traces.trace_requests import Cells
    from blis_tui.workload.traces.trace_table import TraceColumns
    from blis_tui.workload.traces.trace_text import Problems, TraceText

_OUTPUT: Final = "Response tokens"
_COLUMNS: Final = {"arrival": "Timestamp", "input_tokens": "Request tokens", "output_tokens": _OUTPUT}
_FAILED: Final = ("0", "0.0")


@TRACES.plugin(
    "burstgpt", "BurstGPT: CSV with Timestamp, Request tokens, Response tokens; failed requests are left out."
)
def burstgpt(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """Arrivals count from the first request; the models that originally served the requests are ignored."""
    given = {**_COLUMNS, **trace.columns}
    unit = trace.time_unit or "s"
    return read(text, given, unit, limit=trace.limit, adjust=_answered, dropped="without an answer", from_first=True)


def _answered(cells: Cells, lines: Sequence[int]) -> tuple[Cells, Sequence[int]]:
    """Keep the rows of requests that got an answer."""
    outputs = cells.get(_OUTPUT, ())
    if not any(mark in outputs for mark in _FAILED):
        return cells, lines
    kept = [output not in _FAILED for output in outputs]
    return {name: list(compress(column, kept)) for name, column in cells.items()}, list(compress(lines, kept))
