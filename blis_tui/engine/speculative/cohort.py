"""The decoding requests of an instance with speculative decoding: each advances by what was accepted of its drafts.

How far a member gets differs from step to step and from member to member, so that nothing can be derived from a clock:
all of a request's fields are exact at any time, and an advance costs O(members).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.engine.cohort import DecodeCohort

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.engine.request import Request
    from blis_tui.engine.speculative.luck import Luck


@dataclass(slots=True)
class DraftTallies:
    """What the drafts of an instance add up to; the names are vLLM's."""

    num_draft_tokens: int = 0
    decodes: int = 0
    """Once for each request and step, drafts or not."""
    output_tokens: int = 0
    """That came of those."""
    accepted_runs: list[int] = field(default_factory=list)
    """By the number of tokens accepted, how often that was so: once for each request and step with any draft."""

    @property
    def num_drafts(self) -> int:
        """Verifications: once for each request and step with any drafted token."""
        return self.accepted_at(0)

    @property
    def num_accepted_tokens(self) -> int:
        """Bonus tokens do not count; a token counts that was accepted beyond the end of its answer."""
        total = 0
        for accepted, times in enumerate(self.accepted_runs):
            total += accepted * times
        return total

    def accepted_at(self, position: int) -> int:
        """How often the drafted token of that position was accepted, counted from 1."""
        total = 0
        for times in self.accepted_runs[position:]:
            total += times
        return total

    def add(self, other: DraftTallies) -> None:
        """What another instance's add up to, too."""
        self.num_draft_tokens += other.num_draft_tokens
        self.decodes += other.decodes
        self.output_tokens += other.output_tokens
        for accepted, times in enumerate(other.accepted_runs):
            self.accepted_runs[accepted] += times

    def state(self) -> tuple[object, ...]:
        """All of it, as plain values (for digests)."""
        return (self.num_draft_tokens, self.decodes, self.output_tokens, *self.accepted_runs)


class SpeculativeCohort(DecodeCohort):
    """The requests of one instance that decode, with their drafts.

    Args:
        load: the step load whose decode aggregates it keeps.
        block_size_tokens: tokens of a KV block.
        luck: which drafts are accepted.
        max_model_len: what bounds prompt and answer together.
        notes_late: whether content is noted when tokens are granted, and not when they are accepted.

    Attributes:
        luck: which drafts are accepted.
        drafts: how many tokens of each member the next advance verifies beside the one that is due, by its index.
        tallies: what all advances add up to.
        noting: whether anybody wants to know what an advance verifies.
        latest: what the latest one verified, if so: batch slot, and the fields of ``DraftDone``.
    """

    __slots__ = (
        "_max_model_len",
        "_members",
        "_notes_late",
        "_short",
        "_unnoted",
        "drafts",
        "latest",
        "luck",
        "noting",
        "tallies",
    )

    lockstep = False

    def __init__(
        self, load: StepLoad, block_size_tokens: int, luck: Luck, max_model_len: int | None, *, notes_late: bool
    ) -> None:
        super().__init__(load, block_size_tokens)
        self.luck = luck
        self.drafts: dict[int, int] = {}
        self.tallies = DraftTallies(accepted_runs=[0] * (luck.draft_tokens + 1))
        self.noting = False
        self.latest: list[tuple[int, str, int, int, int]] = []
        self._max_model_len = max_model_len
        self._notes_late = notes_late
        self._unnoted: dict[int, int] = {}
        self._members: dict[int, tuple[Request, bytes]] = {}
        self._short: list[Request] = []

    def join(self, request: Request, last_token_us: int) -> None:
        """Take in a request that is not finished."""
        request.joined_clock = self.clock
        request.joined_us = last_token_us
        request.finish_clock = min(request.output_tokens, request.max_output_tokens)
        self._members[request.index] = (request, self.luck.runs(request))
        self.load.decode_requests += 1
        self.load.decode_context_tokens += request.computed_tokens

    def leave(self, request: Request) -> None:
        """Let a member go."""
        self.retire(request)

    def retire(self, request: Request) -> None:
        """Let a member go."""
        del self._members[request.index]
        request.joined_clock = -1
        self.load.decode_requests -= 1
        self.load.decode_context_tokens -= request.computed_tokens

    def width(self, request: Request) -> int:
        """The tokens that a decode asks for: the one that is due, and the drafts behind it.

        Source: vLLM 0.32.0, ``v1/core/sched/scheduler.py`` lines 703 to 723.
        """
        width = 1 + self.luck.draft_tokens
        limit = self._max_model_len
        return width if limit is None else min(width, limit - request.computed_tokens - 1)

    def asks(self, threshold: int) -> tuple[int, int]:
        """Tokens and KV blocks for the next advance of all members; their drafts are those from now on."""
        size = self.block_size_tokens
        most = _at_most(threshold, 1 + self.luck.draft_tokens)
        longest = self._max_model_len
        drafts = self.drafts = {}
        self._short = short = []
        tokens = blocks = 0
        for index, (request, _) in self._members.items():
            computed = request.computed_tokens
            width = most
            if longest is not None and width > longest - computed - 1:
                width = longest - computed - 1
            drafts[index] = width - 1
            tokens += width
            missing = computed + width - request.held_blocks * size
            if missing > 0:
                blocks -= -missing // size
                short.append(request)
        return tokens, blocks

    def take(self, pool: BlockPool, blocks: int) -> None:
        """Take the KV blocks that all members ask for."""
        if blocks:
            for request in self._short:
                pool.hold(request, request.computed_tokens + 1 + self.drafts[request.index])

    def advance(self, now: int, duration_us: int, itl_us: dict[int, int]) -> list[Request] | None:
        """Every member gets the tokens that are accepted and one more; returns those that thereby have their last one.

        Tokens that come together count as one in ``itl_us``.
        """
        end = now + duration_us
        drafts, noting, notes_late = self.drafts, self.noting, self._notes_late
        accepted_runs = self.tallies.accepted_runs
        latest: list[tuple[int, str, int, int, int]] = []
        finishing: list[Request] = []
        answering: list[Request] = []
        drafted_tokens = gained_tokens = 0
        for index, (request, runs) in self._members.items():
            drafted = drafts.get(index, 0)
            generated = request.generated_tokens
            accepted = runs[generated]
            if accepted > drafted:  # noqa: PLR1730  (min() would cost more than all else here)
                accepted = drafted
            gained, left = accepted + 1, request.finish_clock - generated
            if gained >= left:
                gained = left
                finishing.append(request)
            reasoning = request.reasoning
            if reasoning is not None and reasoning.tokens > 0 and generated <= reasoning.tokens < generated + gained:
                answering.append(request)
            gap = end - request.joined_us
            itl_us[gap] = itl_us.get(gap, 0) + 1
            request.joined_us = end
            request.computed_tokens += gained
            request.generated_tokens = generated + gained
            if notes_late:
                self._unnoted[index] = gained - 1
            if noting:
                latest.append((request.batch_slot, request.request_id, drafted, accepted, gained))
            if drafted:
                drafted_tokens += drafted
                accepted_runs[accepted] += 1
            gained_tokens += gained
        self.tallies.num_draft_tokens += drafted_tokens
        self.tallies.output_tokens += gained_tokens
        self.tallies.decodes += len(self._members)
        self.load.decode_context_tokens += gained_tokens
        self.latest = latest
        self.drafted = drafted_tokens
        self.drafts = {}
        self.clock += 1
        if answering:
            self.answers[self.clock] = answering
        self.last_advance_us = end
        return finishing

    def grant(self, tokens: Mapping[int, int]) -> None:
        """Let members verify drafts in the next advance: tokens by index, the one that is due among them."""
        self.drafts = {index: granted - 1 for index, granted in tokens.items()}

    def noted_tokens(self, request: Request) -> int:
        """How many tokens of somebody who leaves have content in the cache.

        All, or where content is noted when tokens are granted (vLLM), those that were known then.
        """
        return request.computed_tokens - self._unnoted.pop(request.index, 0)

    def last_token_us(self, request: Request) -> int:
        """When a member had its latest token."""
        return request.joined_us

    def context_tokens(self, request: Request) -> int:
        """Computed tokens of a request, member or not."""
        return request.computed_tokens

    def generated_tokens(self, request: Request) -> int:
        """Output tokens of a request, member or not."""
        return request.generated_tokens

    def held_blocks(self, request: Request) -> int:
        """KV blocks of a request, member or not; those of rejected drafts are kept for the next ones."""
        return request.held_blocks

    def members(self) -> list[Request]:
        """All members, in the order in which they joined."""
        return [request for request, _ in self._members.values()]


def _at_most(threshold: int, tokens: int) -> int:
    return threshold if 0 < threshold < tokens else tokens
