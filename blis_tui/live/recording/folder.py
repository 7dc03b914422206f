"""Writes the folder of a recording line by line, and reads it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

from blis_tui.base.canonical import to_json
from blis_tui.base.errors import InputError
from blis_tui.base.input_files import parse_json, read_input
from blis_tui.live.recording.lines import (
    STEP_COLUMNS,
    read_figures,
    read_request,
    read_scrape,
    read_server,
    read_step,
    refuse,
    request_line,
    scrape_line,
    server_document,
    step_line,
)
from blis_tui.live.recording.recording import BROKEN, COMPLETED, SERVED, TIMED_OUT, Recording, Server
from blis_tui.live.recording.recording_tracks import write_timeline
from blis_tui.output.result_files import atomic_bytes, atomic_text, write_text
from blis_tui.output.tables import COLUMNS as TRACE_COLUMNS
from blis_tui.output.tables import csv_line
from blis_tui.results.request_log import PLAIN_COLUMNS, RequestRow
from blis_tui.workload.traces.cells import segments_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from blis_tui.engine.request import Segments
    from blis_tui.live.recording.recording import Observed, Scrape, Step


TABLE: Final = "requests.csv"
TRACE: Final = "trace.csv"
TRACE_HEADER: Final = "trace.yaml"
TIMELINE: Final = "timeline.perfetto-trace"
_STATES: Final = {COMPLETED: "completed", TIMED_OUT: "timed-out"}
"""Outcome -> state in request tables; all others are ``lost``."""
_STATUS: Final = {COMPLETED: "ok", TIMED_OUT: "timeout", BROKEN: "incomplete"}
"""Outcome -> state in TraceV2; all others are ``error``."""


class Folder:
    """The folder of a recording in progress.

    Raises:
        InputError: it exists and is not empty, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kv_blocks: int | None = None
        self._open: dict[str, TextIO] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise InputError(f"{path} exists and is not empty", help="name a new folder for the recording")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error

    def begin(self, about: Mapping[str, object], server: Server) -> None:
        """Write what will be recorded."""
        self.kv_blocks = server.kv_blocks
        self.say(about, server)
        self._append(REQUESTS, "")

    def say(self, about: Mapping[str, object], server: Server) -> None:
        """Write the description of the recording."""
        document = {"version": VERSION, **about, "server": server_document(server)}
        write_text(self.path / MANIFEST, to_json(document))

    def request(self, row: Observed) -> None:
        """Record a finished request."""
        self._append(REQUESTS, request_line(row))

    def scrape(self, scrape: Scrape) -> None:
        """Record a scrape of the metrics."""
        self._append(METRICS, scrape_line(scrape))

    def step(self, step: Step) -> None:
        """Record a step from the server's log."""
        if STEPS not in self._open:
            self._append(STEPS, csv_line(STEP_COLUMNS))
        self._append(STEPS, step_line(step, self.kv_blocks))

    def kv_event(self, document: Mapping[str, object]) -> None:
        """Record a KV cache event of the server."""
        self._append(KV_EVENTS, json.dumps(document, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Finish the recording; an empty folder is removed.

        Raises:
            InputError: the rest of a file cannot be written.
        """
        broken: InputError | None = None
        for name, file in self._open.items():
            try:
                file.close()
            except OSError as error:  # also after an earlier failed write, whose line is still buffered
                broken = broken or self._unwritten(name, error)
        self._open.clear()
        with suppress(OSError):
            self.path.rmdir()
        if broken is not None:
            raise broken

    def _append(self, name: str, line: str) -> None:
        try:
            if name not in self._open:
                self._open[name] = (self.path / name).open("w", encoding="utf-8", newline="\n")
            self._open[name].write(line)
            self._open[name].flush()
        except OSError as error:
            raise self._unwritten(name, error) from error

    def _unwritten(self, name: str, error: OSError) -> InputError:
        return InputError(f"cannot write {self.path / name}: {error.strerror or error}")


def write_tables(recording: Recording) -> None:
    """Write the requests as a table that can be replayed, as TraceV2, and as a timeline for Perfetto."""
    rows = recording.requests
    tables = {
        TABLE: table_csv(rows),
        TRACE: _trace_csv(rows),
        TRACE_HEADER: iter([_trace_header(recording)]),
    }
    for name, lines in tables.items():
        with atomic_text(recording.folder / name) as file:
            file.writelines(lines)
    with atomic_bytes(recording.folder / TIMELINE) as out:
        write_timeline(out, recording)


def table_csv(rows: Sequence[Observed]) -> Iterator[str]:
    """Yield the requests that may have been computed, in the format of ``run --requests``, line by line.

    A request's arrival is its sending time, its lengths are the actual ones, and its timeout is that of its client.
    """
    served = [row for row in rows if row.outcome in SERVED]
    more = [name for name in ("model", "adapter") if any(getattr(row, name) for row in served)]
    more += ["prefix_segments"] if any(len(row.segments) > 1 for row in served) else []
    columns = [*PLAIN_COLUMNS, *more]
    places = [RequestRow._fields.index(name) for name in columns]
    named = any(row.answer_segment for row in served)
    yield csv_line([*columns, *(["answer_segment"] if named else [])])
    for row in served:
        cells = _table_row(row)
        yield csv_line([*(cells[place] for place in places), *([row.answer_segment] if named else [])])


def _table_row(row: Observed) -> RequestRow:
    ttft_us, e2e_us = row.ttft_us, row.e2e_us
    done = row.outcome == COMPLETED
    segments = _within(row.segments, row.prompt)
    group, shared = segments[0] if segments else ("", 0)
    return RequestRow(
        request_id=row.request_id,
        state=_STATES.get(row.outcome, "lost"),
        instance=None,
        arrival_us=row.sent_us,
        queued_us=None,
        scheduled_us=None,
        first_token_us=None if ttft_us is None else row.sent_us + ttft_us,
        completed_us=None if e2e_us is None else row.sent_us + e2e_us,
        ttft_us=ttft_us,
        e2e_us=e2e_us,
        input_tokens=row.prompt,
        output_tokens=row.tokens,
        cached_tokens=row.cached_tokens or 0,
        preemptions=0,
        slo_class=row.slo_class,
        tenant_id=row.tenant,
        session_id=row.session_id,
        round_index=row.round_index if row.session_id else None,
        requested_output_tokens=row.tokens if done else row.output_tokens,
        prefix_group=group,
        prefix_tokens=shared,
        deadline_us=None if done else max(row.done_us, row.sent_us + 1),
        model=row.model,
        prefix_segments=segments_cell(segments),
        adapter=row.adapter,
    )


def _within(segments: Segments, tokens: int) -> Segments:
    """Truncate a shared prefix to a prompt's length, because the server may have counted fewer tokens."""
    found: list[tuple[str, int]] = []
    for name, length in segments:
        part = min(length, tokens)
        if part > 0:
            found.append((name, part))
        tokens -= part
    return tuple(found)


def _trace_csv(rows: Sequence[Observed]) -> Iterator[str]:
    yield csv_line(TRACE_COLUMNS)
    for number, row in enumerate(rows):
        group, shared = row.segments[0] if len(row.segments) == 1 else ("", 0)
        first_us, last_us = (row.chunks[0][0], row.chunks[-1][0]) if row.chunks else (0, 0)
        first_us = 0 if row.whole else first_us
        status = _STATUS.get(row.outcome, "error")
        yield csv_line(
            (
                *(number, "", row.tenant, row.slo_class, row.session_id, row.round_index, group, shared),
                *("true", row.prompt - shared, row.tokens if status == "ok" else row.output_tokens, 0, 0, 0, 0, 0),
                *(row.model, row.deadline_us, row.prompt_tokens or 0, row.due_us, row.sent_us, first_us, last_us),
                *(len(row.chunks), status, row.error, row.finish_reason),
            )
        )


def _trace_header(recording: Recording) -> str:
    server = recording.server
    about: dict[str, object] = {
        "trace_version": 2,
        "time_unit": "microseconds",
        "mode": "real",
        "warm_up_requests": 0,
        "workload_seed": recording.about.get("workload_seed", 0),
        "workload_spec": recording.about.get("workload", ""),
    }
    told: dict[str, object] = {
        "type": "vllm" if server.version else "openai",
        "model": server.model,
        "block_size": server.block_size_tokens,
        "max_model_len": server.max_model_len,
    }
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in about.items()]
    lines += ["server:\n", *(f"  {key}: {json.dumps(value)}\n" for key, value in told.items() if value is not None)]
    return "".join(lines)


MANIFEST: Final = "recording.json"
REQUESTS: Final = "requests.jsonl"
METRICS: Final = "metrics.jsonl"
STEPS: Final = "steps.csv"
KV_EVENTS: Final = "kv-events.jsonl"
VERSION: Final = 1
_MAX_BYTES: Final = 1 << 31

T = TypeVar("T")


def is_recording(path: Path) -> bool:
    """Return whether a folder is a recording."""
    return (path / MANIFEST).is_file()


def read_recording(folder: Path) -> Recording:
    """Read a recording; an aborted one as far as it goes.

    Raises:
        InputError: a file is missing, cannot be read, or is not as ``observe`` writes it.
    """
    if not is_recording(folder):
        raise InputError(
            f"{folder} is not a recording: it has no {MANIFEST}", help="`blis-tui observe` creates recordings"
        )
    about, server = _about(folder / MANIFEST)
    whole = about.get("complete") is True
    requests = sorted(_lines(folder / REQUESTS, read_request, whole=whole), key=lambda row: (row.sent_us, row.index))
    head = ",".join(STEP_COLUMNS)
    steps = _lines(folder / STEPS, read_step, whole=whole, head=head) if (folder / STEPS).is_file() else []
    scrapes = _lines(folder / METRICS, read_scrape, whole=whole) if (folder / METRICS).is_file() else []
    return Recording(
        folder=folder,
        server=server,
        requests=tuple(requests),
        steps=tuple(steps),
        scrapes=tuple(scrapes),
        about=about,
    )


def _about(path: Path) -> tuple[dict[str, object], Server]:
    try:
        found = parse_json(read_input(path, limit=_MAX_BYTES))
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise ValueError("its version is not supported by this version of blis-tui")  # noqa: TRY301
        if not isinstance(counters := found.get("counters", {}), dict):
            raise ValueError("`counters` is not a map")  # noqa: TRY301, TRY004  (a file is wrong, not the caller)
        read_figures(counters)
        return found, read_server(found.get("server", {}))
    except ValueError as error:
        raise InputError(f"{path}: {error}", help="`blis-tui observe` writes this file") from error


def _lines(path: Path, read: Callable[[str], T], *, whole: bool, head: str | None = None) -> list[T]:
    """Return the parsed lines of a file; unless the recording is ``whole``, an incomplete last line is ignored."""
    raw = read_input(path, limit=_MAX_BYTES)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise refuse(path, raw.count(b"\n", 0, error.start) + 1, ValueError("it is not UTF-8 text")) from error
    *lines, rest = text.split("\n")
    if whole and rest:
        message = f"{path} is cut off in line {len(lines) + 1}, although the recording was complete"
        raise InputError(message, help="copy it again")
    if head is not None:
        if lines[:1] != [head]:
            raise refuse(path, 1, ValueError(f"it is not the columns {head}"))
        lines = lines[1:]
    found = []
    for number, line in enumerate(lines, 1 if head is None else 2):
        try:
            found.append(read(line))
        except ValueError as error:
            raise refuse(path, number, error) from error
    return found
