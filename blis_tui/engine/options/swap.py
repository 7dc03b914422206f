"""Swapping: victims whose KV blocks go to host memory instead of being recomputed."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.engine.kv.capacity import kv_bytes_per_token
from blis_tui.engine.plan import Restored, StepPart, SwappedIn
from blis_tui.engine.restore import Costs, recompute_us
from blis_tui.model import HostLink

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request
    from blis_tui.engine.restore import RestoreRule
    from blis_tui.model import Pool


_BYTES_PER_US: Final = 1000
"""Conversion factor from GB/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The link between an instance's KV cache and another place.

    All accelerators of an instance transfer their share at the same time.
    """

    bytes_per_block: int
    """Bytes of a block on one accelerator."""
    gb_per_s: float
    """Bandwidth of one accelerator, in one direction."""
    base_latency_us: int

    def us(self, blocks: int) -> int:
        """How long it takes to move ``blocks`` blocks together, rounded up."""
        if not blocks:
            return 0
        return self.base_latency_us + ceil(blocks * self.bytes_per_block / (self.gb_per_s * _BYTES_PER_US))


class HostMemory:
    """The swapped-out requests, and the cost of their transfers.

    Attributes:
        link: the link to the host.
        overlap: whether transfers overlap with a step's computation; otherwise the step waits for them.
        total: number of blocks on the host.
        free: those of them without a holder.
        swapped_out: total of victims that were swapped out. The following counts are totals, too.
        swapped_in: victims that came back.
        out_blocks: KV blocks moved to the host.
        in_blocks: KV blocks moved back; those still on the GPU need not be.
        refused: victims that had to be recomputed because the host was full.
        transfer_us: time of all transfers.
        added_us: time by which they lengthened steps.
    """

    def __init__(self, blocks: int, link: Link, *, overlap: bool) -> None:
        self.link = link
        self.overlap = overlap
        self.total = self.free = blocks
        self.swapped_out = self.swapped_in = self.out_blocks = self.in_blocks = self.refused = 0
        self.transfer_us = self.added_us = 0
        self._tokens: dict[int, tuple[int, int]] = {}
        """Request index -> its tokens on the host, and their blocks."""

    def tokens_of(self, index: int) -> int:
        """Number of a request's tokens on the host; 0 = it is not there."""
        return self._tokens[index][0] if index in self._tokens else 0

    def store(self, index: int, tokens: int, blocks: int) -> int:
        """Store the blocks of a victim, which must fit; return how long that takes."""
        self._tokens[index] = (tokens, blocks)
        self.free -= blocks
        self.swapped_out += 1
        self.out_blocks += blocks
        return self._moved(blocks)

    def load(self, index: int, blocks: int) -> int:
        """Return a request's blocks to the GPU, ``blocks`` of them over the link; return how long that takes."""
        self.discard(index)
        self.swapped_in += 1
        self.in_blocks += blocks
        return self._moved(blocks)

    def _moved(self, blocks: int) -> int:
        took = self.link.us(blocks)
        self.transfer_us += took
        return took

    def step_us(self, computing_us: int, transfer_us: int) -> int:
        """Return how long a step takes that has computation and transfers of these durations."""
        whole = max(computing_us, transfer_us) if self.overlap else computing_us + transfer_us
        self.added_us += whole - computing_us
        return whole

    def discard(self, index: int) -> None:
        """Drop what the host has of a request, if anything."""
        self.free += self._tokens.pop(index, (0, 0))[1]

    def books(self) -> tuple[int, ...]:
        """Return all counters."""
        moved = (self.swapped_out, self.swapped_in, self.out_blocks, self.in_blocks)
        return (self.free, *moved, self.refused, self.transfer_us, self.added_us)

    def state(self) -> tuple[object, ...]:
        """Return everything that determines what it does next, and its counts, as plain values (for digests)."""
        return (self.books(), tuple(self._tokens.items()))

    def audit(self, waiting: Collection[int]) -> str:
        """Check the books against the waiting requests; return what is wrong, or an empty string."""
        held = 0
        for index, (_, blocks) in self._tokens.items():
            held += blocks
            if index not in waiting:
                return f"the host holds {blocks} blocks of request number {index}, which does not wait"
        if held + self.free != self.total or self.free < 0:
            return f"{held} blocks held on the host + {self.free} free ones are not {self.total}"
        return ""


def host_memory(pool: Pool) -> HostMemory:
    """Create the empty host memory of an instance of a pool."""
    engine = pool.engine
    settings = engine.host_link or HostLink()
    return HostMemory(
        engine.kv_blocks if settings.blocks is None else settings.blocks,
        Link(
            bytes_per_block=kv_bytes_per_token(pool.model, pool.tensor_parallel) * engine.block_size_tokens,
            gb_per_s=settings.bandwidth_gb_per_s or pool.hardware.host_link_gb_per_s,
            base_latency_us=settings.base_latency_us,
        ),
        overlap=settings.overlap,
    )


class Swapping(StepPart):
    """Transfers to the host and back, and how they lengthen steps.

    Args:
        host: the host memory.
        restore: decides which victims are swapped out.
        pool: the KV blocks.
        load: the step load, as far as the decode cohort determines it.
        stalled: decoding requests that got no token in the latest step.
        latency: the step-time model that estimates recomputation.
    """

    def __init__(
        self,
        host: HostMemory,
        restore: RestoreRule,
        pool: BlockPool,
        load: StepLoad,
        stalled: Mapping[int, Request],
        latency: StepTimeModel,
    ) -> None:
        self.host = host
        self.restore = restore
        self._pool = pool
        self._load = load
        self._stalled = stalled
        self._latency = latency
        self._beside = (0, 0)
        """Number of decodes in the batch, and the sum of their contexts, when the latest plan began."""

    def begin_plan(self, now: int) -> None:  # noqa: ARG002  (does not depend on time)
        """Prepare for the planning of a step."""
        decodes, context = self._load.decode_requests, self._load.decode_context_tokens
        for request in self._stalled.values():
            decodes += 1
            context += request.computed_tokens
        self._beside = (decodes, context)

    def lasting_us(self, plan: Plan, now: int, duration_us: int) -> int:  # noqa: ARG002  (transfers start with a step)
        """Return the step's duration including its transfers."""
        return self.host.step_us(duration_us, plan.transfer_us) if plan.transfer_us else duration_us

    def swap_out(self, plan: Plan, victim: Request) -> None:
        """Move a victim's computed content to the host, if the rule says so and there is room."""
        host, pool = self.host, self._pool
        computed, size = victim.computed_tokens, pool.block_size_tokens
        blocks = -(-computed // size)
        if not blocks:
            return
        lost = computed - pool.shared_prefix_blocks(victim) * size
        again = recompute_us(self._latency, victim, lost, computed, self._beside)
        costs = Costs(2 * host.link.us(blocks), again)
        swaps = self.restore.swaps(costs)
        if swaps and blocks > host.free:
            host.refused += 1
            swaps = False
        if swaps:
            plan.transfer_us += host.store(victim.index, computed, blocks)
        plan.restored += (Restored(victim, swaps, blocks, costs),)

    def unqueued(self, request: Request) -> None:
        """Discard what the host holds of a request."""
        self.host.discard(request.index)

    def tokens_of(self, request: Request) -> int:
        """Number of a waiting request's tokens with KV blocks on the host; at least one token is left to compute."""
        return min(self.host.tokens_of(request.index), request.target_tokens - 1)

    def restore_blocks(self, plan: Plan, request: Request, cached: int, swapped: int) -> int:
        """Swap in a request that holds its cached blocks; return how many tokens it has then."""
        host, pool = self.host, self._pool
        if swapped <= cached:
            host.discard(request.index)
            return cached
        blocks = pool.missing(request, swapped)
        took = host.load(request.index, blocks)
        plan.transfer_us += took
        plan.swapped_in += (SwappedIn(request, swapped, blocks, took),)
        pool.extend(request, swapped)
        return swapped
