"""Instance failures at given or random times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.passage import LIFECYCLE, BackgroundEvent

if TYPE_CHECKING:
    from blis_tui.cluster.life import Lives
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.engine.streams import Stream, Streams
    from blis_tui.spec.model import Failure


class Failures:
    """Schedules failures and executes them.

    A random failure is drawn when its instance comes up, from the stream ``failures/<entry>/<instance>``.
    """

    def __init__(self, settings: tuple[Failure, ...], lifecycle: Lives, pipeline: Pipeline, streams: Streams) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._pipeline = pipeline
        self._all_streams = streams
        self._streams: dict[tuple[int, int], Stream] = {}
        self.due: dict[tuple[int, int], int] = {}
        """(Entry, instance) -> time of the failure drawn last."""

    def plan(self) -> None:
        """Schedule the failures at given times."""
        for number, failure in enumerate(self._settings):
            if failure.at_us is not None:
                event = _PlannedFailure(self._pipeline, self._lifecycle, number, failure)
                self._pipeline.queue.push(failure.at_us, LIFECYCLE, event)

    def watch(self, index: int, now: int) -> None:
        """Draw when an instance that has come up will fail."""
        for number, failure in enumerate(self._settings):
            if failure.mean_time_between_us is None or not self._applies_to(failure, index):
                continue
            key = (number, index)
            if key not in self._streams:
                self._streams[key] = self._all_streams.stream(f"failures/{number}/{index}")
            time = now + max(1, int(self._streams[key].exponential() * failure.mean_time_between_us))
            self.due[key] = time
            self._pipeline.queue.push(time, LIFECYCLE, _RandomFailure(self._pipeline, self, key, time))

    def fail_at_random(self, number: int, index: int, now: int) -> None:
        """Fail an instance at random."""
        self._lifecycle.fail(index, now, self._settings[number], "at random")

    def alive(self, index: int) -> bool:
        """Whether an instance can fail now."""
        return self._lifecycle.can_fail(index)

    def may_end(self, index: int) -> bool:
        """Whether an instance may still fail for good."""
        return self._lifecycle.can_fail(index) and any(
            failure.repair_us is None
            and self._applies_to(failure, index)
            and (failure.at_us is None or failure.at_us >= self._pipeline.now)
            for failure in self._settings
        )

    def state(self) -> tuple[object, ...]:
        """Return what has been drawn, as plain values (for digests)."""
        drawn = tuple((key, self._streams[key].state()) for key in sorted(self._streams))
        return (drawn, tuple(sorted(self.due.items())))

    def _applies_to(self, failure: Failure, index: int) -> bool:
        if failure.instance is not None:
            return failure.instance == index
        return failure.pool is None or failure.pool == self._lifecycle.pool_of(index).name


class _PlannedFailure(BackgroundEvent):
    """A failure at a given time."""

    __slots__ = ("_failure", "_lifecycle", "_number")

    def __init__(self, pipeline: Pipeline, lifecycle: Lives, number: int, failure: Failure) -> None:
        super().__init__("failure", pipeline, failure.instance, self._strike)
        self._lifecycle = lifecycle
        self._number = number
        self._failure = failure

    def _strike(self, event: BackgroundEvent, now: int) -> bool:  # noqa: ARG002
        failure, lifecycle = self._failure, self._lifecycle
        if failure.instance is not None:
            there = [failure.instance] if failure.instance < len(lifecycle.lives) else []
        else:
            there = [index for index in range(len(lifecycle.lives)) if lifecycle.can_fail(index)]
            there = [index for index in there if failure.pool in (None, lifecycle.pool_of(index).name)]
        for index in there:
            lifecycle.fail(index, now, failure, "as planned")
        return bool(there)


class _RandomFailure(BackgroundEvent):
    """A failure at a random time."""

    __slots__ = ("_failures", "_key", "_time_us")

    def __init__(self, pipeline: Pipeline, failures: Failures, key: tuple[int, int], time_us: int) -> None:
        super().__init__("failure", pipeline, key[1], self._strike)
        self._failures = failures
        self._key = key
        self._time_us = time_us

    @property
    def stale(self) -> bool:
        """Whether the instance is gone already, or no request is left."""
        failures, key = self._failures, self._key
        return self.audience.finished or failures.due[key] != self._time_us or not failures.alive(key[1])

    def _strike(self, event: BackgroundEvent, now: int) -> bool:  # noqa: ARG002
        self._failures.fail_at_random(*self._key, now)
        return True
