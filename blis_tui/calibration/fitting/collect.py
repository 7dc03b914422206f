"""Chooses the loads to measure on an unmeasured server, one by one, each the most informative.

A load's equations add their information to the prior of the coefficients. Each step takes the load that maximises the
determinant of the total, and so minimises the volume of the coefficients' distribution: greedy D-optimal design
(Fedorov: Theory of Optimal Experiments, 1972; greedy gains are within 1 - 1/e of the optimum, Krause, Singh and
Guestrin, JMLR 9, 2008).
"""

from __future__ import annotations

from math import e, log10
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.calibration.fitting.advice import MAX_DEVIATION_RATIO, information
from blis_tui.calibration.fitting.fit import ASSUMED
from blis_tui.calibration.other_loads import Load
from blis_tui.classes import dataclass
from blis_tui.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.calibration.fitting.laws import Array, Law
    from blis_tui.spec.model import Experiment

_USERS: Final = (1, 4, 16, 64, 256)
_PROMPTS: Final = (64, 512, 4096)
_ANSWERS: Final = (16, 128)
_LONGEST: Final = 1.5
"""Maximum ratio of a request's length to that of its load."""
_SETTLED: Final = 0.1
"""A coefficient with a smaller relative uncertainty needs no further load."""
_WITHIN: Final = 1.645
"""Standard deviations that contain 90 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A load to measure, and its gain over those before it."""

    load: Load
    settles: tuple[str, ...]
    """Coefficients whose uncertainty it at least halves, the most reduced first."""
    duration_us: float
    """Expected time from the first request to the last token."""
    gain: float
    """Decimal logarithm of the factor by which it shrinks the volume of the coefficients' distribution."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Loads in the order of measurement, and the remaining uncertainty."""

    loads: tuple[Planned, ...]
    within: Mapping[str, float]
    """Coefficient -> expected 90 % relative error of the fit, once all are measured."""
    tried: int
    """Number of candidate loads."""


def grid(experiment: Experiment) -> list[Load]:
    """Return the candidate loads: combinations of users, prompts and answers within the engine's limits."""
    (pool,) = experiment.pools
    most = min(pool.engine.max_model_len or pool.model.max_position_embeddings, pool.model.max_position_embeddings)
    places = pool.engine.max_num_seqs or _USERS[-1]
    return [
        Load(users, prompt, answer)
        for users in _USERS
        if users <= places
        for prompt in _PROMPTS
        for answer in _ANSWERS
        if _LONGEST * (prompt + answer) <= most
    ]


def plan(experiment: Experiment, law: Law, count: int, tried: Sequence[Load] | None = None) -> Plan:
    """Choose loads one by one.

    Args:
        experiment: the server.
        law: the step-time law, with the prior of its coefficients.
        count: number of loads to choose.
        tried: the candidates; None = those of :func:`grid`.

    Raises:
        InputError: the engine can serve none of them.
    """
    base = np.array([one.base for one in law.terms])
    spread = np.array([one.spread for one in law.terms])
    told: dict[Load, tuple[Array, float]] = {}
    for load in grid(experiment) if tried is None else tried:
        found = information(law, experiment, load, base, ASSUMED[0])
        if found is not None:
            data, rows = found
            requests = data.recording.requests  # type: ignore[union-attr]  # of requests, as it was simulated
            ends = max(one.arrival_us + one.e2e_us for one in requests)
            told[load] = (rows * spread).T @ (rows * spread), ends - requests[0].arrival_us
    if not told:
        raise InputError("the engine serves none of the loads that were tried", help="look at its limits")
    known = np.eye(len(base))
    chosen: list[Planned] = []
    left = dict(told)
    while left and len(chosen) < count:
        volumes = {load: _volume(known + more) for load, (more, _) in left.items()}
        best = max(volumes, key=lambda load: volumes[load])
        more, duration_us = left.pop(best)
        before, after = _deviations(known), _deviations(known + more)
        gain = (volumes[best] - _volume(known)) / 2.0
        known = known + more
        ratios = {term.name: after[at] / before[at] for at, term in enumerate(law.terms)}
        settles = tuple(
            name for name in sorted(ratios, key=lambda name: ratios[name]) if ratios[name] <= MAX_DEVIATION_RATIO
        )
        chosen.append(Planned(best, settles, duration_us, gain))
    off = _WITHIN * _deviations(known) * spread
    within = {
        term.name: float(off[at] / term.base)
        for at, term in enumerate(law.terms)
        if term.base > 0.0 and any(more[at, at] > 0.0 for more, _ in told.values())
    }
    return Plan(tuple(chosen), within, len(told))


def settled(within: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Return the coefficients that will be known within 10 %, and the others."""
    known = [name for name, share in within.items() if share <= _SETTLED]
    return known, [name for name in within if name not in known]


def _deviations(known: Array) -> Array:
    found: Array = np.sqrt(np.diag(np.linalg.inv(known)))
    return found


def _volume(known: Array) -> float:
    """Return the decimal logarithm of the determinant."""
    return float(np.linalg.slogdet(known)[1]) * log10(e)
