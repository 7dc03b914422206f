"""Recordings with the predictions of step-time models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from blis_tui.calibration.judge import Pair
from blis_tui.calibration.replay import batches, simulate, stepped, with_latency
from blis_tui.calibration.steps import StepLog
from blis_tui.errors import InputError
from blis_tui.metrics.expected_error import ObservedLoad, expectation
from blis_tui.metrics.unmeasured import WAIT_METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.data import Data
    from blis_tui.calibration.judge import Pairs
    from blis_tui.calibration.measured import Recording
    from blis_tui.metrics.expected_error import Expectation
    from blis_tui.metrics.report import Report
    from blis_tui.spec.model import PluginConfig

Runs: TypeAlias = "dict[str, Pairs]"


def compared(data: Sequence[Data], latency: PluginConfig | None = None, gap_us: float = 0.0) -> Runs:
    """Return recordings with the predictions of a step-time model; by default, each experiment's own.

    Args:
        data: the recordings.
        latency: the step-time model.
        gap_us: part of each of its steps that logs do not contain.

    Raises:
        InputError: no request of a recording completes in the simulation.
        PolicyError: an experiment has more than one instance.
    """
    return {name_of(data, number): pairs_of(one, latency, gap_us) for number, one in enumerate(data)}


def pairs_of(one: Data, latency: PluginConfig | None, gap_us: float = 0.0) -> Pairs:
    """Return one recording with its predictions, as :func:`compared` does.

    Raises:
        InputError: no request of the recording completes in the simulation.
        PolicyError: the experiment has more than one instance.
    """
    experiment = one.experiment if latency is None else with_latency(one.experiment, latency)
    if isinstance(one.recording, StepLog):
        return [replace(pair, step_us=max(1.0, pair.step_us - gap_us)) for pair in stepped(experiment, one.recording)]
    return _beside(one.recording, simulate(experiment, one.recording, repeated=one.repeated))


def _beside(recording: Recording, report: Report) -> Pairs:
    rows = list(report.rows)
    found = [
        Pair(measured, row.ttft_us, row.e2e_us, batch)
        for row, measured, batch in zip(rows, recording.requests, batches(rows), strict=True)
        if row.ttft_us is not None and row.e2e_us is not None
    ]
    if not found:
        message = f"no request of {recording.path} completes in the simulation"
        raise InputError(message, help="look at the engine's limits")
    return found


def judged(data: Sequence[Data]) -> tuple[Runs, dict[str, tuple[str, Expectation]]]:
    """Return recordings with the predictions of each experiment's own step times, and the expected errors.

    Raises:
        InputError: no request of a recording completes in the simulation.
        PolicyError: an experiment has more than one instance.
    """
    runs: Runs = {}
    expected: dict[str, tuple[str, Expectation]] = {}
    for number, one in enumerate(data):
        name, pool = name_of(data, number), one.experiment.pools[0]  # the only pool; replay requires it
        if isinstance(one.recording, StepLog):
            known = expectation(one.experiment, pool, ObservedLoad(0.0)).without(WAIT_METRICS)
            runs[name] = pairs_of(one, None)
        else:
            report = simulate(one.experiment, one.recording, repeated=one.repeated)
            runs[name], (known,) = _beside(one.recording, report), report.expected_errors().values()
        expected[name] = (pool.latency.kind, known)
    return runs, expected


def name_of(data: Sequence[Data], number: int) -> str:
    """Return a recording's file name; its path if several have the same."""
    path = data[number].recording.path
    alike = len([one for one in data if one.recording.path.name == path.name])
    return path.name if alike == 1 else f"{path} ({number + 1})"
