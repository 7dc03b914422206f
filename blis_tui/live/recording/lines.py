"""The line formats of recordings: each request, scrape and step is one line, written when it is known."""

from __future__ import annotations

import json
import re
from reprlib import repr as brief
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import InputError
from blis_tui.base.input_files import parse_json
from blis_tui.live.recording.recording import MOST, MOST_TOKENS, OUTCOMES, Observed, Scrape, Server, Step
from blis_tui.workload.traces.cells import read_segments, segments_cell

if TYPE_CHECKING:
    from collections.abc import Mapping

STEP_COLUMNS: Final = (
    *("step", "end_us", "duration_us", "prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens"),
    *("kv_share", "kv_blocks_free"),
)
"""``calibrate`` also reads such files; it needs the last column."""
_LINE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CELL: Final = re.compile("-?[0-9]{1,16}")
_INTEGERS: Final = ("index", "due_us", "sent_us", "done_us", "input_tokens", "output_tokens")
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "cached_tokens")
_LONGEST_PROMPT: Final = 1 << 40
_TEXTS: Final = ("finish_reason", "error", "slo_class", "tenant", "model", "adapter", "session_id", "answer_segment")
_NUMBERS: Final = ("merged", "status", "round_index", "deadline_us")


def request_line(row: Observed) -> str:
    """Return a request as a line of JSON, without empty values."""
    document: dict[str, object] = {"request_id": row.request_id, "outcome": row.outcome}
    document |= {name: getattr(row, name) for name in _INTEGERS}
    document["chunks"] = [list(chunk) for chunk in row.chunks]
    document |= {name: value for name in _COUNTS if (value := getattr(row, name)) is not None}
    document["told_ids"] = row.told_ids
    if row.whole:
        document["whole"] = True
    document |= {name: value for name in (*_TEXTS, *_NUMBERS) if (value := getattr(row, name))}
    if row.segments:
        document["segments"] = segments_cell(row.segments)
    return _LINE.encode(document) + "\n"


def read_request(line: str) -> Observed:
    """Parse a line written by :func:`request_line`.

    Raises:
        ValueError: the line is invalid; the message says how.
    """
    found = _document(line)
    outcome, chunks = found.get("outcome"), found.get("chunks")
    if not isinstance(outcome, str) or outcome not in OUTCOMES:
        raise ValueError(f"`outcome` is {brief(outcome)}")
    if not isinstance(chunks, list) or not all(map(_is_chunk, chunks)):
        raise ValueError("`chunks` is not a list of times and token counts")
    return Observed(
        request_id=_text(found, "request_id"),
        index=_count(found, "index"),
        outcome=outcome,
        due_us=_time(found, "due_us"),
        sent_us=_time(found, "sent_us"),
        done_us=_time(found, "done_us"),
        input_tokens=_count(found, "input_tokens"),
        output_tokens=_count(found, "output_tokens"),
        chunks=tuple((time_us, count) for time_us, count in chunks),
        prompt_tokens=_optional(found, "prompt_tokens"),
        completion_tokens=_optional(found, "completion_tokens"),
        cached_tokens=_optional(found, "cached_tokens"),
        told_ids=found.get("told_ids") is True,
        whole=found.get("whole") is True,
        merged=_optional(found, "merged") or 0,
        status=_optional(found, "status") or 0,
        finish_reason=_text(found, "finish_reason", ""),
        error=_text(found, "error", ""),
        segments=read_segments(_text(found, "segments", ""), _LONGEST_PROMPT),
        answer_segment=_text(found, "answer_segment", ""),
        slo_class=_text(found, "slo_class", "standard"),
        tenant=_text(found, "tenant", ""),
        model=_text(found, "model", ""),
        adapter=_text(found, "adapter", ""),
        session_id=_text(found, "session_id", ""),
        round_index=_optional(found, "round_index") or 0,
        deadline_us=_time(found, "deadline_us") if "deadline_us" in found else 0,
    )


def scrape_line(scrape: Scrape) -> str:
    """Return a scrape as a line of JSON."""
    return _LINE.encode({"time_us": scrape.time_us, **scrape.values}) + "\n"


def read_scrape(line: str) -> Scrape:
    """Parse a line written by :func:`scrape_line`. Raises ValueError if it is invalid."""
    found = dict(_document(line))
    time_us = _time(found, "time_us")
    del found["time_us"]
    return Scrape(time_us=time_us, values=read_figures(found))


def read_figures(found: Mapping[str, object]) -> dict[str, float]:
    """Return figures of a server by name. Raises ValueError if one is not a number, or larger than any can be."""
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST <= value <= MOST:
            raise ValueError(f"`{name}` is {brief(value)}, no figure of a server")
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def step_line(step: Step, kv_blocks: int | None = None) -> str:
    """Return a step as a line of CSV; ``kv_blocks``: the server's number of KV blocks, if known."""
    cells = (
        *(step.number, "" if step.end_us is None else step.end_us, step.duration_us, step.prefill_requests),
        *(step.prefill_tokens, step.decode_requests, step.decode_tokens),
        "" if step.kv_share is None else f"{step.kv_share:.4f}",
        "" if step.kv_share is None or kv_blocks is None else round(kv_blocks * (1.0 - step.kv_share)),
    )
    return ",".join(map(str, cells)) + "\n"


def read_step(line: str) -> Step:
    """Parse a line written by :func:`step_line`. Raises ValueError if it is invalid."""
    cells = line.strip().split(",")
    if len(cells) != len(STEP_COLUMNS):
        raise ValueError(f"{len(cells)} cells, not {len(STEP_COLUMNS)}")
    number, end_us, duration_us, prefills, prefill_tokens, decodes, decode_tokens, share, _ = cells
    if share and not 0.0 <= float(share) <= 1.0:
        raise ValueError(f"`kv_share` is {share}, no share")
    return Step(
        number=_cell("step", number, MOST),
        end_us=_cell("end_us", end_us, MOST, -MOST) if end_us else None,
        duration_us=_cell("duration_us", duration_us, MOST),
        prefill_requests=_cell("prefill_requests", prefills),
        prefill_tokens=_cell("prefill_tokens", prefill_tokens),
        decode_requests=_cell("decode_requests", decodes),
        decode_tokens=_cell("decode_tokens", decode_tokens),
        kv_share=float(share) if share else None,
    )


def _cell(name: str, text: str, most: int = MOST_TOKENS, least: int = 0) -> int:
    if not _CELL.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"`{name}` is {brief(text)}, no whole number from {least} to {most}")
    return int(text)


def server_document(server: Server) -> dict[str, object]:
    """Return what is known of a server, as plain data."""
    found = {name: getattr(server, name) for name in Server.__dataclass_fields__}
    return {name: value for name, value in found.items() if value not in (None, "")}


def read_server(document: object) -> Server:
    """Parse the result of :func:`server_document`. Raises ValueError if it is invalid."""
    if not isinstance(document, dict):
        raise ValueError("`server` is not a map")  # noqa: TRY004  (a file is wrong, not the caller)
    caching = document.get("prefix_caching")
    return Server(
        version=_text(document, "version", ""),
        model=_text(document, "model", ""),
        max_model_len=_optional(document, "max_model_len"),
        block_size_tokens=_optional(document, "block_size_tokens"),
        kv_blocks=_optional(document, "kv_blocks"),
        prefix_caching=caching if isinstance(caching, bool) else None,
        engines=_optional(document, "engines"),
    )


def _document(line: str) -> Mapping[str, object]:
    found = parse_json(line)
    if not isinstance(found, dict):
        raise ValueError("the line is not a JSON object")  # noqa: TRY004  (as above)
    return found


def _whole(found: Mapping[str, object], name: str, least: int, most: int) -> int:
    value = found.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"`{name}` is {brief(value)}, no whole number from {least} to {most}")
    return value


def _time(found: Mapping[str, object], name: str) -> int:
    return _whole(found, name, -MOST, MOST)


def _count(found: Mapping[str, object], name: str) -> int:
    return _whole(found, name, 0, MOST_TOKENS)


def _optional(found: Mapping[str, object], name: str) -> int | None:
    return _count(found, name) if found.get(name) is not None else None


def _text(found: Mapping[str, object], name: str, otherwise: str | None = None) -> str:
    value = found.get(name, otherwise)
    if not isinstance(value, str):
        raise ValueError(f"`{name}` is {brief(value)}, no text")  # noqa: TRY004  (as above)
    return value


def _is_chunk(chunk: object) -> bool:
    if not isinstance(chunk, list) or len(chunk) != 2:
        return False
    time_us, count = chunk
    whole = type(time_us) is int and type(count) is int
    return whole and bool(-MOST <= time_us <= MOST and 0 <= count <= MOST_TOKENS)


def refuse(path: object, number: int, error: ValueError) -> InputError:
    """Return the error for an invalid line of a recording."""
    return InputError(f"{path}, line {number}: {error}", help="`blis-tui observe` writes these files")
