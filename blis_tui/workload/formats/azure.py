"""The LLM inference traces that Azure published in 2023 and 2024.

Source: https://github.com/Azure/AzurePublicDataset (AzureLLMInferenceDataset2023.md and 2024.md). The files of 2023
have times with seven decimals; those of 2024 have up to six and a time zone.
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

_COLUMNS: Final = {"arrival": "TIMESTAMP", "input_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"}


@TRACES.plugin(
    "azure", "The public Azure LLM inference traces of 2023 and 2024: TIMESTAMP, ContextTokens, GeneratedTokens."
)
def azure(settings: NoSettings, text: TraceText, trace: Trace, problems: Problems) -> TraceColumns:  # noqa: ARG001
    """The columns are those of the format, unless the workload names others."""
    return read(text, {**_COLUMNS, **trace.columns}, trace.time_unit, limit=trace.limit)
