"""One serving instance: its queue, its running batch, its KV blocks, and the four phases of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.clientview import client_e2e_us, client_ttft_us
from blis_tui.engine.cohort import DecodeCohort
from blis_tui.engine.events import REQUEST_LEFT, STEP, TIMEOUT, instance_order
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.latency.pausing import Pausing
from blis_tui.engine.records import Dropped, Preempted, Queued, Scheduled, TimedOut
from blis_tui.engine.request import RequestState
from blis_tui.engine.step_notes import StepNotes, tell_admissions, tell_step
from blis_tui.errors import PolicyError, StalledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.batching.rule import BatchRule
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.kv.pool import BlockPool
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.ledger import Ledger
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.engine.scheduling.priority import PriorityRule
    from blis_tui.engine.scheduling.queues import WaitingQueue
    from blis_tui.spec.model import Engine

IDLE: Final = -1
"""A step's answer: nothing is left to do."""
HOLLOW: Final = -2
"""A step's answer: there was nothing to do (everybody timed out meanwhile); it did not happen."""

VICTIMS: Final = ("tail", "priority")


class Instance:
    """One engine with its own GPU memory.

    Attributes:
        index: position in the cluster, from 0.
        running: batch slot -> request, in the order of admission.
        prefills: those of ``running`` whose prefill is not finished.
        stalled: those of ``running`` that decode, but got no token in the latest step.
        now: start of the latest planned step.
        notes: what the step being processed has done.
        advance: whether the decode cohort takes part in the step being planned.
        order_step: place of its Step events among simultaneous events.
        step_pending: whether a Step event stands in the queue; there is never a second one.
        refused: the latest attempt to admit that failed: request, pool epoch, token budget.
        steps: steps so far.
        preemptions: preemptions so far.
        routed: requests the router sent here.
        itl_us: tokens by the time since the request's previous token, overheads not included.
        busy_us: sum of the durations of all steps.
        prefill_us: those of steps that computed prompt tokens.
        beside_prefill_us: those of these steps, once for each request that decoded in them.
        full_budget_us: those of steps that used up ``max_num_batched_tokens``.
        kv_wait_us: those of steps that left somebody waiting for want of KV blocks (preempted requests wait, too).
        seqs_wait_us: those of steps that left somebody waiting because ``max_num_seqs`` ran, though not all of the
            token budget was used up.
        peak_running: the largest batch so far.
    """

    __slots__ = (
        "_batching",
        "_events",
        "_latency",
        "_ledger",
        "_next_slot",
        "_observers",
        "_order_left",
        "_order_timeout",
        "_priority",
        "_stores_last_token",
        "_victim",
        "advance",
        "beside_prefill_us",
        "busy_us",
        "cohort",
        "full_budget_us",
        "index",
        "itl_us",
        "kv_wait_us",
        "load",
        "long_prefill_token_threshold",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
        "notes",
        "now",
        "order_step",
        "peak_running",
        "pool",
        "preempted_requests",
        "preemptions",
        "prefill_us",
        "prefills",
        "refused",
        "routed",
        "running",
        "seqs_wait_us",
        "stalled",
        "step_pending",
        "steps",
        "waiting",
    )

    def __init__(
        self,
        index: int,
        engine: Engine,
        *,
        latency: StepTimeModel,
        batching: BatchRule,
        waiting: WaitingQueue,
        priority: PriorityRule,
        victim: str,
        pool: BlockPool,
        events: EventQueue,
        ledger: Ledger,
        observers: Observers,
    ) -> None:
        if victim not in VICTIMS:
            raise PolicyError(f"no preemption victim `{victim}`", help=f"known: {', '.join(VICTIMS)}")
        self.index = index
        self.max_num_seqs = engine.max_num_seqs
        self.max_num_batched_tokens = engine.max_num_batched_tokens
        self.max_model_len = engine.max_model_len
        self.long_prefill_token_threshold = batching.prefill_threshold(engine)
        self.waiting = waiting
        self.pool = pool
        self.load = StepLoad()
        self.cohort = DecodeCohort(self.load, engine.block_size_tokens)
        self.running: dict[int, Request] = {}
        self.prefills: dict[int, Request] = {}
        self.stalled: dict[int, Request] = {}
        self.now = 0
        self.notes = StepNotes()
        self.advance = True
        self.step_pending = False
        self.refused: tuple[int, int, int] | None = None
        self.steps = 0
        self.preemptions = 0
        self.preempted_requests = 0
        self.routed = 0
        self.itl_us: dict[int, int] = {}
        self.busy_us = 0
        self.prefill_us = 0
        self.beside_prefill_us = 0
        self.full_budget_us = 0
        self.kv_wait_us = 0
        self.seqs_wait_us = 0
        self.peak_running = 0
        self._latency = latency
        self._batching = batching
        self._stores_last_token = batching.stores_last_token
        self._priority = priority
        self._victim = victim
        self._events = events
        self._ledger = ledger
        self._observers = observers
        self.order_step = instance_order(STEP, index)
        self._order_left = instance_order(REQUEST_LEFT, index)
        self._order_timeout = instance_order(TIMEOUT, index)
        self._next_slot = 0

    # ---- the way in ----

    @property
    def latency(self) -> StepTimeModel:
        """The step-time model (its overheads belong to every latency a client sees)."""
        return self._latency

    def pause_in_steps(self, look: Callable[[], None] | None) -> None:
        """Call ``look`` in every step from now on, between its first two phases; None ends that."""
        latency = self._latency.model if isinstance(self._latency, Pausing) else self._latency
        self._latency = latency if look is None else Pausing(latency, look)

    def enqueue(self, request: Request, now: int) -> None:
        """Take a request into the waiting queue, or drop it when it can never be served here."""
        request.queued_us = now
        observers = self._observers
        reason = self._unservable(request)
        if reason:
            request.state = RequestState.DROPPED_UNSERVABLE
            if Dropped in observers.kinds:
                observers.emit(Dropped(observers.event, now, request.request_id, self.index, reason))
            self._ledger.close(request)
            return
        if 0 < request.deadline_us <= now:
            self._expire(request, now, was_running=False)
            return
        request.state = RequestState.WAITING
        request.priority = self._priority.priority(request)
        self.waiting.push(request)
        if request.deadline_us > 0:
            self._events.push(request.deadline_us, self._order_timeout, TIMEOUT, request)
            self._events.sweep()
        if not self.step_pending:
            self.step_pending = True
            self._events.push(now, self.order_step, STEP, self)
        if Queued in observers.kinds:
            position = self.waiting.position(request)
            observers.emit(Queued(observers.event, now, request.request_id, self.index, position))

    def _unservable(self, request: Request) -> str:
        """Why ``request`` can never run here; empty when it can."""
        prompt = request.input_tokens
        limit = self.max_model_len
        if limit is not None and prompt >= limit:
            return f"prompt of {prompt} tokens, max_model_len is {limit}"
        if not request.max_output_tokens:
            request.max_output_tokens = request.output_tokens if limit is None else limit - prompt
        budget = request.max_output_tokens
        if limit is not None and prompt + budget > limit:
            return f"prompt of {prompt} + {budget} output tokens, max_model_len is {limit}"
        # The last token generated never enters the cache.
        whole = prompt + max(min(budget, request.output_tokens), 1) - 1
        blocks = -(-whole // self.pool.block_size_tokens)
        if blocks > self.pool.total:
            return f"{whole} tokens need {blocks} KV blocks, there are {self.pool.total}"
        return ""

    def timeout(self, request: Request, now: int) -> None:
        """A deadline has come: a request that waits or runs leaves with nothing. A pending step stays pending."""
        was_running = request.state is RequestState.RUNNING
        if was_running:
            slot = request.batch_slot
            if request.joined_clock >= 0:
                self.cohort.leave(request)
            del self.running[slot]
            self.prefills.pop(slot, None)
            self.stalled.pop(slot, None)
            request.batch_slot = -1
            self.pool.release(request, findable=False)
        else:
            self.waiting.remove(request)
        self._expire(request, now, was_running=was_running)

    def _expire(self, request: Request, now: int, *, was_running: bool) -> None:
        request.state = RequestState.TIMED_OUT
        observers = self._observers
        if TimedOut in observers.kinds:
            observers.emit(
                TimedOut(observers.event, now, request.request_id, self.index, was_running, request.generated_tokens)
            )
        started = request.first_token_us >= 0
        self._ledger.close(request, client_ttft_us(request, self._latency) if started else -1)

    # ---- one step ----

    def step(self, now: int) -> int:
        """Run one step from ``now``; returns when the next one starts, IDLE or HOLLOW."""
        load = self.load
        decodes = load.decode_requests
        waiting = self.waiting.items
        if (
            not decodes
            or self.prefills
            or self.stalled
            or decodes > self.max_num_batched_tokens
            or (waiting and len(self.running) < self.max_num_seqs)
        ):
            return self._planned_step(now)
        # A plain decode: nothing to decide, every running request gets its token.
        cohort = self.cohort
        due = len(cohort.classes[cohort.clock % cohort.block_size_tokens])
        if due:
            pool = self.pool
            if due > pool.free:
                return self._planned_step(now)
            pool.take(due)
        context = load.decode_context_tokens
        duration = self._latency.step_time_us(load)
        finishing = cohort.advance(now, duration, self.itl_us)
        if finishing is not None:
            self._complete_decodes(finishing, now + duration)
        self.steps += 1
        self.busy_us += duration
        if waiting:  # the batch is full, or this were no plain decode
            self.seqs_wait_us += duration
        upcoming = now + duration if waiting or self.running else IDLE
        if self._observers.kinds:
            tell_step(self._observers, self, now, duration, (decodes, context), finishing or [], upcoming)
        return upcoming

    def _planned_step(self, now: int) -> int:
        if not self.running and not self.waiting.items:
            return HOLLOW
        # Schedule.
        load = self.load
        cohort = self.cohort
        self.now = now
        self.advance = True
        self._batching.schedule(self)
        for request in self.notes.admitted:
            if request.scheduled_us < 0:
                request.scheduled_us = now
        self.peak_running = max(self.peak_running, len(self.running))
        if Scheduled in self._observers.kinds:
            tell_admissions(self._observers, self)
        decodes = load.decode_requests if self.advance else 0
        context = load.decode_context_tokens if self.advance else 0
        if not decodes and not load.chunks and not self.notes.instant and not self.notes.preempted:
            raise self._stall(now)
        epoch = self.pool.epoch
        # Execute.
        duration = self._latency.step_time_us(load if self.advance else StepLoad(load.chunks))
        end = now + duration
        # Complete.
        finishing = (cohort.advance(now, duration, self.itl_us) if decodes else None) or []
        for request in finishing:
            cohort.retire(request)
        prefilled = self.notes.instant
        tokens = decodes
        for chunk in load.chunks:
            request = chunk.request
            tokens += chunk.new
            request.computed_tokens = chunk.computed + chunk.new
            if request.computed_tokens == request.target_tokens:
                prefilled.append(request)
        if len(prefilled) > 1:
            prefilled.sort(key=_slot)
        for request in prefilled:
            self._end_prefill(request, end, finishing)
        if len(finishing) > 1:
            finishing.sort(key=_slot)
        for request in finishing:
            self._complete(request, end)
        # Next.
        self.steps += 1
        self.busy_us += duration
        full_budget = tokens >= self.max_num_batched_tokens
        if full_budget:
            self.full_budget_us += duration
        if load.chunks:
            self.prefill_us += duration
            self.beside_prefill_us += duration * decodes
        waiting = self.waiting.items
        if waiting:
            if self.notes.preempted:
                self.kv_wait_us += duration
            elif full_budget:
                pass
            elif len(self.running) + len(finishing) >= self.max_num_seqs:
                self.seqs_wait_us += duration
            elif self.refused is not None and self.refused[1] == epoch:
                self.kv_wait_us += duration
        upcoming = end if waiting or self.running else IDLE
        if self._observers.kinds:
            tell_step(self._observers, self, now, duration, (decodes, context), finishing, upcoming)
        load.chunks.clear()
        self.notes.clear()
        return upcoming

    def _end_prefill(self, request: Request, end: int, finishing: list[Request]) -> None:
        """The last token of its prefill is computed: a first token comes out, or (after a preemption) the next one."""
        del self.prefills[request.batch_slot]
        wanted = min(request.output_tokens, request.max_output_tokens)
        if request.generated_tokens:
            gap = end - request.joined_us
            self.itl_us[gap] = self.itl_us.get(gap, 0) + 1
        else:
            request.first_token_us = end
            self.notes.first_tokens.append(request)
        if wanted:
            request.generated_tokens += 1
        request.joined_us = end
        if request.generated_tokens >= wanted:
            finishing.append(request)
        else:
            self.cohort.join(request, end)

    def _complete_decodes(self, finishing: list[Request], end: int) -> None:
        if len(finishing) > 1:
            finishing.sort(key=_slot)
        for request in finishing:
            self.cohort.retire(request)
            self._complete(request, end)

    def _complete(self, request: Request, end: int) -> None:
        del self.running[request.batch_slot]
        request.batch_slot = -1
        pool = self.pool
        if self._stores_last_token and request.generated_tokens and pool.missing(request, request.computed_tokens + 1):
            pool.take_spare(request)
        pool.release(request, findable=False)
        request.state = RequestState.COMPLETED
        request.length_capped = request.generated_tokens < request.output_tokens
        request.completed_us = end
        latency = self._latency
        self._ledger.close(request, client_ttft_us(request, latency), client_e2e_us(request, latency))
        self._events.push(end, self._order_left, REQUEST_LEFT, request)

    def _stall(self, now: int) -> StalledError:
        request = self.waiting.head() if self.waiting.items else next(iter(self.running.values()))
        return StalledError(
            f"instance {self.index} cannot go on at t={now} us: request {request.request_id} needs "
            f"{request.target_tokens - request.computed_tokens} more tokens in the cache and nothing can be scheduled",
            help="a prompt must fit max_num_batched_tokens when chunked prefill is off, and its blocks the KV cache",
        )

    # ---- what batch-formation rules do with it ----------------------------------------------------------------

    def admit(self, request: Request, cached_blocks: int, new_tokens: int) -> None:
        """Move the head of the queue into the running batch, with its cached blocks and a first chunk."""
        pool = self.pool
        self.waiting.pop()
        if cached_blocks:
            pool.pin(request, cached_blocks)
        cached_tokens = cached_blocks * pool.block_size_tokens
        request.computed_tokens = cached_tokens
        if not request.preemptions:  # later it would find what it has computed itself
            request.cached_tokens = cached_tokens
        request.state = RequestState.RUNNING
        slot = self._next_slot
        self._next_slot = slot + 1
        request.batch_slot = slot
        self.running[slot] = request
        self.prefills[slot] = request
        if new_tokens:
            self.grant(request, new_tokens, cached_tokens)
        else:
            self.notes.instant.append(request)
        self.notes.admitted.append(request)

    def grant(self, request: Request, new_tokens: int, cached_tokens: int = 0) -> None:
        """Let a running request compute ``new_tokens`` more tokens of its prefill in this step."""
        computed = request.computed_tokens
        self.pool.extend(request, computed + new_tokens)
        self.load.chunks.append(Chunk(request, computed, new_tokens, request.target_tokens, cached_tokens))

    def choose_victim(self) -> Request:
        """Whom to preempt next, by the policy's rule: the youngest running request, or the least urgent one."""
        if self._victim == "tail":
            return next(reversed(self.running.values()))
        # Of equals the youngest: if the older went, they could take each other's blocks for ever.
        return max(reversed(self.running.values()), key=_urgency)

    def preempt(self, victim: Request, beneficiary: Request) -> None:
        """Take all blocks from a running request outside the cohort and put it back to the head of the queue."""
        slot = victim.batch_slot
        del self.running[slot]
        self.prefills.pop(slot, None)
        self.stalled.pop(slot, None)
        chunks = self.load.chunks
        for i, chunk in enumerate(chunks):
            if chunk.request is victim:
                del chunks[i]
                break
        lost = victim.computed_tokens
        blocks = victim.held_blocks
        # Its content can only be found again under keys that exist for preempted requests.
        victim.preemptions += 1
        self.pool.release(victim, findable=True)
        victim.computed_tokens = 0
        victim.batch_slot = -1
        victim.state = RequestState.WAITING
        self._batching.restart(victim)
        self.waiting.push_front(victim)
        self.preemptions += 1
        self.preempted_requests += victim.preemptions == 1
        self.notes.preempted.append(victim)
        observers = self._observers
        if Preempted in observers.kinds:
            observers.emit(
                Preempted(
                    observers.event,
                    self.now,
                    victim.request_id,
                    self.index,
                    beneficiary.request_id,
                    lost,
                    blocks,
                )
            )

    def dissolve_cohort(self) -> None:
        """Take every decoding request out of the cohort, to be served one by one."""
        for request in self.cohort.members():
            self.cohort.leave(request)
            self.stalled[request.batch_slot] = request

    def reform_cohort(self, decoding: dict[int, Request]) -> None:
        """Let the requests that get a token in this step advance together again; the others stay stalled."""
        for slot, request in decoding.items():
            del self.stalled[slot]
            self.cohort.join(request, request.joined_us)


def _slot(request: Request) -> int:
    return request.batch_slot


def _urgency(request: Request) -> tuple[int, int]:
    return (request.priority, request.arrival_us)
