"""BLIS's step times with trained coefficients: ``blackbox``, ``crossmodel``, ``trained-roofline``, ``-physics``.

Step time as a linear regression over token counts (BLIS's ``blackbox``).

``beta0 + beta1 * prefill tokens + beta2 * decode tokens``, fitted to measurements per model, accelerator and
parallelism. It does not use the model's shape, so it cannot extrapolate to other models.

Step time from four features of the architecture (BLIS's ``crossmodel``).

One set of coefficients serves all models: kernel dispatch per layer, KV traffic per decode token, expert routing per
token, and one barrier per step under tensor parallelism. Prefill is free in dense models, a known weakness.

A roofline corrected by coefficients learned from traces (BLIS's ``trained-roofline``).

It uses peak rates without utilization factors (the coefficients take their place), three matrices per MLP, and 16-bit
weights and KV elements; the fit assumed all three.

Roofline terms for every kind of traffic, weighted by learned coefficients (BLIS's ``trained-physics``).

Unlike ``trained-roofline``, it separates dense from expert layers, supports narrow weights and FP8 units, counts shared
experts and the all-reduces of tensor parallelism, and reads all experts of a layer in every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.base.classes import dataclass
from blis_tui.engine.latency.affine import ExpertTraffic, LinearModel, TwoPhaseModel, phases
from blis_tui.engine.latency.creation import coefficients
from blis_tui.engine.latency.model import LATENCY, Overheads
from blis_tui.engine.latency.shape import check_heads, kv_cache_share, peak_tflops, shape_of

if TYPE_CHECKING:
    from blis_tui.engine.latency.affine import Phase
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.engine.latency.shape import Shape
    from blis_tui.model import Hardware, Model, Pool


_LONGEST_MEMO: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class BlackboxSettings:
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
    BlackboxSettings,
    of_blis=True,
)
def blackbox(settings: BlackboxSettings, pool: Pool) -> LinearModel:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossmodelSettings:
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
    CrossmodelSettings,
    of_blis=True,
)
class CrossModel(Overheads):
    """Linear in the step's tokens, scaled by the model's shape."""

    flat: ClassVar[bool] = True

    def __init__(self, settings: CrossmodelSettings, pool: Pool) -> None:
        alpha, beta, model, tensor_parallel = settings.alpha, settings.beta, pool.model, pool.tensor_parallel
        super().__init__(queue_us=alpha[0], queue_per_token_us=alpha[1], output_token_us=alpha[2], post_decode_us=0.0)
        kv_elements = model.attention_layers * model.num_key_value_heads * model.head_dim
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


_BYTES: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRooflineSettings:
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
    "trained-roofline",
    "A roofline whose seven terms are weighted by trained coefficients.",
    TrainedRooflineSettings,
    of_blis=True,
)
def trained_roofline(settings: TrainedRooflineSettings, pool: Pool) -> TwoPhaseModel:
    """Create the model; heads and KV heads must divide by ``tensor_parallel``."""
    check_heads("trained-roofline", pool)
    alpha, beta, model, hardware = settings.alpha, settings.beta, pool.model, pool.hardware
    tensor_parallel = pool.tensor_parallel
    shape = shape_of(model)
    flops_per_us = hardware.peak_tflops_bf16 * 1e6
    bytes_per_us = hardware.memory_bandwidth_tb_per_s * 1e6
    experts_per_token = float(max(1, model.num_experts_per_tok))
    blocks = shape.dense_layers + shape.moe_layers
    mlp = experts_per_token * 2.0 * shape.matrices * shape.hidden * shape.ffn
    token_us = (2.0 * shape.projections + blocks * mlp) / tensor_parallel / flops_per_us
    attended_us = shape.attention_layers * 4.0 * (shape.heads / tensor_parallel) * shape.head_dim / flops_per_us
    kv_bytes = _BYTES * kv_cache_share(model)
    kv_us = shape.attention_layers * 2.0 * (shape.key_value / tensor_parallel) * kv_bytes / bytes_per_us
    attention_weights_us = shape.projections * _BYTES / tensor_parallel / bytes_per_us
    mlp_weights_us = blocks * shape.matrices * shape.hidden * shape.ffn * _BYTES / tensor_parallel / bytes_per_us
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


_KV_BYTES: Final = 2.0
_PREFILL_SPLIT: Final = 9
_DECODE_SPLIT: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPhysicsSettings:
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
    TrainedPhysicsSettings,
)
def trained_physics(settings: TrainedPhysicsSettings, pool: Pool) -> TwoPhaseModel:
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
    projection, flops = 2.0 * shape.projections, 2.0 * shape.matrices
    routed = shape.moe_layers * experts_per_token * flops * shape.hidden * shape.expert_ffn
    shared = shape.moe_layers * flops * shape.hidden * shape.shared_ffn
    dense = shape.dense_layers * flops * shape.hidden * shape.dense_ffn
    token_us = (projection + routed + shared + dense) / tensor_parallel / flops_per_us
    attended_us = shape.attention_layers * 4.0 * (shape.heads / tensor_parallel) * shape.head_dim / flops_per_us
    kv_bytes = _KV_BYTES * kv_cache_share(model)
    kv_us = shape.attention_layers * 2.0 * (shape.key_value / tensor_parallel) * kv_bytes / bytes_per_us
    return phases(token_us, attended_us, kv_us)


def _weight_bytes(shape: Shape, model: Model, tensor_parallel: int) -> float:
    """Bytes of weights that one accelerator reads per step."""
    routed = shape.moe_layers * model.num_experts * shape.matrices * shape.hidden * shape.expert_ffn
    shared = shape.moe_layers * shape.matrices * shape.hidden * shape.shared_ffn
    dense = shape.dense_layers * shape.matrices * shape.hidden * shape.dense_ffn
    return (shape.projections + routed + shared + dense) * model.weight_bytes / tensor_parallel
