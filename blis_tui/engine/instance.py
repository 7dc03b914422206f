"""One serving instance: its batch and what is around it, and the four phases of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.batch import slot_of
from blis_tui.engine.batching.rule import plan_step
from blis_tui.engine.clientview import client_e2e_us, client_ttft_us
from blis_tui.engine.events import RequestCallback, Timeout, instance_order
from blis_tui.engine.latency.model import StepLoad
from blis_tui.engine.latency.pausing import Pausing
from blis_tui.engine.plan import Plan
from blis_tui.engine.profile import Profile
from blis_tui.engine.reasoning import emit_answers, note_answers
from blis_tui.engine.records import Completed, Dropped, Prefilled, Queued, TimedOut
from blis_tui.engine.request import RequestState, handover_of
from blis_tui.engine.seen import Seen
from blis_tui.engine.servable import unservable
from blis_tui.engine.step_event import IDLE, NO_STEP, Step
from blis_tui.engine.step_records import Done, emit_first_tokens, emit_plan, emit_step
from blis_tui.engine.tallies import Tallies, tally_wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.parts import Parts
    from blis_tui.engine.request import Request
    from blis_tui.engine.watch import Watch

# Priorities of instance events at a tie. A completion beats the timeout of the same microsecond.
QUEUED: Final = 1
_STEP: Final = 2
_LEFT: Final = 4
_TIMEOUT: Final = 5

_NO_PLAN: Final = Plan()


class Instance:
    """One engine with its own GPU memory.

    Attributes:
        index: position in the cluster, from 0.
        batch: the requests it works on, and its queue.
        rule: how batches are formed.
        tallies: what its steps add up to.
        order_step: place of its Step events among simultaneous events.
        step_pending: whether a Step event stands in the queue; there is never a second one.
        routed: requests the router sent here.
        seen: what others see of it and of them.
        input_tokens: prompt tokens of all requests that entered its queue.
        latency: the step-time model; its overheads belong to every latency that a client sees.
        front_end: the process that takes requests in; None = it takes no time of its own.
    """

    __slots__ = (
        "_events",
        "_free_us",
        "_ledger",
        "_observers",
        "_order_left",
        "_order_timeout",
        "_priority",
        "batch",
        "front_end",
        "index",
        "input_tokens",
        "latency",
        "order_step",
        "pool",
        "routed",
        "rule",
        "seen",
        "step_pending",
        "tallies",
        "waiting",
    )

    def __init__(self, index: int, batch: Batch, parts: Parts) -> None:
        self.index = index
        self.batch = batch
        self.pool = batch.pool
        self.waiting = batch.waiting
        self.rule = parts.rule
        self.tallies = Tallies()
        self.step_pending = False
        self.routed = 0
        self.seen = Seen(batch)
        self.input_tokens = 0
        self.order_step = instance_order(_STEP, index)
        self._order_left = instance_order(_LEFT, index)
        self._order_timeout = instance_order(_TIMEOUT, index)
        self.latency = parts.latency
        self.front_end = parts.front_end
        self._priority = parts.priority
        self._events = parts.events
        self._ledger = parts.ledger
        self._observers = parts.observers
        self._free_us = 0
        if batch.adapters is not None:
            batch.adapters.wake = self._want_step

    def watch(self, watch: Watch) -> None:
        """Tell the control plane from now on what happens to requests here."""
        self.seen.watch = watch
        if not watch.early:
            self.pool.hide_unseen()

    # ---- the way in ----

    @property
    def profile(self) -> Profile:
        """Its limits and rules."""
        batch = self.batch
        return Profile(batch.limits, batch.traits, batch.waiting.order, batch.victim.rule)

    @property
    def has_work(self) -> bool:
        """Whether somebody waits or runs."""
        return bool(self.batch.running or self.batch.waiting.items)

    def policy_state(self) -> tuple[object, ...]:
        """What its rules remember, as plain values (for digests)."""
        more = () if self.front_end is None else (self.front_end.state(),)
        return (self.rule.state(), self._priority.state(), *more)

    def pause_in_steps(self, look: Callable[[], None] | None) -> None:
        """Call ``look`` in every step from now on, between its first two phases; None ends that."""
        latency = self.latency.model if isinstance(self.latency, Pausing) else self.latency
        self.latency = latency if look is None else Pausing(latency, look)

    def intake_us(self, request: Request, now: int) -> int:
        """From the arrival of a request, now, until it is in the waiting queue."""
        delay = self.latency.queueing_time_us(request)
        return delay if self.front_end is None else delay + self.front_end.delay_us(request, self.batch.load, now)

    def enqueue(self, request: Request, now: int) -> None:
        """Take a request into the waiting queue, or drop it when it can never be served here."""
        request.queued_us = now
        if reason := unservable(self.batch, request):
            self.turn_down(request, reason, now)
            return
        self.input_tokens += request.input_tokens
        if 0 < request.deadline_us <= now:
            self._expire(request, now, was_running=False)
        else:
            self._wait(request, now)

    def reserve(self, request: Request, now: int, *, reuse: bool = False) -> str:
        """Take the KV blocks for a prompt that was computed elsewhere; returns why that is impossible, if it is.

        With ``reuse``, leading blocks that the prefix cache holds are shared (its ``shared_blocks`` then), the others
        are new.
        """
        pool = self.pool
        if reason := unservable(self.batch, request):
            return reason
        found = pool.visible_head(request.segments, now) if reuse else 0
        if pool.missing(request, request.input_tokens) - found + pool.idle_among(request, found) > pool.free:
            return f"its KV blocks do not fit: {pool.free} are free"
        if found:
            pool.pin(request, found)
        pool.hold(request, request.input_tokens)
        request.computed_tokens = request.input_tokens
        self.batch.reserved[request.index] = request
        return ""

    def adopt(self, request: Request, now: int) -> None:
        """Take a request whose KV blocks have arrived into the waiting queue: what is left of it is decoding."""
        if 0 < request.deadline_us <= now:
            self.give_back(request, now)
            self._expire(request, now, was_running=False)
            return
        self.pool.extend(request, request.input_tokens)
        self.pool.delivered(request)
        if request.generated_tokens >= min(request.output_tokens, request.max_output_tokens):
            request.generated_tokens -= 1  # as in BLIS, it decodes at least once here
        request.joined_us = min(request.first_token_us, now)
        self._wait(request, now)

    def turn_down(self, request: Request, reason: str, now: int) -> None:
        """It can never be served here."""
        request.state = RequestState.DROPPED_UNSERVABLE
        observers = self._observers
        if Dropped in observers.kinds:
            observers.emit(Dropped(observers.event, now, request.request_id, self.index, reason))
        self.seen.depart(request)
        self._ledger.close(request, client_ttft_us(request, self.latency) if request.first_token_us >= 0 else -1)

    def give_back(self, request: Request, now: int) -> None:
        """Free the blocks, if there are any, of somebody who does not run."""
        self.batch.give_back(request)
        self._want_step(now)

    def _want_step(self, now: int) -> None:
        """There is a step to come as long as there is work; this is where one begins after a pause."""
        if self.has_work and not self.step_pending and not self.batch.awaits_adapter():
            self.step_pending = True
            start = max(now, self._free_us) if self.rule.traits.busy_until_the_end else now
            self._events.push(start, self.order_step, Step(self))

    def _wait(self, request: Request, now: int) -> None:
        observers = self._observers
        request.state = RequestState.WAITING
        self.seen.present.change(1, now)
        request.priority = self._priority.priority(request)
        self.waiting.push(request)
        if request.deadline_us > 0:
            timeout = Timeout("timeout", request, self.timeout, self.index)
            self._events.push(request.deadline_us, self._order_timeout, timeout)
            self._events.sweep()
        self._want_step(now)
        if Queued in observers.kinds:
            position = self.waiting.position(request)
            observers.emit(Queued(observers.event, now, request.request_id, self.index, position))

    def timeout(self, request: Request, now: int) -> None:
        """A deadline has come: a request that waits or runs leaves with nothing. A pending step stays pending."""
        was_running = request.state is RequestState.RUNNING
        self.withdraw(request, now)
        self._expire(request, now, was_running=was_running)

    def withdraw(self, request: Request, now: int) -> None:
        """Take out somebody who waits or runs."""
        self.seen.present.change(-1, now)
        if request.state is RequestState.RUNNING:
            self.batch.abort(request)
        else:
            self.batch.leave_queue(request)
            self.give_back(request, now)

    def _expire(self, request: Request, now: int, *, was_running: bool) -> None:
        request.state = RequestState.TIMED_OUT
        self.seen.depart(request)
        observers, generated = self._observers, request.generated_tokens
        if TimedOut in observers.kinds:
            observers.emit(TimedOut(observers.event, now, request.request_id, self.index, was_running, generated))
        self._ledger.close(request, client_ttft_us(request, self.latency) if request.first_token_us >= 0 else -1)

    def hand_over(self, request: Request, now: int) -> None:
        """The step is over that computed a prompt for another instance."""
        self.seen.leave(request, ~request.index, now)
        watch, observers = self.seen.watch, self._observers
        if watch is not None and not watch.early_transfers:
            watch.prefilled.append(request)
        if Prefilled in observers.kinds:
            observers.emit(Prefilled(observers.event, now, request.request_id, self.index))

    def abandon(self) -> None:
        """Stop in the middle of everything: its requests have been taken out."""
        self.batch.abandon()
        self.pool.wipe()

    def plans(self) -> tuple[object, ...]:
        """What is planned and not carried out, as plain values (for digests)."""
        return ()

    def leave(self, request: Request, now: int) -> None:
        """The client of a completed request has its whole answer."""
        self.seen.leave(request, request.index, now)
        observers = self._observers
        if Completed in observers.kinds:
            latency = self.latency
            observers.emit(
                Completed(
                    observers.event,
                    now,
                    request.request_id,
                    self.index,
                    request.generated_tokens,
                    client_ttft_us(request, latency),
                    client_e2e_us(request, latency),
                    request.length_capped,
                )
            )

    # ---- one step ----

    def step(self, now: int, *, planned: bool = False) -> int:
        """Run one step from ``now``; returns when the next one starts, IDLE or NO_STEP.

        ``planned``: it is a plain decode, and the blocks for it have been taken.
        """
        batch = self.batch
        load = batch.load
        decodes = load.decode_requests
        cohort = batch.cohort
        waiting = self.waiting.items
        if not planned:
            if (
                not decodes
                or batch.prefills
                or (batch.stalled or self.pool.tiers is not None)
                or decodes > batch.max_decodes
                or (waiting and len(batch.running) < batch.max_running)
            ):
                return self._planned_step(now)
            # A plain decode: nothing to decide, every running request gets its token.
            due = len(cohort.classes[cohort.clock % cohort.block_size_tokens])
            if due:
                pool = self.pool
                if due > pool.free:
                    return self._planned_step(now)
                pool.take(due)
        context = load.decode_context_tokens
        duration = self.latency.step_time_us(load)
        end = self._free_us = now + duration
        tallies = self.tallies
        finishing = cohort.advance(now, duration, tallies.itl_us)
        answering = note_answers(cohort, end, self.latency) if cohort.answers else ()
        if finishing is not None:
            for request in finishing:
                cohort.retire(request)
            self._complete(finishing, end)
        tallies.steps += 1
        tallies.busy_us += duration
        if waiting and not planned and len(batch.running) + len(finishing or ()) >= batch.max_running:
            tallies.seqs_wait_us += duration
        upcoming = end if waiting or batch.running else IDLE
        if self._observers.kinds:
            self._emit_step(_NO_PLAN, Done(now, duration, decodes, context, [], finishing or [], upcoming, answering))
        return upcoming

    def _planned_step(self, now: int) -> int:
        if not self.has_work:
            return NO_STEP
        plan = self._plan(now)
        if plan is None:
            return NO_STEP
        if not self.batch.load.decode_requests and plan.computes_nothing:
            if self.batch.awaits_adapter():
                return IDLE if self.batch.tells_of_adapters() else NO_STEP
            raise self.batch.deadlock(self.index, now)
        return self._run(plan, self.pool.epoch, now)

    def _plan(self, now: int, *, ahead: bool = False) -> Plan | None:
        """Schedule the step that starts now (or after the one under way); None = not before KV blocks arrive."""
        batch = self.batch
        batch.begin_plan(now)
        plan = plan_step(self.rule, batch, ahead=ahead)
        if plan is None:
            return None
        tallies = self.tallies
        for request in plan.admitted:
            if request.scheduled_us < 0:
                request.scheduled_us = now
        for preemption in plan.preempted:
            if preemption.victim.state is RequestState.WAITING:  # else its last token is being computed already
                tallies.preemptions += 1
                tallies.preempted_requests += preemption.victim.preemptions == 1
        tallies.peak_running = max(tallies.peak_running, len(batch.running))
        if self._observers.kinds:
            emit_plan(self._observers, self.index, now, plan)
        return plan

    def _run(self, plan: Plan, epoch: int, now: int) -> int:
        """Execute what was scheduled, and take note of what comes of it; ``epoch`` is the pool's after scheduling."""
        batch, tallies = self.batch, self.tallies
        load = batch.load if plan.decodes else StepLoad()
        load.chunks = plan.chunks
        decodes = load.decode_requests
        context = load.decode_context_tokens
        empty = self.rule.traits.skips_empty_steps and not decodes and not plan.chunks
        duration = 0 if empty else self._duration_us(load)
        duration = batch.lasting(plan, now, duration)
        if batch.adapters is not None:
            duration += batch.adapters.start(plan.admitted, now)
        duration = self._under_way_us(duration, now)
        load.chunks = _NO_PLAN.chunks
        end = now + duration
        self.pool.computed(now, end)
        # Complete.
        cohort = batch.cohort
        finishing = (cohort.advance(now, duration, tallies.itl_us) if decodes else None) or []
        for request in finishing:
            cohort.retire(request)
        prefilled = plan.instant
        tokens = decodes + cohort.drafted
        for chunk in plan.chunks:
            request = chunk.request
            tokens += chunk.new
            request.computed_tokens = chunk.computed + chunk.new
            if request.computed_tokens == request.target_tokens:
                prefilled.append(request)
        if len(prefilled) > 1:
            prefilled.sort(key=slot_of)
        observed = bool(self._observers.kinds)
        first_tokens = [request for request in prefilled if not request.generated_tokens] if observed else []
        for request in prefilled:
            if request.handover is not None:
                request.handover.last_step_us = duration
            self._end_prefill(request, end, finishing)
        answering = note_answers(cohort, end, self.latency, prefilled) if prefilled or cohort.answers else ()
        if finishing:
            self._complete(finishing, end)
        # Next.
        full_budget = tokens >= batch.limits.max_num_batched_tokens
        tallies.step(plan.chunks, decodes, duration, full_budget=full_budget)
        waiting = batch.waiting.items
        if waiting and not batch.traits.plans_ahead:
            tally_wait(tallies, batch, plan, epoch, len(finishing), duration, full_budget=full_budget)
        self._free_us = end
        upcoming = end if waiting or batch.running else IDLE
        if observed:
            self._emit_step(plan, Done(now, duration, decodes, context, first_tokens, finishing, upcoming, answering))
        return upcoming

    def _duration_us(self, load: StepLoad) -> int:
        """How long a step with this load computes."""
        return self.latency.step_time_us(load)

    def _under_way_us(self, duration_us: int, now: int) -> int:  # noqa: ARG002  (for engines that are not free at once)
        """How long a step is under way that starts now and takes so long."""
        return duration_us

    def _end_prefill(self, request: Request, end: int, finishing: list[Request]) -> None:
        """The last token of its prefill is computed: a first token comes out, or (after a preemption) the next one."""
        batch = self.batch
        del batch.prefills[request.batch_slot]
        wanted = min(request.output_tokens, request.max_output_tokens)
        if request.generated_tokens:
            gap = end - request.joined_us
            itl_us = self.tallies.itl_us
            itl_us[gap] = itl_us.get(gap, 0) + 1
        else:
            request.first_token_us = end
            if request.handover is not None:
                request.handover.first_token_overhead_us = self.latency.output_token_overhead_us
        if wanted:
            request.generated_tokens += 1
        request.joined_us = end
        if request.generated_tokens >= wanted or (request.handover is not None and not request.handover.prefilled):
            finishing.append(request)
        else:
            batch.cohort.join(request, end)

    def _complete(self, finishing: list[Request], end: int) -> None:
        """Requests outside the cohort have their last token."""
        if len(finishing) > 1:
            finishing.sort(key=slot_of)
        pool, latency, watched = self.pool, self.latency, self.seen.watch is not None
        running, adapters = self.batch.running, self.batch.adapters
        stores_last_token = self.rule.traits.stores_last_token
        for request in finishing:
            del running[request.batch_slot]
            if adapters is not None:
                adapters.leave(request)
            handover = request.handover
            if handover is not None and not handover.prefilled:
                self._part(request, end)
                continue
            free = pool.free
            if stores_last_token and request.generated_tokens:
                pool.take_spare(request, request.computed_tokens + 1)
            self._vacate(request, end)
            if watched:
                self.seen.vacated(request, request.index, pool.free - free)
            request.state = RequestState.COMPLETED
            request.length_capped = request.generated_tokens < request.output_tokens
            request.completed_us = end
            self._ledger.close(request, client_ttft_us(request, latency), client_e2e_us(request, latency))
            self._events.push(end, self._order_left, RequestCallback("request-left", request, self.leave, self.index))

    def _vacate(self, request: Request, end: int) -> None:
        """Give up the slot and the blocks of a request that has left the batch; the step ends then."""
        request.batch_slot = -1
        self.pool.release(request, request.computed_tokens, end=end)

    def _part(self, request: Request, end: int) -> None:
        """A prompt is computed for another instance: what is left of the request happens there."""
        free = self.pool.free
        self._vacate(request, end)
        self.seen.vacated(request, ~request.index, self.pool.free - free)
        handover_of(request).prefilled = True
        request.state = RequestState.CREATED
        watch = self.seen.watch
        if watch is not None and watch.early_transfers:
            watch.prefilled.append(request)
        self._events.push(end, self._order_left, RequestCallback("prefill-left", request, self.hand_over, self.index))

    def _emit_step(self, plan: Plan, done: Done) -> None:
        emit_step(self._observers, self.index, self.tallies.steps, self.batch, plan, done)
        emit_first_tokens(self._observers, self.index, done, self.latency)
        emit_answers(self._observers, self.index, done.start_us, done.answering)
