"""A simple step-time model of a recording: a constant, so much a prefill token and so much a decode, and a front end.

Least squares over the periods of the steps, gaps to the next one included: what sums up to latencies is the mean.
Fitted on every other second and judged on those between, it says how much of a server's behaviour it can tell.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.spec.model import PluginConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.observe.recording import Observed, Step
    from blis_tui.twin.pace import Pace
    from blis_tui.twin.replay import Simulated

WINDOW_US: Final = 1_000_000
"""How long the parts are that are fitted and judged in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Coefficients, in microseconds."""

    step_us: float
    prefill_token_us: float
    decode_us: float
    queue_us: float = 0.0
    """What a request waits beside its steps."""

    @property
    def latency(self) -> PluginConfig:
        """The step-time model that has them."""
        beta = (self.step_us, self.prefill_token_us, self.decode_us)
        return PluginConfig(kind="blackbox", settings={"alpha": (self.queue_us, 0.0, 0.0), "beta": beta})


def fit(pace: Pace, wanted: Callable[[int], bool] = lambda _: True) -> Fitted:
    """Fit to the steps that are wanted, by when they began; coefficients are not negative."""
    begins = pace.begins_us
    chosen = [number for number in range(len(pace.steps)) if begins is None or wanted(begins[number])]
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
    """What requests wait beside their steps: the median of what a simulation without it lacks to the first token."""
    lacking = []
    for row in rows:
        other = run.rows.get(row.request_id)
        if row.ttft_us is not None and other is not None and other.ttft_us is not None:
            lacking.append(row.ttft_us - other.ttft_us)
    return max(sorted(lacking)[len(lacking) // 2], 0) if lacking else 0


def half(time_us: int) -> int:
    """Which of the two parts a time belongs to."""
    return time_us // WINDOW_US % 2


def _row(step: Step) -> tuple[float, float, float]:
    """What a step has of each; what is computed again of preempted requests is as prompts are."""
    again = step.decode_tokens - step.decode_requests
    return (1.0, float(step.prefill_tokens + again), float(step.decode_requests))


def _solve(rows: Sequence[Sequence[float]], times: Sequence[float]) -> list[float]:
    """Least squares by the normal equations; a term that never varies beside another gets nothing."""
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
