"""The two things to do with measured requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.calibration.document import document_text
from blis_tui.calibration.fit import Fit, fit
from blis_tui.calibration.judge import METRICS, Pair, StepPair, agreement
from blis_tui.calibration.replay import replay, simulate, stepped, with_coefficients
from blis_tui.calibration.steps import StepLog
from blis_tui.classes import dataclass
from blis_tui.engine.latency.fitted import Settings
from blis_tui.errors import InputError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.calibration.fit import Data
    from blis_tui.calibration.judge import Pairs


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Coefficients, and how they do."""

    fit: Fit
    runs: dict[str, Pairs]
    left_out_runs: dict[str, Pairs]
    """Each recording with coefficients fitted to the others; without those whose others tell nothing."""
    document: str


def compared(data: Sequence[Data]) -> dict[str, Pairs]:
    """Recordings beside what the experiments' own step-time models make of them."""
    runs: dict[str, Pairs] = {}
    for number, one in enumerate(data):
        if isinstance(one.recording, StepLog):
            runs[_name(data, number)] = stepped(one.experiment, one.recording)
            continue
        rows = simulate(one.experiment, one.recording, repeated=one.repeated)
        runs[_name(data, number)] = [
            Pair(measured, row.ttft_us, row.e2e_us)
            for row, measured in zip(rows, one.recording.requests, strict=True)
            if row.ttft_us is not None and row.e2e_us is not None
        ]
        if not runs[_name(data, number)]:
            raise InputError(f"no request of {one.recording.path} completes in the simulation")
    return runs


def calibrated(data: Sequence[Data]) -> Calibrated:
    """Fit to all recordings, and to all but each.

    The base is ``fitted`` with what the first experiment says of it.

    Raises:
        InputError: scipy is not installed, or the data tell no coefficient.
        PolicyError: an experiment has more than one instance.
    """
    base = _base(data[0])
    found = fit(data, base)
    runs = _runs(data, found.settings)
    others: dict[str, Pairs] = {}
    for number in range(len(data) if len(data) > 1 else 0):
        rest = [one for at, one in enumerate(data) if at != number]
        try:
            without = fit(rest, base)
        except InputError:
            continue
        others |= _runs(data, without.settings, number)
    pairs = [pair for run in runs.values() for pair in run if isinstance(pair, Pair)]
    steps = [pair for run in runs.values() for pair in run if isinstance(pair, StepPair)]
    judged = [(metric, agreement(steps if metric == "step" else pairs, metric)) for metric in METRICS]
    errors = {metric: told.bias for metric, told in judged if told is not None}
    return Calibrated(found, runs, others, document_text(found, data, errors))


def _base(one: Data) -> Settings:
    """What the experiment says of ``fitted``; the shipped coefficients where it names another model."""
    pools = one.experiment.pools
    if len(pools) != 1 or pools[0].instances != 1:
        raise PolicyError("measurements are compared with one instance", help="set cluster.instances=1")
    latency = pools[0].latency
    settings: Mapping[str, object] = latency.settings if latency.kind == "fitted" else {}
    return Settings(**settings)  # type: ignore[arg-type]  # the schema has seen to their types


def _runs(data: Sequence[Data], settings: Settings, only: int | None = None) -> dict[str, Pairs]:
    found: dict[str, Pairs] = {}
    for number, one in enumerate(data):
        if only in (None, number):
            if isinstance(one.recording, StepLog):
                found[_name(data, number)] = stepped(with_coefficients(one.experiment, settings), one.recording)
                continue
            answers = replay(one.experiment, one.recording, settings, repeated=one.repeated)
            found[_name(data, number)] = [Pair(it.measured, it.ttft_us, it.e2e_us, it.batch) for it in answers]
    return found


def _name(data: Sequence[Data], number: int) -> str:
    """A recording's file name; its path where several have the same."""
    path = data[number].recording.path
    alike = len([one for one in data if one.recording.path.name == path.name])
    return path.name if alike == 1 else f"{path} ({number + 1})"
