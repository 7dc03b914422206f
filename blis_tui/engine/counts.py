"""Counters that an instance keeps about itself, and what others see of it: requests in flight and running, KV blocks.

Others learn the results of a step when it ends or, if the cluster shows results early, when it starts. Until then,
requests that have left the batch still count.
"""

from __future__ import annotations

from array import array
from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.base.portable_math import whole_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request


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
        """Return all counters as plain values (for digests); of the times between tokens, which are many, a digest."""
        times_us = sorted(self.itl_us)
        tokens = [self.itl_us[time_us] for time_us in times_us]
        return (*_figures(self), sha256(array("q", times_us + tokens).tobytes()).digest())


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
    tallies: Tallies,
    batch: Batch,
    plan: Plan,
    epoch: int,
    finishing: int,
    duration: int,
    *,
    full_budget: bool,
    steps: int = 1,
) -> None:
    """Tally the duration of a step during which requests wait: for blocks or for places, as its plan tells.

    ``epoch``: the pool's after planning. ``finishing``: requests that occupy a place in the batch until the step
    ends. ``steps``: how many such steps took that long together.
    """
    if plan.preempted and not plan.outranked:
        tallies.kv_wait_us += duration
    elif full_budget:
        pass
    elif _served(batch, finishing, plan) >= batch.limits.max_num_seqs:
        tallies.seqs_wait_us += duration
    elif batch.refused is not None and batch.refused[1] == epoch:
        tallies.kv_wait_us += duration
        tallies.allocation_failures += steps


def _served(batch: Batch, finishing: int, plan: Plan) -> int:
    """Number of requests that count towards ``max_num_seqs`` in a step: all running ones, or those it serves."""
    if batch.max_running == batch.limits.max_num_seqs:
        return len(batch.running) + finishing
    return len(plan.chunks) if plan.chunks and not batch.load.decode_requests else 0


@mypyc_attr(allow_interpreted_subclasses=True)
class ObservedInstance(Picklable):
    """An instance as seen from outside.

    Attributes:
        in_flight: requests that the router sent here and that have not ended.
        present: those of them in its queue and batch.
        stays_us: sum of departure times minus sum of arrival times. Adding ``present * now`` gives the number present,
            integrated over time.
        watch: receives what happens to requests here; None = nobody does.
    """

    def __init__(self, batch: Batch) -> None:
        self.in_flight = 0
        self.present = 0
        self.stays_us = 0
        self.watch: Watch | None = None
        self._batch = batch
        self._leaving: dict[tuple[int, bool], int] = {}
        """Blocks that are free but still count as in use: by request, and whether its prompt was handed over."""

    @property
    def running(self) -> int:
        """Number of requests in its batch; without early results, requests count until the end of their last step."""
        batch = self._batch
        early = self.watch is not None and self.watch.early
        return len(batch.running) if early else self.present - len(batch.waiting.items)

    @property
    def served(self) -> int:
        """Number of requests in its queue and batch whose clients have not given up."""
        early = self.watch is not None and self.watch.early
        return self._batch.live if early else self.present - len(self._batch.given_up)

    @property
    def kv_used(self) -> int:
        """Number of blocks in use, at most the total: blocks that still count may have been allocated again."""
        pool = self._batch.pool
        total = pool.total
        used = total - pool.free
        if self._leaving:
            used += whole_sum(self._leaving.values())
            if used > total:
                used = total
        return used

    def present_us(self, now: int) -> int:
        """The number of requests in queue and batch, integrated over time until ``now``."""
        return self.stays_us + self.present * now

    def depart(self, request: Request) -> None:
        """Stop counting a request as in flight."""
        self.in_flight -= 1
        if self.watch is not None:
            self.watch.departed.append(request)

    def note_slot_freed(self, request: Request, blocks: int, *, handed_over: bool = False) -> None:
        """Record that a request left the batch and its blocks are free; others see it now, or at the step's end."""
        watch = self.watch
        if watch is None:
            return
        if watch.early:
            self.depart(request)
        else:
            self._leaving[request.index, handed_over] = blocks

    def note_place_free(self, now: int) -> None:
        """Record that a request left queue or batch without a result."""
        self.present -= 1
        self.stays_us += now

    def leave(self, request: Request, now: int, handed_over: bool = False) -> None:
        """Record the end of the step in which a request left the batch."""
        self.present -= 1
        self.stays_us += now
        watch = self.watch
        if watch is None:
            self.in_flight -= 1
        elif not watch.early:
            del self._leaving[request.index, handed_over]
            self.depart(request)


# What instances report to the control plane about their requests.


@mypyc_attr(allow_interpreted_subclasses=True)
class Watch(Picklable):
    """Where instances report to the control plane; without it they report nothing.

    Attributes:
        early: whether a step's results are seen from its start on.
        early_transfers: whether the transfer of KV blocks starts with the step that completes the prefill.
        departed: requests that no longer count, until the control plane takes note of them.
        prefilled: requests whose prompt has been computed for another instance, until the control plane takes note.
        touched: the board's list of instances to which something has happened.
        on_prepared: called with a request and the time when there is room for its prompt, which is computed elsewhere.
    """

    def __init__(self, *, early: bool, early_transfers: bool = False, touched: dict[int, None] | None = None) -> None:
        self.touched: dict[int, None] = {} if touched is None else touched
        self.early = early
        self.early_transfers = early_transfers
        self.departed: list[Request] = []
        self.prefilled: list[Request] = []
        self.on_prepared: Callable[[Request, int], None] | None = None


# The engine reports each request to a ledger once, at the end of its life.


class Ledger(Protocol):
    """Keeps what is known about requests after the engine has discarded them."""

    def close(self, request: Request, ttft_us: int = -1, e2e_us: int = -1) -> None:
        """Record ``request``, which has reached a terminal state: all its fields are final.

        ``ttft_us`` and ``e2e_us`` are what its client measured; -1 if there was no first or last token.
        """

    @property
    def contradictions(self) -> Sequence[str]:
        """Describe requests whose times contradict each other."""

    def __len__(self) -> int:
        """Number of requests that have ended."""

    def fingerprint(self) -> str:
        """Return a digest of all books; two ledgers with the same digest agree on everything."""
