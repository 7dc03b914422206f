"""The event loop: event by event or, without subscribers, each instance as far as it gets by itself."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.cluster.routed_request import ARRIVAL, NO_NEXT_STAGE, QUEUED, RoutedRequest, put_off
from blis_tui.engine.events import NO_STEP, RequestCallback, Step

if TYPE_CHECKING:
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.engine.events import Event
    from blis_tui.engine.step_loop import StepLoop


@mypyc_attr(allow_interpreted_subclasses=True)
class LoopState(Picklable):
    """The state that the loop drives; see ``Cluster`` for its attributes."""

    pipeline: Pipeline
    clock_went_back: int
    stopping: bool


def run_observed(cluster: LoopState, last: int, limit: int) -> None:
    """Process events one by one, up to event number ``last`` and time ``limit``."""
    pipeline = cluster.pipeline
    queue = pipeline.queue
    heap, steps, observers = queue.heap, queue.steps, pipeline.observers
    while True:  # (in Python 3.11, loops with a condition of their own do not speed up while they run)
        if pipeline.events >= last or not (steps or heap):
            break
        time, order, seq, event = heap[0] if not steps or (heap and heap[0] < steps[0]) else steps[0]
        if time > limit:
            break
        observers.event = pipeline.events + 1
        if type(event) is Step:  # the usual case
            upcoming = event.loop.step(time)
            if upcoming >= 0:
                # The Step event is still the first: a step schedules only later events.
                heapreplace(steps, (upcoming, order, 0, event))
            else:
                heappop(steps)
                event.drop()
                if upcoming == NO_STEP:
                    _touch(pipeline, event)
                    continue
        elif type(event) is RoutedRequest:
            heappop(heap)
            upcoming = event.handler(event, time)
            if upcoming < NO_NEXT_STAGE:
                heappush(heap, (put_off(upcoming), order, seq, event))
                continue
            if upcoming >= 0:
                queue.push(upcoming, event.order, event)
        else:
            heappop(heap)
            if not event.fire(time):
                event.drop()
                continue
        cluster.clock_went_back += time < pipeline.now
        pipeline.now = time
        _tell(pipeline, event, time)
        pipeline.events += 1
        if cluster.stopping:
            break


def run_unobserved(cluster: LoopState, last: int, limit: int, *, exact: bool) -> None:
    """Process events without subscribers: an instance takes several steps in one go if nothing can come between.

    With ``exact``, a step of another instance counts as coming between. Otherwise instances defer plain decodes until
    something else is due there or their results are asked for, and (unless others notice them, or clients wait for
    answers) departures until the next step that completes a request. At the end, all instances catch up with the first
    of them, so there may be some more events than asked for. The resulting state is one that event-by-event processing
    also reaches.
    """
    for time, _, _, step in cluster.pipeline.queue.steps:
        step.loop.next_us = step.loop.due_us = time
    registry = cluster.pipeline.registry
    if not exact and not registry.watched and not cluster.pipeline.arrivals.await_answers:
        for instance in registry.instances:
            instance.loop.defer_departures()
    bound = _run(cluster, last, limit + 1, exact=exact)
    if not exact:
        _catch_up(cluster.pipeline, bound)


def _run(cluster: LoopState, last: int, bound: int, *, exact: bool) -> int:
    """See ``run_unobserved``: process events before ``bound``; return the time before which all have happened."""
    pipeline = cluster.pipeline
    heap, steps, tells = pipeline.queue.heap, pipeline.queue.steps, pipeline.registry.watched
    touched, watch, ended = pipeline.registry.board.touched, pipeline.registry.watch, pipeline.arrivals.ended
    now, reached, events = pipeline.now, pipeline.now, pipeline.events
    event: Event
    try:
        while True:  # (as above)
            bar = heap[0][0] if heap and heap[0][0] < bound else bound
            if steps and ((time := steps[0][0]) < bar or (time == bar < bound and steps[0][1] <= heap[0][1])):
                _, order, _, step = steps[0]
                event, loop = step, step.loop
                if time != loop.due_us and not exact:  # an outdated entry: the step was due earlier
                    heappop(steps)
                    continue
                if (pending := len(steps)) > 1:  # this step is the next event, or the one after it
                    if steps[1][0] < bar:
                        bar = steps[1][0]
                    if pending > 2 and steps[2][0] < bar:
                        bar = steps[2][0]
                if exact:
                    count, latest, upcoming = loop.advance(time, bar, last - events)
                else:
                    count, latest, upcoming = loop.advance_deferring(time, bar, last - events)
                if upcoming >= 0:  # it is still the first: a step schedules only later events
                    heapreplace(steps, (upcoming, order, 0, step))
                else:
                    _end_busy_period(pipeline, latest)
                if not count:
                    _touch(pipeline, step)
                    continue
                events += count
            elif bar >= bound:
                break
            else:
                time, order, seq, event = heappop(heap)
                pipeline.events = events
                if type(event) is RoutedRequest:
                    if (time := _advance_request(cluster, event, (time, seq), last, bound)) < 0:
                        continue
                elif not _process_event(pipeline, event, order, time):
                    continue
                events = pipeline.events
                latest = time
            if tells and not (watch.departed or watch.prefilled or ended):  # the usual case of `_tell`
                if event.instance_index is not None:
                    touched[event.instance_index] = None
            elif tells or ended:
                _tell(pipeline, event, latest)
            if latest > reached:
                reached = latest
            if time < now:
                cluster.clock_went_back += 1
            now = time
            if events >= last or cluster.stopping:
                if exact:
                    break
                bound = min(bound, reached + 1)
    finally:
        pipeline.now, pipeline.events = reached, events
    return bound


def _catch_up(pipeline: Pipeline, bar: int) -> None:
    """Run all deferred steps that start before ``bar``, and make each instance's next step pending."""
    registry, steps = pipeline.registry, pipeline.queue.steps
    pending = {step.instance_index: step for time, _, _, step in steps if time == step.loop.due_us}
    for index, step in pending.items():
        loop = step.loop
        loop.catch_up(bar)
        loop.due_us = loop.next_us
        if registry.watched:
            registry.board.touched[index] = None
    steps[:] = [(step.loop.due_us, step.loop.order, 0, step) for step in pending.values()]
    heapify(steps)
    for instance in registry.instances:
        loop, own = instance.loop, instance.steps
        own.schedule_departures(bar, 0)
        pipeline.events += loop.late + own.departed
        pipeline.now = max(pipeline.now, loop.late_us, own.departed_us)
        loop.late = own.departed = 0
        own.departing = None


def _touch(pipeline: Pipeline, step: Step) -> None:
    """Note that an instance had nothing to compute: requests whose clients had given up may have left it."""
    registry = pipeline.registry
    if registry.watched:
        registry.board.touched[step.instance_index] = None


def _end_busy_period(pipeline: Pipeline, latest: int) -> None:
    """Take out the first step event, as nothing is left to do there; ``latest``: start of the instance's last step."""
    _, order, _, step = heappop(pipeline.queue.steps)
    step.drop()
    pipeline.registry.instances[step.instance_index].steps.schedule_departures(latest, order)


def _settle(pipeline: Pipeline, loop: StepLoop, order: int, time: int) -> None:
    """Before an event on an instance, run its deferred steps up to then and make the next one pending."""
    loop.catch_up(time if order < loop.order else time + 1)
    if loop.next_us < loop.due_us:
        loop.due_us = loop.next_us
        steps, entry = pipeline.queue.steps, (loop.next_us, loop.order, 0, loop.event)
        if steps[0][3] is loop.event:
            heapreplace(steps, entry)
        else:
            heappush(steps, entry)


def _advance_request(cluster: LoopState, routed: RoutedRequest, due: tuple[int, int], last: int, bound: int) -> int:
    """Move a request through all stages between which nothing else happens; return the time of the last one.

    Followers have been told about all of these stages but the last. A stage that puts itself off has not happened; the
    time is -1 if no other has.
    """
    pipeline = cluster.pipeline
    queue, registry, ended = pipeline.queue, pipeline.registry, pipeline.arrivals.ended
    heap, steps, tells = queue.heap, queue.steps, registry.watched
    events, latest = pipeline.events, -1
    time, seq = due
    while True:
        index = routed.instance_index
        if index is not None:
            loop = registry.instances[index].loop
            # Where requests wait for a place, one more changes nothing for plain decodes.
            if loop.next_us < loop.due_us and not (routed.kind == QUEUED and loop.batch.waiting.items):
                _settle(pipeline, loop, routed.order, time)
        upcoming = routed.handler(routed, time)
        if upcoming < NO_NEXT_STAGE:
            heappush(heap, (put_off(upcoming), routed.order, seq, routed))
            break
        events += 1
        latest = time
        if upcoming < 0:
            break
        queue.seq += 1
        seq, order = queue.seq, routed.order
        if (
            (heap and heap[0][0] <= upcoming and (heap[0][0] < upcoming or heap[0][1] <= order))
            or (steps and steps[0][0] <= upcoming and (steps[0][0] < upcoming or steps[0][1] <= order))
            or upcoming >= bound
            or events >= last
            or cluster.stopping
        ):
            heappush(heap, (upcoming, order, seq, routed))
            break
        if tells or ended:
            _tell(pipeline, routed, time)
        time = upcoming
        pipeline.events = events
    pipeline.events = events
    return latest


def _process_event(pipeline: Pipeline, event: Event, order: int, time: int) -> bool:
    """Process an event that is neither a step nor a stage of a request; return whether it happened."""
    if type(event) is RequestCallback:
        event.handler(event.request, time)  # only ends the step of its request
        pipeline.events += 1
        return True
    looks = order != ARRIVAL  # a client that sends looks at no instance
    for instance in pipeline.registry.instances if looks else ():
        loop = instance.loop
        if event.instance_index in (None, instance.index):
            if loop.next_us < loop.due_us:
                _settle(pipeline, loop, order, time)
            instance.steps.schedule_departures(time, order)
    if not event.fire(time):
        event.drop()
        return False
    pipeline.events += 1
    return True


def _tell(pipeline: Pipeline, event: Event, time: int) -> None:
    """Tell followers about an event that has happened."""
    registry = pipeline.registry
    if registry.watched:
        if (index := event.instance_index) is not None:
            registry.board.touched[index] = None
        watch = registry.watch
        if watch.departed or watch.prefilled:
            registry.note_departures(time)
    if pipeline.arrivals.ended:
        pipeline.arrivals.answer(time)
