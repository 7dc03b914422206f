"""Metrics of a server under vLLM's names, summed over its engines, and settings from their labels."""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Final

from blis_tui.observe.recording import Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GAUGES: Final = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
COUNTERS: Final = (
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:request_success_total",
)
"""Counters that continue from run to run, so that only differences matter."""
SUMS: Final = tuple(
    f"vllm:{name}_{part}"
    for name in (
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "iteration_tokens_total",
    )
    for part in ("sum", "count")
)
"""Sums of histograms, of which also only differences matter."""
_MEAN: Final = frozenset({"vllm:kv_cache_usage_perc"})
"""Gauges that are a share of each engine, and so are averaged."""
_WANTED: Final = frozenset((*GAUGES, *COUNTERS, *SUMS))
_CONFIG: Final = "vllm:cache_config_info"
_SAMPLE: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)")
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


def samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield name, labels and value of each sample in Prometheus text format; other lines are ignored."""
    for line in text.splitlines():
        if line.startswith("#") or (found := _SAMPLE.match(line)) is None:
            continue
        name, labels, value = found.groups()
        try:
            number = float(value)
        except ValueError:
            continue
        yield name, dict(_LABEL.findall(labels or "")), number


def values(text: str) -> dict[str, float]:
    """Return the recorded values of a scrape by name: sums over engines, means of shares, without non-finite values."""
    found: dict[str, list[float]] = {}
    for name, _, value in samples(text):
        if name in _WANTED and isfinite(value):
            found.setdefault(name, []).append(value)
    return {name: _together(name, found[name]) for name in (*GAUGES, *COUNTERS, *SUMS) if name in found}


def _together(name: str, parts: list[float]) -> float:
    total = 0.0
    for part in parts:
        total += part
    return total / len(parts) if name in _MEAN else total


def settings(text: str) -> Server:
    """Return the settings in the metrics: the number of blocks, and of engines."""
    blocks: int | None = None
    size: int | None = None
    caching: bool | None = None
    engines = 0
    for name, labels, _ in samples(text):
        if name == _CONFIG:
            engines += 1
            blocks = _whole(labels.get("num_gpu_blocks"))
            size = _whole(labels.get("block_size"))
            caching = {"True": True, "False": False}.get(labels.get("enable_prefix_caching", ""))
    return Server(
        block_size_tokens=size,
        kv_blocks=None if blocks is None else max(blocks - 1, 0),
        prefix_caching=caching,
        engines=engines or None,
    )


def differences(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the growth of each counter; a counter that decreased was reset, and counts from 0."""
    return {
        name: after[name] - (before.get(name, 0.0) if after[name] >= before.get(name, 0.0) else 0.0)
        for name in (*COUNTERS, *SUMS)
        if name in after
    }


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
