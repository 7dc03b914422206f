"""The two things to do with measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.calibration.document import document_text
from blis_tui.calibration.elsewhere import expected_under, loads_elsewhere
from blis_tui.calibration.judge import METRICS, Pair, StepPair, agreement, disagreement
from blis_tui.calibration.measured import Recording
from blis_tui.calibration.mixed import mixed
from blis_tui.calibration.predicted import compared, name_of, pairs_of
from blis_tui.calibration.replay import require_one_instance
from blis_tui.calibration.steps import StepLog
from blis_tui.classes import dataclass
from blis_tui.errors import InputError
from blis_tui.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.calibration.data import Data
    from blis_tui.calibration.elsewhere import Elsewhere
    from blis_tui.calibration.outcome import Fit
    from blis_tui.calibration.predicted import Runs

BASES: Final = ("fitted", "blackbox")
_LAUNCHED: Final = (
    "The coefficients include what launching operators one by one took: leave engine.enforce_eager out beside them."
)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Coefficients, and how they do."""

    fit: Fit
    before: Runs
    """What the experiments' own step-time models make of the recordings."""
    runs: Runs
    left_out_runs: Runs
    """Each recording with coefficients fitted to the others; without those whose others tell nothing."""
    document: str


def require_extra() -> None:
    """Raise InputError where the extra is not installed."""
    try:
        import numpy as np  # noqa: F401, PLC0415  (an extra)
        import scipy.optimize  # noqa: F401, PLC0415  (likewise)
    except ImportError as error:
        message = f"`calibrate` needs the extra `calibrate`: {error.name} is not installed"
        raise InputError(message, help=install_command("calibrate")) from error


def calibrated(data: Sequence[Data], kind: str = "") -> Calibrated:
    """Fit to all recordings, and to all but each.

    Args:
        data: what was measured.
        kind: the step-time model to fit; by default the first experiment's, if it can be, else ``fitted``.

    Raises:
        InputError: the extra is not installed, or the measurements tell no coefficient.
        PolicyError: an experiment has more than one instance.
    """
    require_extra()
    from blis_tui.calibration.fitting.calibrate import fit  # noqa: PLC0415  (needs the extra)

    for one in data:
        require_one_instance(one.experiment)
    own = data[0].experiment.pools[0].latency.kind
    kind = kind or (own if own in BASES else BASES[0])
    before = compared(data)
    eager = any(one.experiment.pools[0].engine.enforce_eager for one in data)
    data = [_with_all_in_coefficients(one) for one in data]
    found = fit(data, kind)
    if not any(one.told in ("measured", "roughly", "averaged") for one in found.found):
        raise InputError("these measurements tell no coefficient", help="record more requests, under several loads")
    runs = compared(data, found.latency, found.gap_us)
    of_means = any(one.told == "averaged" for one in found.found)
    if disagreement(runs, of_means=of_means) > disagreement(before, of_means=of_means):
        found, runs = _kept(found, data), before
    others: Runs = {}
    for number in range(len(data) if len(data) > 1 else 0):
        rest = [one for at, one in enumerate(data) if at != number]
        without = fit(rest, kind, advise=False)
        others[name_of(data, number)] = pairs_of(data[number], without.latency, without.gap_us)
    launched = [_LAUNCHED] if eager and not found.kept else []
    found = replace(found, statements=(*_mixtures(data), *launched, *found.statements))
    if not found.kept:
        found = replace(found, elsewhere=_elsewhere(found, data))
    pairs = [pair for run in runs.values() for pair in run if isinstance(pair, Pair)]
    steps = [pair for run in runs.values() for pair in run if isinstance(pair, StepPair)]
    judged = [(metric, agreement(steps if metric == "step" else pairs, metric)) for metric in METRICS]
    errors = {metric: told.bias for metric, told in judged if told is not None}
    return Calibrated(found, before, runs, others, document_text(found, data, errors))


def _with_all_in_coefficients(one: Data) -> Data:
    """Measured steps have their launches in them: none are added to what the coefficients say."""
    (pool,) = one.experiment.pools
    pool = replace(pool, engine=replace(pool.engine, enforce_eager=False))
    return replace(one, experiment=replace(one.experiment, pools=(pool,)))


def _elsewhere(found: Fit, data: Sequence[Data]) -> tuple[Elsewhere, ...]:
    """What to expect of a fit under loads beside the first measured one."""
    for one in data:
        if isinstance(one.recording, Recording):
            lengths = [asked.input_tokens for asked in one.recording.requests]
            loads = loads_elsewhere(one.experiment, sum(lengths) / len(lengths))
            return expected_under(one.experiment, found.latency, found.draws, loads)
    return ()


def _kept(found: Fit, data: Sequence[Data]) -> Fit:
    """The experiment's own step-time model, as nothing better was found."""
    latency = data[0].experiment.pools[0].latency
    kept = "The experiment's own coefficients are kept: none were found that agree better."
    return replace(found, latency=latency, kept=True, statements=(kept, *found.statements))


def _mixtures(data: Sequence[Data]) -> list[str]:
    """Sentences about recordings that seem to be of several servers."""
    found = []
    for number, one in enumerate(data):
        if not isinstance(one.recording, StepLog) and (told := mixed(one.recording)) is not None:
            found.append(f"{name_of(data, number)}: {told}")
    return found
