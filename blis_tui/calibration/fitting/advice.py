"""Suggests a load that determines what the measured ones do not, by simulating candidates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.calibration.data import Data
from blis_tui.calibration.fitting.clock import Noise, filtered, whitened
from blis_tui.calibration.fitting.equations import chain_of
from blis_tui.calibration.fitting.fit import ASSUMED, Requests
from blis_tui.calibration.measured import Measured, Recording
from blis_tui.calibration.other_loads import REQUESTS, with_load
from blis_tui.calibration.replay import with_latency
from blis_tui.errors import BlisError
from blis_tui.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.fitting.laws import Array, Law
    from blis_tui.calibration.fitting.posterior import Posterior
    from blis_tui.calibration.other_loads import Load
    from blis_tui.spec.model import Experiment

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
    found = sorted(
        (
            Measured(float(row.arrival_us), row.input_tokens, row.output_tokens, float(row.ttft_us), float(row.e2e_us))
            for row in simulation.report(verify=False).rows
            if row.ttft_us and row.e2e_us is not None and row.output_tokens
        ),
        key=lambda one: one.arrival_us,
    )
    return Recording(Path("advised"), "simulated", "", tuple(found), 0) if len(found) >= REQUESTS // 2 else None


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
        places = [number for number, one in enumerate(self._law.terms) if one.name in names]
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
        found = information(self._law, self._data.experiment, load, self._values, self._noise)
        if found is None:
            return None
        self._recorded[load], rows = found
        rows = rows * self._posterior.spread
        told: Array = rows.T @ rows
        return told


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
