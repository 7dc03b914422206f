"""Metrics of a server under vLLM's names, summed over its engines, and settings from their labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from blis_tui.observe.recording import MOST, Server

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

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
_LONGEST_LINE: Final = 1 << 16
_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_LABEL: Final = re.compile(r'[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*,?')
_WHOLE: Final = re.compile(r"[0-9]{1,15}")
_END: Final = re.compile(r"[ \t]*\}")
_VALUE: Final = re.compile(r"[ \t]+(\S+)|(?<=\})(\S+)")


def samples(text: str, wanted: Collection[str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield name, labels and value of samples in Prometheus text format.

    Other lines are ignored, and so are values that are negative, not finite, or larger than any can be. The time is
    proportional to the text's length, whatever is in it.
    """
    for line in text.split("\n"):
        if (found := _NAME.match(line)) is None or found[0] not in wanted or len(line) > _LONGEST_LINE:
            continue
        labels, place = _labels(line, found.end())
        if (told := _VALUE.match(line, place)) is not None and (value := _value(told[1] or told[2])) is not None:
            yield found[0], labels, value


def _labels(line: str, place: int) -> tuple[dict[str, str], int]:
    """Return the labels that begin at a place, and the place after them; labels that do not end have no value."""
    labels: dict[str, str] = {}
    if line[place : place + 1] != "{":
        return labels, place
    place += 1
    while (found := _LABEL.match(line, place)) is not None:
        labels[found[1]] = found[2]
        place = found.end()
    end = _END.match(line, place)
    return labels, len(line) if end is None else end.end()


def _value(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= MOST else None


def values(text: str) -> dict[str, float]:
    """Return the recorded values of a scrape by name: sums over engines, and means of shares."""
    found: dict[str, list[float]] = {}
    for name, _, value in samples(text, _WANTED):
        found.setdefault(name, []).append(value)
    totals = {name: _together(name, found[name]) for name in (*GAUGES, *COUNTERS, *SUMS) if name in found}
    return {name: total for name, total in totals.items() if total <= MOST}


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
    for _, labels, _ in samples(text, (_CONFIG,)):
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
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None
