"""From measurements to coefficients, how well they are determined, and remarks on them in sentences."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil, floor, log10, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.base.classes import dataclass
from blis_tui.base.units import in_words, plural, share_text
from blis_tui.engine.latency.fitted import FittedSettings
from blis_tui.live.calibration.document import MEASURED_WITHIN, UNDETERMINED_SHARE, Coefficient, Combined, Fit, LeftOut
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
from blis_tui.live.calibration.fitting.posterior import INTERVAL_COST_RISE
from blis_tui.live.calibration.measured import Recording
from blis_tui.live.calibration.other_loads import DRAWS, Load, candidate_loads
from blis_tui.live.calibration.simulated_load import compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.live.calibration.fitting.fit import Found
    from blis_tui.live.calibration.fitting.laws import Array, Law, Term
    from blis_tui.live.calibration.fitting.posterior import Posterior
    from blis_tui.live.calibration.measured import Data
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
            *base, behind_us = (float(number) for number in (*beta, *alpha))
        law = BlackboxLaw(base, spread, behind_us)
    both = len({isinstance(run.recording, Recording) for run in data}) > 1
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
    best_found, *others = _search(problem, progress)
    # If the server was not followed, no start is known to be the nearest to the truth, so intervals cover all of them.
    sides = _sides(problem, best_found)
    best = sides[0]
    ends = [rival.values for rival in others]
    fitted = coefficients(law, sides, ends)
    sums = combinations(law, sides, fitted, ends)
    values = best.values
    draws = best.posterior.draws(values, DRAWS) if problem.requests else []
    held_up = 1.0 if problem.requests else missing(compared(data, law.config(values)))
    tells = any(coefficient.told in ("measured", "roughly") for coefficient in fitted)
    if tells and (held_up > HELD_UP or best_found.followed < NOT_FOLLOWED):
        values = fit_to_means(data, law, [values, *_starts(problem)])
        by_name = {term.name: float(value) for term, value in zip(law.terms, values, strict=True)}
        fitted = tuple(with_averaged_value(coefficient, by_name[coefficient.name]) for coefficient in fitted)
        draws = []
    names = {coefficient.name for coefficient in fitted}
    why = {term.name: absent(term.name, problem) for term in law.terms if term.name not in names} | dict(law.kept)
    left_out = tuple(LeftOut(*pair) for pair in why.items())
    advice, loads = None, list[Load]()
    if advise and problem.requests and best_found.followed >= FOLLOWED:
        first = problem.requests[0]
        prompts = float(np.mean([request.input_tokens for request in first.recording.requests]))
        adviser = Adviser(law, first.data, best.posterior, best.values, best_found.noises)
        loads = candidate_loads(first.data.experiment, prompts)
        progress("which loads would tell the coefficients apart")
        advice = partial(_advised, data, kind, fitted, adviser, loads)
    remarks = (*_held_up(held_up), *statements(fitted, best_found.followed, problem, advice, loads))
    return Fit(
        law.config(_rounded(values)),
        fitted,
        left_out,
        remarks,
        sums if any(coefficient.told == "together" for coefficient in fitted) else (),
        best_found.followed,
        gap_of(law, values),
        draws=tuple(law.config(draw) for draw in draws),
    )


def _held_up(times: float) -> list[str]:
    """Return a sentence on logged steps whose mean is far above their typical value."""
    remark = (
        f"Logged steps took {times:.1f} times as long in the mean as most of them: something that is in no figure of"
        " their load held some up, such as another process on the machine. The coefficients are longer in proportion,"
        " for the mean alone."
    )
    return [remark] if times > HELD_UP else []


def _advised(
    data: Sequence[Data],
    kind: str,
    fitted: Sequence[Coefficient],
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
    before, after = (
        {coefficient.name: coefficient.high - coefficient.low for coefficient in known} for known in (fitted, more)
    )
    return load if all(after.get(name, before[name]) <= MAX_DEVIATION_RATIO * before[name] for name in names) else None


def _rounded(values: Array) -> Array:
    return np.array([float(f"{value:.{_DIGITS}g}") for value in values])


def _starts(problem: Problem) -> Iterator[Array]:
    """Yield starts: from answers and waits with steps of equal and of different length, and the expected values."""
    base = np.array([term.base for term in problem.law.terms])
    near = problem.rough(base, flat=True)
    yield near
    yield problem.rough(near, flat=False)
    yield base


def _search(problem: Problem, progress: Callable[[str], None]) -> list[Found]:
    """Return the results of several starts, the best one first; stop once the best one follows the server."""
    results: list[Found] = []
    noises = ASSUMED if problem.requests else ASSUMED[:1]
    for at, start in enumerate(_starts(problem)):
        for number, noise in enumerate(noises, 1):
            attempt = f"following the server: attempt {at * len(noises) + number} of at most {_STARTS * len(noises)}"
            results.append(problem.exact(start, noise, partial(_after, progress, attempt)))
            results.sort(key=lambda result: result.cost)
            if results[0].followed >= FOLLOWED:
                return results[:1]
    return results


def _after(progress: Callable[[str], None], attempt: str, text: str) -> None:
    progress(f"{attempt}, {text}")


def _sides(problem: Problem, result: Found) -> list[BestSide]:
    """Return the best coefficients, and plausible ones with other sides of a maximum, the best first."""
    sides = [BestSide(result.values, result.posterior, result.cost)]
    pool = problem.pools[0]
    for start in problem.law.others(result.values, pool):
        values, posterior = problem.solve(start, result.systems)
        side = BestSide(values, posterior, problem.cost(values, result.systems))
        if not np.array_equal(posterior.measured, result.posterior.measured):
            sides.append(side)
    sides.sort(key=lambda best_side: best_side.cost)
    return [best_side for best_side in sides if best_side.cost <= sides[0].cost + _POSSIBLE]


_ALIKE: Final = 0.7
"""Correlation above which the effects of two coefficients cannot be distinguished."""
_EXPECTED: Final = 1.645
"""Prior interval in spreads around the base, at the level of the intervals."""
_INTERVAL_DIGITS: Final = 4
"""Digits of interval ends, which are rounded outwards."""
_WEIGHT_DIGITS: Final = 3
"""Digits of weights; their rounding is in the interval."""
_ROUNDING: Final = 1e-9
"""Ends nearer to the bound than this many spreads are at the bound."""


@dataclass(frozen=True, slots=True)
class BestSide:
    """The best coefficients with one side of each maximum."""

    values: Array
    posterior: Posterior
    cost: float


def coefficients(law: Law, sides: Sequence[BestSide], ends: Sequence[Array] = ()) -> tuple[Coefficient, ...]:
    """Return all coefficients that the measurements contain.

    Args:
        law: the law.
        sides: the best side first, then other plausible ones.
        ends: results of other starts, if one of them may be nearer to the truth; intervals cover them.
    """
    best = sides[0]
    at = best.posterior.place(best.values)
    covariance = np.linalg.inv(best.posterior.curvature(at))
    deviation = np.sqrt(np.diag(covariance))
    alike = np.abs(covariance / np.outer(deviation, deviation))
    measured = np.any([side.posterior.measured for side in sides], axis=0)
    by_place: dict[int, Coefficient] = {}
    for place, term in enumerate(law.terms):
        if measured[place]:
            low, high = _interval(sides, place, term)
            low = min(low, *(_rounded_outwards(float(end[place]), floor) for end in ends)) if ends else low
            high = max(high, *(_rounded_outwards(float(end[place]), ceil) for end in ends)) if ends else high
            value = float(best.values[place])
            by_place[place] = Coefficient(
                term.name, value, term.base, min(low, value), max(high, value), "", (), value <= term.lowest
            )
    wide = [place for place, coefficient in by_place.items() if coefficient.width > MEASURED_WITHIN]
    swapped = _swapped(sides)
    pressed = best.posterior.is_significant(at)
    return tuple(
        _judged(
            coefficient,
            law.terms[place],
            [by_place[it].name for it in wide if it != place and (alike[place][it] > _ALIKE or {place, it} <= swapped)],
            pressed=coefficient.at_bound and bool(pressed[place]),
        )
        for place, coefficient in by_place.items()
    )


def groups_of(fitted: Sequence[Coefficient]) -> list[list[str]]:
    """Return the groups of coefficients that cannot be told apart."""
    names = [coefficient.name for coefficient in fitted if coefficient.told == "together"]
    beside = {coefficient.name: set(coefficient.together_with) for coefficient in fitted}
    groups: list[list[str]] = []
    while names:
        group = [names[0]]
        for name in group:
            group += [
                other for other in names if other not in group and (other in beside[name] or name in beside[other])
            ]
        names = [other for other in names if other not in group]
        if len(group) > 1:
            groups.append([coefficient.name for coefficient in fitted if coefficient.name in group])
    return groups


def combinations(
    law: Law, sides: Sequence[BestSide], fitted: Sequence[Coefficient], ends: Sequence[Array] = ()
) -> tuple[Combined, ...]:
    """Return, of each group of coefficients that cannot be told apart, the combination that is known best.

    It is the residual of the first one's regression on the others under the posterior, as if that were normal. The
    first is the one that is least known in its own unit, so that the others' weights are how often they occur beside
    it, such as the layers in a step. Those of different sides of a maximum do not occur together, and have none.

    Args:
        law: the law.
        sides: as for :func:`coefficients`.
        fitted: what that returned.
        ends: results of other starts, which the intervals cover.
    """
    best, places = sides[0], {term.name: place for place, term in enumerate(law.terms)}
    scale = best.posterior.spread
    covariance = np.linalg.inv(best.posterior.curvature(best.posterior.place(best.values))) * np.outer(scale, scale)
    base = np.array([term.base for term in law.terms])
    combined: list[Combined] = []
    for group in groups_of(fitted):
        at = sorted((places[name] for name in group), key=lambda place: -covariance[place, place])
        if _swapped(sides) & {*at}:
            continue
        rest = np.linalg.solve(covariance[np.ix_(at[1:], at[1:])], covariance[at[1:], at[0]])
        weights = np.array([1.0, *(float(f"{-weight:.{_WEIGHT_DIGITS}g}") for weight in rest)])
        deviation = sqrt(float(weights @ covariance[np.ix_(at, at)] @ weights))
        value, others = float(weights @ best.values[at]), [float(weights @ end[at]) for end in ends]
        low, high = (value + side * sqrt(2.0 * INTERVAL_COST_RISE) * deviation for side in (-1.0, 1.0))
        names = tuple(law.terms[place].name for place in at)
        low, high = (
            _rounded_outwards(min(low, *others) if others else low, floor),
            _rounded_outwards(max([high, *others]), ceil),
        )
        combined.append(Combined(names, tuple(weights.tolist()), value, float(weights @ base[at]), low, high))
    return tuple(weighted for weighted in combined if weighted.width < 1.0)  # else it says no more than each of them


def _swapped(sides: Sequence[BestSide]) -> set[int]:
    """Return the coefficients that occur with only some of the sides."""
    return {
        place
        for side in sides[1:]
        for place, (here, there) in enumerate(zip(sides[0].posterior.measured, side.posterior.measured, strict=True))
        if here != there
    }


def _judged(coefficient: Coefficient, term: Term, others: Sequence[str], *, pressed: bool) -> Coefficient:
    """Return the coefficient with its rating."""
    lowest = max(term.base - _EXPECTED * term.spread, term.lowest)
    expected = term.base + _EXPECTED * term.spread - lowest
    if coefficient.width <= MEASURED_WITHIN:
        rating, others = "measured", ()
    elif others:
        rating = "together"
    else:
        rating = "hardly" if coefficient.high - coefficient.low > UNDETERMINED_SHARE * expected else "roughly"
    return replace(coefficient, told=rating, together_with=tuple(others), pressed=pressed)


def _interval(sides: Sequence[BestSide], place: int, term: Term) -> tuple[float, float]:
    """Return the interval over all other coefficients and all sides of maxima."""
    lows, highs = [], []
    least = sides[0].cost
    for side in sides:
        rise = INTERVAL_COST_RISE - (side.cost - least)
        if rise > 0.0:
            low, high = side.posterior.interval(side.posterior.place(side.values), place, rise)
            lows.append(low)
            highs.append(high)
    low, high = term.base + term.spread * min(lows), term.base + term.spread * max(highs)
    if low - term.lowest < _ROUNDING * term.spread:
        low = term.lowest
    return _rounded_outwards(low, floor), _rounded_outwards(high, ceil)


def _rounded_outwards(value: float, way: Callable[[float], int]) -> float:
    """Round up or down, to a few digits."""
    if not value:
        return value
    digits = _INTERVAL_DIGITS - 1 - floor(log10(abs(value)))
    return round(way(value * 10.0**digits) / 10.0**digits, max(digits, 0))


_16_BITS: Final = 2.0


def statements(
    fitted: Sequence[Coefficient],
    followed: float,
    problem: Problem,
    advice: Callable[[Sequence[str]], Load | None] | None,
    tried: Sequence[Load],
) -> tuple[str, ...]:
    """Return what the measurements leave open, helpful loads, bounds reached, and how well the server was followed."""
    remarks: list[str] = []
    for names in groups_of(fitted):
        load = None if advice is None else advice(names)
        what = f"{in_words(names)} cannot be separated by these loads"
        if load is not None:
            what += f"; {load.words} should tell them"
        elif tried:
            count = "1 was" if len(tried) == 1 else f"{len(tried)} were"
            what += f", nor by others of this server: {count} tried, of up to {_most(tried)}"
        remarks.append(f"{what}.")
    remarks += [
        f"{coefficient.name} is at its bound, {coefficient.value:g}: less would agree better. Look at the experiment."
        for coefficient in fitted
        if coefficient.pressed
    ]
    if followed < FOLLOWED:
        missed = share_text(1.0 - followed, 0)
        other = f"{missed} of the first and last tokens came at other times than any such server could have"
        what = "Look at the experiment: limits, policy, prefix caching."
        if followed < NOT_FOLLOWED:
            remarks.append(
                f"{other} sent them: it cannot be followed step by step. These coefficients only make means agree, as"
                " far as they do; intervals say little, and what to expect of other loads is not known."
                f" {what} Or something that is not simulated held steps up, such as another process on the machine."
            )
        else:
            short = "intervals, and errors expected of other loads, may be too small"
            remarks.append(f"{other} sent them, so that {short}. {what}")
    if not problem.requests:
        remarks.append(
            "Steps say nothing of what lies between them and before them: measure requests, too. On a server that was"
            " measured on CPUs, 2.4 to 2.9 ms a step lay outside of what it logged."
        )
    return tuple(remarks)


def _most(loads: Sequence[Load]) -> str:
    users, tokens = max(load.users for load in loads), max(load.prompt_tokens for load in loads)
    return f"{plural(users, 'user')} and prompts of {tokens:,} tokens"


def absent(name: str, problem: Problem) -> str:
    """Return why no measurement contains a coefficient."""
    models = [pool.model for pool in problem.pools]
    prompts = "too few prompt tokens are computed at a time" if problem.has_prompts else "no prompt tokens are computed"
    if name in ("first_token_us", "prompt_token_us", "alpha0", "alpha1") and not problem.requests:
        return "steps say nothing of what requests wait for outside of them"
    if name.startswith("fp8"):
        narrow = any(pool.model.weight_bytes < _16_BITS and pool.hardware.peak_tflops_fp8 for pool in problem.pools)
        return prompts if narrow else "no weights of 8 bits are multiplied as such"
    if name in ("flops", "prefill_attention", "prefill_step_us", "prompt_token_us"):
        return prompts
    if name.startswith("expert"):
        other = "multiplying" if name == "expert_weights" else "reading"
        return (
            f"{other} them takes longer" if any(model.num_experts for model in models) else "the model has no experts"
        )
    if name in ("all_reduce", "layer_tp_us"):
        return "no tensor parallelism"
    if name == "sampler_us":
        return "sorted_sampling is off"
    if name in ("kv_read", "decode_attention"):
        other = "multiplying" if name == "kv_read" else "reading"
        return f"{other} takes longer in the attention of decodes"
    return "it has no part in these runs"
