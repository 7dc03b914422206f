"""Coefficients of servers whose steps no simulation can follow: those with which means agree best.

Where steps take several times as long now and then, for reasons that are in no figure of the load, most requests come
to meet others than in any simulation. What single steps take most of the time is then no use: the load depends on what
they take on average. So all that steps take is made longer, in proportion, until the time per token agrees; of what
comes up on the way, from several starts, the one is taken whose means agree best.
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
"""Where fewer tokens came in the steps in which they were expected, these were not the server's steps."""
HELD_UP: Final = 1.1
"""Where logged steps take so many times as long in the mean as is predicted, some of them were held up."""
_ROUNDS: Final = 5
_PROMPT: Final = np.array([100.0])


def on_average(data: Sequence[Data], law: Law, starts: Sequence[Array]) -> Array:
    """The coefficients that agree best with all measurements when these are simulated again: starts, or multiples."""
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
    """How many times as long tokens behind the first took as is predicted; where only steps are known, these."""
    pairs = [pair for run in runs.values() for pair in run if isinstance(pair, Pair)]
    steps = [pair for run in runs.values() for pair in run if isinstance(pair, StepPair)]
    if pairs:
        predicted = fsum(one.e2e_us - one.ttft_us for one in pairs)
        measured = fsum(one.measured.e2e_us - one.measured.ttft_us for one in pairs)
    else:
        predicted = fsum(one.step_us for one in steps)
        measured = fsum(one.measured.duration_us for one in steps)
    return measured / predicted if predicted else 1.0


def averaged(one: Coefficient, value: float) -> Coefficient:
    """With what agrees on average in place of what single steps say; its interval has both."""
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
