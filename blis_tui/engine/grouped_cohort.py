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

    Their progress is derived as in ``DecodeCohort``, but each has its own tables of blocks, so an advance costs
    O(members).

    Args:
        load: the step load whose decode aggregates this cohort keeps.
        block_size_tokens: tokens per block.
        groups: number of groups of layers.
    """

    __slots__ = ("_groups", "_members")

    lockstep: ClassVar[bool] = False

    def __init__(self, load: StepLoad, block_size_tokens: int, groups: int) -> None:
        super().__init__(load, block_size_tokens)
        self._groups = groups
        self._members: dict[int, Request] = {}
        """The members by their batch slot."""

    def join(self, request: Request, last_token_us: int) -> None:
        """Add a request that is not finished; see ``DecodeCohort``."""
        super().join(request, last_token_us)
        self._members[request.batch_slot] = request

    def retire(self, request: Request) -> None:
        """Remove a member that the calendar no longer lists; see ``DecodeCohort``."""
        held = request.held_blocks
        super().retire(request)
        request.held_blocks = held
        del self._members[request.batch_slot]

    def next_needs(self, threshold: int) -> tuple[int, int]:
        """Return the tokens and KV blocks that the next advance of all members needs."""
        decodes, blocks = super().next_needs(threshold)
        return decodes, blocks * self._groups

    def take(self, pool: BlockPool, blocks: int) -> None:  # noqa: ARG002  (each member has its own)
        """Give each member the slot of its next token, in the order of their admission."""
        if isinstance(pool, GroupedPool):
            members = self._members
            for slot in sorted(members):
                request = members[slot]
                pool.decode(request, self.context_tokens(request))

    def held_blocks(self, request: Request) -> int:
        """Number of KV blocks that a request holds, member or not."""
        return request.held_blocks
