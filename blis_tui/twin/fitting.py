"""Fits a simple step-time model to a recording: a constant, a cost per prefill token and per decode, and a front end.

It uses least squares over the periods of the steps, including the gap to the next one, because latencies add up means.
Steps are divided into blocks of sixteen that alternate between two halves. Coefficients from one half predict the steps
of the other, so that no step is predicted from itself. A machine shared with other programs varies in speed; the
adjacent blocks, which belong to the other half, show its current speed.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.metrics.stats import median_high
from blis_tui.spec.model import PluginConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.observe.recording import Observed, Step
    from blis_tui.twin.pace import Pace
    from blis_tui.twin.replay import Simulated

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
        found = _solve([[row[term] for term in terms] for row in rows], times)
        negative = [term for term, value in zip(terms, found, strict=True) if value < 0.0]
        if not negative or len(terms) == 1:
            break
        terms = [term for term in terms if term != negative[-1]]
    values = dict(zip(terms, found, strict=True))
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
    found = []
    for begin in range(0, len(pace.steps), BLOCK_STEPS):
        other = 1 - _half(begin)
        slower = _slowness(pace, begin, halves[other]) if at_its_speed else 1.0
        block = pace.steps[begin : begin + BLOCK_STEPS]
        found += [max(round(_told_us(step, halves[other]) * slower), 1) for step in block]
    return tuple(found)


def _slowness(pace: Pace, begin: int, fitted: Fitted) -> float:
    """Return the ratio of measured to fitted times in the blocks adjacent to the one that begins there."""
    beside = range(max(begin - BLOCK_STEPS, 0), min(begin + 2 * BLOCK_STEPS, len(pace.steps)))
    numbers = [number for number in beside if _half(number) != _half(begin)]
    told = fsum(_told_us(pace.steps[number], fitted) for number in numbers)
    return fsum(pace.periods_us[number] for number in numbers) / told if told else 1.0


def _told_us(step: Step, fitted: Fitted) -> float:
    one, prefill, decodes = _row(step)
    return fitted.step_us * one + fitted.prefill_token_us * prefill + fitted.decode_us * decodes


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
    size = len(right)
    order: list[int] = []
    for column in range(size):
        free = [row for row in range(size) if row not in order]
        pivot = max(free, key=lambda row: abs(matrix[row][column]))
        if abs(matrix[pivot][column]) <= 1e-9 * max(abs(value) for value in matrix[pivot]):
            return [right[0] / matrix[0][0] if matrix[0][0] else 0.0] + [0.0] * (size - 1)
        order.append(pivot)
        for row in range(size):
            if row != pivot:
                share = matrix[row][column] / matrix[pivot][column]
                matrix[row] = [a - share * b for a, b in zip(matrix[row], matrix[pivot], strict=True)]
                right[row] -= share * right[pivot]
    return [right[pivot] / matrix[pivot][column] for column, pivot in enumerate(order)]
