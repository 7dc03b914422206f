"""The report's section on LoRA adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.adapters.costs import HOST, STORAGE
from blis_tui.engine.request import RequestState
from blis_tui.metrics.stats import Distribution, of_samples

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.engine.instance import Instance
    from blis_tui.metrics.request_log import RequestTable, Row

_LISTED: Final = 20
"""Maximum number of adapters listed in a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterReport:
    """The requests of one LoRA adapter."""

    requests: int
    """Requests that use it."""
    completed: int
    """Requests for it that completed."""
    output_tokens: int
    """Output tokens of requests for it, including requests that did not complete."""
    loads: int
    """Loads of the adapter, onto any instance."""
    ttft_ms: Distribution
    """``latency.ttft_ms`` of the requests for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptersReport:
    """The LoRA adapters of all instances together."""

    adapters: int
    """Different adapters that were requested."""
    scheduled: int
    """Scheduled requests with an adapter; a preempted request counts again when it is rescheduled."""
    hit_rate: float
    """The share of ``scheduled``, from 0 to 1, whose adapter was on the GPUs when the request was scheduled."""
    loads: int
    """Loads of adapters onto instances, from host memory or storage."""
    loads_from_storage: int
    """Loads of adapters that were not in host memory; part of ``loads``."""
    evictions: int
    """Adapters evicted from the accelerators to make room for others."""
    load_us: int
    """The sum of the times of all loads, during which steps waited (``vllm-v1``) or went on (``blis``)."""
    holds: int
    """Requests that were passed over in the queue because there was no slot for their adapter, or that waited for its
    load beside steps; a preempted one counts again."""
    held_us: int
    """The sum of the times of these waits, for requests that were scheduled afterwards."""
    busiest: Mapping[str, AdapterReport]
    """The 20 most requested adapters, by name."""


def adapters_report(
    instances: Sequence[Instance], rows: Sequence[Row], table: RequestTable, warm_up_us: int
) -> AdaptersReport | None:
    """Return the adapter figures of these instances; None if none of them has adapters.

    The TTFTs leave out requests that arrived before ``warm_up_us``.
    """
    found = [one.batch.adapters for one in instances if one.batch.adapters is not None]
    if not found:
        return None
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        name = table.adapter(row)
        if name:
            by_name.setdefault(name, []).append(row)
    loads_of: dict[str, int] = {}
    admitted = hits = evictions = load_us = holds = held_us = storage = loads = 0
    for one in found:
        admitted += one.admitted
        hits += one.hits
        evictions += one.evictions
        load_us += one.load_us
        holds += one.holds
        held_us += one.held_us
        storage += one.loads[STORAGE]
        loads += one.loads[STORAGE] + one.loads[HOST]
        for name, count in one.loads_of.items():
            loads_of[name] = loads_of.get(name, 0) + count
    busiest = sorted(by_name, key=lambda name: (-len(by_name[name]), name))[:_LISTED]
    return AdaptersReport(
        adapters=len(by_name),
        scheduled=admitted,
        hit_rate=hits / admitted if admitted else 0.0,
        loads=loads,
        loads_from_storage=storage,
        evictions=evictions,
        load_us=load_us,
        holds=holds,
        held_us=held_us,
        busiest={name: _one(by_name[name], loads_of.get(name, 0), warm_up_us) for name in busiest},
    )


def _one(rows: Sequence[Row], loads: int, warm_up_us: int) -> AdapterReport:
    tokens = 0
    for row in rows:
        tokens += row.output_tokens
    first = [row.ttft_us for row in rows if row.ttft_us >= 0 and row.arrival_us >= warm_up_us]
    return AdapterReport(
        requests=len(rows),
        completed=len([row for row in rows if row.state == RequestState.COMPLETED]),
        output_tokens=tokens,
        loads=loads,
        ttft_ms=of_samples(first),
    )
