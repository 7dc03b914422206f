"""The name with which an experiment leaves the choice of its step-time model to the loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.model import LATENCY
from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.registry import NoSettings
    from blis_tui.spec.model import Pool

AUTO: Final = "auto"


@LATENCY.plugin(AUTO, "`operators` where tables cover model and GPU, else `fitted`.")
def auto(_settings: NoSettings, pool: Pool) -> StepTimeModel:
    """Refuse to create a model: loading an experiment replaces this name by the chosen model.

    Raises:
        PolicyError: always.
    """
    raise PolicyError(f"pool `{pool.name}` has no step-time model yet", help="load the experiment to have one chosen")
