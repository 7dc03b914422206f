"""The running batch of one instance: its requests, their blocks, and the operations that plans are built from."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.errors import StalledError
from blis_tui.base.pickling import Picklable
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.latency.model import Chunk
from blis_tui.engine.options.draft_cohort import SpeculativeCohort
from blis_tui.engine.plan import Preemption
from blis_tui.engine.request import CREATED, RUNNING, WAITING, RequestState
from blis_tui.model.engine import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence

    from blis_tui.engine.cohort import DecodeCohort
    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.options.adapters import Adapters
    from blis_tui.engine.options.encoder import Encoder
    from blis_tui.engine.options.swap import HostMemory, Swapping
    from blis_tui.engine.plan import Plan, Planned, StepPart
    from blis_tui.engine.profile import Limits
    from blis_tui.engine.queue import WaitingQueue
    from blis_tui.engine.request import Request
    from blis_tui.engine.rules.traits import EngineBehavior
    from blis_tui.engine.stopped import Stopped
    from blis_tui.engine.victims import VictimRule


@mypyc_attr(allow_interpreted_subclasses=True)
class AdmissionLoop(Picklable):
    """Admits waiting requests into a batch, as the batching rule defines; created on first use."""

    __slots__ = ()

    def run(self, plan: Plan, budget: int) -> None:
        """Admit as many waiting requests to the plan as the remaining token budget allows."""
        raise NotImplementedError

    def passed_over(self) -> Collection[int]:
        """Indices of requests that the latest run passed over because the encoder had no room for them."""
        raise NotImplementedError

    def head_start(self, request: Request) -> int:
        """Number of tokens of a waiting request that need not be computed, as far as they are found now."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Batch(Picklable):
    """The requests that an instance works on, and its waiting queue.

    Where a request is in the course of its life; ``prefills``, ``cohort`` and ``stalled`` divide ``running``::

        waiting --admit--> prefills --prompt computed--> cohort <--no token--> stalled
           ^                   |                            |                     |
           +-----preempt-------+----------------------------+---------------------+
                                                            |
                       +--------last token planned----------+-------client gives up-----+
                       v                                                                v
                   finishing --its step ends--> gone           aborting --step ends--> gone

    A request without blocks for its next token leaves by ``preempt``. The other attributes with requests are marks
    beside that: ``reserved`` on waiting ones that hold blocks, ``given_up`` on any whose client has gone, and, only
    where a step is planned before the one before it has ended, ``in_flight_until``, ``paused``, ``input_unknown`` and
    ``preempted_in_flight``. A ``finishing`` request counts as running for limits, and takes no part in plans.

    Attributes:
        limits: the instance's limits.
        max_running: the most requests that may run at the same time.
        max_decodes: the most requests that may decode in a decode-only step.
        waiting: the queue of requests that are not scheduled yet.
        pool: the KV blocks.
        running: batch slot -> request, in the order of admission.
        prefills: requests of ``running`` whose prefill is not finished.
        stalled: decoding requests of ``running`` that got no token in the latest step.
        stalls: how often decodes have left the cohort, to be served one by one or not at all.
        cohort: all other requests of ``running`` that decode in the next step.
        speculative: the cohort, if its requests verify draft tokens; otherwise None.
        finishing: requests that have left ``running`` but keep their slot and blocks until the step that computes their
            last token ends.
        load: the part of a step's work that the cohort determines.
        victim: the rule that chooses victims.
        serves_behind_preempted: whether requests behind one that preempts itself still get their tokens.
        swapping: swaps victims to host memory and back; None = victims are recomputed.
        in_flight_until: slot -> end of the last step in flight that the request takes part in, where steps overlap.
        paused: slots of decoding requests that skip the next plan because they wait for their latest token.
        preempted_in_flight: index of each request that was preempted while a step of it was in flight -> (whether that
            step yields its last token, when it ends). The token counts; the request is not scheduled again before the
            step ends.
        input_unknown: index of each request for which a step was planned before its input token was known -> when that
            step ends.
        aborting: requests that left without a result and hold their blocks until the current step ends, each with the
            number of its tokens that will have content in the cache then.
        given_up: requests, by index, whose clients have given up, until they leave: they have ended for all but the
            engine.
        reserved: requests, by index, that hold the KV blocks of their prompt but do not run yet; a copy stands for one
            whose prompt is not computed yet.
        sending: copies of requests, by index, that hold the KV blocks of prompts until these are sent elsewhere.
        preempted_for_reserved: number of plans that preempted the last running request because the blocks it lacked
            were reserved for incoming KV transfers.
        planned: the step that starts when the current one ends, if steps are planned ahead.
        now: time at which the latest step was planned.
        refused: the latest failed admission: request, pool epoch, budget, threshold (if any).
        stopped: why that admission failed; None = the rule gives no reason.
        adapters: the LoRA adapters; None = there are none.
        encoder: the media encoder, if steps schedule it; otherwise None.
        admission: admits waiting requests, if the rule uses it.
        parts: those of adapters, encoder and swapping that there are: they follow what becomes of each request.
    """

    __slots__ = (
        "_next_slot",
        "_recomputed_tokens",
        "aborting",
        "adapters",
        "admission",
        "cohort",
        "encoder",
        "finishing",
        "given_up",
        "in_flight_until",
        "input_unknown",
        "limits",
        "load",
        "max_decodes",
        "max_running",
        "now",
        "parts",
        "paused",
        "planned",
        "pool",
        "preempted_for_reserved",
        "preempted_in_flight",
        "prefills",
        "refused",
        "reserved",
        "running",
        "sending",
        "serves_behind_preempted",
        "speculative",
        "stalled",
        "stalls",
        "stopped",
        "swapping",
        "traits",
        "victim",
        "waiting",
    )

    def __init__(
        self,
        limits: Limits,
        waiting: WaitingQueue,
        pool: BlockPool,
        *,
        victim: VictimRule,
        traits: EngineBehavior,
        cohort: DecodeCohort,
    ) -> None:
        self.limits = limits
        places, tokens = limits.max_num_seqs, limits.max_num_batched_tokens
        self.max_running = UNLIMITED if traits.limits_each_step else places
        self.max_decodes = min(places, tokens) if traits.limits_each_step else tokens
        self.waiting = waiting
        self.pool = pool
        self.load = cohort.load
        self.cohort = cohort
        self.speculative = cohort if isinstance(cohort, SpeculativeCohort) else None
        self.running: dict[int, Request] = {}
        self.prefills: dict[int, Request] = {}
        self.stalled: dict[int, Request] = {}
        self.stalls = 0
        self.finishing: dict[int, Request] = {}
        self.aborting: list[tuple[Request, int]] = []
        self.given_up: dict[int, Request] = {}
        self.in_flight_until: dict[int, int] = {}
        self.paused: Container[int] = ()
        self.preempted_in_flight: dict[int, tuple[bool, int]] = {}
        self.input_unknown: dict[int, int] = {}
        self.reserved: dict[int, Request] = {}
        self.sending: dict[int, Request] = {}
        self.preempted_for_reserved = 0
        self.refused: tuple[int, ...] | None = None
        self.stopped: Stopped | None = None
        self.planned: Planned | None = None
        self.now = 0
        self._next_slot = 0
        self.victim = victim
        self.traits = traits
        self.serves_behind_preempted = victim.serves_behind_preempted or traits.serves_behind_own_victim
        self.parts: tuple[StepPart, ...] = ()
        self.adapters: Adapters | None = None
        self.encoder: Encoder | None = None
        self.admission: AdmissionLoop | None = None
        self.swapping: Swapping | None = None
        self._recomputed_tokens = 0

    @property
    def host(self) -> HostMemory | None:
        """The host memory that victims are swapped to; None = there is none."""
        return None if self.swapping is None else self.swapping.host

    @property
    def has_requests(self) -> bool:
        """Whether any request waits or runs, as far as plans can know."""
        return bool(self.running or self.waiting.items or self.cohort.maybe_finished)

    @property
    def live(self) -> int:
        """Number of requests that wait or run and whose clients have not given up."""
        live = len(self.waiting.items) + len(self.running)
        for request in self.given_up.values():
            live -= request.state is not RequestState.TIMED_OUT  # else it has its last token already
        return live

    def of_clients(self, requests: Iterable[Request]) -> Iterable[Request]:
        """Leave out the requests whose clients have given up."""
        given_up = self.given_up
        return (request for request in requests if request.index not in given_up) if given_up else requests

    # ---- operations for batch-formation rules ----

    def admit(
        self,
        plan: Plan,
        request: Request,
        cached_blocks: int,
        new_tokens: int,
        swapped_tokens: int = 0,
        tiered: Sequence[int] = (),
        padding: int = 0,
    ) -> None:
        """Move a waiting request into the batch, with its cached blocks and a first chunk.

        ``swapped_tokens``: number of tokens that come back from host memory (``Swapping.tokens_of``), after which the
        request continues; if 0, its content on the host is discarded. ``tiered``: content beyond the cached blocks that
        tiers hold (``BlockPool.in_tiers``). ``padding``: how many of the new tokens are draft placeholders; the only
        other one is decoded.
        """
        slot = self.assign_slot(request)
        pool = self.pool
        if cached_blocks:
            pool.pin(request, cached_blocks)
        cached_tokens = cached_blocks * pool.block_size_tokens
        if self.swapping is not None:
            cached_tokens = self.swapping.restore_blocks(plan, request, cached_tokens, swapped_tokens)
        if tiered and pool.tiers is not None:
            pool.tiers.load_into(plan, request, tiered)
            cached_tokens += len(tiered) * pool.block_size_tokens
            pool.extend(request, cached_tokens)
        request.computed_tokens = cached_tokens
        if not request.preemptions:  # a later hit would be on blocks it computed itself
            request.cached_tokens = cached_tokens
            if pool.caching:
                pool.queried_tokens += request.input_tokens
                pool.found_tokens += cached_tokens
        else:
            if pool.caching:  # vLLM counts these queries separately (``PrefixCacheStats``)
                pool.preempted_lookups += 1
                pool.preempted_queries += request.target_tokens
                pool.preempted_hits += cached_blocks * pool.block_size_tokens
            if request.peak_tokens > cached_tokens:
                self._recomputed_tokens += request.peak_tokens - cached_tokens
        if padding:
            self.decode_padded(request, padding)
        else:
            self.prefills[slot] = request
            if new_tokens:
                self.grant(plan, request, new_tokens, cached_tokens)
            else:
                plan.instant.append(request)
        plan.admitted.append(request)

    def assign_slot(self, request: Request) -> int:
        """Mark a waiting request as running and return its batch slot."""
        self.waiting.remove(request)
        for part in self.parts:
            part.entered(request)
        request.state = RUNNING
        slot = self._next_slot
        self._next_slot = slot + 1
        request.batch_slot = slot
        self.running[slot] = request
        return slot

    def decode_padded(self, request: Request, drafts: int) -> None:
        """Decode the request's only remaining token, padded with ``drafts`` placeholder draft tokens."""
        cohort = self.speculative
        assert cohort is not None  # noqa: S101  (only rules with speculative decoding pad)
        self.pool.hold(request, cohort.slots(request, 1 + drafts))
        self.pool.extend(request, request.computed_tokens + 1)
        cohort.pad(request, drafts)

    def next_waiting(self, passed: Collection[int] = (), count: int = 0) -> Request | None:
        """Return the first schedulable request in the queue, skipping requests without a slot for their adapter.

        It also skips ``count`` other requests, whose indices are in ``passed``.
        """
        if self.adapters is not None:
            return self.adapters.next(
                self.waiting,
                {**self.preempted_in_flight, **dict.fromkeys(passed)} if self.preempted_in_flight else passed,
            )
        first = self.waiting.first(len(self.preempted_in_flight) + count + 1)
        return next(
            (
                request
                for request in first
                if request.index not in self.preempted_in_flight and request.index not in passed
            ),
            None,
        )

    def awaits_adapter(self) -> bool:
        """Whether no request runs while an adapter is being loaded concurrently with steps."""
        return not self.running and self.adapters is not None and self.adapters.loading is not None

    def tells_of_adapters(self) -> bool:
        """Whether the latest plan has adapter records to emit."""
        return self.adapters is not None and self.adapters.reported

    def abandon(self) -> None:
        """Reset everything, because the instance is gone and its requests have been taken out."""
        self.refused = None
        for part in self.parts:
            part.reset()

    def forget_flights(self) -> None:
        """Forget the steps in flight: none contains any of these requests any more."""
        self.in_flight_until.clear()
        self.preempted_in_flight, self.input_unknown, self.paused = {}, {}, ()

    def awaits_transfers(self) -> bool:
        """Whether content is being transferred between GPU and host concurrently with steps."""
        tiers = self.pool.tiers
        return tiers is not None and tiers.under_way

    def release_victim(self, victim: Request, content_tokens: int) -> None:
        """Free the blocks of a request that waits again: it must recompute its content or restore it."""
        self._deduct_lost_recompute(victim)
        # Its content can be found again only under keys that exist for preempted requests.
        victim.preemptions += 1
        self.pool.release(victim, content_tokens, findable=True)
        victim.computed_tokens = 0
        if not self.traits.keeps_output:
            victim.generated_tokens = 0
        victim.target_tokens = victim.input_tokens + victim.generated_tokens

    def _deduct_lost_recompute(self, request: Request) -> None:
        """Deduct the tokens that a request which loses its blocks had yet to recompute."""
        if request.computed_tokens < request.peak_tokens:
            self._recomputed_tokens -= request.peak_tokens - request.computed_tokens
        else:
            request.peak_tokens = request.computed_tokens

    def recomputed_tokens(self) -> int:
        """Number of tokens that were recomputed after preemptions, generated tokens included."""
        open_tokens = whole_sum(
            [max(0, request.peak_tokens - self.cohort.context_tokens(request)) for request in self.running.values()]
        )
        return self._recomputed_tokens - open_tokens

    def grant(self, plan: Plan, request: Request, new_tokens: int, cached_tokens: int = 0) -> None:
        """Let a running request compute ``new_tokens`` more tokens of its prefill in this step."""
        computed = request.computed_tokens
        if self.speculative is not None:
            self.pool.hold(request, self.speculative.slots(request, new_tokens))
        self.pool.extend(request, computed + new_tokens)
        plan.chunks.append(Chunk(request, computed, new_tokens, request.target_tokens, cached_tokens))

    def choose_victim(self) -> Request:
        """Return the request to preempt next, by the policy's rule.

        It may be a request whose last token is being computed: it still holds its blocks.
        """
        return self.victim.choose(self)

    def preempt(self, plan: Plan, victim: Request, beneficiary: Request, granted: int = 0) -> None:
        """Take all blocks from a running request outside the cohort and put it back at the head of the queue.

        It keeps the token that a step in flight decodes for it. ``granted`` tokens of this plan are lost.
        """
        slot = victim.batch_slot
        content = self._content_tokens(victim, granted)
        for part in self.parts:
            part.interrupted(victim)
        if slot in self.in_flight_until:
            self.preempted_in_flight[victim.index] = (slot in self.finishing, self.in_flight_until.pop(slot))
        self.cohort.forget(victim)
        if slot in self.finishing:
            del self.finishing[slot]
            self.cohort.maybe_finished.pop(slot, None)
            plan.ghosts = [ghost for ghost in plan.ghosts if ghost.request is not victim]
            plan.preempted.append(Preemption(victim, beneficiary, victim.computed_tokens, victim.held_blocks))
            self.pool.release(victim, content)
            victim.batch_slot = -1
            return
        del self.running[slot]
        self.stalled.pop(slot, None)
        if self.prefills.pop(slot, None) is not None and granted:
            plan.chunks = [chunk for chunk in plan.chunks if chunk.request is not victim]
        plan.preempted.append(Preemption(victim, beneficiary, victim.computed_tokens, victim.held_blocks))
        if self.swapping is not None:
            self.swapping.swap_out(plan, victim)
        self.release_victim(victim, content)
        victim.batch_slot = -1
        victim.state = WAITING
        self.waiting.push_front(victim)
        for part in self.parts:
            part.left(victim)

    def retract(self, plan: Plan, victim: Request, beneficiary: Request) -> None:
        """Take all blocks from a running request outside the cohort and put it back at the end of the queue.

        Its content becomes no more findable than it was. The request keeps its generated tokens.
        """
        slot = victim.batch_slot
        del self.running[slot]
        self.prefills.pop(slot, None)
        self.stalled.pop(slot, None)
        plan.preempted.append(Preemption(victim, beneficiary, victim.computed_tokens, victim.held_blocks))
        self.release_victim(victim, 0)
        victim.batch_slot = -1
        victim.state = WAITING
        self.waiting.push(victim)
        for part in self.parts:
            part.left(victim)

    def look_back(self, now: int) -> None:
        """Tell what has content from the results that are known at ``now``."""
        self.now = now
        if self.speculative is not None:
            self.speculative.now = now
        self.forget_late(now)

    def forget_late(self, now: int) -> None:
        """Forget entries of ``preempted_in_flight`` and ``input_unknown`` whose steps have ended."""
        self.preempted_in_flight = {index: late for index, late in self.preempted_in_flight.items() if late[1] > now}
        self.input_unknown = {index: end for index, end in self.input_unknown.items() if end > now}

    def _content_tokens(self, request: Request, granted: int, *, results: bool = True) -> int:
        """Number of the request's tokens with content in the cache; vLLM counts a known token when it is granted.

        Without ``results``, those of the step in progress are not known yet.
        """
        computed = request.computed_tokens
        if self.speculative is not None and self.speculative.decodes(request):
            return self.speculative.content_tokens(request, results=results)
        notes_grants = self.traits.vllm_block_pool
        if not (notes_grants or self.traits.plans_ahead):
            return computed
        expected = request.joined_us > self.now
        ahead = self.cohort.hashed_ahead
        if granted and notes_grants:  # (not from generated_tokens: that may be one less after a prefill elsewhere)
            known = computed + 1 if computed >= request.target_tokens else request.target_tokens
            return min(computed + granted, known - ahead - expected)
        if expected and ahead:  # the token after the prompt is not known yet
            computed = min(computed, request.target_tokens - ahead)
        if not self.traits.plans_ahead:
            return computed - (request.index in self.input_unknown)
        decoded = computed > request.target_tokens and request.known_clock != self.cohort.clock
        return computed - (expected and decoded)

    def dissolve_cohort(self) -> None:
        """Take every decoding request out of the cohort, so that they are served one by one."""
        self.stalls += 1
        for request in self.cohort.members():
            self.cohort.leave(request)
            self.stalled[request.batch_slot] = request

    def in_order(self) -> list[Request]:
        """Return all requests that a plan may grant tokens to, in the order of admission."""
        maybe_finished = self.cohort.maybe_finished
        if not maybe_finished:
            return list(self.running.values())
        return sorted([*self.running.values(), *maybe_finished.values()], key=slot_of)

    def reform_cohort(self, decoding: dict[int, Request]) -> None:
        """Let the requests that get a token in this step advance together again; the others stay stalled."""
        for slot, request in decoding.items():
            del self.stalled[slot]
            self.join_cohort(request)

    def join_cohort(self, request: Request) -> None:
        """Let a request join the cohort; it gets a token in the step being planned."""
        if request.joined_us <= self.now:
            request.known_clock = self.cohort.clock + 1
        self.cohort.join(request, request.joined_us)

    # ---- operations for steps ----

    def leave_queue(self, request: Request) -> None:
        """Take a waiting request, which leaves without a result, out of the queue."""
        self.waiting.remove(request)
        self.given_up.pop(request.index, None)
        for part in self.parts:
            part.unqueued(request)

    def vacate(self, request: Request, end: int) -> None:
        """Free the slot and blocks of a request that has left the batch; its last step ends at ``end``."""
        late = self.traits.vllm_block_pool and 0 < request.deadline_us < end
        tokens = self.cohort.content_tokens(request, results=not late)
        self.cohort.forget(request)
        request.batch_slot = -1
        self.pool.release(request, tokens, end=end)

    def release_all(self) -> None:
        """Free the blocks of requests that left or ended during the step in flight, because that step is over."""
        for request, content_tokens in self.aborting:
            self.pool.release(request, content_tokens)
        self.aborting.clear()
        finishing = list(self.finishing.values())
        if self.pool.has_deadlines:
            finishing.sort(key=_ends_in_time)
        for request in finishing:
            self.release_finishing(request)

    def release_finishing(self, request: Request) -> None:
        """Free the slot and blocks of a request whose last token has been computed."""
        content = request.computed_tokens
        if self.pool.has_deadlines and not _ends_in_time(request):
            content = self._content_tokens(request, 0)
        del self.finishing[request.batch_slot]
        self.cohort.maybe_finished.pop(request.batch_slot, None)
        self.cohort.forget(request)
        request.batch_slot = -1
        if request.state is CREATED and self.traits.prepares_handovers:
            self._keep_until_sent(request, content)
        else:
            self.pool.release(request, content, end=-1)

    def _keep_until_sent(self, request: Request, content_tokens: int) -> None:
        """Let a copy hold the blocks of a prompt that continues elsewhere."""
        self.pool.checkpoint(request, content_tokens)
        self.sending[request.index] = copy(request)
        request.held_blocks = request.shared_blocks = 0

    def holders(self) -> list[Request]:
        """Return all requests that hold KV blocks."""
        aborting = [request for request, _ in self.aborting]
        elsewhere = (*self.reserved.values(), *self.sending.values())
        return [*self.running.values(), *self.finishing.values(), *aborting, *elsewhere]

    def abort(self, request: Request, now: int) -> None:
        """Take out a running request, which leaves without a result, and free its blocks."""
        self.pool.release(request, self.take_out(request), aborted_us=now)

    def give_up(self, request: Request) -> Request:
        """Keep a request whose client has given up, as the engine does, and return a copy for everybody else."""
        decodes = self._leave_cohort(request)
        ended = copy(request)
        self.given_up[request.index] = request
        request.reasoning = None
        if decodes:
            self.cohort.join(request, request.joined_us)
        return ended

    def end_with_next(self, request: Request) -> None:
        """Let a running request end with its next token."""
        decodes = self._leave_cohort(request)
        request.output_tokens = request.generated_tokens + 1
        if decodes:
            self.cohort.join(request, request.joined_us)

    def _leave_cohort(self, request: Request) -> bool:
        """Take a request out of the cohort; return whether it was there."""
        decodes = request.joined_clock >= 0
        if decodes:
            self.cohort.leave(request)
        return decodes

    def take_out(self, request: Request) -> int:
        """Take out a running request; return how many of its tokens have content in the cache."""
        slot, granted = request.batch_slot, 0
        self.given_up.pop(request.index, None)
        if request.joined_clock >= 0:
            granted = self.cohort.ahead
            self.cohort.leave(request)
        elif self.planned is not None and self.planned.plan is not None:
            granted = next((chunk.new for chunk in self.planned.plan.chunks if chunk.request is request), 0)
        content = self._content_tokens(request, granted, results=False)
        self.cohort.forget(request)
        del self.running[slot]
        self.prefills.pop(slot, None)
        self.stalled.pop(slot, None)
        request.batch_slot = -1
        for part in self.parts:
            part.taken_out(request)
        self._deduct_lost_recompute(request)
        return content

    def furthest(self) -> list[tuple[int, int]]:
        """Return who waits or runs, by index, and how many tokens each has ever had computed."""
        here = [*self.running.values(), *self.waiting.ordered()]
        return sorted(
            (request.index, max(request.peak_tokens, self.cohort.context_tokens(request))) for request in here
        )

    def livelock(self, index: int, now: int) -> StalledError:
        """Return the error for an instance whose requests are preempted for ever without any of them getting on."""
        help_text = "raise `engine.kv_blocks`, or preempt others (`policy.preemption.victim`)"
        if any(request.media.tokens for request in (*self.running.values(), *self.waiting.ordered())):
            help_text = (
                "an item of media must fit long_prefill_token_threshold when it is not split"
                " (disable_chunked_mm_input); or raise `engine.kv_blocks`"
            )
        return StalledError(
            f"instance {index} makes no progress at t={now} us: requests are preempted again and again"
            f" ({len(self.running)} running, {len(self.waiting.items)} waiting), and none gets a token it never had",
            help=help_text,
        )

    def deadlock(self, index: int, now: int) -> StalledError:
        """Return the error for an instance that has work but can schedule none of it."""
        request = self.waiting.head() if self.waiting.items else next(iter(self.running.values()))
        lacking = request.target_tokens - request.computed_tokens
        help_text = (
            "a prompt must fit max_num_batched_tokens when chunked prefill is off, and its blocks the KV cache; an"
            " item of media long_prefill_token_threshold when it is not split (disable_chunked_mm_input)"
        )
        if self.traits.fits_strictly and request.generated_tokens and request.ignore_eos and not self.pool.caching:
            help_text = (
                "SGLang itself would wait forever here: without prefix caching, it admits a retracted request that"
                " ignores EOS only if more than its remaining output still fits; raise `engine.kv_blocks`"
            )
        if self.traits.prepares_handovers and request.handover is not None:
            help_text = (
                "SGLang itself fails a request here, as all others hold KV blocks that it lacks; raise"
                " `engine.kv_blocks`, or `num_reserved_decode_tokens` in policy.batching"
            )
        return StalledError(
            f"instance {index} cannot go on at t={now} us: request {request.request_id} needs "
            f"{lacking} more tokens in the cache and nothing can be scheduled",
            help=help_text,
        )


def _ends_in_time(request: Request) -> bool:
    """Sort key: engines first give up requests whose deadlines have passed."""
    return not 0 < request.deadline_us < request.completed_us


def slot_of(request: Request) -> int:
    """Sort key: the request's position in the order of admission."""
    return request.batch_slot
