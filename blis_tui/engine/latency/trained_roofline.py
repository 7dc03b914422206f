"""A roofline corrected by coefficients learned from traces (BLIS's ``trained-roofline``).

It uses peak rates without utilization factors (the coefficients take their place), three matrices per MLP, and 16-bit
weights and KV elements; the fit assumed all three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.latency.affine import ExpertTraffic, TwoPhaseModel, phases
from blis_tui.engine.latency.creation import coefficients
from blis_tui.engine.latency.model import LATENCY
from blis_tui.engine.latency.shape import check_heads, kv_cache_share, shape_of

if TYPE_CHECKING:
    from blis_tui.spec.model import Pool

_BYTES: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Coefficients.

    ``beta``: weights of the prefill phase, the decode phase, reading the weights, communication (always 0 here); then
    microseconds per layer, per request and per step.
    """

    alpha: tuple[float, ...] = coefficients(
        "Queueing constant (us), post-decode constant (us), per output token (us). Default:"
        " `specs/latency/trained-roofline.yaml`.",
        3,
    )
    beta: tuple[float, ...] = coefficients("beta0..beta6. Default: `specs/latency/trained-roofline.yaml`.", 7)


@LATENCY.plugin(
    "trained-roofline", "A roofline whose seven terms are weighted by trained coefficients.", Settings, of_blis=True
)
def trained_roofline(settings: Settings, pool: Pool) -> TwoPhaseModel:
    """Create the model; heads and KV heads must divide by ``tensor_parallel``."""
    check_heads("trained-roofline", pool)
    alpha, beta, model, hardware = settings.alpha, settings.beta, pool.model, pool.hardware
    tensor_parallel = pool.tensor_parallel
    shape = shape_of(model)
    flops_per_us = hardware.peak_tflops_bf16 * 1e6
    bytes_per_us = hardware.memory_bandwidth_tb_per_s * 1e6
    experts_per_token = float(max(1, model.num_experts_per_tok))
    projection = shape.hidden * (2.0 * shape.query + 2.0 * shape.key_value)
    mlp = experts_per_token * 6.0 * shape.hidden * shape.ffn
    token_us = shape.layers * (2.0 * projection + mlp) / tensor_parallel / flops_per_us
    attended_us = shape.layers * 4.0 * (shape.heads / tensor_parallel) * shape.head_dim / flops_per_us
    kv_bytes = _BYTES * kv_cache_share(model)
    kv_us = shape.layers * 2.0 * (shape.key_value / tensor_parallel) * kv_bytes / bytes_per_us
    attention_weights_us = shape.layers * projection * _BYTES / tensor_parallel / bytes_per_us
    mlp_weights_us = shape.layers * 3.0 * shape.hidden * shape.ffn * _BYTES / tensor_parallel / bytes_per_us
    prefill, decode = phases(token_us, attended_us, kv_us)
    experts = None
    weights_us = beta[2] * attention_weights_us
    if model.num_experts > 1:
        experts = ExpertTraffic(
            per_expert_us=beta[2] * mlp_weights_us,
            experts=float(model.num_experts),
            per_token=experts_per_token,
        )
    else:
        weights_us += beta[2] * mlp_weights_us
    return TwoPhaseModel(
        alpha,
        prefill=prefill.larger_of(beta[0]),
        decode=decode.larger_of(beta[1]),
        step_us=weights_us + beta[4] * shape.layers + beta[6],
        request_us=beta[5],
        experts=experts,
        verify_width=pool.engine.verify_width,
    )
