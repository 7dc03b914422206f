"""The gateway at work: it takes admitted requests in, and dispatches them while the instances are not saturated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.cluster.gateway.queue import GatewayQueue
from blis_tui.cluster.gateway.saturation import SATURATION
from blis_tui.cluster.passage import DISPATCH, GATEWAY_EXPIRY, Signal
from blis_tui.cluster.records import Dispatched, GatewayTick, Held

if TYPE_CHECKING:
    from blis_tui.cluster.gateway import queue
    from blis_tui.cluster.passage import Passage
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.cluster.signals import Fleet
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Experiment, Gateway

NAME: Final = "gateway"
FULL: Final = "gateway-full"
DISPLACED: Final = "gateway-displaced"
EXPIRED: Final = "gateway-expired"
"""What its rejections count as."""
_PPM: Final = 1_000_000


class Expiry:
    """The end of a request's time in the gateway's queue."""

    __slots__ = ("control", "held")

    kind = "gateway-expiry"
    instance_index = None

    def __init__(self, control: GatewayControl, held: queue.Held) -> None:
        self.control = control
        self.held = held

    @property
    def request(self) -> Request:
        """Whose."""
        return self.held.passage.request

    @property
    def stale(self) -> bool:
        """Whether it has left the queue."""
        return self.held.gone

    def happen(self, now: int) -> bool:
        """Turn it away."""
        if self.held.gone:
            return False
        self.control.expire(self.held, now)
        return True

    def drop(self) -> None:
        """Nothing depends on it."""


class GatewayControl:
    """Holds requests back while the instances are saturated.

    Attributes:
        queue: those it holds.
        dispatched: how many it has sent on.
        peak_depth: the most it has held at a time.
    """

    def __init__(self, settings: Gateway, experiment: Experiment, cluster: Pipeline, fleet: Fleet) -> None:
        self.queue = GatewayQueue(settings)
        self._settings = settings
        self._saturation = experiment.plugins.create(SATURATION, settings.saturation.kind, settings.saturation.settings)
        self._cluster = cluster
        self._fleet = fleet
        self._ticking = False
        self.dispatched = 0
        self.peak_depth = 0

    @property
    def rule(self) -> str:
        """What counts as saturated, in a sentence."""
        return self._saturation.rule

    def saturation(self) -> float:
        """How busy the instances are, by the figures read last."""
        return self._saturation.level(self._fleet)

    def offer(self, passage: Passage, now: int) -> None:
        """An admitted request has come."""
        cluster = self._cluster
        priority = cluster.admission.priority(passage.incoming)
        held, victim = self.queue.offer(passage, priority, now)
        if victim is not None:
            reason = f"displaced by {passage.request.request_id} after {now - victim.since_us} us in the queue"
            cluster.reject(victim.passage.request, NAME, reason, now, DISPLACED)
        if held is None:
            cluster.reject(passage.request, NAME, "the queue is full", now, FULL)
            return
        self.peak_depth = max(self.peak_depth, len(self.queue))
        passage.kind = "held"
        observers = cluster.observers
        if Held in observers.kinds:
            observers.emit(Held(observers.event, now, passage.request.request_id, priority, len(self.queue)))
        if self._settings.request_ttl_us:
            cluster.queue.push(now + self._settings.request_ttl_us, GATEWAY_EXPIRY, Expiry(self, held))
        self._dispatch(now)
        self._tick_later(now)

    def completed(self, count: int, now: int) -> None:
        """So many requests have left the instances."""
        if self._settings.dispatch == "on-completion":
            while count and self._dispatch(now):
                count -= 1

    def wake(self, count: int, now: int) -> None:
        """An instance for so many requests has come up."""
        if self._settings.dispatch == "on-completion":
            self.completed(count, now)
        self._tick_later(now)

    def expire(self, held: queue.Held, now: int) -> None:
        """A request has been in the queue for too long."""
        self.queue.remove(held)
        waited = now - held.since_us
        self._cluster.reject(held.passage.request, NAME, f"expired after {waited} us in the queue", now, EXPIRED)

    def _dispatch(self, now: int) -> bool:
        """Send on whoever is next, if the instances are not too busy for it."""
        cluster, queue = self._cluster, self.queue
        if not len(queue):
            return False
        cluster.board.read(now)
        saturation = self.saturation()
        held = queue.next(saturation)
        if held is None:
            return False
        request = held.passage.request
        request.gateway_us = now - held.since_us
        self.dispatched += 1
        observers = cluster.observers
        if Dispatched in observers.kinds:
            level = int(saturation * _PPM)
            waited = request.gateway_us
            observers.emit(Dispatched(observers.event, now, request.request_id, waited, len(queue), level))
        cluster.dispatch(held.passage, now)
        return True

    def _tick_later(self, now: int) -> None:
        if self._settings.dispatch == "tick" and len(self.queue) and len(self._fleet) and not self._ticking:
            self._ticking = True
            self._cluster.queue.push(now + self._settings.tick_us, DISPATCH, Signal("dispatch", self._tick))

    def _tick(self, event: Signal, now: int) -> bool:  # noqa: ARG002
        self._ticking = False
        cluster = self._cluster
        self._dispatch(now)
        self._tick_later(now)
        observers = cluster.observers
        if GatewayTick in observers.kinds:
            level = int(self.saturation() * _PPM)
            observers.emit(GatewayTick(observers.event, now, len(self.queue), level))
        return True

    def state(self) -> tuple[object, ...]:
        """What it holds, as plain values (for digests)."""
        return (self.queue.state(), self._ticking, self.dispatched, self.peak_depth)
