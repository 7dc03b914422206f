"""From measurements to coefficients, their accuracy, and remarks on them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.engine.latency.fitted import FittedSettings
from blis_tui.live.calibration.fitting.collect import MAX_DEVIATION_RATIO, Adviser
from blis_tui.live.calibration.fitting.fit import (
    ASSUMED,
    FOLLOWED,
    HELD_UP,
    NOT_FOLLOWED,
    Gapped,
    Problem,
    fit_to_means,
    gap_of,
    missing,
    with_averaged_value,
)
from blis_tui.live.calibration.fitting.laws import BlackboxLaw, FittedLaw, expected_of
from blis_tui.live.calibration.fitting.words import BestSide, absent, coefficients, combinations, statements
from blis_tui.live.calibration.measured import Recording
from blis_tui.live.calibration.other_loads import DRAWS, Load, candidate_loads
from blis_tui.live.calibration.outcome import Fit, LeftOut
from blis_tui.live.calibration.simulated_load import compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.live.calibration.fitting.fit import Found
    from blis_tui.live.calibration.fitting.laws import Array, Law
    from blis_tui.live.calibration.measured import Data
    from blis_tui.live.calibration.outcome import Coefficient
    from blis_tui.model import PluginConfig

_DIGITS: Final = 7
"""Digits of coefficients; a smaller error already makes a long simulated run drift from the measured one."""
_STARTS: Final = 3
_POSSIBLE: Final = 3.0
"""Alternative sides of a maximum are considered if their cost is at most this much higher."""


def fitted_law(latency: PluginConfig) -> FittedLaw:
    """Return the law of ``fitted``, based on the experiment's coefficients or the shipped ones."""
    settings = latency.settings if latency.kind == "fitted" else {}
    return FittedLaw(FittedSettings(**settings))  # type: ignore[arg-type]  # the schema has seen to their types


def law_of(data: Sequence[Data], kind: str) -> Law:
    """Return the law to fit, based on the first experiment's coefficients.

    Args:
        data: all measurements; if they contain steps and requests, the gap between steps is a coefficient, too.
        kind: the step-time model.
    """
    latency = data[0].experiment.pools[0].latency
    law: Law
    if kind == "fitted":
        law = fitted_law(latency)
    else:
        (base, spread), behind_us = expected_of(data), 0.0
        if latency.kind == "blackbox":
            beta, alpha = latency.settings["beta"], latency.settings["alpha"]
            assert isinstance(beta, tuple)  # noqa: S101  (ensured by the schema)
            assert isinstance(alpha, tuple)  # noqa: S101  (ensured by the schema)
            *base, behind_us = (float(one) for one in (*beta, *alpha))
        law = BlackboxLaw(base, spread, behind_us)
    both = len({isinstance(one.recording, Recording) for one in data}) > 1
    return Gapped(law) if both else law


def fit(
    data: Sequence[Data], kind: str, *, advise: bool = True, progress: Callable[[str], None] = lambda _: None
) -> Fit:
    """Fit to all recordings together.

    Args:
        data: the measurements.
        kind: the step-time model: ``fitted`` or ``blackbox``.
        advise: whether to find loads that would determine the remaining coefficients.
        progress: called with what is done next.
    """
    law = law_of(data, kind)
    problem = Problem(data, law)
    found, *others = _search(problem, progress)
    # If the server was not followed, no start is known to be the nearest to the truth, so intervals cover all of them.
    sides = _sides(problem, found)
    best = sides[0]
    ends = [one.values for one in others]
    told = coefficients(law, sides, ends)
    sums = combinations(law, sides, told, ends)
    values = best.values
    draws = best.posterior.draws(values, DRAWS) if problem.requests else []
    held_up = 1.0 if problem.requests else missing(compared(data, law.config(values)))
    tells = any(one.told in ("measured", "roughly") for one in told)
    if tells and (held_up > HELD_UP or found.followed < NOT_FOLLOWED):
        values = fit_to_means(data, law, [values, *_starts(problem)])
        by_name = {term.name: float(value) for term, value in zip(law.terms, values, strict=True)}
        told = tuple(with_averaged_value(one, by_name[one.name]) for one in told)
        draws = []
    names = {one.name for one in told}
    why = {one.name: absent(one.name, problem) for one in law.terms if one.name not in names} | dict(law.kept)
    left_out = tuple(LeftOut(*one) for one in why.items())
    advice, loads = None, list[Load]()
    if advise and problem.requests and found.followed >= FOLLOWED:
        first = problem.requests[0]
        prompts = float(np.mean([one.input_tokens for one in first.recording.requests]))
        adviser = Adviser(law, first.data, best.posterior, best.values, found.noises)
        loads = candidate_loads(first.data.experiment, prompts)
        progress("which loads would tell the coefficients apart")
        advice = partial(_advised, data, kind, told, adviser, loads)
    said = (*_held_up(held_up), *statements(told, found.followed, problem, advice, loads))
    return Fit(
        law.config(_rounded(values)),
        told,
        left_out,
        said,
        sums if any(one.told == "together" for one in told) else (),
        found.followed,
        gap_of(law, values),
        draws=tuple(law.config(one) for one in draws),
    )


def _held_up(times: float) -> list[str]:
    """Return a sentence on logged steps whose mean is far above their typical value."""
    told = (
        f"Logged steps took {times:.1f} times as long in the mean as most of them: something that is in no figure of"
        " their load held some up, such as another process on the machine. The coefficients are longer in proportion,"
        " for the mean alone."
    )
    return [told] if times > HELD_UP else []


def _advised(
    data: Sequence[Data],
    kind: str,
    told: Sequence[Coefficient],
    adviser: Adviser,
    loads: Sequence[Load],
    names: Sequence[str],
) -> Load | None:
    """Return a load that would determine these coefficients; None if none would.

    Slopes may be misleading with another side of a maximum, so the load is also simulated and fitted.
    """
    load = adviser.best(names, loads)
    if load is None:
        return None
    more = fit([*data, adviser.measured_under(load)], kind, advise=False).found
    before, after = ({one.name: one.high - one.low for one in found} for found in (told, more))
    return load if all(after.get(name, before[name]) <= MAX_DEVIATION_RATIO * before[name] for name in names) else None


def _rounded(values: Array) -> Array:
    return np.array([float(f"{one:.{_DIGITS}g}") for one in values])


def _starts(problem: Problem) -> Iterator[Array]:
    """Yield starts: from answers and waits with steps of equal and of different length, and the expected values."""
    base = np.array([one.base for one in problem.law.terms])
    near = problem.rough(base, flat=True)
    yield near
    yield problem.rough(near, flat=False)
    yield base


def _search(problem: Problem, progress: Callable[[str], None]) -> list[Found]:
    """Return the results of several starts, the best one first; stop once the best one follows the server."""
    found: list[Found] = []
    noises = ASSUMED if problem.requests else ASSUMED[:1]
    for at, start in enumerate(_starts(problem)):
        for number, noise in enumerate(noises, 1):
            said = f"following the server: attempt {at * len(noises) + number} of at most {_STARTS * len(noises)}"
            found.append(problem.exact(start, noise, partial(_after, progress, said)))
            found.sort(key=lambda one: one.cost)
            if found[0].followed >= FOLLOWED:
                return found[:1]
    return found


def _after(progress: Callable[[str], None], said: str, text: str) -> None:
    progress(f"{said}, {text}")


def _sides(problem: Problem, found: Found) -> list[BestSide]:
    """Return the best coefficients, and plausible ones with other sides of a maximum, the best first."""
    sides = [BestSide(found.values, found.posterior, found.cost)]
    pool = problem.pools[0]
    for start in problem.law.others(found.values, pool):
        values, posterior = problem.solve(start, found.systems)
        side = BestSide(values, posterior, problem.cost(values, found.systems))
        if not np.array_equal(posterior.told, found.posterior.told):
            sides.append(side)
    sides.sort(key=lambda one: one.cost)
    return [one for one in sides if one.cost <= sides[0].cost + _POSSIBLE]
