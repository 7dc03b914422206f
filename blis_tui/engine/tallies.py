"""Counters that an instance keeps about itself."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from blis_tui.classes import mypyc_attr
from blis_tui.pickling import Picklable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.plan import Plan


@mypyc_attr(allow_interpreted_subclasses=True)
class Tallies(Picklable):
    """Totals over the steps of an instance. Times are step durations in microseconds.

    Attributes:
        steps: number of steps.
        preemptions: number of preemptions.
        preempted_requests: requests that were preempted at least once.
        outranked: number of preemptions by priority.
        peak_running: the largest batch so far.
        busy_us: time of all steps.
        active_us: time during which any step was in flight.
        computing_us: what these steps would have taken together if none had waited for another. This and ``active_us``
            are kept where steps overlap.
        prefill_tokens: tokens computed in prefills.
        cached_tokens: tokens found in the cache when a step admitted their request; prompts that were found whole are
            left out.
        prefill_us: time of steps that computed prompt tokens.
        beside_prefill_us: time of these steps, counted once for each request that decoded in them, or that they kept
            from decoding because the rule computes prompts separately.
        full_budget_us: time of steps that used up ``max_num_batched_tokens``.
        kv_wait_us: time of steps that left requests waiting for lack of KV blocks (preempted requests wait, too). Where
            steps are planned ahead, the plan of the following step decides which requests wait during a step, so this
            and ``seqs_wait_us`` are counted by that plan.
        allocation_failures: failed attempts to allocate KV blocks: one for each victim, and one for each step that left
            requests waiting for lack of blocks and preempted none.
        seqs_wait_us: time of steps that left requests waiting because ``max_num_seqs`` ran, with token budget left.
        itl_us: tokens by the time since the request's previous token, overheads not included.
    """

    __slots__ = (
        "active_us",
        "allocation_failures",
        "beside_prefill_us",
        "busy_us",
        "cached_tokens",
        "computing_us",
        "full_budget_us",
        "itl_us",
        "kv_wait_us",
        "outranked",
        "peak_running",
        "preempted_requests",
        "preemptions",
        "prefill_tokens",
        "prefill_us",
        "seqs_wait_us",
        "steps",
    )

    def __init__(self) -> None:
        self.outranked = 0
        self.steps = self.preemptions = self.preempted_requests = self.peak_running = 0
        self.busy_us = self.active_us = self.computing_us = 0
        self.prefill_tokens = self.cached_tokens = self.prefill_us = self.beside_prefill_us = 0
        self.full_budget_us = self.kv_wait_us = self.allocation_failures = self.seqs_wait_us = 0
        self.itl_us: dict[int, int] = {}

    def discount(self, latest_us: Iterable[int], end: int) -> None:
        """Take out the times from ``latest_us`` to tokens at ``end`` that nobody received."""
        itl_us = self.itl_us
        for time_us in latest_us:
            itl_us[end - time_us] -= 1
            if not itl_us[end - time_us]:
                del itl_us[end - time_us]

    def state(self) -> tuple[object, ...]:
        """Return all counters as plain values (for digests)."""
        return (*_figures(self), tuple(sorted(self.itl_us.items())))


_FIGURES: Final = (
    *(
        "outranked",
        "steps",
        "preemptions",
        "preempted_requests",
        "peak_running",
        "busy_us",
        "active_us",
        "computing_us",
    ),
    *("prefill_tokens", "cached_tokens", "prefill_us", "beside_prefill_us"),
    *("full_budget_us", "kv_wait_us", "allocation_failures", "seqs_wait_us"),
)
_figures = attrgetter(*_FIGURES)
"""All counters but the times between tokens."""


def tally_wait(
    tallies: Tallies, batch: Batch, plan: Plan, epoch: int, finishing: int, duration: int, *, full_budget: bool
) -> None:
    """Tally the duration of a step during which requests wait: for blocks or for places, as its plan tells.

    ``epoch``: the pool's after planning. ``finishing``: requests that occupy a place in the batch until the step
    ends.
    """
    if plan.preempted and not plan.outranked:
        tallies.kv_wait_us += duration
    elif full_budget:
        pass
    elif _served(batch, finishing, plan) >= batch.limits.max_num_seqs:
        tallies.seqs_wait_us += duration
    elif batch.refused is not None and batch.refused[1] == epoch:
        tallies.kv_wait_us += duration
        tallies.allocation_failures += 1


def _served(batch: Batch, finishing: int, plan: Plan) -> int:
    """Number of requests that count towards ``max_num_seqs`` in a step: all running ones, or those it serves."""
    if batch.max_running == batch.limits.max_num_seqs:
        return len(batch.running) + finishing
    return len(plan.chunks) if plan.chunks and not batch.load.decode_requests else 0
