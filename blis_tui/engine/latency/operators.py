"""The step as the sum of its operators, each as measured on the GPU, and a small fitted rest.

``products + decode attention + prefill attention + experts + all-reduces + head`` come from the tables in
``specs/latency/operators/``. The rest is what no operator covers: norms and activations, gaps between kernels, batch
preparation and sampling. Everything is precomputed as tables over tokens and over batch and context, which each step
looks up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.latency.model import LATENCY
from blis_tui.engine.latency.operator_rest import Settings
from blis_tui.engine.latency.operator_steps import OperatorModel, ScaledOperatorModel, WideOperatorModel

if TYPE_CHECKING:
    from blis_tui.spec.model import Pool


@LATENCY.plugin(
    "operators", "The sum of operators measured on the GPU and a small fitted rest; for GPUs with tables.", Settings
)
def operators(settings: Settings, pool: Pool) -> OperatorModel:
    """Create the model from the tables of the pool's GPU.

    Raises:
        PolicyError: there are none, or they lack what the model needs.
    """
    if pool.lockstep:
        return WideOperatorModel(settings, pool, settings.steps or 1.0)
    return (
        OperatorModel(settings, pool) if settings.steps is None else ScaledOperatorModel(settings, pool, settings.steps)
    )
