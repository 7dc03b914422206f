"""The duration of each step of a recording until the next could begin.

A step's line in the log appears some time after its end, and several lines may appear at once. But no step ends after
the next one began, so each end is at most the start of the following step. Applying this from the last step backwards
gives the best estimate of the ends.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.metrics.stats import median_high, whole_sum
from blis_tui.observe.recording import COMPLETED
from blis_tui.units import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.observe.recording import Observed, Recording, Step

FEWEST: Final = 20
"""Minimum number of steps."""
_OFF: Final = 0.02
"""A log and the requests may differ by this share of the tokens, and by the next number, such as those of a warm-up."""
_OFF_TOKENS: Final = 64


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
    """Return the steps of a recording; None if its log is missing, has too few, or other ones than the requests had."""
    steps = recording.steps
    if len(steps) < FEWEST or foreign_steps(recording):
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


def foreign_steps(recording: Recording) -> str:
    """Return why the steps of a log are not those of the requests; empty if they are, or if it cannot be known.

    Each token after the first of an answer was a decode of one step. Speculative decoding computes more tokens, but
    never fewer.
    """
    steps, rows = recording.steps, recording.requests
    if not steps or any(row.guessed for row in rows if row.chunks):
        return ""
    received = whole_sum(max(row.tokens - 1, 0) for row in rows)
    allowed = received * _OFF + _OFF_TOKENS
    computed = whole_sum(step.decode_tokens for step in steps)
    if computed < received - allowed:
        return (
            f"has decodes of {count_text(computed)} tokens, and {count_text(received)} were received: steps are missing"
        )
    decoded = whole_sum(step.decode_requests for step in steps)
    if decoded > received + allowed and all(row.outcome == COMPLETED for row in rows):
        return (
            f"has {count_text(decoded)} decodes for {count_text(received)} tokens received: there are steps of others"
        )
    return ""


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
