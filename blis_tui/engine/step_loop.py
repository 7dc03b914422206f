"""How the steps of an instance follow one another: how many are in flight, and when the next one is planned.

``OneAtATime`` plans a step when it starts; its results are there when the next one is planned. ``Ahead`` plans a step
while the previous one runs. Pipelines have a module of their own.

A step is a *plain decode*, and need not be planned, if every running request gets its token and nothing can be decided:
there are decodes, none of them too many for a step's budget (``_max_decodes``), nobody computes a prompt
(``Batch.prefills``) or is held up (``Batch.stalled``), and whoever waits finds no place in the batch. This test stands
in each of the four methods below that begin a step, because it is made for every step: a call would cost more than the
test. What a copy asks beyond that is what its caller cannot know: a planned step still in flight (``Ahead``; SGLang's
loop, whose rule also knows whether it would look at those who wait), or a step that is deferred (``FastForward``),
whose requests may end or need a block at a time that is due.
"""

from __future__ import annotations

from itertools import count as counted
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.engine.counts import tally_wait
from blis_tui.engine.events import IDLE, NO_STEP, Step, Stepper, instance_order
from blis_tui.engine.options.handover import awaits_blocks
from blis_tui.engine.plan import NO_PLAN, DiscardedTokens, Plan, Planned

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.engine.steps import Steps

_STEP: Final = 2
"""Priority at a tie with other events of the instance."""
_AT_ONCE: Final = 4096
"""The largest number of plain decodes that run in one go."""
_FEW: Final = 32
"""Up to so many entries, scan all of them for the earliest; with more, probe successive times."""


@mypyc_attr(allow_interpreted_subclasses=True)
class StepLoop(Stepper):
    """Decides when steps are planned and executed.

    Attributes:
        index: of the instance.
        steps: plans and executes single steps.
        batch: the requests.
        order: tie-breaker of the step events among simultaneous events.
        step_pending: whether a step event is in the queue; there is never a second one.
        event: the step event, reused for all steps; an outdated queue entry is recognized by its time.
        next_us: when the next step starts, where plain decodes may be deferred.
        due_us: time of the step event; all steps before it are plain decodes.
        late: deferred plain decodes that have run but that the simulation's loop has not counted yet.
        late_us: when the latest of these started.
    """

    __slots__ = ("batch", "busy_until_the_end", "event", "late", "late_us", "steps")

    def __init__(self, steps: Steps) -> None:
        self.index = steps.index
        self.steps = steps
        self.batch = steps.batch
        self.busy_until_the_end = steps.rule.traits.busy_until_the_end
        self.order = instance_order(_STEP, steps.index)
        self.step_pending = False
        self.next_us = self.due_us = -1
        self.late = self.late_us = 0
        self.event = Step(self)

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs, as far as plans know."""
        return self.batch.has_requests

    def advance(self, now: int, bar: int, most: int) -> tuple[int, int, int]:  # noqa: ARG002
        """Run the step due at ``now`` and the following ones until something else could happen in between.

        There must be no subscribers.

        Args:
            now: time of this step, the earliest of all pending events.
            bar: time of the next other event; further steps must start before it.
            most: the largest number of steps.

        Returns:
            The number of steps (0 = the due one did not happen), the start of the last one, and the start of the next
            one (or IDLE, NO_STEP).
        """
        upcoming = self.step(now)
        return upcoming != NO_STEP, now, upcoming

    def advance_deferring(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """Run steps as ``advance`` does, but plain decodes may be deferred: the next step is then due after its start.

        All that others could notice of deferred decodes is that they take KV blocks. They run when they are due, or
        when something is about to happen to the instance or is asked of it (``catch_up``).
        """
        done, latest, upcoming = self.advance(now, bar, most)
        self.next_us = self.due_us = upcoming
        return done, latest, upcoming

    def catch_up(self, bar: int) -> None:
        """Run the deferred plain decodes that start before ``bar``."""

    def defer_departures(self) -> None:
        """Stop making events of departures, if each step starts when the one before it is over."""

    def want_step(self, now: int) -> None:
        """Schedule a step if there is work and none is pending; steps resume here after a pause."""
        if not self.step_pending and self.has_work and not self.batch.awaits_adapter():
            self.step_pending = True
            start = max(now, self.steps.free_us) if self.busy_until_the_end else now
            self.steps.events.push_step(start, self.order, self.event)

    def abort(self, request: Request, now: int) -> None:
        """Take out a running request, which leaves without a result."""
        self.batch.abort(request, now)

    def keeps_aborted_request(self, request: Request) -> bool:  # noqa: ARG002  (for engines that do)
        """Whether a request stays for the time being when its client gives up; if so, ``note_given_up`` follows."""
        return False

    def note_given_up(self, request: Request) -> None:
        """React to a client that has given up, whose request stays."""

    def expect(self, request: Request, now: int) -> str:
        """Make room for a prompt that is computed elsewhere; return why there never will be, or "".

        Raises:
            TypeError: the batching rule does not prepare for handovers.
        """
        raise TypeError(f"{self.steps.rule!r} makes no room for {request.request_id} before {now} us")

    def forget_expected(self, request: Request) -> None:
        """Forget a request that will not come."""

    def on_sent(self, request: Request, now: int) -> None:
        """React to the end of a transfer of a prompt's KV blocks from here; most rules have freed them before."""

    def on_withdrawn(self, now: int) -> None:
        """React to a waiting or running request that left without a result: others may fit now."""

    def halt(self) -> int | None:
        """Plan nothing more, as the instance dies; return when everything in flight is over (-1 = nothing is).

        None: at the time of the pending step event.
        """
        return None

    def abandon(self) -> None:
        """Stop at once; all requests have been taken out."""
        self.batch.abandon()

    def state(self) -> tuple[object, ...]:
        """Return what is planned but not executed, as plain values (for digests)."""
        return ()


@mypyc_attr(allow_interpreted_subclasses=True)
class FastForward(StepLoop):
    """Runs plain decodes in one go when there are no observers.

    A plain decode involves no decision: every running request gets its token and, where one is due, its block.
    """

    __slots__ = (
        "_at_hand",
        "_budget",
        "_each_us",
        "_holds",
        "_lead",
        "_max_decodes",
        "_places",
        "_plain_until",
        "computed",
    )

    def __init__(self, steps: Steps, *, lead: int, holds: bool) -> None:
        super().__init__(steps)
        batch = steps.batch
        cohort = batch.cohort
        steps.holds = self._holds = holds
        self.computed: list[Request] = []
        """Requests whose prompts the latest step completes, where their content can be found when it is over."""
        self._lead = lead
        """How many steps ahead of the starting step blocks are taken."""
        self._places = batch.max_running
        """Whoever waits while fewer requests run makes plans necessary."""
        self._budget = batch.limits.max_num_batched_tokens
        plans_always = not cohort.lockstep or batch.pool.tiers is not None or steps.rule.traits.prefill_interval > 0
        self._max_decodes = -1 if plans_always else batch.max_decodes
        """A step with more decodes than this has to be planned; -1 = every step, because drafts, tiers or the rule
        affect each."""
        self._plain_until = 0
        """Cohort clock up to which all steps are plain decodes, if they are deferred."""
        self._each_us = 0
        """Duration of each of these; 0 = ask the step-time model for each one."""
        self._at_hand = (batch, batch.load, cohort, cohort.calendar, steps.events.heap)

    def advance(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """See ``StepLoop``: run plain decodes in a row, and other steps between them while no other event is due."""
        batch, load, cohort, calendar, heap = self._at_hand
        holds, done, latest = self._holds, 0, now
        while True:
            if holds and (batch.finishing or batch.aborting or self.computed):
                self._take_results()
            decodes = load.decode_requests
            if (  # no plain decode: see the module's first lines
                not decodes
                or batch.prefills
                or batch.stalled
                or decodes > self._max_decodes
                or (batch.waiting.items and len(batch.running) < self._places)
            ):
                upcoming = self.planned_step(now)
            else:
                if not (
                    cohort.clock + 1 in calendar
                    or cohort.last_advance_us != now
                    or cohort.uneven
                    or cohort.answers
                    or (holds and not self._has_planned_decode())
                ):
                    count, before, now = self._fast_forward(now, bar, most - done)
                    if count:
                        done += count
                        latest = before
                        if now >= bar or done >= most:
                            return done, latest, now
                        continue
                upcoming = self.step(now)
            if upcoming == NO_STEP:
                return done, latest, NO_STEP
            done += 1
            latest = now
            if upcoming < 0:
                return done, latest, upcoming
            now = upcoming
            if heap and heap[0][0] < bar:
                bar = heap[0][0]
            if now >= bar or done >= most:
                return done, latest, now

    def advance_deferring(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """See ``StepLoop``."""
        batch, load, cohort, _, heap = self._at_hand
        latency = self.steps.latency
        holds, done, latest, start, due = self._holds, 0, now, self.next_us, now
        while True:
            while start < due and (left := self._plain_until - cohort.clock) > 0:
                duration = self._each_us or latency.step_time_us(load)
                count, latest, start = self._decode(start, due, left, duration)
                done += count
            if holds and (batch.finishing or batch.aborting or self.computed):
                self._take_results()
                due = self._due(start)
                if due > start:
                    latest = start  # the step that starts now frees them, even if it is deferred
            elif start > due:  # longer contexts have cost more time
                due = self._due(start)
            if due > start or (start > now and start >= bar):
                break
            upcoming = self.step(start)
            if upcoming == NO_STEP:
                return done, latest, NO_STEP
            done += 1
            latest = start
            if upcoming < 0:
                return done, latest, upcoming
            start = upcoming
            if heap and heap[0][0] < bar:
                bar = heap[0][0]
            due = self._due(start)
            if due < 0:  # plain decodes, for a time that is not known yet
                count, before, start = self._fast_forward(start, bar, most - done)
                if count:
                    done += count
                    latest = before
                due = start
            if due >= bar or done >= most:
                break
        if due < start:
            due = start
        self.next_us, self.due_us = start, due
        return done, latest, due

    def defer_departures(self) -> None:
        """See ``StepLoop``. With adapters, a due step may turn out not to happen, which must not be too early."""
        if self.batch.adapters is None:
            self.steps.departing = []

    def _due(self, start: int) -> int:
        """Earliest start, from ``start`` on, of a step that may be more than a plain decode; -1 = unknown."""
        batch, load, cohort, calendar, _ = self._at_hand
        clock, decodes = cohort.clock, load.decode_requests
        if (  # no plain decode, or one that is not like the one before it
            not decodes
            or clock + 1 in calendar
            or batch.prefills
            or batch.stalled
            or decodes > self._max_decodes
            or cohort.last_advance_us != start
            or cohort.uneven
            or cohort.answers
            or (batch.waiting.items and len(batch.running) < self._places)
            or (self._holds and (batch.finishing or batch.aborting or not self._has_planned_decode()))
        ):
            return start
        steps = self.steps
        timed = steps.timed
        if timed is None:
            return start
        if cohort.soonest <= clock + 1:
            many = len(calendar) > _FEW
            cohort.soonest = next(filter(calendar.__contains__, counted(clock + 2))) if many else min(calendar)
        count = cohort.soonest - clock - 1
        free, size = batch.pool.free, cohort.block_size_tokens
        if free < decodes * (count // size + 1):
            count = min(count, cohort.affordable_advances(free))
            if not count:
                return start
        self._plain_until = clock + count
        self._each_us = timed.step_time_us(load) if steps.flat else 0
        if self._each_us:
            return start + count * self._each_us
        least = timed.least_us(load, count)
        return start + least if least else -1

    def catch_up(self, bar: int) -> None:
        """See ``StepLoop``."""
        cohort, load, latency = self.batch.cohort, self.batch.load, self.steps.latency
        if bar > self.due_us:
            bar = self.due_us
        while self.next_us < bar and (left := self._plain_until - cohort.clock) > 0:
            duration = self._each_us or latency.step_time_us(load)
            count, self.late_us, self.next_us = self._decode(self.next_us, bar, left, duration)
            self.late += count

    def _fast_forward(self, now: int, bar: int, most: int) -> tuple[int, int, int]:
        """Run plain decodes until a step has more to do; return their number, the last one's start and its end."""
        batch, load, cohort, calendar, _ = self._at_hand
        pool, clock = batch.pool, cohort.clock
        timed = self.steps.timed
        if timed is None:
            return 0, now, now
        count, duration = 1, timed.step_time_us(load)
        if now + duration < bar and most > 1:
            count = min(most, _AT_ONCE, (bar - now - 1) // duration + 1)
            ends = range(clock + 2, clock + count + 1)
            if not calendar.keys().isdisjoint(ends):
                count = next(filter(calendar.__contains__, ends)) - clock - 1
        roomy = pool.free >= load.decode_requests * (count // cohort.block_size_tokens + 1)
        if not roomy and cohort.due_within(count) > pool.free:
            count = cohort.affordable_advances(pool.free)
            if not count:
                return 0, now, now
        return self._decode(now, bar, count, duration)

    def _decode(self, now: int, bar: int, most: int, duration: int) -> tuple[int, int, int]:
        """Run up to ``most`` plain decodes that start before ``bar``; their blocks are taken, and no request ends."""
        batch, load, cohort, _, _ = self._at_hand
        steps, decodes = self.steps, load.decode_requests
        tallies = steps.tallies
        itl_us, start = tallies.itl_us, now
        count = (bar - now - 1) // duration + 1
        if count > most:
            count = most
        blocks = cohort.due_within(count)
        if steps.flat or count == 1 or (timed := steps.timed) is None:
            tokens = count * decodes
            if duration in itl_us:
                itl_us[duration] += tokens
            else:
                itl_us[duration] = tokens
            load.decode_context_tokens += tokens
            now += count * duration
        else:
            taken = 0
            for step_us, times in timed.decode_runs(load, count):
                if times > 1 and now + times * step_us > bar:
                    times = (bar - now - 1) // step_us + 1  # noqa: PLW2901  (no more of them start before it)
                duration = step_us
                if step_us in itl_us:
                    itl_us[step_us] += times * decodes
                else:
                    itl_us[step_us] = times * decodes
                now += times * step_us
                taken += times
                if now >= bar:
                    break
            load.decode_context_tokens += taken * decodes
            if taken < count:
                count = taken
                blocks = cohort.due_within(count)
        if blocks:
            batch.pool.take(blocks)
        cohort.clock += count
        cohort.last_advance_us = steps.free_us = now
        cohort.ahead = self._lead
        tallies.steps += count
        tallies.busy_us += now - start
        if decodes >= self._budget:
            tallies.full_budget_us += now - start
        self._note_fast_forward(count, now - start)
        return count, now - duration, now

    def planned_step(self, now: int) -> int:
        """Do what ``step`` does, if there is something to decide."""
        raise NotImplementedError

    def _due_for_plain_decode(self) -> int:
        """Number of KV blocks due if the step is a plain decode of every running request; otherwise -1."""
        batch = self.batch
        decodes = batch.load.decode_requests
        if (  # no plain decode; who ends in the step in flight still has its place
            not decodes
            or batch.prefills
            or batch.stalled
            or decodes > self._max_decodes
            or batch.cohort.maybe_finished
            or (batch.waiting.items and len(batch.running) + len(batch.finishing) < batch.max_running)
        ):
            return -1
        cohort = batch.cohort
        due = cohort.dues[cohort.clock % cohort.block_size_tokens]
        return due if due <= batch.pool.free else -1

    def _take_results(self) -> None:
        """Finish the latest step, whose requests have ended or left; called only where these keep their slots."""
        self.batch.release_all()

    def _has_planned_decode(self) -> bool:
        """Whether the due step was planned as a plain decode; called only where ended requests keep their slots."""
        raise NotImplementedError

    def _note_fast_forward(self, steps: int, duration_us: int) -> None:
        """Record how many plain decodes took how long; where steps are planned ahead, the next one is planned."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class OneAtATime(FastForward):
    """Starts a step when the previous one is over."""

    __slots__ = ()

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps, lead=0, holds=False)

    def step(self, now: int) -> int:
        """Run one step from ``now``; return when the next one starts, IDLE or NO_STEP."""
        batch = self.batch
        decodes = batch.load.decode_requests
        waiting = batch.waiting.items
        if (  # no plain decode
            not decodes
            or batch.prefills
            or batch.stalled
            or decodes > self._max_decodes
            or (waiting and len(batch.running) < batch.max_running)
        ):
            return self.planned_step(now)
        # A plain decode: every running request gets its token, without any decision.
        cohort = batch.cohort
        due = cohort.dues[cohort.clock % cohort.block_size_tokens]
        if due:
            pool = batch.pool
            if due > pool.free:
                return self.planned_step(now)
            pool.take(due)
        steps = self.steps
        end = steps.decode(now)
        if waiting:  # for lack of a free place in the batch
            steps.tallies.seqs_wait_us += end - now
        upcoming = end if waiting or batch.running else IDLE
        if steps.done is not None:
            steps.tell(NO_PLAN, upcoming)
            if waiting:
                steps.report_stopped(None, now)
        return upcoming

    def _note_fast_forward(self, steps: int, duration_us: int) -> None:  # noqa: ARG002  (the base's signature)
        if self.batch.waiting.items:  # for lack of a free place in the batch
            self.steps.tallies.seqs_wait_us += duration_us

    def planned_step(self, now: int) -> int:
        """Do what ``step`` does, if there is something to decide."""
        batch, steps = self.batch, self.steps
        if not (batch.running or batch.waiting.items):
            return NO_STEP
        plan = steps.plan(now)
        if plan is None:
            return NO_STEP
        if not batch.load.decode_requests and plan.computes_nothing:
            if batch.awaits_adapter():
                return IDLE if batch.tells_of_adapters() else NO_STEP
            raise batch.deadlock(self.index, now)
        end = steps.run(plan, batch.pool.epoch, now)
        upcoming = end if batch.waiting.items or batch.running else IDLE
        if steps.done is not None:
            steps.tell(plan, upcoming)
            if batch.waiting.items:
                steps.report_stopped(plan, now)
        return upcoming


@mypyc_attr(allow_interpreted_subclasses=True)
class Ahead(FastForward):
    """Plans a step while the previous one runs: vLLM's asynchronous scheduling.

    Two steps are in flight at any time. When a step starts, the results of the previous one have come, and the next
    step is planned. That plan sees the requests that have arrived by then and treats what the starting step computes
    as done. A request whose last token that step computes keeps its slot and its blocks until the token is there. If
    an answer ends by end-of-sequence rather than by its budget, no plan can know: one more token is computed and
    discarded. The first two steps of a busy period are planned at once. Source: vLLM 0.32.0, ``v1/engine/core.py``
    (``step_with_batch_queue``) and ``v1/core/sched/async_scheduler.py``.
    """

    __slots__ = ()

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps, lead=1, holds=True)
        steps.plans_on = steps.rule.traits.plans_past_stops

    def step(self, now: int) -> int:
        """Start the planned step and plan the next one; return when that starts, IDLE or NO_STEP."""
        batch, steps = self.batch, self.steps
        ready = self.ready(now)
        if ready is None:
            return NO_STEP
        end = steps.decode(now) if ready.plan is None else steps.run(ready.plan, ready.epoch, now)
        goes_on = batch.has_requests
        if steps.done is not None:
            steps.tell(ready.plan or NO_PLAN, end if goes_on else IDLE)
        batch.planned = following = self._plan_next(now, ahead=True) if goes_on else None
        if batch.waiting.items:
            self._tally_wait((following and following.plan) or NO_PLAN, end - now)
        if batch.running or batch.waiting.items or batch.cohort.maybe_finished:  # (as in `has_work`)
            return end
        return end if following is not None and not following.computes_nothing else IDLE

    def ready(self, now: int) -> Planned | None:
        """Return the step that starts now; None = it would have nothing to do."""
        batch = self.batch
        if batch.finishing or batch.aborting:
            batch.release_all()
        ready = batch.planned
        decodes = batch.load.decode_requests
        if not decodes:
            batch.cohort.ahead = 0  # the requests for which it was planned have left
        if ready is None or (not decodes and ready.computes_nothing):
            if not (batch.running or batch.waiting.items):
                return None
            self._void_plan(now)
            ready = self._replan(ready, now)
        return ready

    def planned_step(self, now: int) -> int:
        """Do what ``step`` does: whether there is something to decide is known only for the step after it."""
        return self.step(now)

    def _has_planned_decode(self) -> bool:
        planned = self.batch.planned
        return planned is not None and planned.plan is None

    def _note_fast_forward(self, steps: int, duration_us: int) -> None:  # noqa: ARG002  (as above)
        batch, epoch = self.batch, self.batch.pool.epoch
        if batch.planned is None or batch.planned.epoch != epoch:  # (it is a plain decode: see `_has_planned_decode`)
            batch.planned = tuple.__new__(Planned, (None, epoch))  # half the cost of the constructor
        if batch.waiting.items:
            self._tally_wait(NO_PLAN, duration_us)

    def _tally_wait(self, following: Plan, duration_us: int) -> None:
        """Tally why requests wait during this step, which the plan of the following step tells."""
        batch, full = self.batch, self._full(following)
        tally_wait(
            self.steps.tallies, batch, following, batch.pool.epoch, len(batch.finishing), duration_us, full_budget=full
        )

    def _full(self, plan: Plan) -> bool:
        """Whether a plan uses the whole token budget."""
        batch = self.batch
        tokens = batch.load.decode_requests if plan.decodes else 0
        if batch.speculative is not None:
            for drafts in batch.speculative.drafts.values():
                tokens += drafts
        for ghost in plan.ghosts:
            tokens += ghost.tokens
        for chunk in plan.chunks:
            tokens += chunk.new
        return tokens >= self.batch.limits.max_num_batched_tokens

    def _replan(self, before: Planned | None, now: int) -> Planned | None:
        """Plan the step that starts now; it takes over the preemptions of ``before``, a plan that computes nothing."""
        planned = self._plan_next(now, ahead=False)
        if planned is None:
            if awaits_blocks(self.batch):
                return None
            raise self.batch.deadlock(self.index, now)
        return planned if before is None or before.plan is None else planned.after(before.plan)

    def _plan_next(self, now: int, *, ahead: bool) -> Planned | None:
        """Plan the step that starts now or after the one in flight; None = it would have nothing to do."""
        batch, steps = self.batch, self.steps
        plan: Plan | None = None
        due = self._due_for_plain_decode()
        if due >= 0:
            if due:
                batch.pool.take(due)
        else:
            plan = steps.plan(now, ahead=ahead)
            if plan is None or (plan.computes_nothing and not batch.load.decode_requests):
                if ahead and plan is not None and batch.waiting.items:
                    steps.report_stopped(plan, now, later=1)
                return None
            batch.pool.planned()
        if batch.waiting.items:
            steps.report_stopped(plan, now, later=1)
        batch.cohort.ahead = int(batch.load.decode_requests > 0 and (plan is None or plan.decodes))
        return tuple.__new__(Planned, (plan, batch.pool.epoch))  # (as above)

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs, or a planned step still has something to compute."""
        batch = self.batch
        return batch.has_requests or (batch.planned is not None and not batch.planned.computes_nothing)

    def abort(self, request: Request, now: int) -> None:
        """Take out a running request; a step that is already planned computes it all the same.

        Its blocks are freed when the step in flight is over.
        """
        batch = self.batch
        planned, decodes = batch.planned, request.joined_clock >= 0 and batch.cohort.ahead
        drafts = 0 if batch.speculative is None else batch.speculative.drafts.get(request.index, 0)
        content_tokens = batch.take_out(request)
        if self.steps.free_us <= now:
            batch.pool.release(request, content_tokens)
            return
        batch.aborting.append((request, content_tokens))
        if planned is not None and decodes:
            plan = Plan() if planned.plan is None else planned.plan
            plan.ghosts.append(DiscardedTokens(request, 1 + drafts, request.computed_tokens))
            batch.planned = planned._replace(plan=plan)

    def on_withdrawn(self, now: int) -> None:
        """React to a waiting or running request that left without a result."""
        if not self.has_work:
            self._void_plan(now)

    def _void_plan(self, now: int) -> None:
        """Count what is in the blocks of a plan as computed, since all its requests have left."""
        self.batch.pool.computed(now, -1)

    def abandon(self) -> None:
        """Stop at once; all requests have been taken out."""
        batch = self.batch
        batch.planned = None
        batch.cohort.ahead = 0
        batch.release_all()
        super().abandon()

    def state(self) -> tuple[object, ...]:
        """Return what is planned but not executed, as plain values (for digests)."""
        finishing = sorted(self.batch.finishing), [(request.index, content) for request, content in self.batch.aborting]
        if self.batch.planned is None:
            return (finishing,)
        plan, epoch = self.batch.planned
        if plan is None:
            return (finishing, epoch)
        chunks = [(chunk.request.index, chunk.computed, chunk.new) for chunk in plan.chunks]
        preempted = [(preemption.victim.index, preemption.beneficiary.index) for preemption in plan.preempted]
        ghosts = [(ghost.request.index, ghost.tokens, ghost.context_tokens) for ghost in plan.ghosts]
        return (finishing, epoch, chunks, [request.index for request in plan.admitted], preempted, ghosts)
