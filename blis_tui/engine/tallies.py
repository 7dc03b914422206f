"""What an instance counts about itself."""

from __future__ import annotations

from dataclasses import field, fields
from operator import attrgetter
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.latency.model import Chunk
    from blis_tui.engine.plan import Plan


@dataclass(slots=True)
class Tallies:
    """What the steps of an instance add up to. Times in microseconds of step durations."""

    steps: int = 0
    preemptions: int = 0
    preempted_requests: int = 0
    """Requests that were preempted at least once."""
    peak_running: int = 0
    """The largest batch so far."""
    busy_us: int = 0
    """Of all steps."""
    active_us: int = 0
    """During which any step was under way, and what all of these took together if no step had waited for another; both
    are kept where steps overlap."""
    computing_us: int = 0
    prefill_tokens: int = 0
    """Computed in prefills."""
    cached_tokens: int = 0
    """Found in the cache when a step admitted their request; prompts that were found as a whole are left out."""
    prefill_us: int = 0
    """Of steps that computed prompt tokens."""
    beside_prefill_us: int = 0
    """Of these steps, once for each request that decoded in them."""
    full_budget_us: int = 0
    """Of steps that used up ``max_num_batched_tokens``."""
    kv_wait_us: int = 0
    """Of steps that left requests waiting for want of KV blocks (preempted requests wait, too).

    Where steps are planned ahead, a request that waits during a step was left out by the plan for the step after it:
    by that plan this and ``seqs_wait_us`` are counted.
    """
    allocation_failures: int = 0
    """Attempts to give a request KV blocks that failed: one for each victim, and one for each step that left requests
    waiting for want of blocks and preempted none."""
    seqs_wait_us: int = 0
    """Of steps that left requests waiting because ``max_num_seqs`` ran, with some of the token budget left."""
    itl_us: dict[int, int] = field(default_factory=dict)
    """Tokens by the time since the request's previous token, overheads not included."""

    def step(self, chunks: Sequence[Chunk], decodes: int, duration_us: int, *, full_budget: bool) -> None:
        """One more step: what it computed of prompts, beside so many decodes, and whether that spent the budget."""
        self.steps += 1
        self.busy_us += duration_us
        self.full_budget_us += duration_us * full_budget
        if not chunks:
            return
        for chunk in chunks:
            self.prefill_tokens += chunk.new
            self.cached_tokens += chunk.cached
        self.prefill_us += duration_us
        self.beside_prefill_us += duration_us * decodes

    def state(self) -> tuple[object, ...]:
        """All of it, as plain values (for digests)."""
        return (*_figures(self), tuple(sorted(self.itl_us.items())))


_figures = attrgetter(*(one.name for one in fields(Tallies) if one.name != "itl_us"))
"""All but the last; ``astuple`` would copy every entry of that, each time."""


def tally_wait(
    tallies: Tallies, batch: Batch, plan: Plan, epoch: int, finishing: int, duration: int, *, full_budget: bool
) -> None:
    """Requests wait for the duration of a step: by what its plan tells, for want of blocks or of places.

    ``epoch``: the pool's after planning; ``finishing``: how many requests have a place in the batch until the step
    ends, and none after it.
    """
    if plan.preempted:
        tallies.kv_wait_us += duration
    elif full_budget:
        pass
    elif _served(batch, finishing, plan) >= batch.limits.max_num_seqs:
        tallies.seqs_wait_us += duration
    elif batch.refused is not None and batch.refused[1] == epoch:
        tallies.kv_wait_us += duration
        tallies.allocation_failures += 1


def _served(batch: Batch, finishing: int, plan: Plan) -> int:
    """How many requests count towards ``max_num_seqs`` in a step: all that run, or those it serves."""
    if batch.max_running == batch.limits.max_num_seqs:
        return len(batch.running) + finishing
    return len(plan.chunks) if plan.chunks and not batch.load.decode_requests else 0
