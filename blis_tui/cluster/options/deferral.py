"""Deferral: requests of the least urgent classes wait until the cluster is idle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.cluster.records import Deferred, Resumed
from blis_tui.cluster.routed_request import ADMISSION, NO_NEXT_STAGE, RoutedRequest
from blis_tui.cluster.stages import NoDeferral

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment


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
        self._roster = pipeline.roster
        self._latency_us = experiment.cluster.admission_latency_us
        self._onward = onward

    def enter(self, passage: RoutedRequest, now: int) -> int:
        """Pass a request on, or defer it."""
        request, in_flight = passage.request, self._roster.in_flight
        if not in_flight or request.slo_class not in _DEFERRABLE:
            return self._onward(passage, now)
        self.waiting.append(passage)
        self.deferrals += 1
        self._pipeline.observers.tell(Deferred, now, request.request_id, in_flight)
        return NO_NEXT_STAGE

    def departed(self, departed: Sequence[Request], prefilled: Sequence[Request], now: int) -> None:  # noqa: ARG002
        """Resume all deferred requests if the cluster is idle."""
        if not self.waiting or self._roster.in_flight:
            return
        pipeline, observers = self._pipeline, self._pipeline.observers
        for passage in self.waiting:
            observers.tell(Resumed, now, passage.request.request_id)
            pipeline.queue.push(now + self._latency_us, ADMISSION, passage)
        self.waiting.clear()
