"""Host memory that victims' KV blocks are swapped to, and the link to it."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.kv.capacity import kv_bytes_per_token
from blis_tui.spec.model import HostLink

if TYPE_CHECKING:
    from collections.abc import Collection

    from blis_tui.spec.model import Pool

_BYTES_PER_US: Final = 1000
"""Of one GB/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The way between an instance's KV cache and another place.

    All accelerators of an instance move their share at the same time.
    """

    bytes_per_block: int
    """On one accelerator."""
    gb_per_s: float
    """Of one accelerator, in one direction."""
    base_latency_us: int

    def us(self, blocks: int) -> int:
        """How long it takes to move so many blocks together, rounded up."""
        if not blocks:
            return 0
        return self.base_latency_us + ceil(blocks * self.bytes_per_block / (self.gb_per_s * _BYTES_PER_US))


class HostMemory:
    """Who has been swapped out, and what that took.

    Attributes:
        link: the way there and back.
        overlap: whether transfers run beside a step's computation; else the step waits for them.
        total: blocks there.
        free: those of them without a holder.
        swapped_out: victims that were moved there, ever; likewise what follows.
        swapped_in: victims that came back.
        out_blocks: KV blocks moved there.
        in_blocks: KV blocks moved back; those that the GPU still had need not be.
        refused: victims that had to be recomputed because it was full.
        transfer_us: time of all transfers.
        added_us: by how much they made steps longer.
    """

    __slots__ = (
        "_tokens",
        "added_us",
        "free",
        "in_blocks",
        "link",
        "out_blocks",
        "overlap",
        "refused",
        "swapped_in",
        "swapped_out",
        "total",
        "transfer_us",
    )

    def __init__(self, blocks: int, link: Link, *, overlap: bool) -> None:
        self.link = link
        self.overlap = overlap
        self.total = self.free = blocks
        self.swapped_out = self.swapped_in = self.out_blocks = self.in_blocks = self.refused = 0
        self.transfer_us = self.added_us = 0
        self._tokens: dict[int, tuple[int, int]] = {}
        """By the index of the request: its tokens there, and their blocks."""

    def tokens_of(self, index: int) -> int:
        """How many tokens of a request are there; 0 = it is not."""
        return self._tokens[index][0] if index in self._tokens else 0

    def store(self, index: int, tokens: int, blocks: int) -> int:
        """Take the blocks of a victim, which fit; returns how long that takes."""
        self._tokens[index] = (tokens, blocks)
        self.free -= blocks
        self.swapped_out += 1
        self.out_blocks += blocks
        return self._moved(blocks)

    def load(self, index: int, blocks: int) -> int:
        """Give a request its blocks back, ``blocks`` of them over the link; returns how long that takes."""
        self.discard(index)
        self.swapped_in += 1
        self.in_blocks += blocks
        return self._moved(blocks)

    def _moved(self, blocks: int) -> int:
        took = self.link.us(blocks)
        self.transfer_us += took
        return took

    def step_us(self, computing_us: int, transfer_us: int) -> int:
        """How long a step takes that computes for some time and has such transfers."""
        whole = max(computing_us, transfer_us) if self.overlap else computing_us + transfer_us
        self.added_us += whole - computing_us
        return whole

    def discard(self, index: int) -> None:
        """Forget what is there of a request, if anything is."""
        self.free += self._tokens.pop(index, (0, 0))[1]

    def books(self) -> tuple[int, ...]:
        """Its counts."""
        moved = (self.swapped_out, self.swapped_in, self.out_blocks, self.in_blocks)
        return (self.free, *moved, self.refused, self.transfer_us, self.added_us)

    def state(self) -> tuple[object, ...]:
        """Everything that decides what it does next, and its counts, as plain values (for digests)."""
        return (self.books(), tuple(self._tokens.items()))

    def audit(self, waiting: Collection[int]) -> str:
        """What is wrong with the books, given who waits; empty when nothing is."""
        held = 0
        for index, (_, blocks) in self._tokens.items():
            held += blocks
            if index not in waiting:
                return f"the host holds {blocks} blocks of request number {index}, which does not wait"
        if held + self.free != self.total or self.free < 0:
            return f"{held} blocks held on the host + {self.free} free ones are not {self.total}"
        return ""


def host_memory(pool: Pool) -> HostMemory:
    """That of an instance of a pool, empty."""
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
