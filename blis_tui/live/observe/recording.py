"""The data of a recording, and its folder: each request, scrape and step is written as a line when it is known.

All times are microseconds since the start of the schedule, on the client's clock.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import field
from heapq import heappop, heappush
from reprlib import repr as brief
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

from blis_tui.base.canonical import to_json
from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.input_files import parse_json, read_input
from blis_tui.base.portable_math import whole_sum
from blis_tui.output.perfetto import REQUEST, Counter, Lanes, Packets
from blis_tui.output.result_files import atomic_bytes, atomic_text, write_text
from blis_tui.output.tables import COLUMNS as TRACE_COLUMNS
from blis_tui.output.tables import csv_line
from blis_tui.results.request_log import PLAIN_COLUMNS, RequestRow
from blis_tui.workload.traces.cells import read_segments, segments_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from blis_tui.engine.request import Segments
    from blis_tui.output.perfetto import Argument

MOST: Final = 1 << 53
"""No time in microseconds (285 years), count or metric is larger; floats are exact up to here."""
MOST_TOKENS: Final = 1 << 32
"""No prompt or answer has more."""
COMPLETED: Final = "completed"
REJECTED: Final = "rejected"
REFUSED: Final = "refused"
BROKEN: Final = "broken"
TIMED_OUT: Final = "timed-out"
UNREADABLE: Final = "unreadable"
INTERRUPTED: Final = "interrupted"
OUTCOMES: Final[Mapping[str, str]] = {
    COMPLETED: "the complete answer arrived",
    REJECTED: "the server answered with an error",
    REFUSED: "no connection could be opened",
    BROKEN: "the connection broke, or the answer ended early",
    TIMED_OUT: "the timeout passed before the end of the answer",
    UNREADABLE: "the response is not an answer",
    INTERRUPTED: "observe was stopped before the end of the answer",
}
"""Outcome of a request -> its meaning."""

SERVED: Final = frozenset({COMPLETED, BROKEN, TIMED_OUT, INTERRUPTED})
"""Outcomes of requests that may have been computed, at least in part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One request: what was requested, and what was received."""

    request_id: str
    """Its name."""
    index: int
    """Its position in the order of sending, from 0."""
    due_us: int
    """When it was due."""
    sent_us: int
    """When it was sent; without a connection, when sending failed."""
    done_us: int
    """When its answer was complete, or known not to change any more."""
    outcome: str
    """One of ``OUTCOMES``."""
    input_tokens: int
    """Requested prompt tokens; ``prompt_tokens`` is the server's count."""
    output_tokens: int
    """Requested output tokens; ``completion_tokens`` is the server's count."""
    chunks: tuple[tuple[int, int], ...] = ()
    """Arrival and number of tokens of each chunk of the answer."""
    prompt_tokens: int | None = None
    """The server's count of prompt tokens; None = not reported."""
    completion_tokens: int | None = None
    """The server's count of output tokens; None = not reported."""
    cached_tokens: int | None = None
    """The server's count of prompt tokens found in its prefix cache; None = not reported."""
    has_token_ids: bool = False
    """Whether the tokens of each chunk are known by id; otherwise they are counted from texts."""
    whole: bool = False
    """Whether its answer was requested in one piece, so that the time of the first token is unknown."""
    merged: int = 0
    """Chunks that were read together with an earlier one, and have its time."""
    status: int = 0
    """HTTP status; 0 = none."""
    finish_reason: str = ""
    """The server's reason for the end of the answer; empty = not reported."""
    error: str = ""
    """Error message; empty = none."""
    segments: Segments = ()
    """The segments of its shared prefix: names and tokens."""
    answer_segment: str = ""
    """Name of its answer in prompts that begin with it; empty = none does."""
    slo_class: str = "standard"
    """Its SLO class."""
    tenant: str = ""
    """Its tenant; empty = none."""
    model: str = ""
    """The model that it asks for; empty = any."""
    adapter: str = ""
    """The LoRA adapter that it asks for; empty = none."""
    session_id: str = ""
    """The session that it belongs to; empty = none."""
    round_index: int = 0
    """Its call number within its session, from 0."""
    deadline_us: int = 0
    """When its client would have timed out; 0 = never."""

    @property
    def late_us(self) -> int:
        """Delay of its sending."""
        return self.sent_us - self.due_us

    @property
    def tokens(self) -> int:
        """Number of tokens received."""
        total = whole_sum([count for _, count in self.chunks])
        if not self.has_token_ids and self.completion_tokens is not None and self.outcome == COMPLETED:
            return self.completion_tokens
        return total

    @property
    def guessed(self) -> bool:
        """Whether its tokens are only estimated by the number of chunks."""
        return not self.has_token_ids and self.completion_tokens is None

    @property
    def ttft_us(self) -> int | None:
        """Time from sending to the first token; None = no token, or an unknown time."""
        return self.chunks[0][0] - self.sent_us if self.chunks and not self.whole else None

    @property
    def e2e_us(self) -> int | None:
        """Time from sending to the last token; None = the answer is incomplete."""
        return self.chunks[-1][0] - self.sent_us if self.chunks and self.outcome == COMPLETED else None

    @property
    def prompt(self) -> int:
        """Prompt tokens: the server's count, if reported."""
        return self.input_tokens if self.prompt_tokens is None else self.prompt_tokens

    @property
    def contradicts(self) -> bool:
        """Whether the server's count differs from the tokens that it sent."""
        reported_tokens = self.completion_tokens
        return (
            self.has_token_ids
            and self.outcome == COMPLETED
            and reported_tokens is not None
            and reported_tokens != self.tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step from the engine's log."""

    number: int
    end_us: int | None
    """When its line was read; None = the log was not watched."""
    duration_us: int
    prefill_requests: int
    prefill_tokens: int
    decode_requests: int
    decode_tokens: int
    """Greater than the number of requests if preempted ones are recomputed."""
    kv_share: float | None
    """Share of KV blocks in use after it."""

    @property
    def requests(self) -> int:
        """Number of requests in its batch."""
        return self.prefill_requests + self.decode_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """The metrics at one time, summed over the engines behind the endpoint."""

    time_us: int
    """Midpoint between request and answer."""
    values: Mapping[str, float]
    """Values by vLLM's names, without labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server's description of itself; None and empty = not reported."""

    version: str = ""
    model: str = ""
    max_model_len: int | None = None
    block_size_tokens: int | None = None
    kv_blocks: int | None = None
    """KV blocks for requests: vLLM reserves one of those that it reports for padding."""
    prefix_caching: bool | None = None
    engines: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything that was observed in one run."""

    folder: Path
    server: Server
    requests: tuple[Observed, ...]
    """Requests in the order of sending."""
    steps: tuple[Step, ...] = ()
    scrapes: tuple[Scrape, ...] = ()
    about: Mapping[str, object] = field(default_factory=dict)
    """Content of ``recording.json``."""

    @property
    def answered(self) -> Sequence[Observed]:
        """The requests that completed."""
        return [request for request in self.requests if request.outcome == COMPLETED and request.chunks]


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
    kept: list[tuple[str, int]] = []
    for name, length in segments:
        part = min(length, tokens)
        if part > 0:
            kept.append((name, part))
        tokens -= part
    return tuple(kept)


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
    server_data: dict[str, object] = {
        "type": "vllm" if server.version else "openai",
        "model": server.model,
        "block_size": server.block_size_tokens,
        "max_model_len": server.max_model_len,
    }
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in about.items()]
    lines += [
        "server:\n",
        *(f"  {key}: {json.dumps(value)}\n" for key, value in server_data.items() if value is not None),
    ]
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
    require(folder)
    about, server = read_about(folder)
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


def require(folder: Path) -> None:
    """Raise InputError if a folder is not a recording."""
    if not is_recording(folder):
        raise InputError(
            f"{folder} is not a recording: it has no {MANIFEST}", help="`blis-tui observe` creates recordings"
        )


def read_about(folder: Path) -> tuple[dict[str, object], Server]:
    """Return the description of a recording, and its server.

    Raises:
        InputError: they cannot be read, or are not as ``observe`` writes them.
    """
    path = folder / MANIFEST
    try:
        document = parse_json(read_input(path, limit=_MAX_BYTES))
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise ValueError("its version is not supported by this version of blis-tui")  # noqa: TRY301
        if not isinstance(counters := document.get("counters", {}), dict):
            raise ValueError("`counters` is not a map")  # noqa: TRY301, TRY004  (a file is wrong, not the caller)
        read_figures(counters)
        return document, read_server(document.get("server", {}))
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
    rows = []
    for number, line in enumerate(lines, 1 if head is None else 2):
        try:
            rows.append(read(line))
        except ValueError as error:
            raise refuse(path, number, error) from error
    return rows


_COUNTERS = (
    ("running", "requests", "vllm:num_requests_running", 1.0),
    ("waiting", "requests", "vllm:num_requests_waiting", 1.0),
    ("KV cache used", "per mille", "vllm:kv_cache_usage_perc", 1000.0),
    ("preemptions", "requests", "vllm:num_preemptions_total", 1.0),
)


def write_timeline(out: BinaryIO, recording: Recording) -> None:
    """Write the whole trace."""
    packets = Packets(out)
    server = packets.process(1, f"server {recording.server.model}".rstrip())
    _write_requests(packets, server, recording)
    _write_steps(packets, packets.track(server, "steps", 1), recording)
    for name, unit, metric, scale in _COUNTERS:
        counter = Counter(packets, server, name, unit)
        for scrape in recording.scrapes:
            if metric in scrape.values and scrape.time_us >= 0:
                counter.value = round(scrape.values[metric] * scale)
                counter.write(scrape.time_us)


def _write_steps(packets: Packets, track: int, recording: Recording) -> None:
    """Write the steps; log lines are late, so a step begins no earlier than the previous one's end."""
    before_us = 0
    for step in recording.steps:
        if step.end_us is not None and step.end_us >= before_us:
            batch: dict[str, Argument] = {
                "prefill_tokens": step.prefill_tokens,
                "decode_requests": step.decode_requests,
            }
            begin_us = max(step.end_us - step.duration_us, before_us)
            packets.begin(track, begin_us, "step", f"step {step.number}", batch)
            packets.end(track, step.end_us)
            before_us = step.end_us


def _write_requests(packets: Packets, server: int, recording: Recording) -> None:
    lanes = Lanes(packets, server, "requests", 2)
    taken: list[tuple[int, int]] = []
    for row in recording.requests:
        while taken and taken[0][0] <= row.sent_us:
            lanes.release(heappop(taken)[1])
        lane = lanes.take()
        heappush(taken, (max(row.done_us, row.sent_us), lane))
        _write_request(packets, lane, row)


def _write_request(packets: Packets, lane: int, row: Observed) -> None:
    counts: dict[str, Argument] = {"input_tokens": row.prompt, "output_tokens": row.tokens}
    packets.begin(lane, row.sent_us, REQUEST, row.request_id, counts)
    if row.chunks:
        first_us, last_us = row.chunks[0][0], row.chunks[-1][0]
        packets.begin(lane, row.sent_us, "phase", "to first token", {})
        packets.end(lane, first_us)
        packets.begin(lane, first_us, "phase", "decode", {})
        packets.end(lane, last_us)
    packets.end(lane, max(row.done_us, row.sent_us), {"outcome": row.outcome, "error": row.error})


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
    document["has_token_ids"] = row.has_token_ids
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
    document = _document(line)
    outcome, chunks = document.get("outcome"), document.get("chunks")
    if not isinstance(outcome, str) or outcome not in OUTCOMES:
        raise ValueError(f"`outcome` is {brief(outcome)}")
    if not isinstance(chunks, list) or not all(map(_is_chunk, chunks)):
        raise ValueError("`chunks` is not a list of times and token counts")
    return Observed(
        request_id=_text(document, "request_id"),
        index=_count(document, "index"),
        outcome=outcome,
        due_us=_time(document, "due_us"),
        sent_us=_time(document, "sent_us"),
        done_us=_time(document, "done_us"),
        input_tokens=_count(document, "input_tokens"),
        output_tokens=_count(document, "output_tokens"),
        chunks=tuple((time_us, count) for time_us, count in chunks),
        prompt_tokens=_optional(document, "prompt_tokens"),
        completion_tokens=_optional(document, "completion_tokens"),
        cached_tokens=_optional(document, "cached_tokens"),
        has_token_ids=document.get("has_token_ids") is True,
        whole=document.get("whole") is True,
        merged=_optional(document, "merged") or 0,
        status=_optional(document, "status") or 0,
        finish_reason=_text(document, "finish_reason", ""),
        error=_text(document, "error", ""),
        segments=read_segments(_text(document, "segments", ""), _LONGEST_PROMPT),
        answer_segment=_text(document, "answer_segment", ""),
        slo_class=_text(document, "slo_class", "standard"),
        tenant=_text(document, "tenant", ""),
        model=_text(document, "model", ""),
        adapter=_text(document, "adapter", ""),
        session_id=_text(document, "session_id", ""),
        round_index=_optional(document, "round_index") or 0,
        deadline_us=_time(document, "deadline_us") if "deadline_us" in document else 0,
    )


def scrape_line(scrape: Scrape) -> str:
    """Return a scrape as a line of JSON."""
    return _LINE.encode({"time_us": scrape.time_us, **scrape.values}) + "\n"


def read_scrape(line: str) -> Scrape:
    """Parse a line written by :func:`scrape_line`. Raises ValueError if it is invalid."""
    document = dict(_document(line))
    time_us = _time(document, "time_us")
    del document["time_us"]
    return Scrape(time_us=time_us, values=read_figures(document))


def read_figures(document: Mapping[str, object]) -> dict[str, float]:
    """Return figures of a server by name. Raises ValueError if one is not a number, or larger than any can be."""
    for name, value in document.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST <= value <= MOST:
            raise ValueError(f"`{name}` is {brief(value)}, no figure of a server")
    return {name: float(value) for name, value in document.items() if isinstance(value, int | float)}


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
    document = {name: getattr(server, name) for name in Server.__dataclass_fields__}
    return {name: value for name, value in document.items() if value not in (None, "")}


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
    document = parse_json(line)
    if not isinstance(document, dict):
        raise ValueError("the line is not a JSON object")  # noqa: TRY004  (as above)
    return document


def _whole(document: Mapping[str, object], name: str, least: int, most: int) -> int:
    value = document.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"`{name}` is {brief(value)}, no whole number from {least} to {most}")
    return value


def _time(document: Mapping[str, object], name: str) -> int:
    return _whole(document, name, -MOST, MOST)


def _count(document: Mapping[str, object], name: str) -> int:
    return _whole(document, name, 0, MOST_TOKENS)


def _optional(document: Mapping[str, object], name: str) -> int | None:
    return _count(document, name) if document.get(name) is not None else None


def _text(document: Mapping[str, object], name: str, otherwise: str | None = None) -> str:
    value = document.get(name, otherwise)
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
