"""The decode cohort of an instance whose model has layers with a sliding window."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from blis_tui.classes import mypyc_attr
from blis_tui.engine.cohort import DecodeCohort
from blis_tui.engine.kv.grouped_pool import GroupedPool

if TYPE_CHECKING:
    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.engine.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class GroupedCohort(DecodeCohort):
    """The decoding requests of an instance with a ``GroupedPool``, advanced together.

    Their progress is derived as in ``DecodeCohort``. An advance goes through those whose tables of blocks change: they
    need a block, fill one, or their window passes one. All of that depends on how far their context is into a block,
    except soon after they have joined.

    Args:
        load: the step load whose decode aggregates this cohort keeps.
        pool: the blocks.
    """

    __slots__ = ("_fresh", "_offsets", "_pool", "_recent")

    lockstep: ClassVar[bool] = False

    def __init__(self, load: StepLoad, pool: GroupedPool) -> None:
        super().__init__(load, pool.block_size_tokens)
        self._pool = pool
        self._offsets = pool.due_offsets()
        self._fresh: dict[int, Request] = {}
        """Members that have joined since the latest advance was planned, by batch slot."""
        self._recent: dict[int, Request] = {}
        """Those for whom the latest planned advance is the first."""

    def join(self, request: Request, last_token_us: int) -> None:
        """Add a request that is not finished; see ``DecodeCohort``."""
        super().join(request, last_token_us)
        self._fresh[request.batch_slot] = request

    def retire(self, request: Request) -> None:
        """Remove a member that the calendar no longer lists; see ``DecodeCohort``."""
        held, slot = request.held_blocks, request.batch_slot
        super().retire(request)
        request.held_blocks = held
        if self._fresh.pop(slot, None) is None and self._recent.pop(slot, None) is None:
            self._pool.note_in_flight(request, request.computed_tokens)

    def next_needs(self, threshold: int) -> tuple[int, int]:
        """Return the tokens and KV blocks that the next advance of all members needs."""
        decodes, blocks = super().next_needs(threshold)
        return decodes, blocks * self._pool.groups.count

    def take(self, pool: BlockPool, blocks: int) -> None:  # noqa: ARG002  (each member has its own)
        """Give each member the slot of its next token, in the order of their admission."""
        grouped, clock, size = self._pool, self.clock, self.block_size_tokens
        lately = {**self._recent, **self._fresh}
        due = dict(lately)
        if not self.load.decode_requests:
            pass  # there may be no classes yet
        elif grouped.runs_on:
            for offset in self._offsets:
                due.update(self.classes[(clock - offset) % size])
        else:
            for members in self.classes:
                due.update(members)
        for slot in sorted(due):
            request = due[slot]
            grouped.decode(request, self.context_tokens(request), steady=grouped.runs_on and slot not in lately)
        self._recent, self._fresh = self._fresh, {}

    def held_blocks(self, request: Request) -> int:
        """Number of KV blocks that a request holds, member or not."""
        return request.held_blocks


def grouped_cohort(load: StepLoad, pool: BlockPool) -> GroupedCohort:
    """Create the cohort of an instance with these blocks.

    Raises:
        TypeError: they belong to no groups of layers.
    """
    if not isinstance(pool, GroupedPool):
        raise TypeError(f"{pool!r} has no groups of layers")
    return GroupedCohort(load, pool)
