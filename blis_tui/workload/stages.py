"""Load in stages: a rate for some time, then another one, then the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.portable_math import power

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.streams import Stream
    from blis_tui.spec.model import Stage
    from blis_tui.workload.arrivals import Gaps

_END: Final = -1


class DrawnStages:
    """Any arrival process whose clock runs at each stage's rate; how many requests a stage gets is up to chance.

    Args:
        gaps: the process at one request a second.
        stages: rates and durations, one after the other.
        share: of each rate.
    """

    __slots__ = ("_at_us", "_end_us", "_gaps", "_last_us", "_stage", "_stages")

    def __init__(self, gaps: Gaps, stages: Sequence[Stage], share: float) -> None:
        self._gaps = gaps
        self._stages = [(stage.rate_per_s * share, stage.duration_s * 1e6) for stage in stages]
        self._stage = 0
        self._at_us = 0.0
        self._end_us = self._stages[0][1]
        self._last_us = 0

    def sample(self, stream: Stream) -> int:
        """The next gap in microseconds, at least 1; -1 after the last stage."""
        due = self._gaps.sample(stream) / 1e6
        while self._stage < len(self._stages):
            rate_per_s = self._stages[self._stage][0]
            within = (self._end_us - self._at_us) * rate_per_s / 1e6
            if due <= within:
                self._at_us += due / rate_per_s * 1e6
                gap = max(1, int(self._at_us) - self._last_us)
                self._last_us += gap
                return gap
            due -= within
            self._at_us = self._end_us
            self._stage += 1
            if self._stage < len(self._stages):
                self._end_us += self._stages[self._stage][1]
        return _END


class ExactStages:
    """Poisson arrivals of which each stage gets exactly rate x duration, rounded: as inference-perf sends them.

    A Poisson process whose number of arrivals is known has them independently and uniformly distributed; of ``k`` such
    times in what is left of a stage, the first comes after the share ``1 - U^(1/k)`` of it (Devroye, Non-Uniform Random
    Variate Generation, V.3).

    Args:
        stages: rates and durations, one after the other.
        share: of each rate.
    """

    __slots__ = ("_at_us", "_end_us", "_last_us", "_left", "_stage", "_stages")

    def __init__(self, stages: Sequence[Stage], share: float) -> None:
        self._stages = [
            (int(stage.rate_per_s * share * stage.duration_s + 0.5), stage.duration_s * 1e6) for stage in stages
        ]
        self._stage = 0
        self._left, self._end_us = self._stages[0]
        self._at_us = 0.0
        self._last_us = 0

    def sample(self, stream: Stream) -> int:
        """The next gap in microseconds, at least 1; -1 after the last stage."""
        while not self._left:
            self._stage += 1
            if self._stage == len(self._stages):
                self._stage -= 1
                return _END
            self._at_us = self._end_us
            self._left, duration_us = self._stages[self._stage]
            self._end_us += duration_us
        self._at_us += (self._end_us - self._at_us) * (1.0 - power(stream.uniform_open(), 1.0 / self._left))
        self._left -= 1
        gap = max(1, int(self._at_us) - self._last_us)
        self._last_us += gap
        return gap
