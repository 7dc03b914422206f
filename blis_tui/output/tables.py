"""Writers of result files: the request table (CSV), the record stream (JSON lines), and BLIS's TraceV2.

BLIS's TraceV2: a YAML header, and a CSV file with one request per row in 27 columns.

It has the outcome of each request as well as what it asked for, so that a run can be replayed, and compared with a
server that got the same load. The header has no creation time, so equal runs give equal files.
"""

from __future__ import annotations

import json
import re
from itertools import repeat
from typing import TYPE_CHECKING, Final, cast

from blis_tui.results.request_log import PLAIN_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from blis_tui.model import Experiment
    from blis_tui.results.request_log import RequestRow, RequestTable


_SUSPECT: Final = re.compile('[,"\n\r ]')
"""Texts without these characters need no quotes."""


def requests_csv(rows: RequestTable, columns: Sequence[str] = PLAIN_COLUMNS) -> Iterator[str]:
    """Iterate over the lines of the request table, header first; cells of times that never came are empty.

    Args:
        rows: the requests.
        columns: the table's columns (``RequestTable.columns``).
    """
    yield csv_line(columns)
    for block in rows.in_columns(columns):
        yield from csv_lines(block)


def csv_lines(columns: Sequence[Sequence[int | str | None]]) -> Iterator[str]:
    """Iterate over CSV lines from columns of cells, each column all numbers or all texts; None = an empty cell."""
    places: list[str] = []
    varying: list[Sequence[int | str]] = []
    for column in columns:
        if column.count(column[0]) == len(column):
            places.append(_cell(column[0]).replace("%", "%%"))
        else:
            places.append("%s")
            varying.append(_cells(column))
    line = ",".join(places) + "\n"
    rows = zip(*varying, strict=True) if varying else repeat((), len(columns[0]))
    return map(line.__mod__, rows)


def _cells(column: Sequence[int | str | None]) -> Sequence[int | str]:
    if None in column:
        return ["" if value is None else _cell(value) for value in column]
    texts = cast("Sequence[str]", column)
    if isinstance(column[0], str) and _SUSPECT.search("".join(texts)):
        return list(map(_cell, texts))
    return cast("Sequence[int | str]", column)


def csv_line(cells: Iterable[int | str | None]) -> str:
    """Format one line of CSV; None becomes an empty cell."""
    return ",".join([_cell(value) for value in cells]) + "\n"


def _cell(value: int | str | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    if "," in value or '"' in value or "\n" in value or "\r" in value or value.startswith(" "):
        return '"' + value.replace('"', '""') + '"'
    return value


COLUMNS: Final = (
    *("request_id", "client_id", "tenant_id", "slo_class", "session_id", "round_index", "prefix_group"),
    *("prefix_length", "streaming", "input_tokens", "output_tokens", "text_tokens", "image_tokens", "audio_tokens"),
    *("video_tokens", "reason_ratio", "model", "deadline_us", "server_input_tokens", "arrival_time_us"),
    *("send_time_us", "first_chunk_time_us", "last_chunk_time_us", "num_chunks", "status", "error_message"),
    "finish_reason",
)
"""In file order, by which BLIS reads them; ``adapter`` follows if any request has one."""

_STATUS: Final = {"completed": "ok", "timed-out": "timeout", "rejected": "error", "dropped-unservable": "error"} | {
    "lost": "error"
}
"""A request's state -> TraceV2's name for it; all others are ``incomplete``."""


def header(experiment: Experiment, rows: RequestTable) -> str:
    """Format the header: the format's version, and what served the requests (the first pool if there are several)."""
    pool = experiment.pools[0]
    server: dict[str, object] = {
        "type": "blis-tui",
        "model": pool.model.name,
        "tensor_parallel": pool.tensor_parallel,
        "max_num_seqs": pool.engine.max_num_seqs,
        "block_size": pool.engine.block_size_tokens,
    }
    if pool.engine.max_model_len is not None:
        server["max_model_len"] = pool.engine.max_model_len
    document: dict[str, object] = {
        "trace_version": 2,
        "time_unit": "microseconds",
        "mode": "generated" if experiment.workload.trace is None else "replayed",
        "warm_up_requests": len([row for row in rows.plain() if row.arrival_us < experiment.warm_up_us]),
        "workload_seed": experiment.seed,
        "workload_spec": experiment.workload.name,
    }
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in document.items()]
    lines += ["server:\n", *(f"  {key}: {json.dumps(value)}\n" for key, value in server.items())]
    return "".join(lines)


def rows_csv(rows: RequestTable) -> Iterator[str]:
    """Iterate over the table's lines, column names first; times that never came are 0.

    ``request_id`` is a request's number in order of arrival.
    """
    adapters = ("adapter",) if "adapter" in rows.columns else ()
    yield csv_line((*COLUMNS, *adapters))
    for number, row in enumerate(rows):
        yield csv_line((*_trace_v2_cells(number, row, rows), *((row.adapter,) if adapters else ())))


def _trace_v2_cells(number: int, row: RequestRow, rows: RequestTable) -> tuple[int | str, ...]:
    arrival_us = row.arrival_us
    last_us = 0
    if row.e2e_us is not None and row.instance is not None:
        # As in BLIS, the last chunk leaves before the one-time overhead after decoding.
        last_us = arrival_us + row.e2e_us - (rows.post_decode_us[row.instance] if row.output_tokens else 0)
    status = _STATUS.get(row.state, "incomplete")
    capped = row.output_tokens < row.requested_output_tokens
    finish = {"ok": "length" if capped else "stop", "timeout": "abort"}
    return (
        *(number, "", row.tenant_id, row.slo_class, row.session_id, row.round_index or 0, row.prefix_group),
        *(row.prefix_tokens, "true", row.input_tokens - row.prefix_tokens, row.requested_output_tokens),
        *(_modalities(row) if "image_tokens" in rows.columns else (0, 0, 0, 0)),
        *(_reason_ratio(row), row.model, row.deadline_us or 0, 0, arrival_us),
        *(arrival_us, 0 if row.ttft_us is None else arrival_us + row.ttft_us, last_us, 0, status),
        *(row.state if status == "error" else "", finish.get(status, "")),
    )


def _modalities(row: RequestRow) -> tuple[int, int, int, int]:
    """Return the prompt's tokens by modality (text, image, audio, video), its shared head included."""
    media = (row.image_tokens, row.audio_tokens, row.video_tokens)
    image, audio, video = media
    return (row.input_tokens - image - audio - video, *media)


def _reason_ratio(row: RequestRow) -> str:
    """Return the reasoning share of the answer, precise enough to give the same number of tokens."""
    return repr(row.reasoning_tokens / row.requested_output_tokens) if row.reasoning_tokens else "0"
