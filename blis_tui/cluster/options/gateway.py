"""Requests held back in front of the instances: by the gateway while these are saturated, and by deferral.

The gateway queues admitted requests. Deferral lets requests of the least urgent classes wait until the cluster is idle.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import SimulationError
from blis_tui.base.pickling import is_internal_class, stateful_plugins
from blis_tui.cluster.gateway_queue import GatewayQueue
from blis_tui.cluster.policy import SATURATION
from blis_tui.cluster.records import Deferred, Dispatched, GatewayTick, Held, Resumed
from blis_tui.cluster.routed_request import ADMISSION, DISPATCH, GATEWAY_EXPIRY, NO_NEXT_STAGE, RoutedRequest, Signal
from blis_tui.cluster.stages import DISPLACED, EXPIRED, FULL, GATEWAY, NoDeferral, NoGateway
from blis_tui.engine.events import Revocable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.cluster import gateway_queue as queue
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.cluster.policy import Saturation
    from blis_tui.cluster.routed_request import RoutedRequest
    from blis_tui.cluster.signals import Fleet
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment, Gateway

_PPM: Final = 1_000_000
_MAX_LEVEL: Final = 1e9
"""Cap on the level in records, as a detector may answer infinity."""


class GatewayControl(NoGateway):
    """Holds requests back while the instances are saturated.

    Args:
        experiment: names the saturation detector.
        settings: the order and the limits of the queue.
        pipeline: the pipeline that it belongs to.
        fleet: the instances.

    Attributes:
        queue: the held requests.
    """

    holds = True

    def __init__(self, experiment: Experiment, settings: Gateway, pipeline: Pipeline, fleet: Fleet) -> None:
        super().__init__()
        self.queue = GatewayQueue(settings)
        self._settings = settings
        self._saturation = experiment.plugins.create(SATURATION, settings.saturation.kind, settings.saturation.settings)
        self._pipeline = pipeline
        self._fleet = fleet
        self._ticking = False

    # ---- queries ----

    @property
    def rule(self) -> str:
        """The definition of saturation, in a sentence."""
        return self._saturation.rule

    @property
    def waiting(self) -> int:
        """Number of held requests."""
        return len(self.queue)

    def held(self) -> list[RoutedRequest]:
        """Return the held requests, found one by one."""
        return [held.routed for held in self.queue.held()]

    def bands(self) -> Iterator[tuple[int, float, queue.Band]]:
        """Iterate over the bands, most urgent first: priority, saturation up to which it is served, requests."""
        return self.queue.bands()

    def upcoming(self) -> queue.Held | None:
        """Return the next request, if no other arrives and the instances are not too busy."""
        return self.queue.upcoming()

    def saturation(self) -> float:
        """Return the saturation by the signals read last, without changing what a plug-in remembers."""
        detector = self._saturation
        return self._level(detector if is_internal_class(type(detector)) else deepcopy(detector))

    # ---- events ----

    def enter(self, routed: RoutedRequest, now: int) -> int:
        """Take in an admitted request."""
        pipeline = self._pipeline
        priority = pipeline.admission.control.priority(routed.incoming)
        held, victim = self.queue.offer(routed, priority, now)
        if victim is not None:
            reason = f"displaced by {routed.request.request_id} after {now - victim.since_us} us in the queue"
            pipeline.reject(victim.routed.request, GATEWAY, reason, now, DISPLACED)
        if held is None:
            full = f"the band of priority {priority}" if self.queue.band_is_full(priority) else "the queue"
            pipeline.reject(routed.request, GATEWAY, f"{full} is full", now, FULL)
            return NO_NEXT_STAGE
        self.peak_depth = max(self.peak_depth, len(self.queue))
        routed.kind = "held"
        pipeline.observers.tell(Held, now, routed.request.request_id, priority, len(self.queue))
        if self._settings.request_ttl_us:
            is_off, expire = partial(self._has_left, held), partial(self.expire, held)
            end = Revocable("gateway-expiry", is_off, expire, request=routed.request)
            pipeline.queue.push(now + self._settings.request_ttl_us, GATEWAY_EXPIRY, end)
        self._dispatch(now)
        self._schedule_tick(now)
        return NO_NEXT_STAGE

    def departed(self, departed: Sequence[Request], prefilled: Sequence[Request], now: int) -> None:  # noqa: ARG002
        """React to requests that left the instances."""
        self._completed(len(departed), now)

    def wake(self, count: int, now: int) -> None:
        """React to a new instance with room for ``count`` requests."""
        self._completed(count, now)
        self._schedule_tick(now)

    def _completed(self, count: int, now: int) -> None:
        """React to ``count`` more places on the instances."""
        if self._settings.dispatch == "on-completion":
            while count and self._dispatch(now):
                count -= 1

    def _has_left(self, held: queue.Held) -> bool:
        """Whether a request has left the queue."""
        return held.gone

    def expire(self, held: queue.Held, now: int) -> None:
        """Reject a request that has been in the queue for too long."""
        self.queue.remove(held)
        waited = now - held.since_us
        self._pipeline.reject(held.routed.request, GATEWAY, f"expired after {waited} us in the queue", now, EXPIRED)

    def _dispatch(self, now: int) -> bool:
        """Dispatch the next request unless the instances are too busy; return whether one was sent."""
        pipeline, queue = self._pipeline, self.queue
        if not len(queue):
            return False
        pipeline.registry.board.read(now)
        saturation = self._level(self._saturation)
        held = queue.next(saturation)
        if held is None:
            return False
        request = held.routed.request
        request.gateway_us = now - held.since_us
        self.dispatched += 1
        facts = (request.gateway_us, len(queue), _ppm(saturation))
        pipeline.observers.tell(Dispatched, now, request.request_id, *facts)
        routed = held.routed
        pipeline.queue.push(pipeline.dispatcher.dispatch(routed, now), routed.order, routed)
        return True

    def _schedule_tick(self, now: int) -> None:
        if self._settings.dispatch == "tick" and len(self.queue) and len(self._fleet) and not self._ticking:
            self._ticking = True
            self._pipeline.queue.push(now + self._settings.tick_us, DISPATCH, Signal("dispatch", self._tick))

    def _tick(self, event: Signal, now: int) -> bool:  # noqa: ARG002
        self._ticking = False
        self._pipeline.registry.board.read(now)  # also if nothing is left to dispatch: the tick tells what it sees
        self._dispatch(now)
        self._schedule_tick(now)
        observers = self._pipeline.observers
        if GatewayTick in observers.kinds:
            level = _ppm(self.saturation())
            observers.emit(GatewayTick(observers.event, now, len(self.queue), level))
        return True

    def state(self) -> tuple[object, ...]:
        """Return its state as plain values (for digests)."""
        return (
            self.queue.state(),
            self._ticking,
            self.dispatched,
            self.peak_depth,
            *(stateful.state() for stateful in stateful_plugins(self._saturation)),
        )

    def _level(self, detector: Saturation) -> float:
        """Return the detector's answer.

        Raises:
            SimulationError: it is not a number.
        """
        level: Callable[..., object] = detector.level  # a plug-in may answer anything
        answer = level(self._fleet)
        if isinstance(answer, int | float) and not isnan(answer):
            return answer
        raise SimulationError(
            f"the saturation detector `{self._settings.saturation.kind}` answers {answer!r}",
            help="`level` returns a number: 0 = idle, from 1 on saturated",
        )


def _ppm(level: float) -> int:
    return int(min(level, _MAX_LEVEL) * _PPM)


_DEFERRABLE: Final = frozenset({"batch", "background"})


class IdleOnly(NoDeferral):
    """Defers requests of the least urgent classes while any request is in flight.

    Args:
        experiment: sets the admission latency, which starts again for them.
        pipeline: the pipeline that it belongs to.
        onward: the next stage.
    """

    def __init__(self, experiment: Experiment, pipeline: Pipeline, onward: Callable[[RoutedRequest, int], int]) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._registry = pipeline.registry
        self._latency_us = experiment.cluster.admission_latency_us
        self._onward = onward

    def enter(self, routed: RoutedRequest, now: int) -> int:
        """Pass a request on, or defer it."""
        request, in_flight = routed.request, self._registry.in_flight
        if not in_flight or request.slo_class not in _DEFERRABLE:
            return self._onward(routed, now)
        self.waiting.append(routed)
        self.deferrals += 1
        self._pipeline.observers.tell(Deferred, now, request.request_id, in_flight)
        return NO_NEXT_STAGE

    def departed(self, departed: Sequence[Request], prefilled: Sequence[Request], now: int) -> None:  # noqa: ARG002
        """Resume all deferred requests if the cluster is idle."""
        if not self.waiting or self._registry.in_flight:
            return
        pipeline, observers = self._pipeline, self._pipeline.observers
        for routed in self.waiting:
            observers.tell(Resumed, now, routed.request.request_id)
            pipeline.queue.push(now + self._latency_us, ADMISSION, routed)
        self.waiting.clear()
