"""Writes requests as a CSV file that can be replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.request import declared_segments
from blis_tui.records.tables import csv_line
from blis_tui.workload.trace_segments import items_cell, segments_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blis_tui.traffic.opening import RequestTiming

COLUMNS: Final = (
    *("request_id", "arrival_time_us", "input_tokens", "output_tokens", "prefix_segments"),
    *("slo_class", "tenant_id", "model", "deadline_us", "session_id", "round_index", "adapter"),
    *("reasoning_tokens", "image_tokens", "audio_tokens", "video_tokens", "media_items"),
    *("max_output_tokens", "ignore_eos", "answer_segment", "e2e_us"),
)
"""Columns of every file, even if all cells are empty, so that the file can be written as a stream."""


def trace_csv(asked: Iterable[RequestTiming]) -> Iterator[str]:
    """Iterate over the file's lines, column names first; ``input_tokens`` are whole prompts."""
    yield csv_line(COLUMNS)
    for one in asked:
        request = one.request
        named = len(request.content) > len(request.segments)
        yield csv_line(
            (
                *(request.request_id, request.arrival_us, request.input_tokens, request.output_tokens),
                *(segments_cell(declared_segments(request)), request.slo_class, request.tenant, request.model),
                *(request.deadline_us or None, request.session_id, request.round_index, request.adapter),
                *(request.reasoning.tokens if request.reasoning else 0, *request.media),
                *(items_cell(request.media_items), max(0, request.declared_tokens), int(request.ignore_eos)),
                *(request.content[-1][0] if named else "", None if one.e2e_us < 0 else one.e2e_us),
            )
        )
