"""SGLang's two event loops: how its steps follow one another.

Source: SGLang 0.5.23, ``managers/scheduler.py`` (``event_loop_normal``, ``event_loop_overlap``) and
``managers/scheduler_components/batch_result_processor.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import mypyc_attr
from blis_tui.engine.counts import tally_wait
from blis_tui.engine.events import IDLE, NO_STEP, Revocable
from blis_tui.engine.options.handover import awaits_blocks, give_back
from blis_tui.engine.plan import NO_PLAN, DiscardedTokens, Plan, Planned
from blis_tui.engine.request import RUNNING, WAITING, RequestState
from blis_tui.engine.sglang.radix_pool import RadixPool, radix_pool
from blis_tui.engine.sglang.rule import SglangBatching
from blis_tui.engine.step_loop import FastForward
from blis_tui.model.engine import UNLIMITED

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.engine.steps import Steps


@mypyc_attr(allow_interpreted_subclasses=True)
class EventLoop(FastForward):
    """Plans a step when it starts or, with overlap, when the previous step starts, whose results are unknown then.

    The rule sees requests as of the latest results. A plan made while a step runs is therefore made before that
    step's effects are recorded, though both happen in one event. A request that ends in that step by length takes no
    part in the next one. A request that ends otherwise does take part, to no effect. A retracted request loses the
    token in flight. When a step is over, what it computed can be found in the cache, and ended requests give up their
    KV blocks.

    Attributes:
        rule: forms the batches.
        put_back: preemptions of a plan that became no step; they belong to the next step.
        polls: whether requests wait although there is no step, as none of them fits.
        unheard: requests whose clients have given up, of which SGLang has not heard yet.
    """

    __slots__ = ("_overlaps", "_pool", "polls", "put_back", "rule", "unheard")

    def __init__(self, steps: Steps) -> None:
        rule = steps.rule
        if not isinstance(rule, SglangBatching):
            raise TypeError(f"{rule!r} does not know SGLang's event loops")
        super().__init__(steps, lead=int(rule.traits.plans_ahead), holds=True)
        self.rule = rule
        self._pool = radix_pool(steps.batch.pool)
        self._overlaps = rule.traits.plans_ahead
        self._places = 0  # the rule knows whether it looks at those who wait
        plans_always = not steps.batch.cohort.lockstep or rule.plans_always or type(self._pool) is not RadixPool
        self._max_decodes = -1 if plans_always else UNLIMITED
        self.put_back: Plan | None = None
        self.polls = False
        self.unheard: list[Request] = []
        steps.place_of = rule.place_of

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs, a step is planned, or there are results of which nobody else is told."""
        batch = self.batch
        return batch.has_requests or batch.planned is not None or bool(batch.given_up) or self._has_handovers

    @property
    def _has_handovers(self) -> bool:
        """Whether the next look, with or without a step, may make room for a prompt or free that of another."""
        return self.rule.handovers is not None and self.rule.handovers.pending

    def step(self, now: int) -> int:
        """Take the results of the previous step and start the next; return when that ends, IDLE or NO_STEP."""
        batch, steps, rule = self.batch, self.steps, self.rule
        if self.computed or batch.finishing or batch.aborting or batch.given_up:
            self._take_results()
        self._pool.on_step_results(self.steps.free_us)
        if rule.handovers is not None:
            rule.handovers.free_sent(batch)
        ready, batch.planned = batch.planned, None
        if ready is None:
            if not batch.has_requests:
                self._prepare_handovers(now)
                return NO_STEP
            if now > steps.free_us:
                rule.idle(done=not self.polls and self._pool.last_change_us() < now)
            ready = self._plan_step(now)
            if ready is None:  # a scheduler without a step polls for requests continuously
                rule.idle(done=self._pool.last_change_us() <= now and not rule.knows_requests(batch))
                ready = self._plan_step(now)
                for _ in range(len(batch.reserved)):  # the last request may have been retracted for these
                    ready = ready or self._plan_step(now)
            self.polls = ready is None and bool(batch.running or batch.waiting.items)
            if ready is None and not self.polls:  # the clients of all that were there had given up
                return NO_STEP
            if ready is None and (change_us := self._pool.next_change_us()) > now:
                arrival = Revocable("step", self._is_busy_or_idle, self.want_step, instance_index=self.index)
                steps.events.push(change_us, self.order, arrival)
                return NO_STEP
            if ready is None and awaits_blocks(batch):
                return NO_STEP
            if ready is None:
                raise batch.deadlock(self.index, now)
            if waited_us := self._pool.pop_waited_us():
                batch.planned = ready
                return now + waited_us
        plan = ready.plan or Plan()
        if batch.stalled:  # those that come from other instances in this step
            batch.reform_cohort(dict(batch.stalled))
        plain = self._max_decodes > 0 and is_plain(plan)
        following = self._repeated(ready, now) if plain and self._overlaps else None
        if following is None and self._overlaps:
            following = self._plan_following(plan, now)
        members = batch.load.decode_requests
        latest_us = self._latest_tokens() if batch.given_up and plan.decodes else ()
        bare = plain and self._overlaps and not plan.ghosts  # (a request that was put back just now is one)
        end = steps.decode(now) if bare else steps.run(plan, ready.epoch, now)
        if latest_us:
            steps.tallies.discount(latest_us, end)
        if plan.decodes and not members:
            batch.cohort.ahead = 0  # all requests for which it was planned have left
        self._note(plan, following)
        goes_on = following is not None or batch.has_requests or self._has_handovers
        if steps.done is not None:
            steps.tell(plan, end if goes_on else IDLE)
        if self._overlaps and batch.waiting.items:
            self._tally_step(following, end - now)
        return end if goes_on or batch.given_up else IDLE

    def planned_step(self, now: int) -> int:
        """Do what ``step`` does: what there is to decide is decided there."""
        return self.step(now)

    # ---- plain decodes in one go ----

    def _has_planned_decode(self) -> bool:
        """Whether the due step decodes and does nothing else, and so would the one that is planned next."""
        batch, planned = self.batch, self.batch.planned
        if self.computed or batch.given_up or self._overlaps == (planned is None):
            return False
        return (planned is None or is_plain(planned.plan)) and self.rule.goes_on(batch)

    def _decode(self, now: int, bar: int, most: int, duration: int) -> tuple[int, int, int]:
        batch, pool, decodes = self.batch, self._pool, self.batch.load.decode_requests
        if batch.waiting.items and batch.refused is not None and batch.refused[1] == pool.epoch:
            # Whoever waits does so for blocks until content is evicted, and after that for the end of others.
            spare = pool.free - pool.tree.idle - decodes
            if spare < decodes * (most // pool.block_size_tokens + 1):
                most = max(1, min(most, batch.cohort.affordable_advances(spare)))
        return super()._decode(now, bar, most, duration)

    def _note_fast_forward(self, steps: int, duration_us: int) -> None:
        batch, pool, cohort, size = self.batch, self._pool, self.batch.cohort, self._pool.block_size_tokens
        if size > 1:  # each plan makes room for as many pages as requests
            pool.make_room(batch.load.decode_requests - cohort.dues[(cohort.clock - 1 + self._lead) % size])
        planned = batch.planned
        if planned is not None and planned.epoch != pool.epoch:
            batch.planned = tuple.__new__(Planned, (planned.plan, pool.epoch))  # (as below)
        self.rule.decay(steps)
        if batch.waiting.items:
            full = not self._overlaps and batch.load.decode_requests >= batch.limits.max_num_batched_tokens
            tally_wait(*(self.steps.tallies, batch, NO_PLAN, pool.epoch, 0, duration_us), full_budget=full, steps=steps)

    def _is_busy_or_idle(self) -> bool:
        """Whether a step is pending, or no request is left: that there may be room does not matter."""
        return self.step_pending or not self.has_work

    def _plan_step(self, now: int) -> Planned | None:
        """Plan a step; None = it would have nothing to do."""
        batch, steps = self.batch, self.steps
        if self.unheard and self.rule.will_look():
            self._hear(now)
        ahead = self.rule.under_way is not None
        plan = steps.plan(now, ahead=ahead)
        if plan is None:
            return None
        if self.rule.handovers is not None:
            self._tell_of_prepared(now)
        planned = self.rule.before is not None
        if batch.waiting.items and (planned or ahead):
            steps.report_stopped(plan, now, later=1 + ahead)
        if self.put_back is not None:
            plan.follow(self.put_back)
            self.put_back = None
        if not planned:
            self.put_back = plan if plan.preempted else None
            return None
        return tuple.__new__(Planned, (plan, batch.pool.epoch))  # half the cost of the constructor

    def _plan_following(self, plan: Plan, now: int) -> Planned | None:
        """Plan the step that follows the one starting now."""
        rule = self.rule
        rule.under_way = rule.before
        self.batch.cohort.ahead = int(plan.decodes)
        following = self._plan_step(now)
        rule.under_way = None
        return following

    def _repeated(self, ready: Planned, now: int) -> Planned | None:
        """Plan another decode after the one that starts now, if the rule would do nothing else; None = ask the rule."""
        batch, cohort, pool = self.batch, self.batch.cohort, self._pool
        decodes, clock = batch.load.decode_requests, cohort.clock + 1
        if not decodes or batch.given_up or self.steps.observers.kinds or not self.rule.goes_on(batch):
            return None  # (observers are told why requests wait)
        members = cohort.classes[clock % cohort.block_size_tokens]
        due = len(members)
        ending = cohort.calendar[clock].values() if clock in cohort.calendar else ()
        for request in ending:
            due -= request.batch_slot in members
        if due > pool.free or (ending and not self.rule.drop(ending, cohort)):
            return None
        if pool.block_size_tokens > 1:
            pool.make_room(decodes - len(ending))
        pool.take(due)
        self.rule.decay(1)
        batch.now = now
        return ready if ready.epoch == pool.epoch else tuple.__new__(Planned, (ready.plan, pool.epoch))  # (as above)

    def _note(self, plan: Plan, following: Planned | None) -> None:
        """Record what the started step leaves behind and what the next one needs."""
        batch = self.batch
        batch.planned = following
        if plan.chunks:
            whole = [chunk.request for chunk in plan.chunks if chunk.computed + chunk.new == chunk.prompt]
            self.computed = [request for request in whole if request.batch_slot >= 0]
        if following is None or following.plan is None or not following.plan.decodes:
            return
        batch.cohort.ahead = 1
        for ghost in following.plan.ghosts:  # its last token is stored like those of others
            request = ghost.request
            request.computed_tokens += 1
            request.held_blocks = -(-request.computed_tokens // batch.pool.block_size_tokens)

    def _take_results(self) -> None:
        """Finish the latest step: make what it computed findable, and release the requests that ended or left."""
        batch, computed = self.batch, self.computed
        if computed:
            self.computed = []
            for request in computed:
                if self._ends(request):
                    batch.release_finishing(request)
                elif request.state is RUNNING:
                    self._pool.checkpoint(request, request.target_tokens)
        if batch.finishing or batch.aborting:
            batch.release_all()
        if batch.given_up:
            self._forget_given_up()

    def _forget_given_up(self) -> None:
        """Forget the requests of clients that have given up which got their last token in the latest step."""
        given_up = self.batch.given_up
        for request in [request for request in given_up.values() if request.state is RequestState.TIMED_OUT]:
            del given_up[request.index]
            self.steps.seen.note_place_free(self.steps.free_us)

    def _ends(self, request: Request) -> bool:
        """Whether the request leaves when the latest step is over."""
        return self.batch.finishing.get(request.batch_slot) is request

    def _tally_step(self, following: Planned | None, duration: int) -> None:
        batch = self.batch
        plan = (following and following.plan) or Plan()
        tokens = 0
        for chunk in plan.chunks:
            tokens += chunk.new
        full = tokens >= batch.limits.max_num_batched_tokens
        tally_wait(self.steps.tallies, batch, plan, batch.pool.epoch, len(batch.finishing), duration, full_budget=full)

    # ---- prompts that are computed on another instance than their answers ----

    def expect(self, request: Request, now: int) -> str:
        """Make room for the prompt of a request, as soon as there is some; return why there never will be, or ""."""
        handovers = self.rule.take_part_in_handovers()
        if not (excess := handovers.excess(self.batch, request)):
            handovers.expected[request.index] = request
            self.want_step(now)
        return excess

    def forget_expected(self, request: Request) -> None:
        """Forget a request that will not come."""
        if self.rule.handovers is not None:
            self.rule.handovers.forget(request)

    def on_sent(self, request: Request, now: int) -> None:
        """Free the blocks of a prompt that has been sent, once the scheduler looks."""
        if (holder := self.batch.sending.get(request.index)) is not None:
            self.rule.take_part_in_handovers().sent.append(holder)
            self.want_step(now)

    def _prepare_handovers(self, now: int) -> None:
        """Make room for expected prompts, while nobody runs or waits."""
        if self.rule.handovers is not None:
            self.rule.handovers.look(self.batch, ())
            self._tell_of_prepared(now)

    def _tell_of_prepared(self, now: int) -> None:
        """Let the control plane know for which prompts there is room."""
        handovers, watch = self.rule.take_part_in_handovers(), self.steps.seen.watch
        if handovers.prepared and watch is not None and watch.on_prepared is not None:
            prepared, handovers.prepared = handovers.prepared, []
            watch.touched[self.index] = None
            for request in prepared:
                watch.on_prepared(request, now)

    # ---- requests that leave without a result ----

    def keeps_aborted_request(self, request: Request) -> bool:
        """Whether a request stays for the time being when its client gives up.

        SGLang drops a waiting request or a split prompt when it hears of it; others end with their next token.
        """
        return self._hears_later or not self._can_drop(request)

    @property
    def _hears_later(self) -> bool:
        """Whether SGLang looks for news only when steps have gone by, or when a step has been that is planned."""
        rarely = self.rule.looks_rarely and self.step_pending
        return rarely or (self.batch.planned is not None and not self._overlaps)

    def _can_drop(self, request: Request) -> bool:
        return request.state is WAITING or request is self.rule.chunked

    def _latest_tokens(self) -> list[int]:
        """Return when decoding requests whose clients have given up got their latest tokens."""
        cohort, given_up = self.batch.cohort, self.batch.given_up
        return [cohort.last_token_us(request) for request in given_up.values() if request.joined_clock >= 0]

    def note_given_up(self, request: Request) -> None:
        """React to a client that has given up, whose request stays."""
        if self._hears_later:
            self.unheard.append(request)
        else:
            self.batch.end_with_next(request)

    def _hear(self, now: int) -> None:
        """Learn which clients have given up."""
        batch = self.batch
        unheard, self.unheard = self.unheard, []
        for request in unheard:
            if batch.given_up.get(request.index) is not request:
                continue  # it has left
            if not self._can_drop(request):
                batch.end_with_next(request)
                continue
            self.steps.seen.note_place_free(now)
            if request.state is WAITING:
                batch.leave_queue(request)
                give_back(batch, request)
            else:
                self.abort(request, now)
            request.state = RequestState.TIMED_OUT

    def abort(self, request: Request, now: int) -> None:
        """Take out a running request; a step that is already planned computes it all the same.

        If a step is planned, its blocks are freed only when the step in flight is over. The latest chunk of a split
        prompt cannot be found later, unless that is so already.
        """
        batch = self.batch
        content = 0 if self.rule.chunked is request else request.computed_tokens
        planned, decodes = batch.planned, request.joined_clock >= 0 and batch.cohort.ahead
        batch.take_out(request)
        self.rule.forget(request)
        if planned is not None and planned.plan is not None and decodes:
            planned.plan.ghosts.append(DiscardedTokens(request, 1, request.computed_tokens))
        if planned is None or self.steps.free_us <= now:
            batch.pool.release(request, content)
        else:
            batch.aborting.append((request, content))

    def abandon(self) -> None:
        """Stop at once; all requests have been taken out."""
        batch = self.batch
        batch.planned = None
        batch.cohort.ahead = 0
        self.computed = []
        self.unheard = []
        batch.release_all()
        self._forget_given_up()
        self.polls = False
        self.rule.idle(done=True)
        super().abandon()

    def on_withdrawn(self, now: int) -> None:  # noqa: ARG002  (the base's signature)
        """React to a request that left without a result: nobody may be waiting any more."""
        self.polls = self.polls and self.batch.has_requests

    def state(self) -> tuple[object, ...]:
        """Return what is planned but not executed, and what awaits its results, as plain values (for digests)."""
        batch = self.batch
        aborting = [(request.index, content) for request, content in batch.aborting]
        computed = [request.index for request in self.computed if request.state is RUNNING or self._ends(request)]
        state: tuple[object, ...] = (list(batch.finishing), aborting, computed)
        if self.put_back is not None:
            state = (*state, [preemption.victim.index for preemption in self.put_back.preempted])
        if self.polls:
            state = (*state, "polls")
        if self.unheard:
            state = (*state, "unheard", [request.index for request in self.unheard])
        if batch.planned is None or batch.planned.plan is None:
            return state
        plan = batch.planned.plan
        chunks = [(chunk.request.index, chunk.computed, chunk.new) for chunk in plan.chunks]
        preempted = [(preemption.victim.index, preemption.beneficiary.index) for preemption in plan.preempted]
        ghosts = [(ghost.request.index, ghost.context_tokens) for ghost in plan.ghosts]
        return (*state, batch.planned.epoch, plan.decodes, chunks, preempted, ghosts)


def is_plain(plan: Plan | None) -> bool:
    """Whether a plan makes all running requests decode and does nothing else."""
    return plan is not None and plan.decodes and plan.computes_nothing
