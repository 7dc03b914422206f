"""Admission in engines that serve running requests first: from the head of the queue, while everything fits."""

from __future__ import annotations

from collections.abc import Collection, Sequence  # noqa: TC003  (mypyc evaluates annotations of named tuples)
from typing import TYPE_CHECKING, Protocol

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.pickling import is_internal_class
from blis_tui.engine.batch import AdmissionLoop
from blis_tui.engine.options.handover import admit_prefilled, first_with_blocks
from blis_tui.engine.plan import NO_PLAN
from blis_tui.engine.stopped import ADAPTER, BLOCKS, ENCODER, LATE, MAX_NUM_SEQS, TOKENS, WATERMARK, Stopped

if TYPE_CHECKING:
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request
    from blis_tui.engine.rules.traits import EngineBehavior


class AdmissionFilter(Protocol):
    """A rule that may impose further conditions on admission."""

    @property
    def traits(self) -> EngineBehavior:
        """Traits of its batches."""

    def admits(self, batch: Batch, request: Request) -> bool:
        """Whether a waiting request may be admitted, provided its KV blocks are free."""

    def why_not(self, batch: Batch, request: Request) -> Stopped | None:
        """Why a request may not be admitted; None = the rule gives no reason."""

    def padded_tokens(self, batch: Batch) -> int:
        """Tokens of an admitted request that needs only one, next to decodes with drafts; 0 = no padding."""


class _CachedTokens(NamedTuple):
    """What exists of a request's tokens before it is admitted."""

    cached_blocks: int
    found_blocks: int
    """``cached_blocks`` plus blocks that were found but are not used."""
    findable_blocks: int
    """Number of its blocks that may be found in the cache."""
    tiered: Sequence[int]
    """Content beyond the cached blocks that tiers hold."""
    swapped_tokens: int


@mypyc_attr(allow_interpreted_subclasses=True)
class Admission(AdmissionLoop):
    """Admits from the head of the queue for as long as everything fits: no request overtakes another.

    There are two exceptions when nothing runs, in which a request that already holds KV blocks goes first. One is that
    the head is a victim or does not fit: only that request's blocks could make room. The other is that the request's
    LoRA adapter is resident and the head's is not: with a slot for only one of them, each would be loaded in turn for
    ever.

    Args:
        rule: the batching rule.
        batch: the requests.
        asks: whether the rule imposes conditions beyond those common to all rules.
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

    def __init__(self, rule: AdmissionFilter, batch: Batch, *, asks: bool) -> None:
        traits = rule.traits
        self._rule = rule
        self._asks = asks
        self._asks_anew = asks and not is_internal_class(type(rule))
        """Whether the rule may change its mind although nothing has changed: a plug-in's rule may depend on the
        time."""
        self._batch = batch
        self._always_computes = 0 if traits.caches_whole_prompts else 1
        """Minimum number of prompt tokens that a step computes."""
        self._reserves_whole_prompt = traits.reserves_whole_prompt
        self._splits = traits.chunked_prefill
        self._watermark = traits.spare_blocks(batch.pool.total) if traits.watermark else 0
        self._plain = batch.speculative is None and batch.swapping is None and batch.pool.tiers is None
        """Whether there are neither drafts nor any storage below the KV cache."""
        self._plan = NO_PLAN
        self._budget = self._places = self._padded = 0
        self._beside = False
        """Whether requests that were running before decode in this step."""
        self._stuck = self._reloaded = -1
        self._passes = traits.encoder == "passes"
        """Whether a request that the encoder has no room for does not block those behind it."""
        self._passed: dict[int, Stopped] = {}
        """Requests skipped in this plan, by their index."""

    def run(self, plan: Plan, budget: int) -> None:
        """Admit as many waiting requests to the plan as the remaining token budget allows."""
        batch, waiting, adapters = self._batch, self._batch.waiting, self._batch.adapters
        self._plan = plan
        self._budget = budget
        self._places = batch.limits.max_num_seqs - len(batch.running) - len(batch.finishing)
        self._stuck = self._reloaded = -1
        if batch.speculative is not None:
            # Minimum number of tokens per request, unless prefills from before continue.
            self._padded = 0 if plan.chunks else self._rule.padded_tokens(batch)
            self._beside = bool(batch.load.decode_requests or plan.ghosts)
        all_may_go = adapters is None and not batch.preempted_in_flight
        if self._passed:
            self._passed = {}
        while waiting.items:
            if self._budget <= 0 or self._places <= 0:
                self._plan.stopped = Stopped(MAX_NUM_SEQS if self._places <= 0 else TOKENS, 1)
                break
            passed = self._passed
            request = waiting.head() if all_may_go and not passed else batch.next_waiting(passed, len(passed))
            if request is None:
                self._plan.stopped = next(
                    iter(passed.values()), Stopped(LATE if batch.preempted_in_flight else ADAPTER)
                )
                break
            if batch.reserved and not batch.running:
                request = self._first(request)
            if adapters is not None and not adapters.ready(request):
                self._plan.stopped = Stopped(ADAPTER, request=request)
                break
            if (
                batch.refused is not None
                and batch.refused == self._fit_key(request)
                and (batch.encoder is None or not batch.encoder.has_pending_media(request))
            ):
                # Nothing has changed since the head did not fit.
                self._plan.stopped = batch.stopped
                if not (batch.reserved and self._may_be_overtaken(request)):
                    break
            elif request.handover is not None and request.index in batch.reserved:
                if not self._admit_prefilled(request):
                    break
            elif not self._admit(request):
                break
        if adapters is not None:
            adapters.end_plan()
        self._plan = NO_PLAN

    def _fit_key(self, request: Request) -> tuple[int, ...]:
        """Return the values that determine whether a request fits."""
        return request.index, self._batch.pool.epoch, self._budget, self._plan.threshold

    def _refuse(self, request: Request, stopped: Stopped | None, *, anew: bool = False) -> None:
        """Record that a request does not fit, and that it will not until something changes; ``anew``: it may."""
        self._batch.refused = None if anew else self._fit_key(request)
        self._plan.stopped = self._batch.stopped = stopped

    def _has_no_encoder(self, request: Request) -> bool:
        """Record that the encoder has no room for the next media item; return whether to try another request."""
        encoder = self._batch.encoder
        lack = None if encoder is None else encoder.lack
        stopped = Stopped(ENCODER, request=request) if lack is None else Stopped(ENCODER, lack.need, lack.had, request)
        if self._passes:
            self._passed[request.index] = stopped
            return True
        self._plan.stopped = stopped
        return self._may_be_overtaken(request)

    def _first(self, head: Request) -> Request:
        """Choose between the head and a waiting request that holds KV blocks, while nothing runs."""
        batch, adapters = self._batch, self._batch.adapters
        holder = first_with_blocks(batch) or head
        if adapters is not None and not adapters.has_place(holder):
            return head
        here = adapters is not None and adapters.has(holder) and not adapters.has(head)
        return holder if head.preemptions or head.index == self._stuck or here else head

    def _may_be_overtaken(self, request: Request) -> bool:
        """Whether a request that holds KV blocks may go before this one, which does not fit."""
        batch = self._batch
        if batch.running or not batch.reserved or self._stuck >= 0:
            return False
        self._stuck = request.index
        return True

    def _admit_prefilled(self, request: Request) -> bool:
        """Admit a request whose prompt was computed elsewhere, if its next block is free."""
        batch, computed = self._batch, request.computed_tokens
        tokens = self._padded if self._pads(request, computed) else 1
        if tokens > self._budget:
            self._plan.stopped = Stopped(TOKENS, tokens, self._budget, request)
            return False
        tokens = min(tokens, self._plan.threshold or tokens)
        need, free = batch.pool.missing(request, self._slots(computed + tokens)), batch.pool.free
        if need > free:
            self._refuse(request, Stopped(BLOCKS, need, free, request, tried_us=batch.now))
            return False
        admit_prefilled(batch, self._plan, request, tokens - 1)
        self._budget -= tokens
        self._places -= 1
        return True

    def _pads(self, request: Request, computed: int) -> bool:
        """Whether a request that enters for one token is padded with draft placeholders."""
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
        """Number of KV slots needed to compute ``tokens`` tokens."""
        drafting = self._batch.speculative
        return tokens if drafting is None else drafting.slots_for(tokens)

    def _admit(self, request: Request) -> bool:
        """Admit a request that holds no blocks, if it fits; return whether to try another one."""
        batch, pool = self._batch, self._batch.pool
        if self._asks and not self._rule.admits(batch, request):
            self._refuse(request, self._rule.why_not(batch, request), anew=self._asks_anew)
            return False
        size, known, budget = pool.block_size_tokens, request.target_tokens, self._budget
        tiered: Sequence[int] = ()
        if self._plain:
            swapped, findable = 0, (known - self._always_computes) // size
            cached = found = 0
            if request.content or request.preemptions:  # else the cache cannot contain any of it
                cached = found = pool.cached_prefix(request, findable)
            start = cached * size
        else:
            cached, found, findable, tiered, swapped = self._look_up(request)
            start = max(swapped, (cached + len(tiered)) * size)
        tokens, threshold = known - start, self._plan.threshold
        pads = tokens == 1 and self._padded > 0 and self._pads(request, start)
        if pads:
            tokens = self._padded
        elif 0 < threshold < tokens:
            tokens = threshold
        if tokens > budget:
            if pads or not self._splits:  # padding would have to be split, which the rule does not do
                self._plan.stopped = Stopped(TOKENS, tokens, budget, request)
                return False
            tokens = budget
        if pads and 0 < threshold < tokens:
            tokens = threshold
            pads = tokens > 1
        encoder = batch.encoder
        if encoder is not None and not (tokens := encoder.fit(request, start, tokens)):
            return self._has_no_encoder(request)
        slots = start + tokens if batch.speculative is None else batch.speculative.slots_for(start + tokens)
        whole = known if self._reserves_whole_prompt else 0
        need, free = pool.entry_blocks(request, cached, slots, whole), pool.free
        kept = self._watermark if batch.running or batch.finishing else 0
        if need + kept > free:
            if self._reloads(request, found, findable, swapped):
                return True
            cause = BLOCKS if need > free else WATERMARK
            # Once its prefix has left the cache, a request needs no padding, and may fit.
            self._refuse(request, Stopped(cause, need + kept, free, request, kept, batch.now), anew=pads)
            if encoder is not None:
                encoder.release(request)
            return self._may_be_overtaken(request)
        padding = tokens - 1 if pads else 0
        batch.admit(self._plan, request, cached, tokens, swapped, tiered, padding)
        if encoder is not None:
            if pads:
                encoder.release(request)
            else:
                encoder.take(request, self._plan.chunks[-1])
        self._budget = budget - tokens
        self._places -= 1
        return True

    def _look_up(self, request: Request) -> _CachedTokens:
        """Look up the request's tokens in the KV cache and below it."""
        batch, pool = self._batch, self._batch.pool
        swapped = 0 if batch.swapping is None else batch.swapping.tokens_of(request)
        findable = (swapped or request.target_tokens - self._always_computes) // pool.block_size_tokens
        cached = found = pool.cached_prefix(request, findable)
        tiered = [] if swapped else pool.in_tiers(request, cached, findable)
        if batch.speculative is not None and batch.speculative.drops_last_hit:
            if tiered:
                tiered = tiered[:-1]
            elif cached:
                cached -= 1
        return _CachedTokens(cached, found, findable, tiered, swapped)

    def passed_over(self) -> Collection[int]:
        """See ``AdmissionLoop``."""
        return self._passed

    def head_start(self, request: Request) -> int:
        """See ``AdmissionLoop``."""
        cached, _, _, tiered, swapped = self._look_up(request)
        return max(swapped, (cached + len(tiered)) * self._batch.pool.block_size_tokens)

    def _reloads(self, request: Request, found: int, findable: int, swapped: int) -> bool:
        """Whether tier content of a request that does not fit is reloaded first."""
        pool = self._batch.pool
        if pool.tiers is None or swapped or request.index == self._reloaded:
            return False
        self._reloaded = request.index
        room = pool.free - pool.idle_among(request, found)
        return pool.reload(self._plan, request, found, findable, room)
