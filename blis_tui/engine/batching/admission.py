"""How waiting requests are admitted where running requests go first: from the head of the queue, while all fits."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003  (compiled, named tuples are made of what annotations say)
from typing import TYPE_CHECKING, Protocol

from blis_tui.classes import NamedTuple, mypyc_attr
from blis_tui.engine.batch import Admitting
from blis_tui.engine.plan import NO_PLAN
from blis_tui.engine.stopped import ADAPTER, BLOCKS, ENCODER, LATE, PLACES, TOKENS, WATERMARK, Stopped
from blis_tui.kept import is_ours

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


class _Found(NamedTuple):
    """What there is of a request's tokens before it enters."""

    cached_blocks: int
    found_blocks: int
    """These, and what is found in the cache and not taken."""
    findable_blocks: int
    """Of its blocks, those that may be found in the cache."""
    tiered: Sequence[int]
    """Content behind the cached blocks that tiers have."""
    swapped_tokens: int


@mypyc_attr(allow_interpreted_subclasses=True)
class Admission(Admitting):
    """Admits from the head of the queue for as long as everything fits: no request overtakes another.

    But where nothing runs, and the head is a victim or does not fit, a request that holds KV blocks already goes first:
    the head could have them only then. So it does where its LoRA adapter is there and the head's is not: with places
    for one of the two, each would be loaded in turn for ever.

    Args:
        rule: which admits.
        batch: the requests.
        asks: whether the rule asks for more than what all requests need.
    """

    __slots__ = (
        "_always_computes",
        "_asks",
        "_asks_anew",
        "_batch",
        "_beside",
        "_budget",
        "_padded",
        "_passed",
        "_passes",
        "_places",
        "_plain",
        "_plan",
        "_reloaded",
        "_reserves_whole_prompt",
        "_rule",
        "_splits",
        "_stuck",
        "_watermark",
    )

    def __init__(self, rule: Admits, batch: Batch, *, asks: bool) -> None:
        traits = rule.traits
        self._rule = rule
        self._asks = asks
        self._asks_anew = asks and not is_ours(type(rule))
        """Whether it may change its mind although nothing has changed: one of a plug-in may go by the time."""
        self._batch = batch
        self._always_computes = 0 if traits.caches_whole_prompts else 1
        """How many tokens of a prompt a step computes at least."""
        self._reserves_whole_prompt = traits.reserves_whole_prompt
        self._splits = traits.chunked_prefill
        self._watermark = traits.spare_blocks(batch.pool.total) if traits.watermark else 0
        self._plain = batch.speculative is None and batch.swapping is None and batch.pool.tiers is None
        """Whether there are neither drafts nor anything below the KV cache."""
        self._plan = NO_PLAN
        self._budget = self._places = self._padded = 0
        self._beside = False
        """Whether requests decode that ran before."""
        self._stuck = self._reloaded = -1
        self._passes = traits.encoder == "passes"
        """Whether a request that the encoder has no room for does not hold up those behind it."""
        self._passed: dict[int, Stopped] = {}
        """Those of this plan, by their index."""

    def run(self, plan: Plan, budget: int) -> None:
        """Admit all that it can into the plan of a step, with what is left of its token budget."""
        batch, waiting, adapters = self._batch, self._batch.waiting, self._batch.adapters
        self._plan = plan
        self._budget = budget
        self._places = batch.limits.max_num_seqs - len(batch.running) - len(batch.ending)
        self._stuck = self._reloaded = -1
        if batch.speculative is not None:
            # What requests compute at least, unless ones that ran before are being prefilled.
            self._padded = 0 if plan.chunks else self._rule.padded_tokens(batch)
            self._beside = bool(batch.load.decode_requests or plan.ghosts)
        all_may_go = adapters is None and not batch.stale
        if self._passed:
            self._passed = {}
        while waiting.items:
            if self._budget <= 0 or self._places <= 0:
                self._plan.stopped = Stopped(PLACES if self._places <= 0 else TOKENS, 1)
                break
            passed = self._passed
            request = waiting.head() if all_may_go and not passed else batch.next_waiting(passed, len(passed))
            if request is None:
                self._plan.stopped = next(iter(passed.values()), Stopped(LATE if batch.stale else ADAPTER))
                break
            if batch.reserved and not batch.running:
                request = self._first(request)
            if adapters is not None and not adapters.ready(request):
                self._plan.stopped = Stopped(ADAPTER, request=request)
                break
            if (
                batch.refused is not None
                and batch.refused == self._attempt(request)
                and (batch.encoder is None or not batch.encoder.asks(request))
            ):
                # Nothing has changed since it did not fit.
                self._plan.stopped = batch.stopped
                if not (batch.reserved and self._gives_way(request)):
                    break
            elif request.handover is not None and request.index in batch.reserved:
                if not self._take_over(request):
                    break
            elif not self._admit(request):
                break
        if adapters is not None:
            adapters.end_plan()
        self._plan = NO_PLAN

    def _attempt(self, request: Request) -> tuple[int, ...]:
        """What decides whether a request fits."""
        return request.index, self._batch.pool.epoch, self._budget, self._plan.threshold

    def _refuse(self, request: Request, stopped: Stopped | None) -> None:
        """A request does not fit, and will not before something changes."""
        self._batch.refused = self._attempt(request)
        self._plan.stopped = self._batch.stopped = stopped

    def _has_no_encoder(self, request: Request) -> bool:
        """The encoder has no room for the next item of a request's media: whether another one may be tried."""
        encoder = self._batch.encoder
        lack = None if encoder is None else encoder.lack
        stopped = Stopped(ENCODER, request=request) if lack is None else Stopped(ENCODER, lack.need, lack.had, request)
        if self._passes:
            self._passed[request.index] = stopped
            return True
        self._plan.stopped = stopped
        return self._gives_way(request)

    def _first(self, head: Request) -> Request:
        """Nothing runs, and some who wait hold KV blocks: which of them goes first, or the head."""
        batch, adapters = self._batch, self._batch.adapters
        holder = batch.first_with_blocks() or head
        if adapters is not None and not adapters.has_place(holder):
            return head
        here = adapters is not None and adapters.has(holder) and not adapters.has(head)
        return holder if head.preemptions or head.index == self._stuck or here else head

    def _gives_way(self, request: Request) -> bool:
        """It does not fit: whether one that holds KV blocks may go before it."""
        batch = self._batch
        if batch.running or not batch.reserved or self._stuck >= 0:
            return False
        self._stuck = request.index
        return True

    def _take_over(self, request: Request) -> bool:
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
            self._refuse(request, Stopped(BLOCKS, need, free, request, tried_us=batch.now))
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

    def _admit(self, request: Request) -> bool:
        """Admit a request that holds nothing, if it fits; returns whether another one may be tried."""
        batch, pool = self._batch, self._batch.pool
        if self._asks and not self._rule.admits(batch, request):
            self._refuse(request, self._rule.why_not(batch, request))
            if self._asks_anew:
                batch.refused = None
            return False
        size, known, budget = pool.block_size_tokens, request.target_tokens, self._budget
        tiered: Sequence[int] = ()
        if self._plain:
            swapped, findable = 0, (known - self._always_computes) // size
            cached = found = 0
            if request.content or request.preemptions:  # else there is nothing to be found
                cached = found = pool.cached_prefix(request, findable)
            start = cached * size
        else:
            cached, found, findable, tiered, swapped = self._found(request)
            start = max(swapped, (cached + len(tiered)) * size)
        tokens, threshold = known - start, self._plan.threshold
        pads = tokens == 1 and self._padded > 0 and self._pads(request, start)
        if pads:
            tokens = self._padded
        if 0 < threshold < tokens:
            tokens = threshold
        if tokens > budget:
            if pads or not self._splits:  # its tokens would have to be split, which the rule does not do
                self._plan.stopped = Stopped(TOKENS, tokens, budget, request)
                return False
            tokens = budget
        encoder = batch.encoder
        if encoder is not None:
            tokens = encoder.fit(request, start, tokens)
            if not tokens:
                return self._has_no_encoder(request)
        slots = start + tokens if batch.speculative is None else batch.speculative.slots_for(start + tokens)
        if self._reserves_whole_prompt and slots < known:
            slots = known
        need, free = -(-slots // size) - cached, pool.free
        if cached:
            need += pool.idle_among(request, cached)
        kept = self._watermark if batch.running or batch.ending else 0
        if need + kept > free:
            if self._reloads(request, found, findable, swapped):
                return True
            cause = BLOCKS if need > free else WATERMARK
            self._refuse(request, Stopped(cause, need + kept, free, request, kept, batch.now))
            if encoder is not None:
                encoder.release(request)
            return self._gives_way(request)
        padding = tokens - 1 if pads else 0
        batch.admit(self._plan, request, cached, tokens, swapped_tokens=swapped, tiered=tiered, padding=padding)
        if encoder is not None:
            if pads:
                encoder.release(request)
            else:
                encoder.take(request, self._plan.chunks[-1])
        self._budget = budget - tokens
        self._places -= 1
        return True

    def _found(self, request: Request) -> _Found:
        """What there is of its tokens, in the KV cache and below it."""
        batch, pool = self._batch, self._batch.pool
        swapped = batch.swapped_tokens(request)
        findable = (swapped or request.target_tokens - self._always_computes) // pool.block_size_tokens
        cached = found = pool.cached_prefix(request, findable)
        tiered = batch.in_tiers(request, cached, findable) if pool.tiers is not None and not swapped else []
        if batch.speculative is not None and batch.speculative.drops_last_hit:
            if tiered:
                tiered = tiered[:-1]
            elif cached:
                cached -= 1
        return _Found(cached, found, findable, tiered, swapped)

    def _reloads(self, request: Request, found: int, findable: int, swapped: int) -> bool:
        """It does not fit: whether what tiers have of it comes back first."""
        pool = self._batch.pool
        if pool.tiers is None or swapped or request.index == self._reloaded:
            return False
        self._reloaded = request.index
        room = pool.free - pool.idle_among(request, found)
        return self._batch.reload(self._plan, request, found, findable, room)
