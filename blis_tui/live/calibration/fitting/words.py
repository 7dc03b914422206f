"""How well the measurements determine each coefficient, and remarks on a fit, in sentences."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, log10, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.base.classes import dataclass
from blis_tui.base.units import in_words, plural, share_text
from blis_tui.live.calibration.fitting.fit import FOLLOWED, NOT_FOLLOWED
from blis_tui.live.calibration.fitting.posterior import INTERVAL_COST_RISE
from blis_tui.live.calibration.outcome import MEASURED_WITHIN, UNDETERMINED_SHARE, Coefficient, Combined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.live.calibration.fitting.fit import Problem
    from blis_tui.live.calibration.fitting.laws import Array, Law, Term
    from blis_tui.live.calibration.fitting.posterior import Posterior
    from blis_tui.live.calibration.other_loads import Load


_ALIKE: Final = 0.7
"""Correlation above which the effects of two coefficients cannot be distinguished."""
_EXPECTED: Final = 1.645
"""Prior interval in spreads around the base, at the level of the intervals."""
_DIGITS: Final = 4
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
    told = np.any([one.posterior.told for one in sides], axis=0)
    found: dict[int, Coefficient] = {}
    for place, term in enumerate(law.terms):
        if told[place]:
            low, high = _interval(sides, place, term)
            low = min(low, *(_rounded(float(one[place]), floor) for one in ends)) if ends else low
            high = max(high, *(_rounded(float(one[place]), ceil) for one in ends)) if ends else high
            value = float(best.values[place])
            found[place] = Coefficient(
                term.name, value, term.base, min(low, value), max(high, value), "", (), value <= term.lowest
            )
    wide = [place for place, one in found.items() if one.width > MEASURED_WITHIN]
    swapped = _swapped(sides)
    pressed = best.posterior.is_significant(at)
    return tuple(
        _judged(
            one,
            law.terms[place],
            [found[it].name for it in wide if it != place and (alike[place][it] > _ALIKE or {place, it} <= swapped)],
            pressed=one.at_bound and bool(pressed[place]),
        )
        for place, one in found.items()
    )


def groups_of(found: Sequence[Coefficient]) -> list[list[str]]:
    """Return the groups of coefficients that cannot be told apart."""
    names = [one.name for one in found if one.told == "together"]
    beside = {one.name: set(one.together_with) for one in found}
    groups: list[list[str]] = []
    while names:
        group = [names[0]]
        for name in group:
            group += [one for one in names if one not in group and (one in beside[name] or name in beside[one])]
        names = [one for one in names if one not in group]
        if len(group) > 1:
            groups.append([one.name for one in found if one.name in group])
    return groups


def combinations(
    law: Law, sides: Sequence[BestSide], found: Sequence[Coefficient], ends: Sequence[Array] = ()
) -> tuple[Combined, ...]:
    """Return, of each group of coefficients that cannot be told apart, the combination that is known best.

    It is the residual of the first one's regression on the others under the posterior, as if that were normal. The
    first is the one that is least known in its own unit, so that the others' weights are how often they occur beside
    it, such as the layers in a step. Those of different sides of a maximum do not occur together, and have none.

    Args:
        law: the law.
        sides: as for :func:`coefficients`.
        found: what that returned.
        ends: results of other starts, which the intervals cover.
    """
    best, places = sides[0], {term.name: place for place, term in enumerate(law.terms)}
    scale = best.posterior.spread
    covariance = np.linalg.inv(best.posterior.curvature(best.posterior.place(best.values))) * np.outer(scale, scale)
    base = np.array([term.base for term in law.terms])
    told: list[Combined] = []
    for group in groups_of(found):
        at = sorted((places[name] for name in group), key=lambda place: -covariance[place, place])
        if _swapped(sides) & {*at}:
            continue
        rest = np.linalg.solve(covariance[np.ix_(at[1:], at[1:])], covariance[at[1:], at[0]])
        weights = np.array([1.0, *(float(f"{-one:.{_WEIGHT_DIGITS}g}") for one in rest)])
        deviation = sqrt(float(weights @ covariance[np.ix_(at, at)] @ weights))
        value, others = float(weights @ best.values[at]), [float(weights @ one[at]) for one in ends]
        low, high = (value + side * sqrt(2.0 * INTERVAL_COST_RISE) * deviation for side in (-1.0, 1.0))
        names = tuple(law.terms[place].name for place in at)
        low, high = _rounded(min(low, *others) if others else low, floor), _rounded(max([high, *others]), ceil)
        told.append(Combined(names, tuple(weights.tolist()), value, float(weights @ base[at]), low, high))
    return tuple(one for one in told if one.width < 1.0)  # else it says no more than each of them


def _swapped(sides: Sequence[BestSide]) -> set[int]:
    """Return the coefficients that occur with only some of the sides."""
    return {
        place
        for one in sides[1:]
        for place, (here, there) in enumerate(zip(sides[0].posterior.told, one.posterior.told, strict=True))
        if here != there
    }


def _judged(one: Coefficient, term: Term, others: Sequence[str], *, pressed: bool) -> Coefficient:
    """Return the coefficient with its rating."""
    lowest = max(term.base - _EXPECTED * term.spread, term.lowest)
    expected = term.base + _EXPECTED * term.spread - lowest
    if one.width <= MEASURED_WITHIN:
        told, others = "measured", ()
    elif others:
        told = "together"
    else:
        told = "hardly" if one.high - one.low > UNDETERMINED_SHARE * expected else "roughly"
    return replace(one, told=told, together_with=tuple(others), pressed=pressed)


def _interval(sides: Sequence[BestSide], place: int, term: Term) -> tuple[float, float]:
    """Return the interval over all other coefficients and all sides of maxima."""
    lows, highs = [], []
    least = sides[0].cost
    for one in sides:
        rise = INTERVAL_COST_RISE - (one.cost - least)
        if rise > 0.0:
            low, high = one.posterior.interval(one.posterior.place(one.values), place, rise)
            lows.append(low)
            highs.append(high)
    low, high = term.base + term.spread * min(lows), term.base + term.spread * max(highs)
    if low - term.lowest < _ROUNDING * term.spread:
        low = term.lowest
    return _rounded(low, floor), _rounded(high, ceil)


def _rounded(value: float, way: Callable[[float], int]) -> float:
    """Round up or down, to a few digits."""
    if not value:
        return value
    digits = _DIGITS - 1 - floor(log10(abs(value)))
    return round(way(value * 10.0**digits) / 10.0**digits, max(digits, 0))


_16_BITS: Final = 2.0


def statements(
    found: Sequence[Coefficient],
    followed: float,
    problem: Problem,
    advice: Callable[[Sequence[str]], Load | None] | None,
    tried: Sequence[Load],
) -> tuple[str, ...]:
    """Return what the measurements leave open, helpful loads, bounds reached, and how well the server was followed."""
    said: list[str] = []
    for names in groups_of(found):
        load = None if advice is None else advice(names)
        what = f"{in_words(names)} cannot be separated by these loads"
        if load is not None:
            what += f"; {load.words} should tell them"
        elif tried:
            count = "1 was" if len(tried) == 1 else f"{len(tried)} were"
            what += f", nor by others of this server: {count} tried, of up to {_most(tried)}"
        said.append(f"{what}.")
    said += [
        f"{one.name} is at its bound, {one.value:g}: less would agree better. Look at the experiment."
        for one in found
        if one.pressed
    ]
    if followed < FOLLOWED:
        missed = share_text(1.0 - followed, 0)
        other = f"{missed} of the first and last tokens came at other times than any such server could have"
        what = "Look at the experiment: limits, policy, prefix caching."
        if followed < NOT_FOLLOWED:
            said.append(
                f"{other} sent them: it cannot be followed step by step. These coefficients only make means agree, as"
                " far as they do; intervals say little, and what to expect of other loads is not known."
                f" {what} Or something that is not simulated held steps up, such as another process on the machine."
            )
        else:
            short = "intervals, and errors expected of other loads, may be too small"
            said.append(f"{other} sent them, so that {short}. {what}")
    if not problem.requests:
        said.append(
            "Steps say nothing of what lies between them and before them: measure requests, too. On a server that was"
            " measured on CPUs, 2.4 to 2.9 ms a step lay outside of what it logged."
        )
    return tuple(said)


def _most(loads: Sequence[Load]) -> str:
    users, tokens = max(one.users for one in loads), max(one.prompt_tokens for one in loads)
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
        return f"{other} them takes longer" if any(one.num_experts for one in models) else "the model has no experts"
    if name in ("all_reduce", "layer_tp_us"):
        return "no tensor parallelism"
    if name == "sampler_us":
        return "sorted_sampling is off"
    if name in ("kv_read", "decode_attention"):
        other = "multiplying" if name == "kv_read" else "reading"
        return f"{other} takes longer in the attention of decodes"
    return "it has no part in these runs"
