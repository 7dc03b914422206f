"""One side of a twin, a recording or a simulation, in common terms."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.live.twin.agreement import CACHE_HITS, PREEMPTIONS, observed, simulated
from blis_tui.live.twin.first_difference import batch_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.live.recording.recording import Recording
    from blis_tui.live.twin.fitting import Pace
    from blis_tui.live.twin.simulated_requests import Batch, Simulated

_GENERATED: Final = "vllm:generation_tokens_total"
_RUNNING: Final = "vllm:num_requests_running"
_KV: Final = "vllm:kv_cache_usage_perc"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinSide:
    """The compared data of a side.

    Attributes:
        name: its name.
        latencies: latencies of each completed request, by name.
        sent_us: sending time of each request.
        batches: batches of its steps; None = unknown.
        step_us: mean period of a step, including the gap to the next one; None = unknown.
        counts: counts over the whole run, as far as known.
        running: number of running requests over time.
        kv: share of KV blocks in use over time.
    """

    name: str
    latencies: Mapping[str, Mapping[str, float]]
    sent_us: Mapping[str, int]
    batches: Sequence[Batch] | None = None
    step_us: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    running: Sequence[tuple[int, float]] = ()
    kv: Sequence[tuple[int, float]] = ()


def of_recording(recording: Recording, pace: Pace | None) -> TwinSide:
    """Return a recording as a side."""
    counters = recording.about.get("counters")
    known = counters if isinstance(counters, dict) else {}
    names = {"preemptions": PREEMPTIONS, "prompt tokens from cache": CACHE_HITS, "tokens generated": _GENERATED}
    counts = {name: round(known[key]) for name, key in names.items() if isinstance(known.get(key), int | float)}
    if pace is not None:
        counts = {"steps": len(pace.steps), **counts}
    return TwinSide(
        name=str(recording.folder),
        latencies={row.request_id: found for row in recording.requests if (found := observed(row))},
        sent_us={row.request_id: row.sent_us for row in recording.requests},
        batches=None if pace is None else [batch_of(step) for step in pace.steps],
        step_us=None if pace is None else fsum(pace.periods_us) / len(pace.steps),
        counts=counts,
        running=[(one.time_us, one.values[_RUNNING]) for one in recording.scrapes if _RUNNING in one.values],
        kv=[(one.time_us, one.values[_KV]) for one in recording.scrapes if _KV in one.values],
    )


def of_simulation(name: str, run: Simulated) -> TwinSide:
    """Return a simulation as a side."""
    cached = whole_sum([row.cached_tokens for row in run.rows.values()])
    generated = whole_sum([row.output_tokens for row in run.rows.values()])
    ends = [step.time_us + step.duration_us for step in run.steps]
    periods = [later.time_us - step.time_us for step, later in zip(run.steps, run.steps[1:], strict=False)]
    busy = [period for step, period in zip(run.steps, periods, strict=False) if step.next_step_us >= 0]
    return TwinSide(
        name=name,
        latencies={one: found for one, row in run.rows.items() if (found := simulated(row))},
        sent_us={one: row.arrival_us for one, row in run.rows.items()},
        batches=run.batches,
        step_us=fsum(busy) / len(busy) if busy else None,
        counts={
            "steps": len(run.steps),
            "preemptions": run.preemptions,
            "prompt tokens from cache": cached,
            "tokens generated": generated,
        },
        running=[(end, float(step.running)) for end, step in zip(ends, run.steps, strict=True)],
        kv=[(end, step.kv_used_blocks / run.kv_blocks) for end, step in zip(ends, run.steps, strict=True)],
    )


def at(series: Sequence[tuple[int, float]], times_us: Sequence[int]) -> list[float]:
    """Return the latest value of a series at these times; 0 before the first."""
    known = [time_us for time_us, _ in series]
    places = [bisect_right(known, time_us) - 1 for time_us in times_us]
    return [series[place][1] if place >= 0 else 0.0 for place in places]
