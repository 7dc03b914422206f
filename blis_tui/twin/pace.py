"""The duration of each step of a recording until the next could begin.

A step's line in the log appears some time after its end, and several lines may appear at once. But no step ends after
the next one began, so each end is at most the start of the following step. Applying this from the last step backwards
gives the best estimate of the ends.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.metrics.stats import median_high

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.observe.recording import Observed, Recording, Step

FEWEST: Final = 20
"""Minimum number of steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The steps of a recording in time.

    Attributes:
        steps: the steps.
        begins_us: start of each step; None = the log was not watched during the run.
        gaps_us: time from the end of each step to the start of the next if the engine had work; else the typical gap.
        gap_us: the typical gap: the median, or the mean if single gaps are unknown.
    """

    steps: tuple[Step, ...]
    begins_us: tuple[int, ...] | None
    gaps_us: tuple[int, ...]
    gap_us: int

    @property
    def durations_us(self) -> tuple[int, ...]:
        """Duration of each step."""
        return tuple(step.duration_us for step in self.steps)

    @property
    def periods_us(self) -> tuple[int, ...]:
        """Time from the start of each step to that of the next."""
        return tuple(step.duration_us + gap for step, gap in zip(self.steps, self.gaps_us, strict=True))


def pace_of(recording: Recording) -> Pace | None:
    """Return the steps of a recording; None if its log is missing or has too few."""
    steps = recording.steps
    if len(steps) < FEWEST:
        return None
    answered = [row for row in recording.requests if row.chunks]
    if any(step.end_us is None for step in steps):
        return _even(steps, answered)
    ends = _ends(steps)
    begins = [end - step.duration_us for end, step in zip(ends, steps, strict=True)]
    busy = _busy_after(ends, answered)
    gaps = [begins[number + 1] - ends[number] if busy[number] else None for number in range(len(steps) - 1)]
    usual = median_high(gap for gap in gaps if gap is not None) or 0
    filled = [usual if gap is None else gap for gap in [*gaps, None]]
    return Pace(steps=steps, begins_us=tuple(begins), gaps_us=tuple(filled), gap_us=usual)


def _ends(steps: Sequence[Step]) -> list[int]:
    ends = [0] * len(steps)
    latest: int | None = None
    for number in range(len(steps) - 1, -1, -1):
        told = steps[number].end_us or 0
        ends[number] = told if latest is None else min(told, latest)
        latest = ends[number] - steps[number].duration_us
    return ends


def _busy_after(ends: Sequence[int], answered: Sequence[Observed]) -> list[bool]:
    """Return, for each step, whether any request present at its end was still served at the end of the next."""
    change: dict[int, int] = {}
    for row in answered:
        # Sent before the end of step `first`, and served until the end of step `last`.
        first, last = bisect_left(ends, row.sent_us), bisect_left(ends, row.chunks[-1][0] + 1) - 1
        if first < last:
            change[first] = change.get(first, 0) + 1
            change[last] = change.get(last, 0) - 1
    found, there = [], 0
    for number in range(len(ends)):
        there += change.get(number, 0)
        found.append(there > 0)
    return found


def _even(steps: tuple[Step, ...], answered: Sequence[Observed]) -> Pace:
    """Spread the gaps evenly over all steps, for a log without times: the time with requests minus all durations."""
    served, until = 0, 0
    for begin, end in sorted((row.sent_us, row.chunks[-1][0]) for row in answered):
        served += max(end - max(begin, until), 0)
        until = max(until, end)
    computed = 0
    for step in steps:
        computed += step.duration_us
    gap = max((served - computed) // len(steps), 0)
    return Pace(steps=steps, begins_us=None, gaps_us=(gap,) * len(steps), gap_us=gap)
