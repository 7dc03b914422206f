"""Fits means for servers whose individual steps a simulation cannot follow.

If steps occasionally take several times as long for reasons outside of the load's figures, most requests share their
batches with other requests than in any simulation. Typical step times are then useless, because the load depends on
mean step times. Therefore all step coefficients are scaled until the time per token agrees. Among the results from
several starts, the one whose means agree best is taken.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.calibration.fitting.gap import gap_of
from blis_tui.calibration.judge import Pair, StepPair, disagreement
from blis_tui.calibration.predicted import compared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.data import Data
    from blis_tui.calibration.fitting.laws import Array, Law
    from blis_tui.calibration.outcome import Coefficient
    from blis_tui.calibration.predicted import Runs

NOT_FOLLOWED: Final = 0.75
"""If a smaller share of tokens came in their expected steps, the server was not followed."""
HELD_UP: Final = 1.1
"""If the mean ratio of logged to predicted step times exceeds this, some steps were delayed."""
_ROUNDS: Final = 5
_PROMPT: Final = np.array([100.0])


def fit_to_means(data: Sequence[Data], law: Law, starts: Sequence[Array]) -> Array:
    """Return the coefficients, among the starts and their multiples, whose simulation agrees best with the means."""
    in_steps = np.abs(law.queue(_PROMPT)).sum(axis=0) == 0.0
    lowest = np.array([one.lowest for one in law.terms])
    found: list[tuple[float, int, Array]] = []
    for start in starts:
        times = 1.0
        for _ in range(_ROUNDS):
            values: Array = np.where(in_steps, np.maximum(times * start, lowest), start)
            runs = compared(data, law.config(values), gap_of(law, values))
            found.append((disagreement(runs, of_means=True), len(found), values))
            more = missing(runs)
            if abs(more - 1.0) < 0.01:
                break
            times *= more
    return min(found, key=lambda one: one[:2])[2]


def missing(runs: Runs) -> float:
    """Return the ratio of measured to predicted time of tokens after the first; with steps only, of the steps."""
    pairs = [pair for run in runs.values() for pair in run if isinstance(pair, Pair)]
    steps = [pair for run in runs.values() for pair in run if isinstance(pair, StepPair)]
    if pairs:
        predicted = fsum(one.e2e_us - one.ttft_us for one in pairs)
        measured = fsum(one.measured.e2e_us - one.measured.ttft_us for one in pairs)
    else:
        predicted = fsum(one.step_us for one in steps)
        measured = fsum(one.measured.duration_us for one in steps)
    return measured / predicted if predicted else 1.0


def with_averaged_value(one: Coefficient, value: float) -> Coefficient:
    """Return a coefficient with its averaged value, and an interval that covers both results."""
    return replace(
        one,
        value=value,
        low=min(one.low, value),
        high=max(one.high, value),
        told="averaged",
        together_with=(),
        at_bound=False,
        pressed=False,
    )
