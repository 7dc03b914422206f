"""Swapping: victims whose KV blocks go to the host instead of being recomputed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.plan import Restored, StepPart, SwappedIn
from blis_tui.engine.preemption.restore import Costs, recompute_us

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.engine.kv.host import HostMemory
    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.preemption.restore import RestoreRule
    from blis_tui.engine.request import Request


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

    __slots__ = ("_beside", "_latency", "_load", "_pool", "_stalled", "host", "restore")

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
