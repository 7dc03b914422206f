"""Figures of a workload's requests: rates, burstiness, lengths, prefix reuse, by groups.

They are computed in integers as far as possible, with one division at the end, so they are the same on every machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.live.traffic.ledger import GROUPINGS
from blis_tui.results.stats import PERCENTILES, percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.live.traffic.ledger import Ledger
    from blis_tui.live.traffic.opening import Traffic
    from blis_tui.workload.traces.trace_table import LeftOut

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
_CELLS: Final = 120
"""Number of windows of the arrival curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Token counts. Percentiles interpolate linearly between the two values around rank ``p/100 * (n - 1)``."""

    total: int
    mean: float
    min: int
    p50: float
    p90: float
    p95: float
    p99: float
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The window with the most requests; windows are consecutive from the first arrival on."""

    requests: int
    at_s: float
    """Its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The rate of requests."""

    mean_per_s: float | None
    """Number of gaps between the first arrival and the last, per second; None if all requests arrive at once."""
    peak_second: Peak
    peak_minute: Peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Burstiness:
    """The irregularity of arrivals. Independent requests at a steady rate (Poisson) have 1 everywhere.

    None if there are fewer than two gaps or windows.
    """

    gap_cv: float | None
    """Standard deviation of the gaps between arrivals over their mean."""
    dispersion_second: float | None
    """Index of dispersion: variance of the number of requests in whole windows of a second, over its mean."""
    dispersion_minute: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Hits in an infinite prefix cache: prefixes that an earlier prompt had, too, in whole blocks."""

    recorded: bool
    """False for a trace that names no prefix: what its prompts shared is not known, and nothing is found."""
    block_size_tokens: int
    found_tokens: int
    tokens_share: float
    """Share of all prompt tokens."""
    found_blocks: int
    blocks: int
    """Number of blocks of all prompts; the last block of a prompt may be partly empty."""
    blocks_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Conversations."""

    sessions: int
    requests: int
    """Requests that belong to a conversation."""
    turns_mean: float
    turns_p50: float
    turns_max: int
    gap_p50_s: float | None
    """Median time from one turn's arrival to the next one's. None if no session has two turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Requests with a common attribute."""

    requests: int
    share: float
    rate_per_s: float | None
    """Its share of the overall mean rate."""
    gap_cv: float | None
    input_mean: float
    output_mean: float
    reuse_tokens_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Lengths from a power of two up to the next one."""

    from_tokens: int
    to_tokens: int
    """The largest length in it."""
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsOverTime:
    """Requests over time, in windows of equal length from the first arrival on."""

    start_s: float
    window_s: float
    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A workload in figures. Times are in seconds since the start of the simulation."""

    name: str
    source: str
    seed: int | None
    cut: int | None
    left_out: tuple[LeftOut, ...]
    """Parts of a trace that are not requests by its format."""
    requests: int
    first_arrival_s: float
    duration_s: float
    """From the first arrival to the last."""
    rate: Rate
    burstiness: Burstiness
    input_tokens: Lengths
    output_tokens: Lengths
    prefix_reuse: Reuse
    sessions: Sessions | None
    clients: Mapping[str, Group]
    """Empty for a trace."""
    tenants: Mapping[str, Group]
    """Empty if no request has one; the same holds for models."""
    slo_classes: Mapping[str, Group]
    models: Mapping[str, Group]
    arrivals: RequestsOverTime
    input_histogram: tuple[Bin, ...]
    output_histogram: tuple[Bin, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the figures as plain data, in this order."""
        return asdict(self)


def describe(traffic: Traffic, ledger: Ledger) -> Description:
    """Compute the figures of all requests."""
    arrivals = ledger.arrival_us
    first, last = arrivals[0], arrivals[-1]
    by = {grouping: _groups(ledger, grouping) for grouping in GROUPINGS}
    return Description(
        name=traffic.name,
        source=traffic.source,
        seed=traffic.seed,
        cut=traffic.cut if traffic.cut is not None and len(ledger) == traffic.cut else None,
        left_out=traffic.left_out,
        requests=len(ledger),
        first_arrival_s=first / SECOND,
        duration_s=(last - first) / SECOND,
        rate=Rate(
            mean_per_s=_rate(len(arrivals) - 1, last - first),
            peak_second=_peak(arrivals, SECOND),
            peak_minute=_peak(arrivals, MINUTE),
        ),
        burstiness=Burstiness(
            gap_cv=gap_cv(arrivals),
            dispersion_second=dispersion(arrivals, SECOND),
            dispersion_minute=dispersion(arrivals, MINUTE),
        ),
        input_tokens=lengths_of(ledger.input_tokens),
        output_tokens=lengths_of(ledger.output_tokens),
        prefix_reuse=_reuse(ledger),
        sessions=_sessions(ledger),
        clients=by["client"],
        tenants=by["tenant"],
        slo_classes=by["slo_class"],
        models=by["model"],
        arrivals=_course(arrivals),
        input_histogram=_histogram(ledger.input_tokens),
        output_histogram=_histogram(ledger.output_tokens),
    )


def lengths_of(values: Sequence[int]) -> Lengths:
    """Compute the distribution of token counts, of which there must be at least one."""
    ordered = sorted(values)
    total = whole_sum(ordered)
    p50, p90, p95, p99 = (percentile(ordered, percent) for percent in PERCENTILES)
    return Lengths(
        total=total,
        mean=total / len(ordered),
        min=ordered[0],
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=ordered[-1],
    )


def spread(values: Sequence[int]) -> tuple[int, int]:
    """Return ``n`` times the sum, and ``n`` squared times the variance, of whole numbers, exactly."""
    total = squares = 0
    for value in values:
        total += value
        squares += value * value
    return total * len(values), len(values) * squares - total * total


def gap_cv(arrivals_us: Sequence[int]) -> float | None:
    """Return the coefficient of variation of the gaps; None for fewer than two, or if all arrive at once."""
    gaps = [later - earlier for earlier, later in pairwise(arrivals_us)]
    if len(gaps) < 2:
        return None
    scaled_total, scaled_variance = spread(gaps)
    mean = scaled_total // len(gaps)  # n times the mean
    return sqrt(scaled_variance) / mean if mean else None


def dispersion(arrivals_us: Sequence[int], window_us: int) -> float | None:
    """Return the index of dispersion in whole windows; None for fewer than two windows or without requests in them."""
    first = arrivals_us[0]
    windows = (arrivals_us[-1] - first) // window_us
    if windows < 2:
        return None
    counts = Counter((arrival - first) // window_us for arrival in arrivals_us)
    counts.pop(windows, None)  # not whole
    total = whole_sum(counts.values())
    scaled_variance = windows * whole_sum([count * count for count in counts.values()]) - total * total
    return scaled_variance / (windows * total) if total else None


def _rate(requests: int, span_us: int) -> float | None:
    return requests * SECOND / span_us if span_us else None


def _peak(arrivals_us: Sequence[int], window_us: int) -> Peak:
    first = arrivals_us[0]
    counts = Counter((arrival - first) // window_us for arrival in arrivals_us)
    window = max(counts, key=lambda number: (counts[number], -number))
    return Peak(requests=counts[window], at_s=(first + window * window_us) / SECOND)


def _reuse(ledger: Ledger) -> Reuse:
    size = ledger.block_size_tokens
    tokens, reused = whole_sum(ledger.input_tokens), whole_sum(ledger.found_tokens)
    blocks = whole_sum([-(-prompt // size) for prompt in ledger.input_tokens])
    return Reuse(
        recorded=ledger.prefixes_known,
        block_size_tokens=size,
        found_tokens=reused,
        tokens_share=reused / tokens if tokens else 0.0,
        found_blocks=reused // size,
        blocks=blocks,
        blocks_share=reused / size / blocks if blocks else 0.0,
    )


def _sessions(ledger: Ledger) -> Sessions | None:
    names = ledger.sessions
    turns: dict[int, list[int]] = {}
    for row, code in enumerate(names.rows):
        if names.values[code]:
            turns.setdefault(code, []).append(ledger.arrival_us[row])
    if not turns:
        return None
    counts = sorted(map(len, turns.values()))
    gaps = sorted(later - earlier for turn in turns.values() for earlier, later in pairwise(turn))
    requests = whole_sum(counts)
    return Sessions(
        sessions=len(turns),
        requests=requests,
        turns_mean=requests / len(turns),
        turns_p50=percentile(counts, 50),
        turns_max=counts[-1],
        gap_p50_s=percentile(gaps, 50) / SECOND if gaps else None,
    )


def _groups(ledger: Ledger, grouping: str) -> dict[str, Group]:
    """Return the groups, those with the most requests first; empty if no request has the attribute."""
    rows_by_name = ledger.groups(grouping)
    if list(rows_by_name) == [""]:
        return {}
    span_us = ledger.arrival_us[-1] - ledger.arrival_us[0]
    ordered = sorted(rows_by_name, key=lambda name: (-len(rows_by_name[name]), name))
    return {name: _group(ledger, rows_by_name[name], span_us) for name in ordered}


def _group(ledger: Ledger, rows: Sequence[int], span_us: int) -> Group:
    prompts = whole_sum([ledger.input_tokens[row] for row in rows])
    outputs = whole_sum([ledger.output_tokens[row] for row in rows])
    reused = whole_sum([ledger.found_tokens[row] for row in rows])
    return Group(
        requests=len(rows),
        share=len(rows) / len(ledger),
        rate_per_s=_rate(len(rows) * (len(ledger) - 1), len(ledger) * span_us),
        gap_cv=gap_cv([ledger.arrival_us[row] for row in rows]),
        input_mean=prompts / len(rows),
        output_mean=outputs / len(rows),
        reuse_tokens_share=reused / prompts if prompts else 0.0,
    )


def _course(arrivals_us: Sequence[int]) -> RequestsOverTime:
    first, span = arrivals_us[0], arrivals_us[-1] - arrivals_us[0]
    window = max(1, -(-(span + 1) // _CELLS))
    counts = [0] * (span // window + 1)
    for arrival in arrivals_us:
        counts[(arrival - first) // window] += 1
    return RequestsOverTime(start_s=first / SECOND, window_s=window / SECOND, requests=tuple(counts))


def _histogram(values: Sequence[int]) -> tuple[Bin, ...]:
    """Return bins for every power of two between the extremes; answers without tokens have a bin of their own."""
    counts = Counter(value.bit_length() for value in values)
    return tuple(
        Bin(from_tokens=1 << bits >> 1, to_tokens=(1 << bits) - 1, requests=counts[bits])
        for bits in range(min(counts), max(counts) + 1)
    )
