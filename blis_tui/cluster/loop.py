"""The event loop: one event after another, or, without subscribers, each instance as far as it gets by itself."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from blis_tui.classes import mypyc_attr
from blis_tui.cluster.passage import QUEUED, Passage
from blis_tui.engine.events import NO_STEP, RequestCallback, Step
from blis_tui.kept import Kept

if TYPE_CHECKING:
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.engine.events import Event
    from blis_tui.engine.flow import Flow


@mypyc_attr(allow_interpreted_subclasses=True)
class Running(Kept):
    """What the loop drives; what it has is said at ``Cluster``."""

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
    bound = _run(cluster, last, limit + 1, exact=exact)
    if not exact:
        _catch_up(cluster.pipeline, bound)


def _run(cluster: Running, last: int, bound: int, *, exact: bool) -> int:
    """See ``unheard``: what lies before that bound; all events have happened that lie before the one returned."""
    pipeline = cluster.pipeline
    heap, steps, tells = pipeline.queue.heap, pipeline.queue.steps, pipeline.roster.watched
    ended = pipeline.arrivals.ended
    now = reached = pipeline.now
    events = pipeline.events
    event: Event
    try:
        while True:  # (as above)
            bar = heap[0][0] if heap and heap[0][0] < bound else bound
            if steps and ((time := steps[0][0]) < bar or (time == bar < bound and steps[0][1] <= heap[0][1])):
                _, order, _, step = steps[0]
                event, flow = step, step.flow
                if time != flow.due_us and not exact:  # it has been due before
                    heappop(steps)
                    continue
                if len(steps) > 1 and steps[1][0] < bar:  # this one is the next, or the one behind it
                    bar = steps[1][0]
                if len(steps) > 2 and steps[2][0] < bar:
                    bar = steps[2][0]
                if exact:
                    count, latest, upcoming = flow.advance(time, bar, last - events)
                else:
                    count, latest, upcoming = flow.advance_deferring(time, bar, last - events)
                if upcoming >= 0:  # it is still the first: what a step schedules lies after it
                    heapreplace(steps, (upcoming, order, 0, step))
                else:
                    heappop(steps)
                    step.drop()
                if not count:
                    continue
                events += count
            elif bar >= bound:
                break
            else:
                time, order, _, event = heappop(heap)
                if type(event) is RequestCallback:
                    event.handler(event.request, time)  # it ends a step with its request, and nothing else
                    events += 1
                else:
                    pipeline.events = events
                    if type(event) is Passage:
                        time = _pass(cluster, event, time, last, bound)
                    elif not _happen(pipeline, event, order, time):
                        continue
                    events = pipeline.events
                latest = time
            if tells or ended:
                _tell(pipeline, event, latest)
            if latest > reached:  # noqa: PLR1730  (max() would cost as much as all else here)
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


def _pass(cluster: Running, passage: Passage, time: int, last: int, bound: int) -> int:
    """A request goes through all stages between which nothing else happens; returns when it came to the last of these.

    Who follows what goes on has been told of all but that one.
    """
    pipeline = cluster.pipeline
    queue, roster, ended = pipeline.queue, pipeline.roster, pipeline.arrivals.ended
    heap, steps, tells = queue.heap, queue.steps, roster.watched
    events = pipeline.events
    while True:
        index = passage.instance_index
        if index is not None:
            flow = roster.instances[index].flow
            # Where requests wait for a place, one more of them changes nothing for plain decodes.
            if flow.next_us < flow.due_us and not (passage.kind == QUEUED and flow.batch.waiting.items):
                _settle(pipeline, flow, passage.order, time)
        upcoming = passage.handler(passage, time)
        events += 1
        if upcoming < 0:
            break
        queue.seq += 1
        order = passage.order
        if (
            (heap and heap[0][0] <= upcoming and (heap[0][0] < upcoming or heap[0][1] <= order))
            or (steps and steps[0][0] <= upcoming and (steps[0][0] < upcoming or steps[0][1] <= order))
            or upcoming >= bound
            or events >= last
            or cluster.stopping
        ):
            heappush(heap, (upcoming, order, queue.seq, passage))
            break
        if tells or ended:
            _tell(pipeline, passage, time)
        time = upcoming
        pipeline.events = events
    pipeline.events = events
    return time


def _happen(pipeline: Pipeline, event: Event, order: int, time: int) -> bool:
    """Let an event happen that is neither a step nor one of a request on its way; whether it did."""
    for instance in pipeline.roster.instances:
        flow = instance.flow
        if flow.next_us < flow.due_us and event.instance_index in (None, instance.index):
            _settle(pipeline, flow, order, time)
    if not event.happen(time):
        event.drop()
        return False
    pipeline.events += 1
    return True


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
