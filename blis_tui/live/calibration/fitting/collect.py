"""Chooses loads to measure: each the most informative of what the others leave open.

A load's equations add their information to the prior of the coefficients. Each step takes the load that maximises the
determinant of the total, and so minimises the volume of the coefficients' distribution: greedy D-optimal design
(Fedorov: Theory of Optimal Experiments, 1972; greedy gains are within 1 - 1/e of the optimum, Krause, Singh and
Guestrin, JMLR 9, 2008).
"""

from __future__ import annotations

from math import e, log10
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, InputError
from blis_tui.live.calibration.fitting.clock import Noise, filtered, whitened
from blis_tui.live.calibration.fitting.equations import chain_of
from blis_tui.live.calibration.fitting.fit import ASSUMED, Requests
from blis_tui.live.calibration.measured import Data, Measured, Recording
from blis_tui.live.calibration.other_loads import REQUESTS, Load, with_load
from blis_tui.live.calibration.simulated_load import with_latency
from blis_tui.runs.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.live.calibration.fitting.laws import Array, Law
    from blis_tui.live.calibration.fitting.posterior import Posterior
    from blis_tui.model import Experiment


MAX_DEVIATION_RATIO: Final = 0.5
"""A load determines a coefficient if it reduces its standard deviation to at most this fraction."""
_LEAST: Final = Noise(step=0.005, stamp_us=100.0, first=1e-3, answer=1e-3)
"""The lowest noise assumed for a measurement."""


def measured(experiment: Experiment) -> Recording | None:
    """Return an experiment's requests as clients would measure them; None if the engine serves too few of them."""
    simulation = Simulation(experiment, check="off")
    try:
        simulation.run()
    except BlisError:
        return None
    rows = sorted(
        (
            Measured(float(row.arrival_us), row.input_tokens, row.output_tokens, float(row.ttft_us), float(row.e2e_us))
            for row in simulation.report(verify=False).rows
            if row.ttft_us and row.e2e_us is not None and row.output_tokens
        ),
        key=lambda request: request.arrival_us,
    )
    return Recording(Path("advised"), "simulated", "", tuple(rows), 0) if len(rows) >= REQUESTS // 2 else None


class Adviser:
    """Compares the information of the measurements with that of additional loads."""

    def __init__(self, law: Law, data: Data, posterior: Posterior, values: Array, noises: Sequence[Noise]) -> None:
        self._law = law
        self._data = data
        self._posterior = posterior
        self._values = values
        self._noise = noises[0] if noises else _LEAST
        self._known = posterior.curvature(posterior.place(values))
        self._tried: dict[Load, Array | None] = {}
        self._recorded: dict[Load, Data] = {}

    def best(self, names: Sequence[str], loads: Sequence[Load]) -> Load | None:
        """Return the first load that would determine these coefficients; None if none would."""
        places = [number for number, term in enumerate(self._law.terms) if term.name in names]
        before = np.sqrt(np.diag(np.linalg.inv(self._known)))[places]
        for load in loads:
            more = self._information(load)
            if more is None:
                continue
            after = np.sqrt(np.diag(np.linalg.inv(self._known + more)))[places]
            if np.all(after <= MAX_DEVIATION_RATIO * before):
                return load
        return None

    def measured_under(self, load: Load) -> Data:
        """Return what clients would measure under a load that was tried."""
        return self._recorded[load]

    def _information(self, load: Load) -> Array | None:
        if load not in self._tried:
            self._tried[load] = self._of(load)
        return self._tried[load]

    def _of(self, load: Load) -> Array | None:
        informed = information(self._law, self._data.experiment, load, self._values, self._noise)
        if informed is None:
            return None
        self._recorded[load], rows = informed
        rows = rows * self._posterior.spread
        added: Array = rows.T @ rows
        return added


def information(law: Law, experiment: Experiment, load: Load, values: Array, noise: Noise) -> tuple[Data, Array] | None:
    """Return what clients of a simulated server would measure under a load, and its information.

    Args:
        law: the step-time law.
        experiment: the server.
        load: the load.
        values: the coefficients.
        noise: accuracy of the measurements.

    Returns:
        The measurements, and the slopes of equations with independent errors of unit variance, whose Gram matrix is the
        Fisher information. None if the engine serves too few of the requests.
    """
    experiment = with_load(experiment, load)
    recording = measured(with_latency(experiment, law.config(values)))
    if recording is None:
        return None
    data = Data(recording, experiment)
    run = Requests(data, recording, law)
    run.begin(values, ASSUMED[0])
    chain = chain_of(law, run.pool, recording.requests, run.follow(values, ASSUMED[0]))
    noise = Noise(
        max(noise.step, _LEAST.step),
        max(noise.stamp_us, _LEAST.stamp_us),
        max(noise.first, _LEAST.first),
        max(noise.answer, _LEAST.answer),
    )
    slopes = chain.slopes(values)
    gains = filtered(noise, chain.times, [0.0] * len(slopes))
    return data, whitened(chain.times, gains, slopes)


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
    base = np.array([term.base for term in law.terms])
    spread = np.array([term.spread for term in law.terms])
    possible: dict[Load, tuple[Array, float]] = {}
    for load in grid(experiment) if tried is None else tried:
        informed = information(law, experiment, load, base, ASSUMED[0])
        if informed is not None:
            data, rows = informed
            requests = data.recording.requests  # type: ignore[union-attr]  # of requests, as it was simulated
            ends = max(request.arrival_us + request.e2e_us for request in requests)
            possible[load] = (rows * spread).T @ (rows * spread), ends - requests[0].arrival_us
    if not possible:
        raise InputError("the engine serves none of the loads that were tried", help="look at its limits")
    known = np.eye(len(base))
    chosen: list[Planned] = []
    left = dict(possible)
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
        if term.base > 0.0 and any(more[at, at] > 0.0 for more, _ in possible.values())
    }
    return Plan(tuple(chosen), within, len(possible))


def settled(within: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Return the coefficients that will be known within 10 %, and the others."""
    known = [name for name, share in within.items() if share <= _SETTLED]
    return known, [name for name in within if name not in known]


def _deviations(known: Array) -> Array:
    deviations: Array = np.sqrt(np.diag(np.linalg.inv(known)))
    return deviations


def _volume(known: Array) -> float:
    """Return the decimal logarithm of the determinant."""
    return float(np.linalg.slogdet(known)[1]) * log10(e)
