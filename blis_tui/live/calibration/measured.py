"""The input of a calibration: measured requests in the formats of load generators, and steps in an engine's log."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from math import fsum, isfinite
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import TraceProblem
from blis_tui.base.errors import InputError, TraceError
from blis_tui.base.input_files import read_input
from blis_tui.base.units import in_words, plural
from blis_tui.engine.kv.capacity import kv_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from blis_tui.model import Experiment, Pool


@dataclass(frozen=True, slots=True)
class Data:
    """A recording, and the experiment that describes the measured server."""

    recording: Recording | StepLog
    experiment: Experiment
    repeated: bool = False
    """Whether prompts repeat and hit the prefix cache."""


MAX_BYTES: Final = 1 << 30
_SUMMARY: Final = {"input_lens", "request_throughput", "total_input_tokens", "mean_ttft_ms"}
"""Keys of `vllm bench serve` that exist even without times of single requests."""
_PERF_SUMMARY: Final = {"load_summary", "successes"}
"""Keys of inference-perf's summary."""
_COLUMNS: Final = ("arrival_us", "input_tokens", "output_tokens", "ttft_us", "e2e_us")
"""Columns of requests as ``run --requests`` writes them."""
_FEWEST: Final = 20
"""Minimum number of requests."""
_WRITES: Final[Mapping[str, str]] = {
    "vllm bench serve": "`vllm bench serve --save-result --save-detailed` writes the lists of all requests",
    "GuideLLM": "`guidellm benchmark --output-path FILE.json` writes each request, unless --sample-requests leaves some"
    " out",
    "inference-perf": "inference-perf writes per_request_lifecycle_metrics.json with `report.request_lifecycle."
    "per_request: true`",
    "AIPerf": "AIPerf writes profile_export.jsonl with `--export-level records`",
    "BLIS TraceV2": "`--trace-output PREFIX` writes all columns",
    "requests": "`blis-tui run --requests FILE` and `blis-tui observe` write all columns",
}
"""Format -> the option of its tool that writes what is read."""
_LONGEST_US: Final = 1e14
"""Longer recordings, and answers, are mistakes: three years."""
_MOST_TOKENS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Measured:
    """A request as its client saw it; times in microseconds since the first arrival."""

    arrival_us: float
    input_tokens: int
    output_tokens: int
    ttft_us: float
    e2e_us: float
    prefix_group: str = ""
    prefix_tokens: int = 0
    """Length of the prefix that it shares with its group."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The completed requests of one file."""

    path: Path
    format: str
    sha256: str
    requests: tuple[Measured, ...]
    failed: int
    """Number of requests without an answer; they loaded the server, but are excluded."""

    @property
    def size(self) -> str:
        """The number of its requests, as text."""
        return f"{plural(len(self.requests), 'request')}"


def read_recording(path: Path, pool: Pool, run: int | None = None) -> Recording | StepLog:
    """Read requests of a load generator, or steps of an engine.

    Requests may have the format of ``vllm bench serve``, GuideLLM, AIPerf, inference-perf, BLIS (TraceV2) or
    ``blis-tui run --requests``; ``steps.read_steps`` reads steps.

    Args:
        path: the file.
        pool: the measured pool.
        run: which of the benchmarks in a file of GuideLLM, from 1; None = the only one.

    Raises:
        InputError: the file cannot be read, has an unknown format, lacks something, or has too few entries.
    """
    from hashlib import sha256  # noqa: PLC0415  (only used here)

    if (path / "recording.json").is_file():
        raise InputError(f"{path} is the folder of a recording, not a file of it", help=_named_of(path))
    content = read_input(path, limit=MAX_BYTES)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8", help="expand compressed files first") from error
    if not text.strip():
        raise InputError(f"{path} is empty", help="is it the right one?")
    if holds_steps(text):
        return read_steps(path, text, sha256(content).hexdigest(), pool)
    name, rows = _parse(path, text, run)
    requests: list[Measured] = []
    failed = 0
    try:
        for row in rows:
            if row is None:
                failed += 1
            else:
                requests.append(row)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, csv.Error) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path}, request {len(requests) + failed + 1}: {what}",
            help=f"it was read as a file of {name}" + (f": {_WRITES[name]}" if isinstance(error, KeyError) else ""),
        ) from error
    if len(requests) < _FEWEST:
        raise InputError(
            f"{path} holds {plural(len(requests), 'completed request')}, too few to compare with",
            help=f"at least {_FEWEST} are needed"
            + (f"; {failed} have no answer, or not the time of its first token" if failed else ""),
        )
    start = min(request.arrival_us for request in requests)
    for number, request in enumerate(requests, 1):
        tokens = request.input_tokens, request.output_tokens
        times = 0 < request.ttft_us <= request.e2e_us < _LONGEST_US and request.arrival_us - start < _LONGEST_US
        if not (times and min(tokens) >= 1 and max(tokens) <= _MOST_TOKENS):
            raise InputError(
                f"{path}, request {number}: {request.input_tokens:,} prompt tokens,"
                f" {request.output_tokens:,} output tokens, sent at {(request.arrival_us - start) / 1e6:,g} s,"
                f" first token after {request.ttft_us / 1e3:g} ms, last after {request.e2e_us / 1e3:g} ms",
                help=f"token counts are 1 to {_MOST_TOKENS:,}, 0 < time to first token <= end-to-end latency, and"
                f" everything is within {_LONGEST_US / 1e6:,.0f} s",
            )
    requests.sort(key=lambda request: request.arrival_us)
    moved = tuple(replace(request, arrival_us=request.arrival_us - start) for request in requests)
    return Recording(path, name, sha256(content).hexdigest(), moved, failed)


def notes_of(recordings: Sequence[Recording | StepLog], durations_s: Sequence[float]) -> Iterator[str]:
    """Yield what is not in the figures: requests without an answer, and what comes after the last stage."""
    for recording in recordings:
        if not isinstance(recording, Recording):
            continue
        if recording.failed:
            yield (
                f"{recording.path}: {plural(recording.failed, 'request')} of"
                f" {len(recording.requests) + recording.failed:,} have no complete answer:"
                " what they added to the load is not simulated"
            )
        last_s, whole_s = recording.requests[-1].arrival_us / 1e6, fsum(durations_s)
        if durations_s and last_s > whole_s:
            yield (
                f"{recording.path}: requests were sent until {last_s:,.1f} s, the stages last {whole_s:,.1f} s:"
                " the last stage has all that came later"
            )


def _named_of(recording: Path) -> str:
    return f"of a recording, name {recording / 'requests.csv'}, or steps.csv there"


def _parse(path: Path, text: str, run: int | None = None) -> tuple[str, Iterator[Measured | None]]:
    """Return the format's name, and its requests; None = a request without an answer."""
    if _AIPERF.match(text):
        return "AIPerf", _aiperf(path, text)
    if text.lstrip()[:1] in ("{", "["):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            beside = (path.parent / "recording.json").is_file()
            raise InputError(
                f"{path} is not valid JSON: {error}", help=_named_of(path.parent) if beside else None
            ) from error
        if isinstance(document, dict) and "ttfts" in document:
            if "start_times" not in document:
                message = f"{path} has no times at which requests were sent"
                raise InputError(message, help=f"`twin` compares its figures; {_WRITES['vllm bench serve']}")
            return "vllm bench serve", _vllm(document)
        if isinstance(document, dict) and _SUMMARY & document.keys():
            message = f"{path} has no times of single requests, only what `vllm bench serve` sums up"
            raise InputError(message, help=_WRITES["vllm bench serve"])
        if isinstance(document, dict) and document.keys() >= _PERF_SUMMARY:
            message = f"{path} has no times of single requests, only what inference-perf sums up"
            raise InputError(message, help=_WRITES["inference-perf"])
        if isinstance(document, dict) and "benchmarks" in document:
            return "GuideLLM", _guidellm(document["benchmarks"], run)
        if isinstance(document, list) and document and isinstance(document[0], dict) and "start_time" in document[0]:
            return "inference-perf", map(_inference_perf, document)
    else:
        rows = csv.DictReader(io.StringIO(text))
        try:
            columns = set(rows.fieldnames or ())
        except csv.Error as error:
            raise InputError(f"{path}, line 1: {error}") from error
        if {"first_chunk_time_us", "last_chunk_time_us"} <= columns:
            return "BLIS TraceV2", map(_trace_v2, _whole_rows(rows))
        lacking = [name for name in _COLUMNS if name not in columns]
        if not lacking:
            return "requests", map(_plain, _whole_rows(rows))
        if len(lacking) < len(_COLUMNS) - 1:
            named = in_words([f"`{name}`" for name in lacking])
            raise InputError(
                f"{path} lacks {'the column' if len(lacking) == 1 else 'columns'} {named}",
                help=f"{_WRITES['requests']}: {', '.join(_COLUMNS)}; times are in microseconds",
            )
    raise InputError(
        f"{path} is not a file of a known load generator",
        help="known are `vllm bench serve --save-detailed`, GuideLLM, AIPerf's profile_export.jsonl, inference-perf's"
        " per-request metrics, TraceV2 of BLIS, CSV with arrival_us, input_tokens, output_tokens, ttft_us and e2e_us,"
        " and steps: a log of `vllm serve --enable-logging-iteration-details`, or CSV with duration_us, decode_requests"
        " and prefill_tokens",
    )


def _whole_rows(rows: csv.DictReader[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of one run; raises ValueError for a line with other fields than the header, or a repeated id."""
    seen = set[str]()
    for row in rows:
        count = sum(cell is not None for key, cell in row.items() if key is not None)
        if count < len(row) or None in row:
            more = "more" if None in row else f"{count}"
            raise ValueError(f"the line has {more} fields, the header {len(rows.fieldnames or ())}: is it cut off?")
        name = row.get("request_id") or ""
        if name in seen:
            raise ValueError(f"{name!r} occurs twice: give each run a file of its own")
        if name:
            seen.add(name)
        yield row


def _vllm(document: Mapping[str, object]) -> Iterator[Measured | None]:
    names = ("start_times", "input_lens", "output_lens", "ttfts", "itls")
    columns: list[Sequence[object]] = []
    for name in names:
        column = document[name]
        if not isinstance(column, list):
            raise TypeError(f"`{name}` is not a list")
        columns.append(column)
        if len(column) != len(columns[0]):
            raise TypeError(f"`{name}` has {plural(len(column), 'value')}, `{names[0]}` {len(columns[0])}")
    for start, prompt, output, ttft, gaps in zip(*columns, strict=True):
        if not output or not ttft or not isinstance(gaps, list):
            yield None
            continue
        first = _number(ttft) * 1e6
        total = first
        for gap in gaps:
            total += _number(gap) * 1e6
        yield Measured(_number(start) * 1e6, int(_number(prompt)), int(_number(output)), first, total)


def _guidellm(benchmarks: object, run: int | None = None) -> Iterator[Measured | None]:
    if not isinstance(benchmarks, list) or not benchmarks:
        raise TypeError("`benchmarks` is not a list of benchmarks, or an empty one")
    if run is None and len(benchmarks) != 1:
        raise TypeError("it holds several benchmarks: split it: each is a run of its own (`twin --run N` chooses one)")
    if run is not None and run > len(benchmarks):
        raise TypeError(f"it holds {plural(len(benchmarks), 'benchmark')}, no run {run}")
    chosen = benchmarks[(run or 1) - 1]
    if not isinstance(chosen, dict):
        raise TypeError(f"{chosen!r} is not a benchmark")
    requests = chosen["requests"]
    groups = requests if isinstance(requests, dict) else {"successful": requests}
    for request in groups.get("successful") or ():
        if not isinstance(request, dict):
            raise TypeError(f"{request!r} is not a request")
        timing = request.get("info", {}).get("timings", {}) if isinstance(request.get("info"), dict) else {}
        starts = [at for at in (request.get("start_time"), request.get("request_start_time")) if at is not None]
        start = starts[0] if starts else timing["request_start"]
        yield Measured(
            _number(start) * 1e6,
            int(_number(request["prompt_tokens"])),
            int(_number(request["output_tokens"])),
            _number(request["time_to_first_token_ms"]) * 1e3,
            _number(request["request_latency"]) * 1e6,
        )
    for name in ("errored", "incomplete"):
        for _ in groups.get(name) or ():
            yield None


_AIPERF: Final = re.compile(r"\s*\{[^\n]*\"metadata\"[^\n]*\"request_start_ns\"")
"""The first line of AIPerf's ``profile_export.jsonl``."""


def _aiperf(path: Path, text: str) -> Iterator[Measured | None]:
    """Yield the requests of AIPerf (``profile_export.jsonl``): start in nanoseconds, metrics with their units.

    Raises TraceError for a line that is not as AIPerf writes it.
    """
    for number, line in enumerate(text.split("\n"), 1):  # texts may have other ends of lines in them
        if not line.strip():
            continue
        try:
            row: object = json.loads(line)
            if not isinstance(row, dict) or not all(isinstance(row.get(key), dict) for key in ("metadata", "metrics")):
                raise TypeError("it has no maps `metadata` and `metrics`")  # noqa: TRY301
            if row["metadata"].get("benchmark_phase", "profiling") == "profiling":
                yield _aiperf_request(row)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            advice = f"it was read as a file of AIPerf: {_WRITES['AIPerf']}; is it complete?"
            raise TraceError(
                [TraceProblem(file=str(path), line=number, column="", message=what, help=advice)]
            ) from error


def _aiperf_request(row: Mapping[str, Mapping[str, object]]) -> Measured | None:
    metadata, metrics = row["metadata"], row["metrics"]
    if row.get("error") is not None or metadata.get("was_cancelled") or "time_to_first_token" not in metrics:
        return None
    return Measured(
        _number(metadata["request_start_ns"]) / 1e3,
        int(_metric(metrics, "input_sequence_length", _TOKENS)),
        int(_metric(metrics, "output_sequence_length", _TOKENS)),
        _metric(metrics, "time_to_first_token", _TIMES_US),
        _metric(metrics, "request_latency", _TIMES_US),
    )


_TOKENS: Final = {"tokens": 1.0}
_TIMES_US: Final = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "sec": 1e6}


def _metric(metrics: Mapping[str, object], name: str, units: Mapping[str, float]) -> float:
    """Return a metric of AIPerf, which states its unit."""
    metric = metrics[name]
    if not isinstance(metric, dict) or metric.get("unit") not in units:
        raise TypeError(f"`{name}` has no unit of {in_words(list(units))}")
    return _number(metric["value"]) * units[metric["unit"]]


def _inference_perf(row: Mapping[str, object]) -> Measured | None:
    if not isinstance(row, dict):
        raise TypeError(f"{row!r} is not a request")
    info = row["info"]
    if row.get("error") is not None or not isinstance(info, dict):
        return None
    # Newer versions tell what was asked and what was answered apart.
    answer, asked = info.get("response_metrics", info), info.get("request_metrics", info)
    asked = asked.get("text", asked) if isinstance(asked, dict) else asked
    if not isinstance(answer, dict) or not isinstance(asked, dict) or not answer.get("output_token_times"):
        return None
    start, times = _number(row["start_time"]), answer["output_token_times"]
    return Measured(
        start * 1e6,
        int(_number(asked["input_tokens"])),
        int(_number(answer["output_tokens"])),
        (_number(times[0]) - start) * 1e6,
        (_number(row["end_time"]) - start) * 1e6,
    )


def _trace_v2(row: Mapping[str, str]) -> Measured | None:
    if row.get("status", "ok") not in ("ok", "completed", "") or not row["last_chunk_time_us"]:
        return None
    if row["first_chunk_time_us"] in ("", "0"):  # the time of its first token is unknown
        return None
    start = _decimal(row, "send_time_us" if row.get("send_time_us") else "arrival_time_us")
    return Measured(
        start,
        _whole(row, "server_input_tokens") or _whole(row, "input_tokens"),
        _whole(row, "output_tokens"),
        _decimal(row, "first_chunk_time_us") - start,
        _decimal(row, "last_chunk_time_us") - start,
    )


def _plain(row: Mapping[str, str]) -> Measured | None:
    if not row["ttft_us"] or not row["e2e_us"]:
        return None
    return Measured(
        _decimal(row, "arrival_us"),
        _whole(row, "input_tokens"),
        _whole(row, "output_tokens"),
        _decimal(row, "ttft_us"),
        _decimal(row, "e2e_us"),
        row.get("prefix_group") or "",
        _whole(row, "prefix_tokens"),
    )


def _whole(row: Mapping[str, str], key: str) -> int:
    """Return the whole number in a column; 0 = there is none."""
    try:
        return int(row.get(key) or 0)
    except ValueError as error:
        raise ValueError(f"{key} {row[key]!r} is not a whole number") from error


def _decimal(row: Mapping[str, str], key: str) -> float:
    try:
        return _finite(float(row[key]))
    except ValueError as error:
        raise ValueError(f"{key} {row[key]!r} is not a number") from error


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return _finite(float(value))


def _finite(value: float) -> float:
    if not isfinite(value):
        raise ValueError(f"{value} is not a number")
    return value


_ITERATION: Final = re.compile(
    r"(?:Engine (\d+): )?"
    r"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, \d+ generation "
    r"tokens, iteration elapsed time: ([0-9.]+) ms(?: \(dummy\))?(?:, [A-Z]+ KV cache usage: ([0-9.]+)%)?"
)
"""vLLM 0.27, ``v1/metrics/loggers.py``; older versions, ``v1/engine/core.py``, end with the time. The device (GPU, CPU)
is part of the name of the KV cache."""
_PROCESS: Final = re.compile(r"^\((\S+ pid=\d+)\)")
_SPLIT: Final = "a log of another server, or of a second start; give each a file of its own"
_DURATIONS: Final = ("duration_us", "period_us")
_NEEDED: Final = ("decode_requests", "prefill_tokens")
_MOST_PREFILLS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    duration_us: float
    decode_requests: int
    context_tokens: float
    """Sum of the decodes' contexts."""
    chunks: tuple[tuple[int, int], ...]
    """For each prefill, the tokens computed before and in this step."""

    @property
    def tokens(self) -> int:
        """Number of new tokens."""
        return self.decode_requests + sum(new for _, new in self.chunks)


@dataclass(frozen=True, slots=True)
class StepLog:
    """The non-empty steps of one file."""

    path: Path
    format: str
    sha256: str
    steps: tuple[Step, ...]

    @property
    def size(self) -> str:
        """The number of its steps, as text."""
        return f"{plural(len(self.steps), 'step')}"


def holds_steps(text: str) -> bool:
    """Return whether a file contains steps instead of requests."""
    if text.lstrip()[:1] in ("{", "["):
        return False
    columns = set(text.partition("\n")[0].strip().split(","))
    return bool(columns.issuperset(_NEEDED) and columns.intersection(_DURATIONS)) or "Iteration(" in text


def read_steps(path: Path, text: str, sha256: str, pool: Pool) -> StepLog:
    """Read a log of ``vllm serve --enable-logging-iteration-details``, or a CSV file with one row per step.

    CSV rows have ``duration_us`` (or ``period_us``), ``decode_requests`` and ``prefill_tokens``, and optionally
    ``context_tokens`` (sum over the decodes), ``prefill_requests`` and ``prefill_computed_tokens`` (sum before the
    step). Missing contexts are derived from the KV cache usage: its share in the log, or ``kv_blocks_free``.

    Raises:
        InputError: a value is missing or no number, or there are too few steps.
    """
    blocks = pool.engine.kv_blocks
    logged = "Iteration(" in text
    rows = _logged(text) if logged else _listed(text, blocks)
    name = "vLLM's iterations" if logged else "steps"
    steps: list[Step] = []
    try:
        for duration_us, decodes, prefills, new, before, context, used in rows:
            if not (0.0 < duration_us < float("inf") and min(decodes, prefills, new, before) >= 0):
                raise ValueError(f"{decodes} decodes and {new} prompt tokens in {duration_us:g} us")  # noqa: TRY301
            if not decodes and not new:
                continue
            if decodes and context is None and used is None:
                raise ValueError("it has neither contexts nor the KV cache in use (vLLM 0.27 logs them)")  # noqa: TRY301
            held = context
            if held is None:
                held = max(_held_tokens(pool, used or 0.0, decodes + prefills) - before - new, 0.0)
            steps.append(Step(duration_us, decodes, held if decodes else 0.0, tuple(_chunks(prefills, new, before))))
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{path}, step {len(steps) + 1}: {what}", help=f"it was read as a file of {name}") from error
    if len(steps) < _FEWEST:
        raise InputError(
            f"{path} holds too few steps to fit anything: {len(steps)}", help=f"at least {_FEWEST} are needed"
        )
    return StepLog(path, name, sha256, tuple(steps))


def _held_tokens(pool: Pool, used: float, requests: int) -> float:
    """Return the tokens of so many requests that hold this share of the KV cache."""
    engine, groups = pool.engine, kv_groups(pool.model, pool.engine)
    if groups is None:
        return used * engine.kv_blocks * engine.block_size_tokens
    return groups.tokens_held(round(used * engine.kv_blocks), requests, engine.block_size_tokens)


_Row = tuple[float, int, int, int, int, float | None, float | None]
"""Duration, decodes, prefills, their new and earlier tokens, context of the decodes, share of the KV cache."""


def _logged(text: str) -> Iterator[_Row]:
    latest = (-1, "")
    """The latest iteration, and its engine."""
    for place, line in enumerate(text.splitlines(), 1):
        if "Iteration(" not in line:
            continue
        match = _ITERATION.search(line)
        if match is None:
            raise ValueError(f"not as vLLM writes iterations: {line.strip()[:120]}")
        engine, iteration, prefills, new, decodes, elapsed_ms, used = match.groups()
        process = _PROCESS.search(line)
        before, latest = latest, (int(iteration), f"{process[1] if process else ''} engine {engine or 0}".strip())
        if before[0] >= 0 and before[1] != latest[1]:
            raise ValueError(f"line {place} is of {latest[1]}, those before are of {before[1]}: {_SPLIT}")
        if latest[0] <= before[0]:
            raise ValueError(f"line {place} is iteration {latest[0]}, after iteration {before[0]}: {_SPLIT}")
        if "(dummy)" in line:
            continue
        share = None if used is None else float(used) / 100.0
        yield float(elapsed_ms) * 1e3, int(decodes), int(prefills), int(new), 0, None, share


def _listed(text: str, blocks: int) -> Iterator[_Row]:
    for row in csv.DictReader(io.StringIO(text)):
        time = next((row[name] for name in _DURATIONS if row.get(name)), None)
        if time is None:
            continue
        new = int(row["prefill_tokens"])
        free = _optional(row, "kv_blocks_free")
        yield (
            float(time),
            int(row["decode_requests"]),
            int(_optional(row, "prefill_requests") or (1 if new else 0)),
            new,
            int(_optional(row, "prefill_computed_tokens") or 0),
            _optional(row, "context_tokens"),
            None if free is None else 1.0 - free / blocks,
        )


def _optional(row: Mapping[str, str], name: str) -> float | None:
    if not row.get(name):
        return None
    value = float(row[name])
    if not isfinite(value):
        raise ValueError(f"`{name}` is {value}")
    return value


def _chunks(prefills: int, new: int, before: int) -> Iterator[tuple[int, int]]:
    """Yield prefills of equal length for known sums. Raises ValueError for more prefills than a step can have."""
    count = min(max(prefills, 1), new)
    if count > _MOST_PREFILLS:
        raise ValueError(f"{count:,} prefills in one step, at most {_MOST_PREFILLS:,} can be read")
    for number in range(count):
        computed, tokens = (whole * (number + 1) // count - whole * number // count for whole in (before, new))
        yield computed, tokens
