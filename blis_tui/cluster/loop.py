"""The event loop: one event after another, or, without subscribers, each instance as far as it gets by itself."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Protocol

from blis_tui.cluster.passage import Passage
from blis_tui.engine.events import NO_STEP, RequestCallback, Step

if TYPE_CHECKING:
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.engine.events import Entry, Event
    from blis_tui.engine.flow import Flow


class Running(Protocol):
    """What the loop drives."""

    pipeline: Pipeline
    clock_went_back: int
    stopping: bool


def heard(cluster: Running, last: int, limit: int) -> None:
    """Process events one by one, up to that number and to that time."""
    pipeline = cluster.pipeline
    queue = pipeline.queue
    heap, steps, observers = queue.heap, queue.steps, pipeline.observers
    while True:  # (Python 3.11 makes loops with a condition of their own no faster while they run)
        if pipeline.events >= last or not (steps or heap):
            break
        time, order, _, event = heap[0] if not steps or (heap and heap[0] < steps[0]) else steps[0]
        if time > limit:
            break
        observers.event = pipeline.events + 1
        if type(event) is Step:  # as nearly always
            upcoming = event.flow.step(time)
            if upcoming >= 0:
                # The Step event is still the first: what a step schedules lies after it.
                heapreplace(steps, (upcoming, order, 0, event))
            else:
                heappop(steps)
                event.drop()
                if upcoming == NO_STEP:
                    continue
        elif type(event) is Passage:
            heappop(heap)
            upcoming = event.handler(event, time)
            if upcoming >= 0:
                queue.push(upcoming, event.order, event)
        else:
            heappop(heap)
            if not event.happen(time):
                event.drop()
                continue
        cluster.clock_went_back += time < pipeline.now
        pipeline.now = time
        _tell(pipeline, event, time)
        pipeline.events += 1
        if cluster.stopping:
            break


def unheard(cluster: Running, last: int, limit: int, *, exact: bool) -> None:
    """The same without subscribers: an instance takes several steps in one go where nothing can come between.

    With ``exact``, that may be a step of another instance. Otherwise instances put plain decodes off until something
    else is due there or their results are asked for; when it is time to stop, all of them come to where the first of
    them is, so that there may be some more events. The state is one that single events lead to, too.
    """
    for time, _, _, step in cluster.pipeline.queue.steps:
        step.flow.next_us = step.flow.due_us = time
    limit = _run(cluster, last, limit, exact=exact)
    if not exact:
        _catch_up(cluster.pipeline, limit + 1)


def _run(cluster: Running, last: int, limit: int, *, exact: bool) -> int:
    """See ``unheard``; returns up to when all events have happened."""
    pipeline = cluster.pipeline
    roster, queue = pipeline.roster, pipeline.queue
    heap, steps = queue.heap, queue.steps
    watched, watch, touched, ended = roster.watched, roster.watch, roster.board.touched, pipeline.arrivals.ended
    now = reached = pipeline.now
    events = pipeline.events
    try:
        while True:  # (as above)
            if not steps and not heap:
                break
            if steps and (not heap or steps[0] < heap[0]):  # as nearly always
                time, order, _, step = steps[0]
                if time > limit:
                    break
                flow = step.flow
                if time != flow.due_us and not exact:  # it has been due before
                    heappop(steps)
                    continue
                bar = heap[0][0] if heap and heap[0][0] <= limit else limit + 1
                if len(steps) > 1:  # one of these two is the next
                    bar = min(bar, steps[1][0], steps[-1 if len(steps) == 2 else 2][0])
                advance = flow.advance if exact else flow.advance_deferring
                count, latest, upcoming = advance(time, bar, last - events)
                if upcoming >= 0:
                    # It is still the first: what a step schedules lies after it.
                    heapreplace(steps, (upcoming, order, 0, step))
                else:
                    heappop(steps)
                    step.drop()
                if not count:
                    continue
                events += count
                if watched:
                    touched[step.instance_index] = None
                    if watch.departed or watch.prefilled:
                        roster.note_departures(latest)
                if ended:
                    pipeline.arrivals.answer(latest)
            else:
                time, order, _, event = heap[0]
                if time > limit:
                    break
                heappop(heap)
                pipeline.events = events
                time = latest = _happen(cluster, event, time, order, last, limit)
                if time < 0:
                    continue
                events = pipeline.events
            if latest > reached:  # noqa: PLR1730  (max() would cost as much as all else here)
                reached = latest
            cluster.clock_went_back += time < now
            now = time
            if events >= last or cluster.stopping:
                if exact:
                    break
                limit = min(limit, reached)
    finally:
        pipeline.now = reached
        pipeline.events = events
    return limit


def _catch_up(pipeline: Pipeline, bar: int) -> None:
    """No step that starts before ``bar`` is put off any more, and the next one of each instance is pending."""
    roster, steps = pipeline.roster, pipeline.queue.steps
    pending = {step.instance_index: step for time, _, _, step in steps if time == step.flow.due_us}
    for index, step in pending.items():
        flow = step.flow
        flow.catch_up(bar)
        flow.due_us = flow.next_us
        if roster.watched:
            roster.board.touched[index] = None
    steps[:] = [(step.flow.due_us, step.flow.order, 0, step) for step in pending.values()]
    heapify(steps)
    for instance in roster.instances:
        flow = instance.flow
        pipeline.events += flow.late
        pipeline.now = max(pipeline.now, flow.late_us)
        flow.late = 0


def _settle(pipeline: Pipeline, flow: Flow, order: int, time: int) -> None:
    """Something is about to happen to an instance: no step before that is put off any more, and the next is pending."""
    flow.catch_up(time if order < flow.order else time + 1)
    if flow.next_us < flow.due_us:
        flow.due_us = flow.next_us
        steps, entry = pipeline.queue.steps, (flow.next_us, flow.order, 0, flow.event)
        if steps[0][3] is flow.event:
            heapreplace(steps, entry)
        else:
            heappush(steps, entry)


def _happen(cluster: Running, event: Event, time: int, order: int, last: int, limit: int) -> int:
    """Let an event happen that is no step, and a request go through all stages between which nothing else does.

    Returns when the last of these was; or -1, where nothing happened.
    """
    pipeline = cluster.pipeline
    queue, tells = pipeline.queue, pipeline.roster.watched
    if type(event) is Passage:
        heap, steps, instances = queue.heap, queue.steps, pipeline.roster.instances
        while True:
            if event.instance_index is not None:
                flow = instances[event.instance_index].flow
                if flow.next_us < flow.due_us:
                    _settle(pipeline, flow, event.order, time)
            upcoming = event.handler(event, time)
            if upcoming < 0:
                break
            queue.seq += 1
            entry: Entry = (upcoming, event.order, queue.seq, event)
            if (
                (heap and heap[0] < entry)
                or (steps and steps[0] < entry)
                or upcoming > limit
                or pipeline.events + 1 >= last
                or cluster.stopping
            ):
                heappush(heap, entry)
                break
            if tells or pipeline.arrivals.ended:
                _tell(pipeline, event, time)
            time = upcoming
            pipeline.events += 1
    elif type(event) is RequestCallback:
        event.handler(event.request, time)  # it ends a step with its request, and nothing else
    else:
        for instance in pipeline.roster.instances:
            flow = instance.flow
            if flow.next_us < flow.due_us and event.instance_index in (None, instance.index):
                _settle(pipeline, flow, order, time)
        if not event.happen(time):
            event.drop()
            return -1
    pipeline.events += 1
    if tells or pipeline.arrivals.ended:
        _tell(pipeline, event, time)
    return time


def _tell(pipeline: Pipeline, event: Event, time: int) -> None:
    """An event has happened: those who follow what goes on hear of it."""
    roster = pipeline.roster
    if roster.watched:
        if (index := event.instance_index) is not None:
            roster.board.touched[index] = None
        watch = roster.watch
        if watch.departed or watch.prefilled:
            roster.note_departures(time)
    if pipeline.arrivals.ended:
        pipeline.arrivals.answer(time)
