"""Host memory and the link to it, written as plainly as possible."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.model import HostLink

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.model import Pool as PoolSpec

    from .instance import Job, Plan


class Host:
    """The swapped-out tokens, and the time to move blocks."""

    def __init__(self, spec: PoolSpec, restore: str) -> None:
        engine, model = spec.engine, spec.model
        settings = engine.host_link or HostLink()
        self.restore = restore
        self.overlap = settings.overlap
        self.room = engine.kv_blocks if settings.blocks is None else settings.blocks
        heads = max(model.num_key_value_heads, spec.tensor_parallel) / spec.tensor_parallel
        per_token = 2 * heads * model.head_dim * model.num_hidden_layers * model.kv_cache_bytes
        self.bytes_per_block = per_token * engine.block_size_tokens
        self.bytes_per_us = 1000 * (settings.bandwidth_gb_per_s or spec.hardware.host_link_gb_per_s)
        self.base_us = settings.base_latency_us
        self.there: dict[Job, tuple[int, int]] = {}
        """Tokens and blocks."""
        self.moved: list[tuple[str, int]] = []
        self.full = 0
        self.added_us = 0

    def us(self, blocks: int) -> int:
        return self.base_us + ceil(blocks * self.bytes_per_block / self.bytes_per_us) if blocks else 0

    def free(self) -> int:
        return self.room - sum(blocks for _, blocks in self.there.values())

    def take_out(self, plan: Plan, job: Job, kept: int, latency: StepTimeModel, size: int) -> str:
        """The fate of a victim that keeps a number of tokens on the GPU in any case."""
        blocks = ceil(job.computed / size)
        if not blocks:
            return ""
        again = 0
        if job.computed > kept:
            chunk = Chunk(job.request, kept, job.computed - kept, job.computed)
            alone = latency.step_time_us(StepLoad([], *plan.beside))
            again = latency.step_time_us(StepLoad([chunk], *plan.beside)) - alone
        both_ways = 2 * self.us(blocks)
        swaps = self.restore == "swap" or both_ways < again
        if swaps and blocks > self.free():
            self.full += 1
            swaps = False
        if swaps:
            self.there[job] = (job.computed, blocks)
            self.moved.append(("out", blocks))
            plan.transfer_us += self.us(blocks)
        plan.restored.append((job, swaps, blocks, both_ways, again))
        return "swap" if swaps else "recompute"

    def tokens_of(self, job: Job) -> int:
        """A prefill always computes at least one token."""
        return min(self.there[job][0], job.target - 1) if job in self.there else 0

    def bring_back(self, plan: Plan, job: Job, blocks: int) -> None:
        del self.there[job]
        self.moved.append(("in", blocks))
        plan.transfer_us += self.us(blocks)

    def step_us(self, computing_us: int, transfer_us: int) -> int:
        whole = max(computing_us, transfer_us) if self.overlap else computing_us + transfer_us
        self.added_us += whole - computing_us
        return whole

    def books(self) -> tuple[object, ...]:
        """The counters that the engine has, too."""
        out = [blocks for way, blocks in self.moved if way == "out"]
        back = [blocks for way, blocks in self.moved if way == "in"]
        took = sum(self.us(blocks) for _, blocks in self.moved)
        return (self.free(), len(out), len(back), sum(out), sum(back), self.full, took, self.added_us)
