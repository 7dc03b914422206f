"""The decoding requests of an instance with speculative decoding; each advances by its accepted drafts plus one.

How far a member gets differs from step to step and from member to member, so nothing can be derived from a clock: all
fields of a request are exact at any time, and an advance costs O(members).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.engine.cohort import DecodeCohort
from blis_tui.engine.options.drafts import DraftTallies
from blis_tui.model.engine import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.engine.options.drafts import AcceptanceSampler
    from blis_tui.engine.request import Reasoning, Request


@mypyc_attr(allow_interpreted_subclasses=True)
class Decode(Picklable):
    """A decoding request, with what is unknown about it while steps of it are in flight.

    Attributes:
        request: the request.
        runs: number of accepted drafts, by the number of tokens generated so far.
        before: its computed tokens before its latest step.
        before_us: when these were known.
        excess: drafted tokens of its latest step that were rejected or no longer wanted.
        noted: how many of its tokens had content in the cache when it was last granted any.
        void: whether its next drafts are mere placeholders.
    """

    __slots__ = ("before", "before_us", "excess", "noted", "request", "runs", "void")

    def __init__(self, request: Request, runs: bytes) -> None:
        self.request = request
        self.runs = runs
        self.before = request.computed_tokens - 1  # a prefill has computed the last one
        self.before_us = -1
        self.excess = 0
        self.noted = request.computed_tokens
        self.void = False


@mypyc_attr(allow_interpreted_subclasses=True)
class SpeculativeCohort(DecodeCohort):
    """The decoding requests of one instance, with their drafts.

    Args:
        load: the step load whose decode aggregates it keeps.
        block_size_tokens: tokens of a KV block.
        acceptance_sampler: determines which drafts are accepted.
        max_model_len: limit on prompt and answer together.
        lookahead_tokens: KV slots beyond what a step computes, for the drafter.
        drops_last_hit: whether the last cached block of a prompt is recomputed for the drafter.
        hashed_ahead: number of tokens after a block that must be known before its content is recorded.
        notes_late: whether content is recorded when tokens are granted, not when they are accepted.
        overlaps: whether steps are planned before the results of earlier ones have come. Then drafts in flight count as
            accepted, and content is also recorded when results come.
        notes_results: whether content is also recorded when results come if they do not overlap.

    Attributes:
        now: time at which the latest step was planned.
        acceptance_sampler: determines which drafts are accepted.
        drafts: member index -> number of draft tokens that the next advance verifies besides the due token.
        first: requests that got their first token in the latest advance.
        tallies: totals over all advances.
        noting: whether verification results are kept for subscribers.
        latest: if so, results of the latest advance: batch slot, and the fields of ``DraftDone``.
    """

    lockstep: ClassVar[bool] = False

    def __init__(
        self,
        load: StepLoad,
        block_size_tokens: int,
        acceptance_sampler: AcceptanceSampler,
        max_model_len: int | None,
        *,
        lookahead_tokens: int = 0,
        drops_last_hit: bool = False,
        hashed_ahead: int = 0,
        notes_late: bool,
        overlaps: bool = False,
        notes_results: bool = False,
    ) -> None:
        super().__init__(load, block_size_tokens)
        self.now = 0
        self.acceptance_sampler = acceptance_sampler
        self.drafts: dict[int, int] = {}
        self.first: list[Request] = []
        self.tallies = DraftTallies(accepted_runs=[0] * (acceptance_sampler.draft_tokens + 1))
        self.noting = False
        self.latest: list[tuple[int, str, int, int, int]] = []
        self._max_model_len = UNLIMITED if max_model_len is None else max_model_len
        self.lookahead_tokens = lookahead_tokens
        self.drops_last_hit = drops_last_hit
        self.hashed_ahead = hashed_ahead
        self._notes_late = notes_late
        self._overlaps = overlaps
        self._notes_results = notes_results
        self._decodes: dict[int, Decode] = {}
        """All decoding requests, members or not, including those whose last token is being computed."""
        self._members: dict[int, Decode] = {}

    def join(self, request: Request, last_token_us: int) -> None:
        """Add a request that is not finished."""
        request.joined_clock = self.clock
        request.joined_us = last_token_us
        request.finish_clock = min(request.output_tokens, request.max_output_tokens)
        decode = self._decodes.get(request.index)
        if decode is None:
            decode = self._decodes[request.index] = Decode(request, self.acceptance_sampler.runs(request))
        self._members[request.index] = decode
        self.load.decode_requests += 1
        self.load.decode_context_tokens += request.computed_tokens

    def leave(self, request: Request) -> None:
        """Remove a member."""
        self.retire(request)

    def retire(self, request: Request) -> None:
        """Remove a member."""
        del self._members[request.index]
        self.drafts.pop(request.index, None)
        request.joined_clock = -1
        self.load.decode_requests -= 1
        self.load.decode_context_tokens -= request.computed_tokens

    def forget(self, request: Request) -> None:
        """Forget a request that decodes no more or has lost its blocks."""
        self._decodes.pop(request.index, None)

    # ---- what plans know ----

    def _expected(self, request: Request) -> int:
        """Its computed tokens, if all drafts in flight are accepted."""
        if self._overlaps and request.joined_us > self.now and (decode := self._decodes.get(request.index)) is not None:
            return request.computed_tokens + decode.excess
        return request.computed_tokens

    def _known(self, decode: Decode) -> int:
        """Number of its known tokens: the computed ones and one more."""
        request = decode.request
        unseen = self._overlaps and request.joined_us > self.now
        return (decode.before if unseen else request.computed_tokens) + 1

    def width(self, request: Request) -> int:
        """Number of tokens that a decode asks for: the due token and its drafts; may be 0.

        Source: vLLM 0.32.0, ``v1/core/sched/scheduler.py`` lines 703 to 723.
        """
        width = 1 + self.acceptance_sampler.draft_tokens
        return min(width, self._max_model_len - self._expected(request) - 1)

    def slots(self, request: Request, tokens: int) -> int:
        """Number of KV slots that the request needs to compute ``tokens`` more tokens.

        Source: vLLM 0.32.0, ``v1/core/kv_cache_manager.py`` line 542.
        """
        return self.slots_for(self._expected(request) + tokens)

    @property
    def most_excess(self) -> int:
        """Largest number of tokens that may count as computed but turn out not to be."""
        return self.acceptance_sampler.draft_tokens if self._overlaps else 0

    def slots_for(self, tokens: int) -> int:
        """Number of KV slots needed for ``tokens`` computed tokens."""
        return min(tokens + self.lookahead_tokens, max(tokens, self._max_model_len))

    def next_needs(self, threshold: int) -> tuple[int, int]:
        """Return the tokens and KV blocks that the next advance of all members needs, or ``UNLIMITED`` tokens.

        ``UNLIMITED`` means that a member would not take part, or that a request outside the cohort would.
        """
        size = self.block_size_tokens
        most = _capped(threshold, 1 + self.acceptance_sampler.draft_tokens)
        drafts = self.drafts = {}
        tokens = blocks = 0
        if self.maybe_finished:
            return UNLIMITED, 0
        for index, decode in self._members.items():
            request = decode.request
            width = min(most, self._max_model_len - self._expected(request) - 1)
            if width <= 0:
                return UNLIMITED, 0
            drafts[index] = width - 1
            tokens += width
            missing = self.slots(request, width) - request.held_blocks * size
            if missing > 0:
                blocks -= -missing // size
        return tokens, blocks

    def take(self, pool: BlockPool, blocks: int) -> None:
        """Take the KV blocks that all members need."""
        for index, decode in self._members.items():
            decode.noted = self._known(decode)
            if blocks:
                pool.hold(decode.request, self.slots(decode.request, 1 + self.drafts[index]))

    def note_grant(self, request: Request) -> None:
        """Record a grant: the known tokens of the request have content in the cache from now on."""
        if (decode := self._decodes.get(request.index)) is not None:
            decode.noted = self._known(decode)

    def grant(self, tokens: Mapping[int, int]) -> None:
        """Set the tokens that members compute in the next advance, by index; the due token is included."""
        self.drafts = {index: granted - 1 for index, granted in tokens.items()}

    def pad(self, request: Request, drafts: int) -> None:
        """Add a request that needs only one token of its prompt, padded with ``drafts`` placeholders."""
        self.join(request, request.joined_us)
        decode = self._decodes[request.index]
        decode.noted = request.computed_tokens + 1
        decode.void = True
        self.drafts[request.index] = drafts

    def decodes(self, request: Request) -> bool:
        """Whether a request decodes, or its last token is being computed."""
        return request.index in self._decodes

    def content_tokens(self, request: Request, *, results: bool = True) -> int:
        """Number of tokens with content in the cache, of a request that decodes or ends with its prompt.

        Without ``results`` it is given up before the results of its last step come.
        """
        decode = self._decodes.get(request.index)
        if decode is None and not (request.generated_tokens and results):
            return request.computed_tokens - self.hashed_ahead
        if decode is None or not self._notes_late:
            return request.computed_tokens
        noted = decode.noted - self.hashed_ahead
        if not self._overlaps:
            return max(noted, request.computed_tokens) if self._notes_results and results else noted
        if request.joined_us <= self.now:
            return request.computed_tokens
        return max(noted, decode.before if decode.before_us <= self.now else 0)

    # ---- results ----

    def advance(self, now: int, duration_us: int, itl_us: dict[int, int]) -> list[Request] | None:
        """Give every member its accepted tokens and one more; return the members that got their last token.

        Tokens that come together count as one in ``itl_us``.
        """
        end = now + duration_us
        drafts, noting = self.drafts, self.noting
        accepted_runs = self.tallies.accepted_runs
        latest: list[tuple[int, str, int, int, int]] = []
        finishing: list[Request] = []
        answering: list[Request] = []
        self.first = first = []
        drafted_tokens = gained_tokens = 0
        for index, decode in self._members.items():
            request = decode.request
            drafted = drafts.get(index, 0)
            generated = request.generated_tokens
            accepted = decode.runs[generated]
            if decode.void:
                accepted = 0
                decode.void = False
            elif accepted > drafted:
                accepted = drafted
            gained, left = accepted + 1, request.finish_clock - generated
            if gained >= left:
                gained = left
                finishing.append(request)
                if left > 1 and self._overlaps:
                    self.maybe_finished[request.batch_slot] = request
            begins = not generated and request.handover is None
            if request.reasoning is not None and _answers(request.reasoning, generated, gained, begins=begins):
                answering.append(request)
            decode.before = request.computed_tokens
            decode.before_us = request.joined_us
            decode.excess = 1 + drafted - gained
            if begins:
                request.first_token_us = end
                first.append(request)
            else:
                gap = end - request.joined_us
                itl_us[gap] = itl_us.get(gap, 0) + 1
            request.joined_us = end
            request.computed_tokens += gained
            request.generated_tokens = generated + gained
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

    def last_token_us(self, request: Request) -> int:
        """Time of a member's latest token."""
        return request.joined_us

    def context_tokens(self, request: Request) -> int:
        """Number of computed tokens of a request, member or not."""
        return request.computed_tokens

    def generated_tokens(self, request: Request) -> int:
        """Number of output tokens of a request, member or not."""
        return request.generated_tokens

    def held_blocks(self, request: Request) -> int:
        """Number of KV blocks of a request, member or not; those of rejected drafts are kept for the next ones."""
        return request.held_blocks

    def members(self) -> list[Request]:
        """Return all members, in the order in which they joined."""
        return [decode.request for decode in self._members.values()]


def _capped(threshold: int, tokens: int) -> int:
    return threshold if 0 < threshold < tokens else tokens


def _answers(reasoning: Reasoning, generated: int, gained: int, *, begins: bool) -> bool:
    """Whether the answer itself begins with one of the gained tokens; ``begins``: they are the request's first.

    Without reasoning, unless they are the first, the answer began where the prompt was computed.
    """
    return generated <= reasoning.tokens < generated + gained and (begins or reasoning.tokens > 0)
