"""Step time from four features of the architecture (BLIS's ``crossmodel``).

One set of coefficients serves all models: kernel dispatch per layer, KV traffic per decode token, expert routing per
token, and one barrier per step under tensor parallelism. Prefill is free in dense models, a known weakness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from blis_tui.classes import dataclass
from blis_tui.engine.latency.creation import coefficients
from blis_tui.engine.latency.model import LATENCY, Overheads
from blis_tui.engine.latency.shape import kv_cache_share

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.spec.model import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Coefficients.

    ``beta``: microseconds per layer, per million KV elements of a decode token, per token of a model with experts, per
    step under tensor parallelism.
    """

    alpha: tuple[float, ...] = coefficients(
        "alpha0 (us per request), alpha1 (us per input token), alpha2 (us per output token). Default:"
        " `specs/latency/crossmodel.yaml`.",
        3,
    )
    beta: tuple[float, ...] = coefficients("beta0..beta3. Default: `specs/latency/crossmodel.yaml`.", 4)


@LATENCY.plugin(
    "crossmodel",
    "One fit across models: per layer, per KV byte read, per token of an MoE model, per tensor-parallel step.",
    Settings,
    of_blis=True,
)
class CrossModel(Overheads):
    """Linear in the step's tokens, scaled by the model's shape."""

    __slots__ = ("_barrier_us", "_decode_us", "_kv_scale", "_layers_us", "_token_us", "_width")

    flat: ClassVar[bool] = True

    def __init__(self, settings: Settings, pool: Pool) -> None:
        alpha, beta, model, tensor_parallel = settings.alpha, settings.beta, pool.model, pool.tensor_parallel
        super().__init__(queue_us=alpha[0], queue_per_token_us=alpha[1], output_token_us=alpha[2], post_decode_us=0.0)
        kv_elements = model.num_hidden_layers * model.num_key_value_heads * model.head_dim
        self._layers_us = beta[0] * model.num_hidden_layers
        self._decode_us = beta[1]
        self._kv_scale = kv_elements / tensor_parallel * 1e-6 * kv_cache_share(model)
        self._token_us = beta[2] if model.num_experts > 0 else 0.0
        self._width = pool.engine.verify_width
        self._barrier_us = beta[3] if tensor_parallel > 1 else 0.0

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        decode = load.decode_requests * self._width
        tokens = decode
        for chunk in load.chunks:
            tokens += chunk.new
        time_us = (
            self._layers_us + self._decode_us * decode * self._kv_scale + self._token_us * tokens + self._barrier_us
        )
        return int(time_us) if time_us >= 1.0 else 1
