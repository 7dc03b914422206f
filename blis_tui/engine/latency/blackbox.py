"""Step time as a linear regression over token counts (BLIS's ``blackbox``).

``beta0 + beta1 * prefill tokens + beta2 * decode tokens``, fitted to measurements per model, accelerator and
parallelism. It does not use the model's shape, so it cannot extrapolate to other models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.latency.affine import LinearModel
from blis_tui.engine.latency.creation import coefficients
from blis_tui.engine.latency.model import LATENCY

if TYPE_CHECKING:
    from blis_tui.spec.model import Pool

_LONGEST_MEMO: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Coefficients."""

    alpha: tuple[float, ...] = coefficients(
        "alpha0 (us per request), alpha1 (us per input token), alpha2 (us per output token). Default: the row of"
        " `specs/latency/blackbox.yaml` for this model, hardware and tensor parallelism.",
        3,
    )
    beta: tuple[float, ...] = coefficients(
        "beta0 (us per step), beta1 (us per prefill token), beta2 (us per decode token). Default: as for alpha.", 3
    )


@LATENCY.plugin(
    "blackbox",
    "Measured per model, accelerator and tensor parallelism: beta0 + beta1 * prefill tokens + beta2 * decode tokens.",
    Settings,
    of_blis=True,
)
def blackbox(settings: Settings, pool: Pool) -> LinearModel:
    """Create the model from its coefficients; a decode computes as many tokens as it verifies."""
    engine = pool.engine
    base_us, prefill_us, decode_us = settings.beta
    return LinearModel(
        settings.alpha,
        base_us=base_us,
        prefill_us=prefill_us,
        decode_us=decode_us * engine.verify_width,
        listed=min(_LONGEST_MEMO, engine.max_num_seqs),
    )
