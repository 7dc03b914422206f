"""What load generators sum up of a run: latencies, throughput and what they say of the load, without single requests.

One reader for each tool, chosen by what is in the file; a new one is a function and a line in ``FORMATS``. Names and
units are those of the tools' sources:

- AIPerf, ``profile_export_aiperf.json``: https://github.com/ai-dynamo/aiperf (``common/models/export_models.py``); each
  figure states its unit, and its inter-token latency is the mean gap of a request;
- SGLang, ``bench_serving --output-file``: https://github.com/sgl-project/sglang (``python/sglang/bench_serving.py``): a
  line for each run, names in ``_ms``, lists of seconds;
- vLLM, ``vllm bench serve --save-result``: https://github.com/vllm-project/vllm (``vllm/benchmarks/serve.py``);
- GuideLLM, ``benchmarks.json``: https://github.com/vllm-project/guidellm (``benchmark/benchmark.py``): names in
  ``_ms``, request latency in seconds; its inter-token latency is the mean gap of a request, weighted by its gaps, so
  that its mean is that of every gap;
- inference-perf, ``summary_lifecycle_metrics.json`` and ``stage_N_lifecycle_metrics.json``:
  https://github.com/kubernetes-sigs/inference-perf (``reportgen/base.py``): seconds;
- llm-d-benchmark's report, versions 0.1 and 0.2: https://github.com/llm-d/llm-d-benchmark
  (``benchmark_report/schema_v0_1.py``, ``schema_v0_2.py``): each figure states its unit.
"""

from __future__ import annotations

import json
import re
from math import fsum, inf, isfinite, isnan, sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import TraceProblem
from blis_tui.base.errors import InputError, SpecError, TraceError
from blis_tui.base.input_files import read_input
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.source import Source
from blis_tui.base.units import plural
from blis_tui.model.defaults import CHAT
from blis_tui.results.stats import percentile
from blis_tui.spec.read import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import NoReturn

MAX_BYTES: Final = 1 << 30
_LOCATED_BYTES: Final = 1 << 22
"""Larger files are not read again for the line of an error."""
_MS: Final = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "ms/token": 1.0, "s/token": 1e3}
"""Unit of a time -> milliseconds."""
_LARGEST: Final = 1e15
_ENDLESS: Final = (inf, "inf", "Infinity")
_YAML_INFINITY: Final = re.compile(r"(?m)(?<=: )\.inf$")
"""Of a rate or concurrency, which documents may not have."""
_FIGURES: Final = ("mean", "p50", "p90", "p95", "p99")
_ALSO: Final = {"avg": "mean", "median": "p50"}


@dataclass(frozen=True, slots=True)
class Lengths:
    """What a file says of the lengths of prompts or answers, in tokens."""

    mean: float
    percentiles: Mapping[str, float]
    """``min``, ``p50``, ``max`` and so on; empty = not in the file."""
    values: tuple[int, ...] = ()
    """Those of single requests; empty = not in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One run, as its load generator sums it up."""

    path: Path
    tool: str
    run: str = ""
    """Which of several runs of the file; empty = the only one."""
    completed: int | None
    failed: int | None
    latency_ms: Mapping[str, Mapping[str, float]]
    """``ttft``, ``tpot`` (the mean gap of a request), ``itl`` (every gap), ``e2e`` -> mean, p50 and so on."""
    requests_per_s: float | None
    output_tokens_per_s: float | None
    rate_per_s: float | None
    """Offered; infinite = all at once."""
    cv: float | None
    """Coefficient of variation of the gaps between arrivals; None = not in the file."""
    users: int | None
    """Most requests in flight."""
    prompts: Lengths | None
    answers: Lengths | None
    chat: bool = False
    """Whether the file says that requests were chats."""

    def lacking(self) -> list[str]:
        """Return what the file leaves out, as words."""
        present = {
            "TTFT": "ttft" in self.latency_ms,
            "TPOT or ITL": "tpot" in self.latency_ms or "itl" in self.latency_ms,
            "end-to-end latency": "e2e" in self.latency_ms,
            "request throughput": self.requests_per_s is not None,
            "number of completed requests": self.completed is not None,
            "number of failed ones": self.failed is not None,
            "request rate or concurrency": self.rate_per_s is not None or self.users is not None,
            "lengths of prompts": self.prompts is not None,
            "lengths of answers": self.answers is not None,
        }
        return [name for name, there in present.items() if not there]


class _Wrong(Exception):  # noqa: N818  (becomes a TraceError with its line)
    """A value that is not what it should be."""

    def __init__(self, place: tuple[str | int, ...], message: str, advice: str) -> None:
        super().__init__(message)
        self.place, self.message, self.advice = place, message, advice


@dataclass(frozen=True, slots=True)
class _Node:
    """A map of the file, and where it is."""

    data: Mapping[str, object]
    place: tuple[str | int, ...] = ()

    def wrong(self, key: str, what: str) -> NoReturn:
        """Raise the error about a value."""
        value_text = json.dumps(self.data.get(key), default=str)[:40] if key in self.data else "it is missing"
        raise _Wrong(
            (*self.place, key), f"{value_text} is not {what}" if key in self.data else value_text, f"it must be {what}"
        )

    def map(self, *keys: str) -> _Node | None:
        """Return a map within; None = it is absent or null."""
        here = self
        for key in keys:
            value = here.data.get(key)
            if value is None:
                return None
            if not isinstance(value, dict):
                here.wrong(key, "a map")
            here = _Node(value, (*here.place, key))
        return here

    def number(self, key: str, factor: float = 1.0) -> float | None:
        """Return a number, at least 0; None = it is absent, null, or not a number (NaN) for want of samples."""
        value = self.data.get(key)
        if value is None or (isinstance(value, float) and isnan(value)):
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
            self.wrong(key, "a number from 0 on")
        return float(value) * factor

    def count(self, key: str) -> int | None:
        """Return a whole number; None = it is absent or null."""
        value = self.number(key)
        if value is not None and value != int(value):
            self.wrong(key, "a whole number")
        return None if value is None else int(value)

    def rate(self, key: str) -> float | None:
        """Return a rate, infinite if all is sent at once; None = it is absent or null."""
        return inf if self.data.get(key) in _ENDLESS else self.number(key)

    def text(self, key: str) -> str:
        """Return a text; empty = there is none."""
        value = self.data.get(key)
        return value if isinstance(value, str) else ""

    def figures(self, factor: float) -> dict[str, float]:
        """Return mean and percentiles of this map, as far as it has them."""
        names = {name: _ALSO.get(name, name) for name in self.data}
        figures = {to: self.number(name, factor) for name, to in names.items() if to in _FIGURES}
        return {name: value for name, value in figures.items() if value is not None}

    def lengths(self) -> Lengths | None:
        """Return the lengths that this map sums up; None = they have no mean."""
        mean = self.figures(1.0).get("mean")
        if mean is None or mean < 1.0:
            return None
        names = [name for name in self.data if name in ("min", "max", "median") or _is_percentile(name)]
        figures = {_ALSO.get(name, name): self.number(name) for name in names}
        return Lengths(mean, {name: value for name, value in figures.items() if value is not None})

    def list_of(self, key: str) -> Sequence[object]:
        """Return a list; empty = it is absent or null."""
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.wrong(key, "a list")
        return value


_PERCENTILE: Final = re.compile(r"p(0[1-9]|[1-9][0-9]?)")
"""``p05`` is p5; ``p001`` and ``p999`` are fractions of a percent."""


def _is_percentile(name: str) -> bool:
    return _PERCENTILE.fullmatch(name) is not None


def _known(figures: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    """Return the latencies that have figures; a latency that is always 0 was not measured."""
    return {name: figure for name, figure in figures.items() if figure and any(figure.values())}


# ---- tools ----


def _aiperf(root: _Node, path: Path, run: str) -> Summary:
    """AIPerf and GenAI-Perf: each metric is a map with its unit."""
    names = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}
    loadgen = root.map("input_config", "loadgen") or _Node({})
    rate, users = loadgen.number("request_rate"), loadgen.count("concurrency")
    pattern = loadgen.text("arrival_pattern") or loadgen.text("request_rate_mode")
    shape = loadgen.number("arrival_smoothness")
    calls = root.map("request_count")
    failed = root.map("error_request_count")
    throughput, tokens = root.map("request_throughput"), root.map("output_token_throughput")
    prompts, answers = root.map("input_sequence_length"), root.map("output_sequence_length")
    return Summary(
        path=path,
        tool="AIPerf",
        run=run,
        completed=(calls.count("avg") if calls else None) or loadgen.count("request_count"),
        failed=failed.count("avg") if failed else None,
        latency_ms=_known({to: _with_unit(root, name, "unit") for to, name in names.items()}),
        requests_per_s=throughput.number("avg") if throughput else None,
        output_tokens_per_s=tokens.number("avg") if tokens else None,
        rate_per_s=rate,
        cv=1.0 / sqrt(shape) if pattern == "gamma" and shape else {"constant": 0.0, "poisson": 1.0}.get(pattern),
        users=users,
        prompts=prompts.lengths() if prompts else None,
        answers=answers.lengths() if answers else None,
        chat=CHAT in (root.map("input_config", "endpoint") or _Node({})).text("type"),
    )


def _with_unit(root: _Node, name: str, key: str) -> dict[str, float]:
    """Return the figures of a metric that states its unit, in milliseconds."""
    node = root.map(name)
    if node is None:
        return {}
    unit = _MS.get(node.text(key))
    if unit is None:
        node.wrong(key, f"a unit of time: {', '.join(_MS)}")
    return node.figures(unit)


def _serving(root: _Node, path: Path, run: str) -> Summary:
    """Of vLLM and SGLang, whose benchmark began as vLLM's: one map of figures named after their latency."""
    sglang = is_sglang(root.data)
    latencies = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2e_latency" if sglang else "e2el"}
    listed = _of_lists(root)
    named = {to: {**listed.get(to, {}), **_named(root, name)} for to, name in latencies.items()}
    burstiness = root.number("burstiness")
    completed = root.count("completed")
    failed = root.count("failed")
    offered = root.count("num_prompts")
    if failed is None and offered is not None and completed is not None and offered >= completed:
        failed = offered - completed
    return Summary(
        path=path,
        tool="SGLang" if sglang else "vllm bench serve",
        run=run,
        completed=completed,
        failed=failed,
        latency_ms=_known(named),
        requests_per_s=root.number("request_throughput"),
        output_tokens_per_s=root.number("output_throughput"),
        rate_per_s=root.rate("request_rate"),
        cv=1.0 if sglang else None if not burstiness else 1.0 / sqrt(burstiness),
        users=root.count("max_concurrency"),
        prompts=_listed(root, "input_lens", "total_input_tokens", completed),
        answers=_listed(root, "output_lens", "total_output_tokens", completed),
        chat=any(CHAT in root.text(key) for key in ("backend", "endpoint_type")),
    )


def is_sglang(data: Mapping[str, object]) -> bool:
    """Whether a result like vLLM's is SGLang's."""
    return not data.keys() & {"endpoint_type", "model_id", "tokenizer_id"} and bool(
        data.keys() & {"total_output_tokens_retokenized", "mean_e2e_latency_ms", "dataset_name", "sharegpt_output_len"}
    )


def _named(root: _Node, latency: str) -> dict[str, float]:
    """Return the figures ``mean_ttft_ms`` and so on."""
    names = [*((name, name) for name in _FIGURES), ("median", "p50")]
    figures = [(to, root.number(f"{name}_{latency}_ms")) for name, to in names]
    return {name: value for name, value in figures if value is not None}


def _of_lists(root: _Node) -> dict[str, dict[str, float]]:
    """Return the latencies of the requests that are listed, which a summary may lack; lists are in seconds."""
    samples: dict[str, list[float]] = {"ttft": [], "tpot": [], "itl": [], "e2e": []}
    firsts, gaps, lengths = root.list_of("ttfts"), root.list_of("itls"), _counts(root, "output_lens")
    for number, (first, between) in enumerate(zip(firsts, gaps, strict=False)):
        if not isinstance(between, list):
            raise _Wrong((*root.place, "itls", number), "it is not a list of gaps", "list seconds")
        first_ms = _listed_ms(root, "ttfts", number, first)
        gaps_ms = [_listed_ms(root, "itls", number, gap) for gap in between]
        tokens = lengths[number] if number < len(lengths) else len(between) + 1
        if not first_ms or not tokens:  # failed
            continue
        whole_ms = fsum(gaps_ms)
        samples["ttft"].append(first_ms)
        samples["itl"] += gaps_ms
        samples["tpot"] += [whole_ms / (tokens - 1)] if tokens > 1 else []  # a gap may be that of several tokens
        samples["e2e"].append(first_ms + whole_ms)
    ordered = {name: sorted(sample) for name, sample in samples.items() if sample}
    return {
        name: {"mean": fsum(values) / len(values), **{f"p{at}": percentile(values, at) for at in (50, 90, 95, 99)}}
        for name, values in ordered.items()
    }


def _listed_ms(root: _Node, key: str, number: int, value: object) -> float:
    """Return a listed time, which is in seconds, in milliseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        message = f"{json.dumps(value, default=str)[:40]} is not a time"
        raise _Wrong((*root.place, key, number), message, "it must be a number of seconds, from 0 on")
    return value * 1e3


def _counts(root: _Node, key: str) -> list[int]:
    """Return listed lengths; empty = they are not in the file."""
    values: list[int] = []
    for number, value in enumerate(root.list_of(key)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
            message = f"{json.dumps(value, default=str)[:40]} is not a length"
            raise _Wrong((*root.place, key, number), message, "a length is a whole number")
        values.append(value)
    return values


def _listed(root: _Node, key: str, total: str, completed: int | None) -> Lengths | None:
    """Return lengths that are listed, or only summed up."""
    values = [value for value in _counts(root, key) if value]
    tokens = root.count(total)
    if values:
        return Lengths(fsum(values) / len(values), {}, tuple(values))
    return Lengths(tokens / completed, {}) if tokens and completed else None


def _guidellm(root: _Node, path: Path, run: str) -> Summary:
    """A benchmark of GuideLLM; figures are of its successful requests."""
    metrics = root.map("metrics") or root.wrong("metrics", "a map of metrics")
    names = {"ttft": ("time_to_first_token_ms", 1.0), "tpot": ("inter_token_latency_ms", 1.0)}
    names["e2e"] = ("request_latency", 1e3)
    latency = _weighted({to: _succeeded(metrics, name, factor) for to, (name, factor) in names.items()})
    places = (("config", "strategy"), ("scheduler", "strategy"), ("args", "strategy"))
    strategy = next((below for place in places if (below := root.map(*place)) is not None), _Node({}))
    kind = strategy.text("type_")
    totals = metrics.map("request_totals") or root.map("total_count") or _Node({})
    counts = [totals.count(name) for name in ("errored", "incomplete")]
    users = 1 if kind == "synchronous" else strategy.count("streams") or strategy.count("max_concurrency")
    sizes = [metrics.map(name, "successful") for name in ("prompt_token_count", "output_token_count")]
    spans = [
        None if node is None else _Node({**node.data, **dict(_inner(node))}, node.place).lengths() for node in sizes
    ]
    return Summary(
        path=path,
        tool="GuideLLM",
        run=run,
        completed=totals.count("successful"),
        failed=None if None in counts else whole_sum([count or 0 for count in counts]),
        latency_ms=_known(latency),
        requests_per_s=_succeeded(metrics, "requests_per_second", 1.0).get("mean"),
        output_tokens_per_s=_succeeded(metrics, "output_tokens_per_second", 1.0).get("mean"),
        rate_per_s=inf if kind == "throughput" else strategy.number("rate"),
        cv={"constant": 0.0, "poisson": 1.0}.get(kind),
        users=users,
        prompts=spans[0],
        answers=spans[1],
    )


def _weighted(latencies: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Move the mean of GuideLLM's mean gaps, which is weighted by their number, to where it belongs: to every gap."""
    percentiles = {name: value for name, value in latencies.get("tpot", {}).items() if name != "mean"}
    mean = {name: value for name, value in latencies.get("tpot", {}).items() if name == "mean"}
    return {**latencies, "tpot": percentiles, "itl": mean}


def _succeeded(metrics: _Node, name: str, factor: float) -> dict[str, float]:
    node = metrics.map(name, "successful")
    return {} if node is None else _Node({**node.data, **dict(_inner(node))}, node.place).figures(factor)


def _inner(node: _Node) -> Iterator[tuple[str, object]]:
    """Iterate over the percentiles of a distribution, whose names may be padded (``p05``)."""
    percentiles = node.map("percentiles")
    for name, value in (percentiles.data if percentiles else {}).items():
        if _is_percentile(name):
            yield f"p{int(name[1:])}", value


_SAME: Final = {"itl": "inter_token_latency", "e2e": "request_latency"}


def _inference_perf(root: _Node, path: Path, run: str) -> Summary:
    """A report of inference-perf, of all stages or of one; times are in seconds."""
    load, done = root.map("load_summary") or _Node({}), root.map("successes") or root.wrong("successes", "a map")
    failed, throughput = root.map("failures") or _Node({}), done.map("throughput") or _Node({})
    latency = done.map("latency") or _Node({})
    names = {"ttft": "time_to_first_token", "tpot": "time_per_output_token", **_SAME}
    latencies = {to: part.figures(1e3) for to, name in names.items() if (part := latency.map(name)) is not None}
    prompts = done.map("prompt_tokens") or done.map("prompt_len")
    answers = done.map("output_tokens") or done.map("output_len")
    users = load.count("concurrency")
    return Summary(
        path=path,
        tool="inference-perf",
        run=run,
        completed=done.count("count"),
        failed=failed.count("count"),
        latency_ms=_known(latencies),
        requests_per_s=throughput.number("requests_per_sec"),
        output_tokens_per_s=throughput.number("output_tokens_per_sec"),
        # Of a stage with users, inference-perf sets the rate itself, so that all requests are due at once.
        rate_per_s=load.number("requested_rate") if users is None else None,
        cv=None,
        users=users,
        prompts=prompts.lengths() if prompts else None,
        answers=answers.lengths() if answers else None,
    )


def _llm_d(root: _Node, path: Path, run: str) -> Summary:
    """The standardized report of llm-d-benchmark, 0.1 (``metrics``) or 0.2 (``results``)."""
    newer = "results" in root.data
    part = root.map("results", "request_performance", "aggregate") if newer else root.map("metrics")
    if part is None:
        root.wrong("results" if newer else "metrics", "a map with the figures of all requests")
    load = root.map("scenario", "load", "standardized") or _Node({})
    tool = load.text("tool") or (root.map("scenario", "load") or _Node({})).text("name")
    requests, latency = part.map("requests") or _Node({}), part.map("latency") or _Node({})
    names = {"ttft": "time_to_first_token", "tpot": "time_per_output_token", **_SAME}
    of_guidellm = "guidellm" in tool.lower()
    if of_guidellm or tool == "aiperf":  # their mean gap of a request is copied under the same name
        names["tpot"] = names.pop("itl")
    latencies = {to: _with_unit(latency, name, "units") for to, name in names.items()}
    throughput = part.map("throughput") or _Node({})
    rates = [throughput.map(name) for name in ("request_rate", "output_token_rate")] if newer else [throughput] * 2
    keys = ("mean", "mean") if newer else ("requests_per_sec", "output_tokens_per_sec")
    per_s = [None if rate is None else rate.number(key) for rate, key in zip(rates, keys, strict=True)]
    total, failed = requests.count("total"), requests.count("failures")
    lost = (failed or 0) + (requests.count("incomplete") or 0)
    if total is not None and lost > total:
        requests.wrong("failures" if failed else "incomplete", f"at most `total`, {total:,}")
    prompts, answers = requests.map("input_length"), requests.map("output_length")
    users = None if load.rate("concurrency") == inf else load.count("concurrency")
    return Summary(
        path=path,
        tool=f"llm-d-benchmark ({tool})" if tool else "llm-d-benchmark",
        run=run,
        completed=None if total is None else total - lost,
        failed=failed,
        latency_ms=_known(_weighted(latencies) if of_guidellm else latencies),
        requests_per_s=per_s[0],
        output_tokens_per_s=per_s[1],
        # As above: the report copies both of inference-perf's.
        rate_per_s=load.rate("rate_qps") if users is None or tool != "inference-perf" else None,
        cv=None,
        users=users,
        prompts=prompts.lengths() if prompts else None,
        answers=answers.lengths() if answers else None,
    )


# ---- detection ----


@dataclass(frozen=True, slots=True)
class _Format:
    """A tool's file: what is in it, and how it is read."""

    fits: Callable[[Mapping[str, object]], bool]
    read: Callable[[_Node, Path, str], Summary]


def _sums_up_serving(data: Mapping[str, object]) -> bool:
    """Whether it is a result of vLLM or SGLang without the times at which requests were sent."""
    return "start_times" not in data and "completed" in data and ("mean_ttft_ms" in data or "ttfts" in data)


def _is_aiperf(data: Mapping[str, object]) -> bool:
    metrics = [data.get(name) for name in ("request_throughput", "time_to_first_token", "request_latency")]
    return any(isinstance(metric, dict) and "unit" in metric for metric in metrics)


def _is_guidellm(data: Mapping[str, object]) -> bool:
    metrics = data.get("metrics")
    return isinstance(metrics, dict) and metrics.keys() >= {"requests_per_second", "request_latency"}


FORMATS: Final = (
    _Format(_is_aiperf, _aiperf),
    _Format(_sums_up_serving, _serving),
    _Format(_is_guidellm, _guidellm),
    _Format(lambda data: data.keys() >= {"load_summary", "successes"}, _inference_perf),
    _Format(lambda data: "scenario" in data and ("metrics" in data or "results" in data), _llm_d),
)


def read_summary(path: Path, run: int | None = None) -> Summary | None:
    """Read what a load generator sums up; None = the file has single requests and their times, or is unknown.

    Args:
        path: the file.
        run: which of its runs, from 1; None = the only one.

    Raises:
        InputError: the file cannot be read, or has other runs.
        TraceError: a value is not what its tool writes.
    """
    text = read_input(path, limit=MAX_BYTES).decode("utf-8", "replace").removeprefix("\ufeff")
    runs = list(_runs(path, text))
    if not runs or (chosen := _chosen(path, runs, run)) is None:
        return None
    number, line, node = chosen
    form = next((candidate for candidate in FORMATS if candidate.fits(node.data)), None)
    if form is None:
        return None
    try:
        return form.read(node, path, f"run {number} of {len(runs)}" if len(runs) > 1 else "")
    except _Wrong as wrong:
        where = line or _line(path, text, wrong.place)
        name = ".".join(map(str, wrong.place))
        problem = TraceProblem(file=str(path), line=where, column=name, message=wrong.message, help=wrong.advice)
        raise TraceError([problem]) from wrong


def _chosen(path: Path, runs: Sequence[tuple[int, int, _Node]], run: int | None) -> tuple[int, int, _Node] | None:
    """Return the run that is asked for; None = the only one has single requests."""
    if run is None and len(runs) > 1:
        if not any(form.fits(node.data) for form in FORMATS for _, _, node in runs):
            return None
        raise InputError(f"{path} holds {plural(len(runs), 'run')}", help=f"choose one: --run 1 to --run {len(runs)}")
    if run is not None and run > len(runs):
        raise InputError(f"{path} holds {plural(len(runs), 'run')}, no run {run}", help="count from 1")
    return runs[(run or 1) - 1]


def _runs(path: Path, text: str) -> Iterator[tuple[int, int, _Node]]:
    """Iterate over the runs of a file: their numbers, the lines of those that have one each (otherwise 0), and maps."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and lines[0][1].startswith("{") and lines[0][1].rstrip().endswith("}"):
        for number, (line, content) in enumerate(lines, 1):
            value = _json(content)
            if not isinstance(value, dict) or "metadata" in value:  # single requests
                return
            yield number, line, _Node(value)
        return
    value = _json(text) if text.lstrip()[:1] in ("{", "[") else _yaml(path, text)
    if not isinstance(value, dict):
        return
    benchmarks = value.get("benchmarks")
    if not isinstance(benchmarks, list):
        yield 1, 0, _Node(value)
        return
    for number, benchmark in enumerate(benchmarks, 1):
        summed = isinstance(benchmark, dict) and not _has_requests(benchmark)
        yield number, 0, _Node(benchmark if summed else {}, ("benchmarks", number - 1))  # an empty map fits no format


def _has_requests(benchmark: Mapping[str, object]) -> bool:
    """Whether a benchmark of GuideLLM lists its requests."""
    requests = benchmark.get("requests")
    listed = requests.get("successful") if isinstance(requests, dict) else requests
    return bool(listed)


def _json(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):  # another reader says what is wrong
        return None
    return value


def _yaml(path: Path, text: str) -> object:
    if "scenario:" not in text:
        return None
    try:
        return parse(Source(str(path), _YAML_INFINITY.sub("inf", text), path.parent)).data
    except SpecError as error:
        first = error.diagnostics[0]
        raise TraceError([TraceProblem(file=str(path), line=1, column="", message=first.message)]) from error


def _line(path: Path, text: str, place: tuple[str | int, ...]) -> int:
    """Return the line of a value."""
    if len(text) > _LOCATED_BYTES:
        return 1
    try:
        return parse(Source(str(path), _YAML_INFINITY.sub("inf", text), path.parent)).place(place).span.line
    except SpecError:
        return 1


def is_finite(rate: float | None) -> bool:
    """Whether a rate is known, and not all at once."""
    return rate is not None and isfinite(rate) and rate > 0.0
