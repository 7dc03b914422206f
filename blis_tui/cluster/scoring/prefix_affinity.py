"""``prefix-affinity``: prompts follow those that began alike, as far as the router remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.scoring.scorer import SCORING, SparseScorer, Weight
from blis_tui.registry import setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Weight):
    """Of the router's memory."""

    capacity_blocks: int = setting(
        "Blocks of prompts that are remembered of each instance.", default=10_000, minimum=1, maximum=10**9
    )


@SCORING.plugin("prefix-affinity", "The share of the prompt that the router has sent to the instance before.", Settings)
class PrefixAffinity(SparseScorer):
    """Leading blocks of the prompt that were sent to the instance, of all its full blocks.

    What an instance has cached is not asked: the router remembers the latest blocks that it sent there.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._capacity = settings.capacity_blocks
        self._memories: dict[int, BlockLru] = {}

    def sparse(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, Mapping[int, float]]:
        """Matched leading blocks / full blocks; 0 where a prompt has no full block."""
        found: dict[int, float] = {}
        keys = fleet.prompt_keys(request)
        if keys:
            blocks = request.input_tokens // fleet.block_size_tokens
            for place, instance in enumerate(fleet.members):
                memory = self._memories.get(instance)
                if memory is not None and (there := memory.leading(keys)):
                    found[place] = there / blocks
        return 0.0, found

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """Remember its blocks, the first one first."""
        instance = fleet.members[place]
        memory = self._memories.get(instance)
        if memory is None:
            memory = self._memories[instance] = BlockLru(self._capacity)
        keys = fleet.prompt_keys(request)
        memory.record(keys, request.input_tokens // fleet.block_size_tokens - len(keys))

    def forget(self, instance: int) -> None:
        """The instance has gone with its cache."""
        self._memories.pop(instance, None)

    def state(self) -> tuple[object, ...]:
        """What it remembers of each instance."""
        return tuple((instance, *self._memories[instance].state()) for instance in sorted(self._memories))


class BlockLru:
    """The latest blocks that were sent somewhere, at most so many.

    Blocks that no other prompt can share are only counted: they take room, and nobody ever looks for them.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._entries: dict[int, int] = {}
        """Oldest first: a block by its key, or (negative) a run of blocks of one prompt -> how many."""
        self._runs = 0

    def leading(self, keys: Sequence[int]) -> int:
        """How many of these, from the first on, are remembered."""
        entries = self._entries
        for found, key in enumerate(keys):
            if key not in entries:
                return found
        return len(keys)

    def record(self, keys: Sequence[int], own: int) -> None:
        """These blocks and then ``own`` blocks that no other prompt shares are the latest."""
        entries = self._entries
        for key in keys:
            if key in entries:
                del entries[key]
                self._size -= 1
            self._add(key, 1)
        if own > 0:
            self._runs += 1
            self._add(-self._runs, own)

    def _add(self, key: int, count: int) -> None:
        self._entries[key] = count
        self._size += count
        over = self._size - self._capacity
        while over > 0:
            oldest = next(iter(self._entries))
            there = self._entries[oldest]
            gone = min(there, over)
            if gone == there:
                del self._entries[oldest]
            else:
                self._entries[oldest] = there - gone
            self._size -= gone
            over -= gone

    def state(self) -> tuple[object, ...]:
        """Everything, oldest first."""
        return tuple(self._entries.items())
