"""How waiting requests are admitted where running requests go first: from the head of the queue, while all fits."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003  (compiled, named tuples are made of what annotations say)
from typing import TYPE_CHECKING, NamedTuple, Protocol

from blis_tui.classes import mypyc_attr
from blis_tui.engine.stopped import ADAPTER, BLOCKS, LATE, PLACES, TOKENS, WATERMARK, Stopped

if TYPE_CHECKING:
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.batching.traits import Traits
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request


class Admits(Protocol):
    """A rule that may ask for more before a request enters."""

    @property
    def traits(self) -> Traits:
        """What sets its batches apart."""

    def admits(self, batch: Batch, request: Request) -> bool:
        """Whether a waiting request may enter, if its KV blocks are free."""

    def why_not(self, batch: Batch, request: Request) -> Stopped | None:
        """Why one may not; None = the rule does not say."""

    def padded_tokens(self, batch: Batch) -> int:
        """How many tokens a request computes beside decodes with drafts that enters for one alone; 0 = one."""


class _Entry(NamedTuple):
    """With what a request would enter, and how much it would compute at first."""

    cached_blocks: int
    found_blocks: int
    """These, and what is found in the cache and not taken."""
    findable_blocks: int
    """Of its blocks, those that may be found in the cache."""
    tiered: Sequence[int]
    """Content behind the cached blocks that tiers have."""
    swapped_tokens: int
    start: int
    """Tokens that it has then."""
    tokens: int
    """Those that it computes."""
    padding: int
    """Of these, placeholders for drafts."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Admission:
    """Admits from the head of the queue for as long as everything fits: no request overtakes another.

    But where nothing runs, and the head is a victim or does not fit, a request that holds KV blocks already goes first:
    the head could have them only then. So it does where its LoRA adapter is there and the head's is not: with places
    for one of the two, each would be loaded in turn for ever.

    Args:
        rule: which admits.
        batch: the requests.
        plan: of the step.
        budget: tokens that are left of it.
    """

    __slots__ = (
        "_batch",
        "_beside",
        "_budget",
        "_padded",
        "_places",
        "_plan",
        "_reloaded",
        "_rule",
        "_stuck",
        "_watermark",
    )

    def __init__(self, rule: Admits, batch: Batch, plan: Plan, budget: int) -> None:
        self._rule = rule
        self._batch = batch
        self._plan = plan
        self._budget = budget
        self._places = batch.limits.max_num_seqs - len(batch.running)
        if batch.ending:
            self._places -= len(batch.ending)
        self._stuck = self._reloaded = -1
        self._watermark = rule.traits.spare_blocks(batch.pool.total) if rule.traits.watermark else 0
        self._beside = bool(batch.load.decode_requests or plan.ghosts)
        """Whether requests decode that ran before."""
        self._padded = 0 if batch.speculative is None or plan.chunks else rule.padded_tokens(batch)
        """What requests compute at least, unless ones that ran before are being prefilled."""

    def run(self) -> None:
        """Admit all that it can."""
        batch, waiting, adapters = self._batch, self._batch.waiting, self._batch.adapters
        all_may_go = adapters is None and not batch.stale
        while waiting.items:
            if self._budget <= 0 or self._places <= 0:
                self._plan.stopped = Stopped(PLACES if self._places <= 0 else TOKENS, 1)
                break
            request = waiting.head() if all_may_go else batch.next_waiting()
            if request is None:
                self._plan.stopped = Stopped(LATE if batch.stale else ADAPTER)
                break
            if batch.reserved and not batch.running:
                request = self._first(request)
            if adapters is not None and not adapters.ready(request):
                self._plan.stopped = Stopped(ADAPTER, request=request)
                break
            attempt = (request.index, batch.pool.epoch, self._budget, self._plan.threshold)
            if attempt == batch.refused:  # nothing has changed since it did not fit
                self._plan.stopped = batch.stopped
                if not (batch.reserved and self._gives_way(request)):
                    break
            elif request.handover is not None and request.index in batch.reserved:
                if not self._take_over(request, attempt):
                    break
            elif not self._admit(request, attempt):
                break
        if adapters is not None:
            adapters.end_plan()

    def _refuse(self, attempt: tuple[int, ...], stopped: Stopped | None) -> None:
        """A request does not fit, and will not before something changes."""
        self._batch.refused = attempt
        self._plan.stopped = self._batch.stopped = stopped

    def _first(self, head: Request) -> Request:
        """Nothing runs, and some who wait hold KV blocks: which of them goes first, or the head."""
        batch, adapters = self._batch, self._batch.adapters
        holder = batch.first_with_blocks() or head
        here = adapters is not None and adapters.has(holder) and not adapters.has(head)
        return holder if head.preemptions or head.index == self._stuck or here else head

    def _gives_way(self, request: Request) -> bool:
        """It does not fit: whether one that holds KV blocks may go before it."""
        batch = self._batch
        if batch.running or not batch.reserved or self._stuck >= 0:
            return False
        self._stuck = request.index
        return True

    def _take_over(self, request: Request, attempt: tuple[int, ...]) -> bool:
        """Admit a request whose prompt was computed elsewhere, if its next block is free."""
        batch, computed = self._batch, request.computed_tokens
        tokens = 1
        if self._pads(request, computed):
            tokens = min(self._padded, self._plan.threshold or self._padded)
        if tokens > self._budget:
            self._plan.stopped = Stopped(TOKENS, tokens, self._budget, request)
            return False
        need, free = batch.pool.missing(request, self._slots(computed + tokens)), batch.pool.free
        if need > free:
            self._refuse(attempt, Stopped(BLOCKS, need, free, request, tried_us=batch.now))
            return False
        batch.admit_prefilled(self._plan, request, tokens - 1)
        self._budget -= tokens
        self._places -= 1
        return True

    def _pads(self, request: Request, computed: int) -> bool:
        """Whether placeholders stand for the drafts of a request that enters for one token."""
        if (
            not self._padded
            or not (self._beside or computed)
            or not min(request.output_tokens, request.max_output_tokens)
        ):
            return False
        if request.handover is not None and not request.handover.prefilled:
            return False
        longest = self._batch.limits.max_model_len
        return longest is None or computed + self._padded + 1 <= longest

    def _slots(self, tokens: int) -> int:
        """How many tokens need KV slots where so many are computed."""
        drafting = self._batch.speculative
        return tokens if drafting is None else drafting.slots_for(tokens)

    def _admit(self, request: Request, attempt: tuple[int, ...]) -> bool:
        """Admit a request that holds nothing, if it fits; returns whether another one may be tried."""
        batch, pool = self._batch, self._batch.pool
        if not self._rule.admits(batch, request):
            self._refuse(attempt, self._rule.why_not(batch, request))
            return False
        entry = self._entry(request)
        if entry is None:
            return False
        cached, found, findable, tiered, swapped, start, tokens, padding = entry
        slots = start + tokens
        if batch.speculative is not None:
            slots = batch.speculative.slots_for(slots)
        if self._rule.traits.reserves_whole_prompt and slots < request.target_tokens:
            slots = request.target_tokens
        need = -(-slots // pool.block_size_tokens) - cached
        if cached:
            need += pool.idle_among(request, cached)
        kept, free = self._watermark if batch.running or batch.ending else 0, pool.free
        if need + kept > free:
            if pool.tiers is not None and not swapped and request.index != self._reloaded:
                self._reloaded = request.index
                idle = pool.idle_among(request, found)
                if batch.reload(self._plan, request, found, findable, free - idle):
                    return True
            cause = BLOCKS if need > free else WATERMARK
            self._refuse(attempt, Stopped(cause, need + kept, free, request, kept, batch.now))
            return self._gives_way(request)
        batch.admit(self._plan, request, cached, tokens, swapped_tokens=swapped, tiered=tiered, padding=padding)
        self._budget -= tokens
        self._places -= 1
        return True

    def _entry(self, request: Request) -> _Entry | None:
        """With what it would enter; None = its tokens would have to be split, which the rule does not do."""
        batch, pool, traits = self._batch, self._batch.pool, self._rule.traits
        size, known = pool.block_size_tokens, request.target_tokens
        swapped = batch.swapped_tokens(request)
        findable = (swapped or known - (0 if traits.caches_whole_prompts else 1)) // size
        cached = found = pool.cached_prefix(request, findable)
        tiered = batch.in_tiers(request, cached, findable) if pool.tiers is not None and not swapped else []
        if batch.speculative is not None and batch.speculative.drops_last_hit:
            if tiered:
                tiered = tiered[:-1]
            elif cached:
                cached -= 1
        start = max(swapped, (cached + len(tiered)) * size)
        tokens, threshold = known - start, self._plan.threshold
        pads = tokens == 1 and self._padded > 0 and self._pads(request, start)
        if pads:
            tokens = self._padded
        if 0 < threshold < tokens:
            tokens = threshold
        if tokens > self._budget:
            if pads or not traits.chunked_prefill:
                self._plan.stopped = Stopped(TOKENS, tokens, self._budget, request)
                return None
            tokens = self._budget
        return _Entry(cached, found, findable, tiered, swapped, start, tokens, tokens - 1 if pads else 0)
