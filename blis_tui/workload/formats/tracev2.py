"""TraceV2, the trace of BLIS: 27 columns, as ``blis run --trace-output`` and ``blis observe`` write them.

Source: https://github.com/inference-sim/inference-sim (``sim/workload/tracev2.go`` and ``replay.go``). The accompanying
YAML file describes how the trace was made; a replay needs only the CSV file.
"""

from __future__ import annotations

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

_ARRIVAL: Final = "arrival_time_us"
_SENT: Final = "send_time_us"
_INPUT: Final = "input_tokens"
_COUNTED: Final = "server_input_tokens"
_GROUP: Final = "prefix_group"
_ID: Final = "request_id"
_LAST: Final = "last_chunk_time_us"
_LONGEST: Final = 19
"""No time has this many digits."""
_ADAPTER: Final = "adapter"
"""A column that later versions of BLIS may append."""
_SAME: Final = (
    "output_tokens",
    "prefix_length",
    "slo_class",
    "tenant_id",
    "model",
    "session_id",
    "round_index",
    "reason_ratio",
    "image_tokens",
    "audio_tokens",
    "video_tokens",
)
_COLUMNS: Final = {
    "arrival": _ARRIVAL,
    "input_tokens": _INPUT,
    "request_id": _ID,
    "prefix_group": _GROUP,
    "deadline": "deadline_us",
    **{name: name for name in _SAME},
}


@TRACES.plugin("tracev2", "TraceV2 of BLIS: CSV with 27 columns, from request_id to finish_reason.")
def tracev2(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """Requests arrive when they were sent; the server's prompt length takes precedence over the client's."""
    header = text.head().partition("\n")[0]
    if header.startswith("trace_version"):
        problems.fail(1, "", "the file is the header of a TraceV2, not its rows", "name the CSV file beside it")
    names = header.rstrip().split(",")
    named = {**_COLUMNS, _ADAPTER: _ADAPTER} if _ADAPTER in names else {**_COLUMNS}
    if _LAST in names:
        named["e2e"] = _LAST
    return read(text, {**named, **trace.columns}, trace.time_unit, limit=trace.limit, adjust=_as_replayed)


def _as_replayed(cells: Cells, lines: Sequence[int]) -> tuple[Cells, Sequence[int]]:
    """Compute what BLIS replays (``injectionTime``, ``effectiveInputTokenCount``), with the ids that it assigns."""
    made = dict(cells)
    made[_ID] = [f"request_{name}" if name.isdigit() else name for name in cells[_ID]]
    if _SENT in cells:
        made[_ARRIVAL] = [
            sent if _counts(sent) else due for due, sent in zip(cells[_ARRIVAL], cells[_SENT], strict=True)
        ]
    if _LAST in cells:
        # Read as durations, which requests without an answer lack.
        times = zip(made[_ARRIVAL], cells[_LAST], strict=True)
        made[_LAST] = [str(int(last) - int(sent)) if _spans(sent, last) else "" for sent, last in times]
    if _COUNTED in cells:
        rows = zip(cells[_INPUT], cells[_COUNTED], cells[_GROUP], strict=True)
        made[_INPUT] = [counted if _counts(counted) and not group else planned for planned, counted, group in rows]
    return made, lines


def _spans(start: str, end: str) -> bool:
    """Whether these are times in whole microseconds, in order."""
    digits = start.isdecimal() and end.isdecimal() and max(len(start), len(end)) < _LONGEST
    return digits and int(end) >= int(start)


def _counts(cell: str) -> bool:
    """Whether the cell has a positive number."""
    return bool(cell.strip(" 0.")) and not cell.startswith("-")
