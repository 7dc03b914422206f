"""Input of a calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.calibration.measured import Recording
    from blis_tui.calibration.steps import StepLog
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True)
class Data:
    """A recording, and the experiment that describes the measured server."""

    recording: Recording | StepLog
    experiment: Experiment
    repeated: bool = False
    """Whether prompts repeat and hit the prefix cache."""
