"""The step as the sum of its operators, each as measured on the GPU, and a small fitted rest.

``products + decode attention + prefill attention + experts + all-reduces + head`` come from the tables in
``specs/latency/operators/``. The rest is what no operator covers: norms and activations, gaps between kernels, batch
preparation and sampling. Everything is precomputed as tables over tokens and over batch and context, which each step
looks up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.model import LATENCY
from blis_tui.engine.latency.operator_settings import OperatorSettings
from blis_tui.engine.latency.operator_steps import OperatorModel, ScaledOperatorModel, WideOperatorModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model import Pool

_REMEMBERED: Final = 32
"""Number of models that are kept; a study creates the same few for each of its runs."""
_MADE: Final[dict[tuple[object, ...], tuple[OperatorModel, Mapping[str, object] | None]]] = {}
"""Settings, model and sizes -> the step-time model, and the tables that it is made from."""


@LATENCY.plugin(
    "operators",
    "The sum of operators measured on the GPU and a small fitted rest; for GPUs with tables.",
    OperatorSettings,
)
def operators(settings: OperatorSettings, pool: Pool) -> OperatorModel:
    """Create the model from the tables of the pool's GPU.

    Raises:
        PolicyError: there are none, or they lack what the model needs.
    """
    if pool.lockstep:
        return WideOperatorModel(settings, pool, settings.steps or 1.0)
    engine = pool.engine
    if engine.expert_parallel:
        return _made(settings, pool)
    shape = pool.model, pool.tensor_parallel, engine.max_num_batched_tokens, engine.verify_width
    made = _MADE.get(key := (settings, *shape))
    if made is None or made[1] is not pool.operators:
        if len(_MADE) >= _REMEMBERED:
            _MADE.clear()
        made = _MADE[key] = _made(settings, pool), pool.operators
    return made[0].anew()


def _made(settings: OperatorSettings, pool: Pool) -> OperatorModel:
    if settings.steps is None:
        return OperatorModel(settings, pool)
    return ScaledOperatorModel(settings, pool, settings.steps)
