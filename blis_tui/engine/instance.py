"""One serving instance: its parts, the way into its queue, and the ways out of it without a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable, stateful_plugins
from blis_tui.engine.client_times import client_ttft_us
from blis_tui.engine.events import Timeout, instance_order
from blis_tui.engine.latency.model import ModelWrapper
from blis_tui.engine.latency.wrappers import HookedModel
from blis_tui.engine.options.handover import give_back, take_over
from blis_tui.engine.orders import ConstantPriority
from blis_tui.engine.profile import Profile
from blis_tui.engine.records import Dropped, Queued, TimedOut
from blis_tui.engine.request import RUNNING, WAITING, RequestState
from blis_tui.engine.stopped import KV_BLOCKS, Excess

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.counts import Watch
    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.engine.step_loop import StepLoop
    from blis_tui.engine.steps import Parts


_QUEUED: Final = 1
"""Priorities of instance events at a tie. A completion beats the timeout of the same microsecond."""
_TIMEOUT: Final = 5


@mypyc_attr(allow_interpreted_subclasses=True)
class Instance(Picklable):
    """One engine with its own GPU memory.

    Attributes:
        index: position in the cluster, from 0.
        batch: the requests it works on, and its queue.
        pool: the KV blocks.
        waiting: the queue.
        steps: plans and executes single steps.
        loop: decides how steps follow one another.
        tallies: totals over its steps.
        seen: what others can see of the instance and its requests.
        order_queued: tie-breaker of queue arrivals among simultaneous events.
        routed: number of requests that the router sent here.
        input_tokens: prompt tokens of all requests that entered its queue.
        front_end: the API server process; None = it takes no time of its own.
        turned_down: number of requests that can never be served here, by the engine limit that they exceed.
    """

    __slots__ = (
        "_events",
        "_ledger",
        "_observers",
        "_order_timeout",
        "_priority",
        "_ranks",
        "_remembering",
        "_roomy_tokens",
        "batch",
        "front_end",
        "index",
        "input_tokens",
        "loop",
        "order_queued",
        "pool",
        "routed",
        "seen",
        "steps",
        "tallies",
        "turned_down",
        "waiting",
    )

    def __init__(self, loop: StepLoop, parts: Parts) -> None:
        self.loop = loop
        self.steps = steps = loop.steps
        self.index: int = steps.index
        self.batch = batch = steps.batch
        self.pool: BlockPool = batch.pool
        self.waiting = batch.waiting
        self.tallies = steps.tallies
        self.seen = steps.seen
        self.routed = 0
        self.input_tokens = 0
        self.turned_down: dict[str, int] = {}
        self.order_queued = instance_order(_QUEUED, steps.index)
        self._order_timeout = instance_order(_TIMEOUT, steps.index)
        self._roomy_tokens = always_fitting_tokens(batch)
        self.front_end = parts.front_end
        self._priority = parts.priority
        self._ranks = not isinstance(parts.priority, ConstantPriority)
        """Whether priorities differ; requests are created with the constant priority."""
        self._events = parts.events
        self._ledger = parts.ledger
        self._observers = parts.observers
        latency = parts.latency
        while isinstance(latency, ModelWrapper):
            latency = latency.model
        restore = None if batch.swapping is None else batch.swapping.restore
        self._remembering = stateful_plugins(batch.waiting, batch.victim, restore, latency)
        if batch.adapters is not None:
            batch.adapters.wake = loop.want_step

    def watch(self, watch: Watch) -> None:
        """Report from now on to the control plane what happens to requests here."""
        self.seen.watch = watch
        if not watch.early:
            self.pool.track_pending()

    @property
    def profile(self) -> Profile:
        """The instance's limits and rules."""
        batch = self.batch
        return Profile(batch.limits, batch.traits, batch.waiting.order, batch.traits.victims or batch.victim.rule)

    @property
    def latency(self) -> StepTimeModel:
        """The step-time model; its overheads are part of every client-side latency."""
        return self.steps.latency

    @latency.setter
    def latency(self, latency: StepTimeModel) -> None:
        self.steps.take(latency)

    def queue_with(self, index: int) -> None:
        """Let requests enter its queue before any simultaneous event on instances from ``index`` on."""
        self.order_queued = instance_order(_QUEUED, index)

    def policy_state(self) -> tuple[object, ...]:
        """Return what its rules remember, as plain values (for digests)."""
        more: tuple[object, ...] = () if self.front_end is None else (self.front_end.state(),)
        if self._remembering:
            more += tuple([stateful.state() for stateful in self._remembering])
        return (self.steps.rule.state(), self._priority.state(), *more)

    def planned_state(self) -> tuple[object, ...]:
        """Return what is planned but not executed, and draft totals, as plain values (for digests)."""
        drafts = self.batch.speculative
        return (*self.loop.state(), *(() if drafts is None else drafts.tallies.state()))

    def pause_in_steps(self, look: Callable[[], None] | None) -> None:
        """Call ``look`` in every step from now on, between its first two phases; None stops that."""
        latency = self.latency.model if isinstance(self.latency, HookedModel) else self.latency
        self.latency = latency if look is None else HookedModel(latency, look)

    # ---- into the queue ----

    def intake_us(self, request: Request, now: int) -> int:
        """Time from the arrival of a request at ``now`` until it is in the waiting queue, if no other follows it."""
        delay = self.steps.latency.queueing_time_us(request)
        if self.front_end is None:
            return delay
        self.loop.catch_up(now)
        return delay + self.front_end.delay_us(request, self.batch.load, now)

    def intake_end_us(self, request: Request) -> int:
        """Time at which it is there, as others have followed it; 0 = they no longer matter."""
        accepted_us = 0 if self.front_end is None else self.front_end.accepted_us(request)
        return accepted_us + self.steps.latency.queueing_time_us(request) if accepted_us else 0

    def enqueue(self, request: Request, now: int) -> None:
        """Put a request into the waiting queue, or drop it if it can never be served here."""
        request.queued_us = now
        prompt, budget = request.input_tokens, request.max_output_tokens
        # Fast path: nearly all requests have room to spare.
        surely = 0 < budget <= self._roomy_tokens - prompt and request.declared_tokens >= 0
        if not surely and (excess := unservable_reason(self.batch, request)) is not None:
            self.drop_unservable(request, excess, now)
            return
        self.input_tokens += prompt
        if 0 < request.deadline_us <= now:
            self._expire(request, now, was_running=False)
        else:
            self._wait(request, now)

    def expect(self, request: Request, now: int) -> Excess | None:
        """Make room for a prompt computed elsewhere as soon as there is some; return why there never will be, or None.

        The watch is told of the request as soon as there is. Only for rules that prepare for handovers.
        """
        excess = unservable_reason(self.batch, request, here=True)
        if excess is None and (reason := self.loop.expect(request, now)):
            excess = Excess(KV_BLOCKS, reason)
        return excess

    def forget_expected(self, request: Request, now: int) -> None:
        """Forget a request that will not come after all."""
        self.loop.forget_expected(request)
        self.give_back(request, now)

    def on_sent(self, request: Request, now: int) -> None:
        """React to the end of a transfer from here."""
        self.loop.on_sent(request, now)

    def reserve(self, request: Request, now: int, *, reuse: bool = False) -> Excess | None:
        """Take the KV blocks for a prompt computed elsewhere; return why that is impossible, or None.

        With ``reuse``, leading blocks in the prefix cache are shared (they become its ``shared_blocks``); the others
        are new.
        """
        pool = self.pool
        if (excess := unservable_reason(self.batch, request)) is not None:
            return excess
        cached = pool.visible_head(request.segments, now) if reuse else 0
        if pool.missing(request, request.input_tokens) - cached + pool.idle_among(request, cached) > pool.free:
            return Excess(KV_BLOCKS, f"its KV blocks do not fit: {pool.free} are free")
        if cached:
            pool.pin(request, cached)
        pool.hold(request, request.input_tokens)
        request.computed_tokens = request.input_tokens
        self.batch.reserved[request.index] = request
        return None

    def adopt(self, request: Request, now: int) -> None:
        """Put a request whose KV blocks have arrived into the waiting queue; only its decoding is left."""
        take_over(self.batch, request)
        if 0 < request.deadline_us <= now:
            self.give_back(request, now)
            self._expire(request, now, was_running=False)
            return
        self.pool.extend(request, request.input_tokens)
        self.pool.publish_transferred(request)
        if request.generated_tokens >= min(request.output_tokens, request.max_output_tokens):
            request.generated_tokens -= 1  # as in BLIS, it decodes at least once here
        request.joined_us = min(request.first_token_us, now)
        self._wait(request, now)

    def drop_unservable(self, request: Request, excess: Excess, now: int) -> None:
        """Drop a request that can never be served here."""
        request.state = RequestState.DROPPED_UNSERVABLE
        self.turned_down[excess.limit] = self.turned_down.get(excess.limit, 0) + 1
        self._observers.tell(Dropped, now, request.request_id, self.index, excess.reason)
        self.seen.depart(request)
        self._ledger.close(request, client_ttft_us(request, self.latency) if request.first_token_us >= 0 else -1)

    def give_back(self, request: Request, now: int) -> None:
        """Free the blocks, if any, of a request that does not run."""
        give_back(self.batch, request)
        self.loop.want_step(now)

    def _wait(self, request: Request, now: int) -> None:
        observers = self._observers
        request.state = WAITING
        seen = self.seen
        seen.present += 1
        seen.stays_us -= now
        if self._ranks:
            request.priority = self._priority.priority(request)
        self.waiting.push(request)
        if request.deadline_us > 0:
            timeout = Timeout("timeout", request, self.timeout, self.index)
            self._events.push_timeout(request.deadline_us, self._order_timeout, timeout)
            self.pool.has_deadlines = not self.batch.traits.radix_tree  # SGLang has the results before it looks
        self.loop.want_step(now)
        if Queued in observers.kinds:
            position = self.waiting.position(request)
            observers.emit(Queued(observers.event, now, request.request_id, self.index, position))

    def timeout(self, request: Request, now: int) -> bool:
        """Expire a waiting or running request whose deadline has come, unless its client has given up already.

        A pending step stays pending.
        """
        if request.index in self.batch.given_up:
            return False
        was_running = request.state is RUNNING
        if self.loop.keeps_aborted_request(request):
            self._expire(self.batch.give_up(request), now, was_running=was_running)
            self.loop.note_given_up(request)
            return True
        self.withdraw(request, now)
        self._expire(request, now, was_running=was_running)
        return True

    def withdraw(self, request: Request, now: int) -> None:
        """Take out a waiting or running request."""
        self.seen.note_place_free(now)
        if request.state is RUNNING:
            self.loop.abort(request, now)
        else:
            self.batch.leave_queue(request)
            self.give_back(request, now)
        self.loop.on_withdrawn(now)

    def forget_given_up(self, now: int) -> None:
        """Take out all requests whose clients have given up, as the instance goes."""
        batch = self.batch
        there = (*batch.running.values(), *batch.waiting.ordered()) if batch.given_up else ()
        for request in there:
            if request.index in batch.given_up:
                self.withdraw(request, now)
                request.state = RequestState.TIMED_OUT

    def _expire(self, request: Request, now: int, *, was_running: bool) -> None:
        request.state = RequestState.TIMED_OUT
        self.seen.depart(request)
        observers, generated = self._observers, request.generated_tokens
        observers.tell(TimedOut, now, request.request_id, self.index, was_running, generated)
        self._ledger.close(request, client_ttft_us(request, self.latency) if request.first_token_us >= 0 else -1)

    def halt(self) -> int | None:
        """Plan nothing more; see ``StepLoop``."""
        return self.loop.halt()

    def abandon(self) -> None:
        """Stop at once; its requests have been taken out."""
        self.loop.abandon()
        self.pool.reset()


# Requests that can never run on an instance are judged by their declared budget, never by their actual output length.


def unservable_reason(batch: Batch, request: Request, *, here: bool = False) -> Excess | None:
    """Return why ``request`` can never run in a batch, or None if it can. Sets its output budget.

    A request that is served by two instances is judged as on the first one; ``here``: as on the second one.

    A declared budget must fit beside the prompt, or is cut to what ``max_model_len`` leaves (``cuts_output``), if the
    engine cuts that many tokens. Without one, the budget is what ``max_model_len`` and the KV cache of the instance
    leave.
    """
    prompt, limit = request.input_tokens, batch.limits.max_model_len
    if batch.encoder is not None and (excess := batch.encoder.too_large(request)) is not None:
        return excess
    if limit is not None and prompt >= limit:
        return Excess("max_model_len", f"prompt of {prompt} tokens, max_model_len is {limit}")
    if request.declared_tokens < 0:
        request.max_output_tokens = _max_answer_tokens(batch, request)
    budget = request.max_output_tokens
    if limit is not None and prompt + budget > limit:
        most = batch.traits.cuts_at_most if batch.traits.cuts_output else 0
        if most is not None and prompt + budget > limit + most:
            reason = f"prompt of {prompt} + {budget} output tokens, max_model_len is {limit}"
            return Excess("max_model_len", reason)
        budget = request.max_output_tokens = limit - prompt
    if batch.traits.fits_strictly:
        if (excess := _strict_excess(batch, request, here=here)) is not None:
            return excess
        budget = request.max_output_tokens
    tokens = _tokens(batch, request, budget, here=here)
    blocks = batch.pool.most_blocks(tokens)
    if blocks > batch.pool.total:
        return Excess(KV_BLOCKS, f"{tokens} tokens need {blocks} KV blocks, there are {batch.pool.total}")
    return None


def _strict_excess(batch: Batch, request: Request, *, here: bool) -> Excess | None:
    """Return why SGLang would never admit a request, or None; cut its output to what SGLang admits (page by page)."""
    prompt, size = request.input_tokens, batch.limits.block_size_tokens
    # With ends ignored and nothing cached, SGLang admits a request only if more than one token is left at its end.
    to_the_end = request.ignore_eos and not batch.pool.caching
    most = (batch.pool.total - 1) * size - 1 - to_the_end
    if prompt >= most:
        return Excess(KV_BLOCKS, f"prompt of {prompt} tokens, the KV cache takes {max(most, 0)} with the answer")
    pages = -(-prompt // size)
    held = prompt if to_the_end else pages * size
    budget = min(request.max_output_tokens, max(1, most - held))
    if here or request.handover is None:
        request.max_output_tokens = budget
    elif not request.handover.prefilled:
        budget = 1  # the rest of the answer is generated elsewhere, where the budget was cut
    left = (batch.pool.total - 1 - pages) * size
    if to_the_end and left - budget <= 1:
        reason = f"prompt of {prompt} + {budget} output tokens, whose end is ignored: the prompt leaves {left}"
        return Excess(KV_BLOCKS, reason)
    return None


def always_fitting_tokens(batch: Batch) -> int:
    """Largest total of tokens with which a request with a budget surely fits; negative: see ``unservable_reason``."""
    if batch.speculative is not None or batch.encoder is not None:
        return -1
    limits, pool = batch.limits, batch.pool
    most = pool.most_tokens()
    if limits.max_model_len is not None:
        most = min(most, limits.max_model_len)
    if batch.traits.fits_strictly:
        most = min(most, (pool.total - 2) * limits.block_size_tokens - (not pool.caching))
    return most


def _max_answer_tokens(batch: Batch, request: Request) -> int:
    """Length of the longest answer that the limits allow, at least 1."""
    limit, slots = batch.limits.max_model_len, batch.pool.most_tokens()
    longest = slots - request.input_tokens + 1
    if limit is not None:
        longest = min(longest, limit - request.input_tokens)
    while longest > 1 and _tokens(batch, request, longest) > slots:  # a few draft slots too many
        longest -= 1
    return max(1, longest)


def _tokens(batch: Batch, request: Request, budget: int, *, here: bool = False) -> int:
    """KV slots of a request that uses its whole budget; its last token never enters the cache."""
    elsewhere = not here and request.handover is not None and not request.handover.prefilled
    answer = 1 if elsewhere else max(budget, 1)
    whole = request.input_tokens + answer - 1
    speculative, limit = batch.speculative, batch.limits.max_model_len
    if speculative is None:
        return whole
    if answer > 1:  # the last step may verify drafts beyond the end of the answer
        drafted = whole + speculative.acceptance_sampler.draft_tokens
        if not batch.traits.keeps_output:  # nor may it preempt itself when too many drafts count as accepted
            drafted += speculative.most_excess
        whole = drafted if limit is None else min(drafted, limit - 1)
    return speculative.slots_for(whole)
