"""The served requests as a replayable table: the same simulation with these arrivals gives the same results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.request import declared_segments
from blis_tui.metrics.request_log import PLAIN_COLUMNS
from blis_tui.records.tables import csv_line
from blis_tui.workload.trace_segments import segments_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from blis_tui.engine.request import Request
    from blis_tui.metrics.request_log import RequestRow


def served_csv(requests: Iterable[Request], rows: Iterable[RequestRow]) -> Iterator[str]:
    """Iterate over the lines of the request table, with shared prefixes in parts, and answer segments."""
    more = ("model", "adapter", "prefix_segments", "answer_segment")
    yield csv_line([*PLAIN_COLUMNS, *more])
    known = {request.request_id: request for request in requests}
    for row in rows:
        request = known[row.request_id]
        parts = segments_cell(declared_segments(request))
        cells = [getattr(row, name) for name in PLAIN_COLUMNS]
        yield csv_line([*cells, request.model, request.adapter, parts, request.content[-1][0]])
