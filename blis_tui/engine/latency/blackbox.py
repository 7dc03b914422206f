"""Step time as a linear regression over token counts (BLIS's ``blackbox``).

``beta0 + beta1 * prefill tokens + beta2 * decode tokens``, fitted per model, accelerator and parallelism
against measurements. Nothing is known about the model, so nothing is extrapolated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.latency.creation import coefficients
from blis_tui.engine.latency.model import LATENCY, Overheads

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad
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
)
class BlackboxModel(Overheads):
    """Linear in the step's tokens; decode counts up to ``max_num_seqs`` are looked up instead of computed."""

    __slots__ = ("_base_us", "_decode_only_us", "_decode_us", "_prefill_us")

    def __init__(self, settings: Settings, pool: Pool) -> None:
        alpha, beta = settings.alpha, settings.beta
        super().__init__(queue_us=alpha[0], queue_per_token_us=alpha[1], output_token_us=alpha[2], post_decode_us=0.0)
        self._base_us = beta[0]
        self._prefill_us = beta[1]
        self._decode_us = beta[2] * pool.engine.verify_width
        memo = min(_LONGEST_MEMO, pool.engine.max_num_seqs)
        self._decode_only_us = tuple(self._step_us(0, count) for count in range(memo + 1))

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        if not load.chunks:
            try:
                return self._decode_only_us[load.decode_requests]
            except IndexError:
                return self._step_us(0, load.decode_requests)
        prefill = 0
        for chunk in load.chunks:
            prefill += chunk.new
        return self._step_us(prefill, load.decode_requests)

    def _step_us(self, prefill_tokens: int, decode_tokens: int) -> int:
        return max(1, int(self._base_us + self._prefill_us * prefill_tokens + self._decode_us * decode_tokens))
