"""CSV files whose columns have known names, or are named under ``columns``, as ``workload.trace.columns`` lists them.

Files of vLLM, Vidur, SplitwiseSim, GuideLLM and ``blis-tui run --requests`` are recognized by their columns. Arrivals
that are dates or Unix times count from the earliest one, others from the start of the simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.workload.traces.read import TRACES
from blis_tui.workload.traces.trace_requests import read

if TYPE_CHECKING:
    from blis_tui.model import Trace
    from blis_tui.model.plug_ins import NoSettings
    from blis_tui.workload.traces.trace_table import TraceColumns
    from blis_tui.workload.traces.trace_text import Problems, TraceText


_OTHERS: Final = {
    '"parent_chat_id"': "bailian",
    '"hash_id_scope"': "weka",
    '"timing_events"': "tracelab",
    '"hash_ids"': "mooncake",
    '"input_length"': "mooncake",
    '"conversations"': "sharegpt",
    '"messages"': "sharegpt",
    '"input_lens"': "vllm-bench",
    '"resourceSpans"': "otel",
    '"gen_ai.': "otel",
}
"""Strings near the beginning of files of other formats."""


@TRACES.plugin("requests", "CSV with a header, whose columns are known by their names or named in `columns`.")
def requests(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """The meaning of each column follows from its name or from the workload."""
    head = text.head()
    if head[:1] in ("{", "["):
        recognized = next((name for mark, name in _OTHERS.items() if mark in head), None)
        known = (
            "no known format has such a file" if recognized is None else f"add under `trace:` `format: {recognized}`"
        )
        problems.fail(1, "", "the file is JSON, not CSV", known)
    return read(text, trace.columns, trace.time_unit, limit=trace.limit)
