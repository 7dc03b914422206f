"""The steps of one instance: how one is planned, how long it takes, its outcome, and the records that tell it.

The loop (``engine.step_loop``) decides when steps are planned and how many are in flight at a time. Parts
(``StepPart``) are what some steps wait for besides their computation, such as transfers of KV blocks; most instances
have none.
"""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.engine.batch import slot_of
from blis_tui.engine.client_times import client_times_us, client_ttfat_us, client_ttft_us
from blis_tui.engine.counts import ObservedInstance, Tallies, tally_wait
from blis_tui.engine.events import RequestCallback, instance_order
from blis_tui.engine.latency.model import StepLoad, Timed, is_pure
from blis_tui.engine.plan import NO_PLAN, Done
from blis_tui.engine.records import (
    AnswerBegun,
    ChunkDone,
    Completed,
    FirstToken,
    Preempted,
    PreemptedByPriority,
    Prefilled,
    RestoreChosen,
    Retracted,
    Scheduled,
    StepFinished,
    SwappedBack,
    TiersLoaded,
)
from blis_tui.engine.request import COMPLETED, CREATED, WAITING, RequestState, handover_of
from blis_tui.engine.rules.rule import plan_step
from blis_tui.engine.stopped import MAX_NUM_SEQS, SchedulingStopped, Stopped, emit_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.client_times import FrontEnd
    from blis_tui.engine.cohort import DecodeCohort
    from blis_tui.engine.counts import Ledger
    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.orders import PriorityRule
    from blis_tui.engine.plan import Plan, StepPart
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.engine.rules.rule import BatchRule

_DEPARTURE_PRIORITY: Final = 4
"""Priority at a tie with other events of the instance: a step that starts then comes first."""
_PREEMPTIONS_AT_LEAST: Final = 1024
"""Preemptions on an instance between two looks for progress."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Parts:
    """What an instance consists of besides its batch, and where it reports.

    Attributes:
        latency: the step-time model.
        rule: forms the batches.
        priority: determines a request's priority.
        events: where steps are scheduled.
        ledger: where ended requests are recorded.
        observers: receive the records.
        beside: parts of steps besides their computation.
        front_end: the API server process; None = it takes no time of its own.
    """

    def __init__(
        self,
        latency: StepTimeModel,
        rule: BatchRule,
        priority: PriorityRule,
        events: EventQueue,
        ledger: Ledger,
        observers: Observers,
        beside: tuple[StepPart, ...] = (),
        front_end: FrontEnd | None = None,
    ) -> None:
        self.latency = latency
        self.rule = rule
        self.priority = priority
        self.events = events
        self.ledger = ledger
        self.observers = observers
        self.beside = beside
        self.front_end = front_end


@mypyc_attr(allow_interpreted_subclasses=True)
class Steps(Picklable):
    """Plans steps and carries them out.

    Attributes:
        index: of the instance.
        batch: the requests it works on.
        rule: forms the batches.
        latency: the step-time model; its overheads are part of every client-side latency.
        flat: whether the model's answer for a plain decode depends on the number of decodes alone.
        timed: the same model if it is pure, so that it does not matter when or how often it is asked; plain decodes
            then run in one go.
        seen: what others can see of the requests.
        tallies: totals over the steps.
        parts: parts of steps besides their computation, in this order.
        place_of: sort key of a request within a batch.
        free_us: when the latest step ends.
        holds: whether requests that end keep their slot and their blocks until their last step is over.
        plans_on: whether the step after that is also planned for requests whose answer ends early.
        done: outcome of the latest step if it has subscribers; the loop has yet to report it.
        departing: what the latest step with completed requests has completed: the end of that step, and for each
            request the number that the event of its departure would have; None = departures are events.
        departed: departures without an event that the simulation's loop has not counted yet.
        departed_us: when the latest of these was.
    """

    __slots__ = (
        "_budget",
        "_ledger",
        "_look_at",
        "_order_left",
        "_plans_ahead",
        "_prefills_apart",
        "_reached",
        "_skips_empty_steps",
        "_stores_last_token",
        "_uncounted_end",
        "batch",
        "departed",
        "departed_us",
        "departing",
        "done",
        "events",
        "flat",
        "free_us",
        "holds",
        "index",
        "latency",
        "observers",
        "parts",
        "place_of",
        "plans_on",
        "rule",
        "seen",
        "tallies",
        "timed",
    )

    def __init__(self, index: int, batch: Batch, parts: Parts) -> None:
        self.index = index
        self.batch = batch
        self.rule = parts.rule
        self.take(parts.latency)
        self.events = parts.events
        self.observers = parts.observers
        self.seen = ObservedInstance(batch)
        self.tallies = Tallies()
        self.parts = parts.beside
        self.place_of: Callable[[Request], int] = slot_of
        self.free_us = 0
        self.holds = self.plans_on = False
        self.done: Done | None = None
        self.departing: list[tuple[int, int, Request]] | None = None
        self.departed = self.departed_us = 0
        self._look_at = _PREEMPTIONS_AT_LEAST
        self._reached: list[tuple[int, int]] = []
        """Who was here at the latest look for progress, by index, and how many tokens each had ever had computed."""
        self._ledger = parts.ledger
        self._order_left = instance_order(_DEPARTURE_PRIORITY, index)
        self._budget = batch.limits.max_num_batched_tokens
        traits = parts.rule.traits
        self._plans_ahead = traits.plans_ahead
        self._prefills_apart = traits.prefills_apart
        self._skips_empty_steps = traits.skips_empty_steps
        self._stores_last_token = traits.stores_last_token
        self._uncounted_end = None if traits.counts_to_limit else batch.limits.max_model_len

    def take(self, latency: StepTimeModel) -> None:
        """Use this step-time model from now on."""
        self.latency = latency
        self.flat = isinstance(latency, Timed) and latency.flat
        self.timed = latency if isinstance(latency, Timed) and is_pure(latency) else None

    def keep_pace(self, latency: StepTimeModel) -> None:
        """Use this step-time model from now on, also for steps without effect."""
        self.take(latency)
        self._skips_empty_steps = False

    # ---- the plan ----

    def plan(self, now: int, ahead: bool = False) -> Plan | None:
        """Schedule the step that starts now (or after the one in flight); None = not before KV blocks arrive."""
        batch = self.batch
        batch.now = now
        if batch.speculative is not None:
            batch.speculative.now = now
        if batch.preempted_in_flight or batch.input_unknown:
            batch.forget_late(now)
        if self.parts:
            for part in self.parts:
                part.begin_plan(now)
        plan = plan_step(self.rule, batch, ahead=ahead) if batch.reserved else self.rule.plan(batch)
        if plan is None:
            return None
        if plan.preempted:
            self._note_preemptions(plan, now)
        for request in plan.admitted:
            if request.scheduled_us < 0:
                request.scheduled_us = now
        tallies, running = self.tallies, len(batch.running)
        if running > tallies.peak_running:
            tallies.peak_running = running
        if self.observers.kinds:
            emit_plan(self.observers, self.index, now, plan, batch.given_up)
        return plan

    def _note_preemptions(self, plan: Plan, now: int) -> None:
        tallies = self.tallies
        tallies.allocation_failures += len(plan.preempted) - len(plan.outranked)
        tallies.outranked += len(plan.outranked)  # for lack of a place, not of KV blocks
        for preemption in plan.preempted:
            if preemption.victim.state is WAITING:  # else its last token is being computed already
                tallies.preemptions += 1
                tallies.preempted_requests += preemption.victim.preemptions == 1
        if tallies.preemptions >= self._look_at:
            self._require_progress(now)

    def _require_progress(self, now: int) -> None:
        """Raise StalledError if since the last look nobody came, left, or got a token that it never had before.

        The next look is after so many preemptions that all requests, one after the other, could have recomputed all
        that they have lost.
        """
        batch = self.batch
        reached = batch.furthest()
        if reached == self._reached:
            raise batch.livelock(self.index, now)
        self._reached = reached
        longest = max((tokens for _, tokens in reached), default=0)
        self._look_at = self.tallies.preemptions + max(_PREEMPTIONS_AT_LEAST, len(reached) * longest)

    # ---- a plain decode ----

    def decode(self, now: int) -> int:
        """Give every running request its token and do nothing else; blocks are taken already. Return the step's end."""
        batch = self.batch
        cohort = batch.cohort
        load = batch.load
        latency = self.latency
        tallies = self.tallies
        decodes, context = load.decode_requests, load.decode_context_tokens
        duration = latency.step_time_us(load)
        end = self.free_us = now + duration
        finishing = cohort.advance(now, duration, tallies.itl_us)
        answering = note_answers(cohort, end, latency) if cohort.answers else ()
        if finishing is not None:
            for request in finishing:
                cohort.retire(request)
            self._complete(finishing, end)
        tallies.steps += 1
        tallies.busy_us += duration
        if decodes >= self._budget:
            tallies.full_budget_us += duration
        if self.observers.kinds:
            self.done = Done(now, duration, decodes, context, [], finishing or [], answering)
        return end

    def load_of(self, plan: Plan) -> StepLoad:
        """Return the load of a planned step; ``NO_PLAN`` = a plain decode."""
        own = self.batch.load if plan.decodes else StepLoad()
        load = StepLoad(plan.chunks, own.decode_requests, own.decode_context_tokens, own.adapters)
        return _with_ghosts(load, plan) if plan.ghosts else load

    # ---- any other step ----

    def run(self, plan: Plan, epoch: int, now: int) -> int:
        """Execute a plan and record its outcome; return the step's end.

        ``epoch`` is the pool's after scheduling.
        """
        batch, tallies, cohort = self.batch, self.tallies, self.batch.cohort
        load = batch.load if plan.decodes else StepLoad()
        members = load.decode_requests
        if plan.ghosts:
            load = _with_ghosts(load, plan)
        load.chunks = plan.chunks
        decodes, context = load.decode_requests, load.decode_context_tokens
        works = decodes or plan.chunks or not self._skips_empty_steps
        duration = self.latency.step_time_us(load) if works else 0
        for part in self.parts:
            duration = part.lasting_us(plan, now, duration)
        load.chunks = NO_PLAN.chunks
        end = self.free_us = now + duration
        if batch.pool.pending_blocks is not None:
            batch.pool.computed(now, end)
        finishing = cohort.advance(now, duration, tallies.itl_us) if members else None
        if finishing is None:
            finishing = []
        else:
            for request in finishing:
                cohort.retire(request)
        tokens = decodes + cohort.drafted if members else decodes
        if plan.ghosts:
            tokens += _ghosts_drafts(plan)
        prefilled, prefill_tokens, cached_tokens = plan.instant, 0, 0
        for chunk in plan.chunks:
            prefill_tokens += chunk.new
            cached_tokens += chunk.cached
            request = chunk.request
            if request.batch_slot >= 0:  # else it has left since the step was planned
                request.computed_tokens = chunk.computed + chunk.new
                if request.computed_tokens == request.target_tokens:
                    prefilled.append(request)
        if len(prefilled) > 1:
            prefilled.sort(key=slot_of)
        observed = self.observers.kinds
        first_tokens = self._first_tokens(prefilled, members) if observed else []
        thinking, held = bool(cohort.answers), _held_up(batch, plan) if self._prefills_apart else 0
        for request in prefilled:
            if request.handover is not None:
                request.handover.last_step_us = duration
            thinking = thinking or request.reasoning is not None
            self._end_prefill(request, end, finishing)
        answering = note_answers(cohort, end, self.latency, prefilled) if thinking else ()
        if finishing:
            self._complete(finishing, end)
        tallies.steps += 1
        tallies.busy_us += duration
        if full_budget := tokens + prefill_tokens >= self._budget:
            tallies.full_budget_us += duration
        if plan.chunks:
            tallies.prefill_tokens += prefill_tokens
            tallies.cached_tokens += cached_tokens
            tallies.prefill_us += duration
            tallies.beside_prefill_us += duration * (decodes + held)
        if not self._plans_ahead and batch.waiting.items:
            tally_wait(tallies, batch, plan, epoch, len(finishing), duration, full_budget=full_budget)
        if observed:
            self.done = Done(now, duration, decodes, context, first_tokens, finishing, answering)
        return end

    def _first_tokens(self, prefilled: list[Request], members: int) -> list[Request]:
        """Return the requests that get their first token in a step, in running order."""
        requests, drafting = [request for request in prefilled if not request.generated_tokens], self.batch.speculative
        if members and drafting is not None and drafting.first:
            requests = sorted([*requests, *drafting.first], key=slot_of)
        return requests

    def _end_prefill(self, request: Request, end: int, finishing: list[Request]) -> None:
        """Finish a prefill: the request gets its first token or (after a preemption) its next one."""
        batch = self.batch
        del batch.prefills[request.batch_slot]
        wanted = request.output_tokens
        if wanted > request.max_output_tokens:
            wanted = request.max_output_tokens
        generated = request.generated_tokens
        if not generated:
            request.first_token_us = end
            if request.handover is not None:
                request.handover.first_token_overhead_us = self.latency.output_token_overhead_us
        elif request.index not in batch.given_up:
            gap = end - request.joined_us
            itl_us = self.tallies.itl_us
            itl_us[gap] = itl_us.get(gap, 0) + 1
        if wanted:
            generated += 1
            request.generated_tokens = generated
        request.joined_us = end
        if generated >= wanted or (request.handover is not None and not request.handover.prefilled):
            finishing.append(request)
        else:
            batch.cohort.join(request, end)

    def _complete(self, finishing: list[Request], end: int) -> None:
        """Complete requests outside the cohort that have their last token."""
        batch, latency, stores_last = self.batch, self.latency, self._stores_last_token
        if len(finishing) > 1:
            finishing.sort(key=self.place_of)
            if batch.pool.has_deadlines and batch.traits.vllm_block_pool:
                # vLLM gives up those whose deadlines pass before it has the results.
                finishing.sort(key=lambda request: not 0 < request.deadline_us < end)
        watched = self.seen.watch is not None
        pool, running, parts, given_up = batch.pool, batch.running, batch.parts, batch.given_up
        departing = self.departing
        if departing:  # at the latest when this step started
            self._depart(departing)
        for request in finishing:
            del running[request.batch_slot]
            for part in parts:
                part.left(request)
            handover = request.handover
            gone = given_up and request.index in given_up
            if handover is not None and not handover.prefilled and request.output_tokens and not gone:
                self._part(request, end)
                continue
            free = pool.free
            # Its last token needs a new block.
            if stores_last and request.generated_tokens and not request.computed_tokens % pool.block_size_tokens:
                pool.extend_if_free(request, request.computed_tokens + 1)
            if self.holds:
                batch.finishing[request.batch_slot] = request
                if self.plans_on and request.stops_early and (handover is None or handover.prefilled):
                    batch.cohort.maybe_finished[request.batch_slot] = request
            else:
                batch.vacate(request, end)
            if gone:
                request.state = RequestState.TIMED_OUT
                continue
            if watched:
                self.seen.note_slot_freed(request, pool.free - free)
            request.state = COMPLETED
            request.length_capped = request.generated_tokens < request.output_tokens
            if request.length_capped and self._uncounted_end == request.input_tokens + request.generated_tokens:
                request.uncounted_tokens = int(request.declared_tokens < 0)
            request.completed_us = end
            ttft_us, e2e_us = client_times_us(request, latency)
            self._ledger.close(request, ttft_us, e2e_us)
            if departing is None:
                self.events.push(end, self._order_left, self._departure(request))
            else:
                self.events.seq += 1
                departing.append((end, self.events.seq, request))

    def _part(self, request: Request, end: int) -> None:
        """Release a request whose prompt was computed for another instance, where it continues."""
        batch, watch = self.batch, self.seen.watch
        early = watch is not None and watch.early_transfers
        free = batch.pool.free
        if self.holds and not early:
            batch.finishing[request.batch_slot] = request
        else:  # the step is over, or the transfer to the other instance has started already
            batch.vacate(request, end)
        self.seen.note_slot_freed(request, batch.pool.free - free, handed_over=True)
        handover_of(request).prefilled = True
        request.state = CREATED
        if watch is not None and early:
            watch.prefilled.append(request)
        self.events.push(end, self._order_left, RequestCallback("prefill-left", request, self.hand_over, self.index))

    # ---- the end of a step ----

    def schedule_departures(self, time: int, order: int) -> None:
        """Let the departing requests leave if their turn is before an event at ``time``; else make events of that."""
        departing = self.departing
        if not departing:
            return
        if (departing[0][0], self._order_left) < (time, order):
            self._depart(departing)
            return
        for end, number, request in departing:
            heappush(self.events.heap, (end, self._order_left, number, self._departure(request)))
        departing.clear()

    def _depart(self, departing: list[tuple[int, int, Request]]) -> None:
        seen, finishing = self.seen, self.batch.finishing
        for end, _, request in departing:  # as in `leave`, where nobody observes it
            if finishing:
                self._release(request)
            seen.leave(request, end)
            self.departed_us = end
        self.departed += len(departing)
        departing.clear()

    def _departure(self, request: Request) -> RequestCallback:
        return RequestCallback("request-left", request, self.leave, self.index)

    def leave(self, request: Request, now: int) -> None:
        """Let a completed request leave: its client has the whole answer."""
        if self.batch.finishing:
            self._release(request)
        self.seen.leave(request, now)
        observers = self.observers
        if Completed in observers.kinds:
            observers.emit(
                Completed(
                    observers.event,
                    now,
                    request.request_id,
                    self.index,
                    request.answer_tokens,
                    *client_times_us(request, self.latency),
                    request.length_capped,
                )
            )

    def hand_over(self, request: Request, now: int) -> None:
        """Hand over a request, at the end of the step that computed its prompt for another instance."""
        self._release(request)
        self.seen.leave(request, now, handed_over=True)
        watch, observers = self.seen.watch, self.observers
        if watch is not None and not watch.early_transfers:
            watch.prefilled.append(request)
        observers.tell(Prefilled, now, request.request_id, self.index)

    def _release(self, request: Request) -> None:
        finishing = self.batch.finishing
        if finishing.get(request.batch_slot) is request:
            self.batch.release_finishing(request)

    # ---- records of a step ----

    def tell(self, plan: Plan, upcoming_us: int) -> None:
        """Emit the records of the latest step, if it has subscribers; ``upcoming_us``: start of the next one, or -1."""
        done = self.done
        if done is None:
            return
        self.done = None
        observers, index = self.observers, self.index
        emit_step(observers, index, self.tallies.steps, self.batch, plan, done, upcoming_us)
        emit_first_tokens(observers, index, done, self.latency, self.batch.given_up)
        emit_answers(observers, index, done.start_us, done.answering)
        for part in self.parts:
            part.tell(done)

    def report_stopped(self, plan: Plan | None, now: int, *, later: int = 0) -> None:
        """Emit why requests wait, if there are observers.

        Args:
            plan: what was planned; None = a plain decode: no rule is asked, as every place is taken.
            now: when it was planned.
            later: how many steps after the latest executed one it comes.
        """
        if SchedulingStopped in self.observers.kinds:
            stopped = Stopped(MAX_NUM_SEQS, 1) if plan is None else plan.stopped
            if stopped is not None:
                emit_stopped(self.observers, self.index, self.tallies.steps + later, now, stopped)


def _held_up(batch: Batch, plan: Plan) -> int:
    """Number of decoding requests that get nothing from a step because it computes prompts alone."""
    return len(batch.stalled) + (0 if plan.decodes else batch.load.decode_requests)


def _ghosts_drafts(plan: Plan) -> int:
    """Number of tokens that a step computes for requests that have left, besides one for each."""
    tokens = 0
    for ghost in plan.ghosts:
        tokens += ghost.tokens - 1
    return tokens


def _with_ghosts(load: StepLoad, plan: Plan) -> StepLoad:
    """Return the load of a step including its computations for requests that have left."""
    decodes, context = load.decode_requests, load.decode_context_tokens
    for ghost in plan.ghosts:
        decodes += 1
        context += ghost.context_tokens
    return StepLoad(plan.chunks, decodes, context, load.adapters)


# When requests that reason get the first token of the answer itself.


def note_answers(
    cohort: DecodeCohort, end: int, latency: StepTimeModel, prefilled: Iterable[Request] = ()
) -> Sequence[Request]:
    """Record and return, in running order, the requests whose answer begins in the step that ended at ``end``.

    Args:
        cohort: members that had finished reasoning got that token in its latest advance.
        end: of the step.
        latency: the step-time model of the instance.
        prefilled: requests that got a token outside the cohort, with or without reasoning.
    """
    begun = cohort.answers.pop(cohort.clock, ())
    for request in begun:
        _note(request, end, latency)
    for request in prefilled:
        reasoning = request.reasoning
        if reasoning is not None and request.generated_tokens == reasoning.tokens + 1:
            _note(request, end, latency)
            begun = [*begun, request]
    return sorted(begun, key=slot_of) if len(begun) > 1 else begun


def _note(request: Request, end: int, latency: StepTimeModel) -> None:
    reasoning = request.reasoning
    assert reasoning is not None  # noqa: S101  (only requests with reasoning are noted)
    reasoning.first_answer_us = end
    reasoning.ttfat_us = client_ttfat_us(request, latency)


def emit_answers(observers: Observers, index: int, start_us: int, begun: Iterable[Request]) -> None:
    """Emit an AnswerBegun record for each request that begins its answer; without reasoning, FirstToken covers it."""
    if AnswerBegun in observers.kinds:
        for request in begun:
            thought = request.reasoning
            if thought is not None and thought.tokens:
                name, times = request.request_id, (thought.first_answer_us, thought.ttfat_us)
                observers.emit(AnswerBegun(observers.event, start_us, name, index, *times, thought.tokens))


def emit_plan(observers: Observers, index: int, now: int, plan: Plan, given_up: Container[int]) -> None:
    """Emit a Preempted record for each request the step puts back, and a Scheduled record for each it admits.

    Those in ``given_up`` (indices) have ended for everybody but the engine.
    """
    event = observers.event
    if Preempted in observers.kinds:
        for victim, beneficiary, tokens, blocks in plan.preempted:
            if victim.index in given_up:
                continue
            observers.emit(Preempted(event, now, victim.request_id, index, beneficiary.request_id, tokens, blocks))
    if plan.outranked and PreemptedByPriority in observers.kinds:
        for victim, urgent, threshold in plan.outranked:
            if victim.index in given_up:
                continue
            names, priorities = (victim.request_id, index, urgent.request_id), (victim.priority, urgent.priority)
            observers.emit(PreemptedByPriority(event, now, *names, *priorities, threshold))
    if plan.retraction is not None and Retracted in observers.kinds:
        retracted, kept, needed, free, before, ratio = plan.retraction
        shares = round(before, 6), round(ratio, 6)
        observers.emit(Retracted(event, now, index, retracted, kept, needed, free, *shares))
    if RestoreChosen in observers.kinds:
        for victim, swapped, blocks, costs in plan.restored:
            choice = "swap" if swapped else "recompute"
            observers.emit(RestoreChosen(event, now, victim.request_id, index, choice, blocks, *costs))
    if Scheduled in observers.kinds:
        granted = {chunk.request.index: chunk.new for chunk in plan.chunks}
        for request in plan.admitted:
            if request.index in given_up:
                continue
            cached, new = request.computed_tokens, granted.get(request.index, 0)
            observers.emit(Scheduled(event, now, request.request_id, index, cached, new, now - request.arrival_us))
    if TiersLoaded in observers.kinds:
        for request, blocks, sources, thrashing, took in plan.reloaded:
            tiers = tuple(f"{name}: {count}" for name, count in sources)
            observers.emit(TiersLoaded(event, now, request.request_id, index, blocks, tiers, thrashing, took))
    if SwappedBack in observers.kinds:
        for request, tokens, blocks, took in plan.swapped_in:
            observers.emit(SwappedBack(event, now, request.request_id, index, tokens, blocks, took))


def _names(requests: Sequence[Request], given_up: Container[int] = ()) -> tuple[str, ...]:
    """Return the names of requests; skip the list for the usual empty case, where it would only cost time."""
    return tuple([request.request_id for request in requests if request.index not in given_up]) if requests else ()


def emit_step(
    observers: Observers, index: int, number: int, batch: Batch, plan: Plan, done: Done, upcoming_us: int
) -> None:
    """Emit a StepFinished record; the batch is as after the step. ``upcoming_us``: start of the next one, or -1."""
    if StepFinished in observers.kinds:
        observers.emit(
            StepFinished(
                observers.event,
                done.start_us,
                index,
                number,
                _names(plan.admitted, batch.given_up),
                _names([preemption.victim for preemption in plan.preempted], batch.given_up),
                tuple([ChunkDone(c.request.request_id, c.computed, c.new) for c in plan.chunks]) if plan.chunks else (),
                done.decode_requests,
                done.decode_context_tokens,
                _names([batch.stalled[slot] for slot in sorted(batch.stalled) if slot not in batch.in_flight_until]),
                done.duration_us,
                _names(done.first_tokens, batch.given_up),
                _names(done.finishing, batch.given_up),
                len(batch.waiting.items),
                len(batch.running),
                batch.pool.used,
                upcoming_us,
            )
        )


def emit_first_tokens(
    observers: Observers, index: int, done: Done, latency: StepTimeModel, given_up: Container[int]
) -> None:
    """Emit a FirstToken record for each first token, as its client sees it."""
    if FirstToken in observers.kinds:
        for request in done.first_tokens:
            if request.index in given_up:
                continue
            ttft_us = client_ttft_us(request, latency)
            observers.emit(
                FirstToken(observers.event, done.start_us, request.request_id, index, request.first_token_us, ttft_us)
            )
