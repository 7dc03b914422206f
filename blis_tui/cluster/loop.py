"""The event loop: one event after another, or, without subscribers, each instance as far as it gets by itself."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Protocol

from blis_tui.cluster.passage import Passage
from blis_tui.engine.events import NO_STEP, RequestCallback, Step

if TYPE_CHECKING:
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.engine.events import Entry, Event


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

    With ``exact``, that may be a step of another instance. Otherwise instances get ahead of each other by plain
    decodes, up to the next event that is no step. When it is time to stop, all of them come to where the first of them
    is, so that there may be some more events; the state is one that single events lead to, too.
    """
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
                bar = heap[0][0] if heap and heap[0][0] <= limit else limit + 1
                turn = bar
                if len(steps) > 1:
                    turn = 0
                    if exact:  # one of these two is the next
                        bar = turn = min(bar, steps[1][0], steps[-1 if len(steps) == 2 else 2][0])
                count, latest, upcoming = step.flow.advance(time, bar, turn, last - events)
                if upcoming >= 0:
                    # It is still the first: what a step schedules lies after it.
                    heapreplace(steps, (upcoming, order, 0, step))
                else:
                    heappop(steps)
                    step.drop()
                if not count:
                    continue
                events += count
                if latest > reached:  # noqa: PLR1730  (max() would cost as much as all else here)
                    reached = latest
                if watched:
                    touched[step.instance_index] = None
                    if watch.departed or watch.prefilled:
                        roster.note_departures(latest)
                if ended:
                    pipeline.arrivals.answer(latest)
            else:
                time, _, _, event = heap[0]
                if time > limit:
                    break
                heappop(heap)
                pipeline.events = events
                time = _happen(cluster, event, time, last, limit)
                if time < 0:
                    continue
                events = pipeline.events
                if time > reached:  # noqa: PLR1730  (as above)
                    reached = time
            if time < now:
                cluster.clock_went_back += 1
            now = time
            if events >= last or cluster.stopping:
                if exact:
                    break
                limit = min(limit, reached)
    finally:
        pipeline.now = reached
        pipeline.events = events


def _happen(cluster: Running, event: Event, time: int, last: int, limit: int) -> int:
    """Let an event happen that is no step, and a request go through all stages between which nothing else does.

    Returns when the last of these was; or -1, where nothing happened.
    """
    pipeline = cluster.pipeline
    queue = pipeline.queue
    if type(event) is Passage:
        heap, steps = queue.heap, queue.steps
        while (upcoming := event.handler(event, time)) >= 0:
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
            _tell(pipeline, event, time)
            time = upcoming
            pipeline.events += 1
    elif type(event) is RequestCallback:
        event.handler(event.request, time)
    elif not event.happen(time):
        event.drop()
        return -1
    pipeline.events += 1
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
