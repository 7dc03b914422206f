"""The duration of each step of a recording, and a simple step-time model fitted to them.

The duration of each step of a recording until the next could begin.

A step's line in the log appears some time after its end, and several lines may appear at once. But no step ends after
the next one began, so each end is at most the start of the following step. Applying this from the last step backwards
gives the best estimate of the ends.

Fits a simple step-time model to a recording: a constant, a cost per prefill token and per decode, and a front end.

It uses least squares over the periods of the steps, including the gap to the next one, because latencies add up means.
Steps are divided into blocks of sixteen that alternate between two halves. Coefficients from one half predict the steps
of the other, so that no step is predicted from itself. A machine shared with other programs varies in speed; the
adjacent blocks, which belong to the other half, show its current speed.
"""

from __future__ import annotations

from bisect import bisect_left
from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import count_text
from blis_tui.live.observe.recording import COMPLETED
from blis_tui.model import PluginConfig
from blis_tui.results.stats import median_high

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.live.observe.recording import Observed, Recording, Step
    from blis_tui.live.twin.simulated_requests import Simulated


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
        logged_us = steps[number].end_us or 0
        ends[number] = logged_us if latest is None else min(logged_us, latest)
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
    busy, there = [], 0
    for number in range(len(ends)):
        there += change.get(number, 0)
        busy.append(there > 0)
    return busy


def _even(steps: tuple[Step, ...], answered: Sequence[Observed]) -> Pace:
    """Spread the gaps evenly over all steps, for a log without times: the time with requests minus all durations."""
    served, until = 0, 0
    for begin, end in sorted((row.sent_us, row.chunks[-1][0]) for row in answered):
        served += max(end - max(begin, until), 0)
        until = max(until, end)
    computed = whole_sum([step.duration_us for step in steps])
    gap = max((served - computed) // len(steps), 0)
    return Pace(steps=steps, begins_us=None, gaps_us=(gap,) * len(steps), gap_us=gap)


BLOCK_STEPS: Final = 16
"""Number of consecutive steps in the same half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Coefficients, in microseconds."""

    step_us: float
    prefill_token_us: float
    decode_us: float
    queue_us: float = 0.0
    """Wait of a request outside of its steps."""

    @property
    def latency(self) -> PluginConfig:
        """The step-time model with these coefficients."""
        beta = (self.step_us, self.prefill_token_us, self.decode_us)
        return PluginConfig(kind="blackbox", settings={"alpha": (self.queue_us, 0.0, 0.0), "beta": beta})


def fit(pace: Pace, half: int | None = None) -> Fitted:
    """Fit to all steps, or to those of a half; coefficients are not negative."""
    chosen = [number for number in range(len(pace.steps)) if half in (None, _half(number))]
    rows = [_row(pace.steps[number]) for number in chosen]
    times = [float(pace.periods_us[number]) for number in chosen]
    terms = [0, 1, 2]
    while True:
        coefficients = _solve([[row[term] for term in terms] for row in rows], times)
        negative = [term for term, value in zip(terms, coefficients, strict=True) if value < 0.0]
        if not negative or len(terms) == 1:
            break
        terms = [term for term in terms if term != negative[-1]]
    values = dict(zip(terms, coefficients, strict=True))
    step_us, prefill_us, decode_us = (max(values.get(term, 0.0), 0.0) for term in range(3))
    return Fitted(step_us=step_us, prefill_token_us=prefill_us, decode_us=decode_us)


def front_end_us(rows: Sequence[Observed], run: Simulated) -> int:
    """Return the requests' median wait outside of steps: what TTFTs of a simulation without front end lack."""
    lacking = []
    for row in rows:
        other = run.rows.get(row.request_id)
        if row.ttft_us is not None and other is not None and other.ttft_us is not None:
            lacking.append(row.ttft_us - other.ttft_us)
    return max(median_high(lacking) or 0, 0)


def predicted_us(pace: Pace, halves: Sequence[Fitted], *, at_its_speed: bool) -> tuple[int, ...]:
    """Return the predicted period of each step, from the coefficients of the other half.

    Args:
        pace: the measured steps.
        halves: coefficients fitted on each half.
        at_its_speed: whether to scale by the machine's speed in the adjacent blocks.
    """
    periods_us = []
    for begin in range(0, len(pace.steps), BLOCK_STEPS):
        other = 1 - _half(begin)
        slower = _slowness(pace, begin, halves[other]) if at_its_speed else 1.0
        block = pace.steps[begin : begin + BLOCK_STEPS]
        periods_us += [max(round(_fitted_us(step, halves[other]) * slower), 1) for step in block]
    return tuple(periods_us)


def _slowness(pace: Pace, begin: int, fitted: Fitted) -> float:
    """Return the ratio of measured to fitted times in the blocks adjacent to the one that begins there."""
    beside = range(max(begin - BLOCK_STEPS, 0), min(begin + 2 * BLOCK_STEPS, len(pace.steps)))
    numbers = [number for number in beside if _half(number) != _half(begin)]
    fitted_us = fsum(_fitted_us(pace.steps[number], fitted) for number in numbers)
    return fsum(pace.periods_us[number] for number in numbers) / fitted_us if fitted_us else 1.0


def _fitted_us(step: Step, fitted: Fitted) -> float:
    steps, prefill, decodes = _row(step)
    return fitted.step_us * steps + fitted.prefill_token_us * prefill + fitted.decode_us * decodes


def _half(number: int) -> int:
    return number // BLOCK_STEPS % 2


def _row(step: Step) -> tuple[float, float, float]:
    """Return a step's factors for the coefficients; recomputed tokens of preempted requests count as prompts."""
    again = step.decode_tokens - step.decode_requests
    return (1.0, float(step.prefill_tokens + again), float(step.decode_requests))


def _solve(rows: Sequence[Sequence[float]], times: Sequence[float]) -> list[float]:
    """Solve least squares by the normal equations; a term that is redundant gets 0."""
    size = len(rows[0]) if rows else 1
    matrix = [[fsum(row[a] * row[b] for row in rows) for b in range(size)] for a in range(size)]
    right = [fsum(row[a] * time for row, time in zip(rows, times, strict=True)) for a in range(size)]
    return _eliminate(matrix, right)


def _eliminate(matrix: list[list[float]], right: list[float]) -> list[float]:
    size, solved = len(right), list[int]()
    whole = [matrix[column][column] for column in range(size)]
    for column in range(size):
        if matrix[column][column] <= 1e-9 * whole[column]:
            continue  # the columns before it say as much
        solved.append(column)
        for row in range(size):
            if row != column:
                share = matrix[row][column] / matrix[column][column]
                matrix[row] = [a - share * b for a, b in zip(matrix[row], matrix[column], strict=True)]
                right[row] -= share * right[column]
    return [right[column] / matrix[column][column] if column in solved else 0.0 for column in range(size)]
