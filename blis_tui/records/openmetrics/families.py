"""vLLM's metrics: names, help texts and buckets, and the contribution of each request.

Source of names, texts and buckets: vLLM, ``v1/metrics/loggers.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.request import RequestState

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.metrics.request_log import Row
    from blis_tui.spec.model import Pool

US_PER_S: Final = 1_000_000
AT_DEADLINE: Final = -1
"""Placeholder for the time of a request's deadline."""

_TO_FIRST_TOKEN_S: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
_PER_TOKEN_S: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric, and what a request contributes to it.

    Attributes:
        name: vLLM's name, without the suffixes of its samples.
        help: vLLM's help text.
        of: returns when a request contributes and how much, in microseconds or tokens; None = it does not.
        buckets_s: the upper bounds of its buckets in seconds; empty = those of token counts.
        counts: whether it is a counter of contributions, without buckets.
        labels: labels in addition to the common ones.
        prefill: whether it belongs to the prefill instance under disaggregation.
    """

    name: str
    help: str
    of: Callable[[Row], tuple[int, int] | None]
    buckets_s: tuple[float, ...] = ()
    counts: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    prefill: bool = False

    def scale(self) -> int:
        """Number of contributed units per unit of the metric."""
        return US_PER_S if self.buckets_s else 1


def buckets_of_tokens(most: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20 ... up to ``most``."""
    found: list[float] = []
    power = 1
    while power <= most:
        found += [float(power * digit) for digit in (1, 2, 5) if power * digit <= most]
        power *= 10
    return tuple(found)


def longest(pool: Pool) -> int:
    """Maximum number of tokens of a request of this pool."""
    return pool.engine.max_model_len or pool.model.max_position_embeddings


def _ended(row: Row) -> bool:
    return row.state == RequestState.COMPLETED


def _span(row: Row, begin_us: int, end_us: int) -> tuple[int, int] | None:
    """Return the time between two events of a completed request, contributed at its end."""
    return (row.completed_us, max(end_us - begin_us, 0)) if _ended(row) else None


def _ttft(row: Row) -> tuple[int, int] | None:
    return (row.first_token_us, row.ttft_us) if row.ttft_us >= 0 else None


def _time_per_token(row: Row) -> tuple[int, int] | None:
    gaps = row.output_tokens - 1
    if not _ended(row) or gaps < 1:
        return None
    return row.completed_us, (2 * (row.e2e_us - row.ttft_us) + gaps) // (2 * gaps)


def _prompt(row: Row) -> tuple[int, int] | None:
    return (row.first_token_us, row.input_tokens) if row.first_token_us >= 0 else None


def _finished(reason: str) -> Family:
    def of(row: Row) -> tuple[int, int] | None:
        if reason == "abort":
            return (AT_DEADLINE, 1) if row.state == RequestState.TIMED_OUT else None
        return (row.completed_us, 1) if _ended(row) and row.length_capped == (reason == "length") else None

    labels = (("finished_reason", reason),)
    return Family("vllm:request_success", "Count of successfully processed requests.", of, counts=True, labels=labels)


PREFIX_CACHE: Final = ("vllm:prefix_cache_queries", "vllm:prefix_cache_hits")
"""Metrics that stay 0 without a prefix cache."""

FAMILIES: Final = (
    Family("vllm:prompt_tokens", "Number of prefill tokens processed.", _prompt, counts=True, prefill=True),
    Family(
        PREFIX_CACHE[0],
        "Prefix cache queries, in terms of number of queried tokens.",
        lambda row: (row.scheduled_us, row.input_tokens) if row.scheduled_us >= 0 else None,
        counts=True,
        prefill=True,
    ),
    Family(
        PREFIX_CACHE[1],
        "Prefix cache hits, in terms of number of cached tokens.",
        lambda row: (row.scheduled_us, row.cached_tokens) if row.scheduled_us >= 0 else None,
        counts=True,
        prefill=True,
    ),
    *map(_finished, ("stop", "length", "abort")),
    Family(
        "vllm:request_prompt_tokens",
        "Number of prefill tokens processed.",
        lambda row: (row.completed_us, row.input_tokens) if _ended(row) else None,
    ),
    Family(
        "vllm:request_generation_tokens",
        "Number of generation tokens processed.",
        lambda row: (row.completed_us, row.output_tokens) if _ended(row) else None,
    ),
    Family(
        "vllm:request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        lambda row: (row.completed_us, row.output_tokens) if _ended(row) else None,
    ),
    Family(
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        _ttft,
        _TO_FIRST_TOKEN_S,
        prefill=True,
    ),
    Family(
        "vllm:request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        _time_per_token,
        _PER_TOKEN_S,
    ),
    Family(
        "vllm:e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        lambda row: _span(row, 0, row.e2e_us),
        _REQUEST_S,
    ),
    Family(
        "vllm:request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        lambda row: _span(row, row.queued_us, row.scheduled_us),
        _REQUEST_S,
        prefill=True,
    ),
    Family(
        "vllm:request_inference_time_seconds",
        "Histogram of time spent in RUNNING phase for request.",
        lambda row: _span(row, row.scheduled_us, row.completed_us),
        _REQUEST_S,
    ),
    Family(
        "vllm:request_prefill_time_seconds",
        "Histogram of time spent in PREFILL phase for request.",
        lambda row: _span(row, row.scheduled_us, row.first_token_us),
        _REQUEST_S,
        prefill=True,
    ),
    Family(
        "vllm:request_decode_time_seconds",
        "Histogram of time spent in DECODE phase for request.",
        lambda row: _span(row, row.first_token_us, row.completed_us),
        _REQUEST_S,
    ),
)
"""Metrics derived from requests, in file order; those with the same name are adjacent."""

GAPS: Final = Family(
    "vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", lambda _: None, _PER_TOKEN_S
)
"""Derived from the instances' own counts."""
