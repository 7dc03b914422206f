"""Roofline terms for every kind of traffic, weighted by learned coefficients (BLIS's ``trained-physics``).

Unlike ``trained-roofline``, it separates dense from expert layers, supports narrow weights and FP8 units, counts shared
experts and the all-reduces of tensor parallelism, and reads all experts of a layer in every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.latency.affine import TwoPhaseModel, phases
from blis_tui.engine.latency.creation import coefficients
from blis_tui.engine.latency.model import LATENCY
from blis_tui.engine.latency.shape import check_heads, kv_cache_share, peak_tflops, shape_of

if TYPE_CHECKING:
    from blis_tui.engine.latency.affine import Phase
    from blis_tui.engine.latency.shape import Shape
    from blis_tui.spec.model import Hardware, Model, Pool

_KV_BYTES: Final = 2.0
_PREFILL_SPLIT: Final = 9
_DECODE_SPLIT: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Coefficients.

    ``beta``: weights of prefill compute, decode compute, reading the weights and communication; microseconds per layer,
    request and step; then optionally microseconds per expert layer of an interleaved model, weight of prefill KV
    traffic, weight of decode KV traffic, and weight of expert dispatch (only used with data parallelism). With fewer
    than 9 (10), prefill (decode) is the larger of compute and traffic instead of their weighted sum.
    """

    alpha: tuple[float, ...] = coefficients(
        "Queueing constant (us), post-decode constant (us), per output token (us). Default:"
        " `specs/latency/trained-physics.yaml`.",
        3,
    )
    beta: tuple[float, ...] = coefficients(
        "beta0..beta10; the last four are optional. Default: `specs/latency/trained-physics.yaml`.", *range(7, 12)
    )


@LATENCY.plugin(
    "trained-physics",
    "A roofline with trained corrections; the most accurate of the models of BLIS.",
    Settings,
)
def trained_physics(settings: Settings, pool: Pool) -> TwoPhaseModel:
    """Create the model; heads and KV heads must divide by ``tensor_parallel``."""
    check_heads("trained-physics", pool)
    alpha, beta, model, hardware = settings.alpha, settings.beta, pool.model, pool.hardware
    tensor_parallel = pool.tensor_parallel
    shape = shape_of(model)
    bytes_per_us = hardware.memory_bandwidth_tb_per_s * 1e6
    prefill, decode = _phases(shape, model, hardware, tensor_parallel)
    weights_us = _weight_bytes(shape, model, tensor_parallel) / bytes_per_us
    # A ring all-reduce moves each byte twice past all but one member; there is one after attention, one after the MLP.
    units = shape.layers + shape.dense_layers + shape.moe_layers
    ring = 2.0 * (tensor_parallel - 1) / tensor_parallel
    all_reduce_us = units * shape.hidden * model.activation_bytes * ring / bytes_per_us
    interleaved = model.interleave_moe_layer_step > 0 and model.num_experts > 1
    expert_layers_us = beta[7] * shape.moe_layers if interleaved and len(beta) > 7 else 0.0
    return TwoPhaseModel(
        alpha,
        prefill=(prefill.sum_of(beta[0], beta[8]) if len(beta) >= _PREFILL_SPLIT else prefill.larger_of(beta[0])),
        decode=decode.sum_of(beta[1], beta[9]) if len(beta) >= _DECODE_SPLIT else decode.larger_of(beta[1]),
        step_us=beta[2] * weights_us + beta[4] * shape.layers + beta[6] + expert_layers_us,
        request_us=beta[5],
        token_us=beta[3] * all_reduce_us,
        verify_width=pool.engine.verify_width,
    )


def _phases(shape: Shape, model: Model, hardware: Hardware, tensor_parallel: int) -> tuple[Phase, Phase]:
    """Return the unweighted prefill and decode phases."""
    flops_per_us = peak_tflops(model, hardware) * 1e6
    bytes_per_us = hardware.memory_bandwidth_tb_per_s * 1e6
    experts_per_token = float(max(1, model.num_experts_per_tok))
    projection = 2.0 * shape.layers * shape.hidden * (2.0 * shape.query + 2.0 * shape.key_value)
    routed = shape.moe_layers * experts_per_token * 6.0 * shape.hidden * shape.expert_ffn
    shared = shape.moe_layers * 6.0 * shape.hidden * shape.shared_ffn
    dense = shape.dense_layers * 6.0 * shape.hidden * shape.dense_ffn
    token_us = (projection + routed + shared + dense) / tensor_parallel / flops_per_us
    attended_us = shape.layers * 4.0 * (shape.heads / tensor_parallel) * shape.head_dim / flops_per_us
    kv_bytes = _KV_BYTES * kv_cache_share(model)
    kv_us = shape.layers * 2.0 * (shape.key_value / tensor_parallel) * kv_bytes / bytes_per_us
    return phases(token_us, attended_us, kv_us)


def _weight_bytes(shape: Shape, model: Model, tensor_parallel: int) -> float:
    """Bytes of weights that one accelerator reads per step."""
    attention = shape.layers * shape.hidden * (2.0 * shape.query + 2.0 * shape.key_value)
    routed = shape.moe_layers * model.num_experts * 3.0 * shape.hidden * shape.expert_ffn
    shared = shape.moe_layers * 3.0 * shape.hidden * shape.shared_ffn
    dense = shape.dense_layers * 3.0 * shape.hidden * shape.dense_ffn
    return (attention + routed + shared + dense) * model.weight_bytes / tensor_parallel
