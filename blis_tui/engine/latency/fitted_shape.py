"""What a step makes an accelerator read and compute, per token, request and context: before any coefficient.

Coefficients are multiples of what the datasheet allows, as servers with NVIDIA's GPUs reached it. Where hardware says
what its kernels reach (``reached``), times are those at which the same coefficients give that share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.latency.operator_layers import layers_of
from blis_tui.engine.latency.operator_tables import SPREAD_EXPERTS, chosen_experts
from blis_tui.engine.latency.shape import check_heads_or_copies, expert_layers, shape_of, shared_expert_width
from blis_tui.engine.portable_math import power

if TYPE_CHECKING:
    from blis_tui.spec.model import Hardware, Model, Pool

_HEAD_BYTES: Final = 2.0
"""The output head stays at 16 bits, whatever the weights are."""
_MOST_TOKENS: Final = 1024
"""Longer steps read all experts."""
REACHED_MEMORY: Final = 1 / 1.137
REACHED_16_BITS: Final = 1 / 1.294
REACHED_8_BITS: Final = 1 / 1.425
REACHED_EXPERTS: Final = 1 / 3.389
"""Shares of bandwidth and peak rates that the coefficients, as they ship, stand for."""
_EXPOSED_READING: Final = 0.5
"""Share of reading experts that products of many tokens do not hide, as all tables of ``operators`` show it."""
_REFERENCE_TFLOPS: Final = 989.5
"""16-bit peak of the accelerator for which ``flops`` is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Microseconds at the datasheet's rates, or those that hardware says, on one accelerator of an instance."""

    weights_us: float
    """Reading all dense weights and the output head, once a step."""
    token_us: float
    """Multiplying them with one token."""
    fp8: bool
    """Whether that is done in 8 bits."""
    exposed: float
    """Share of reading dense weights that multiplying does not hide."""
    fp8_us: float
    """Reading the weights that are multiplied in 8 bits by kernels that uneven sizes slow down."""
    row_us: float
    """The output head for one request."""
    experts_us: tuple[float, ...]
    """Reading the experts that so many tokens choose; more tokens than listed choose all of them."""
    expert_token_us: float
    """Multiplying them with one token."""
    experts_exposed: float
    """Share of reading them that multiplying does not hide."""
    kv_us: float
    """Reading one token of context, on layers that see all of it; likewise below."""
    kv_window_us: float
    decode_us: float
    """Attention of a decode to one token of context."""
    decode_window_us: float
    prefill_us: float
    """Attention of one prompt token to one before it."""
    prefill_window_us: float
    window: int
    """Tokens that layers with a sliding window see."""
    all_reduce_us: float
    """Of one token."""
    moved_us: float
    """Reading and writing what is between the products of one token."""
    layers: int
    expert_layers: int


def growth_of(hardware: Hardware, lost: float) -> float:
    """How many times as long products take as at a peak of the reference: what is lost of a higher one, if not known.

    Args:
        hardware: the accelerator.
        lost: the coefficient ``flops_growth``.
    """
    if hardware.reached_products:
        return 1.0
    return power(max(1.0, hardware.peak_tflops_bf16 / _REFERENCE_TFLOPS), lost)


def work_of(pool: Pool, expert_spread: float = 0.0) -> Work:
    """The work of a pool's model on its accelerators.

    Args:
        pool: the model, the accelerator, how many share the model.
        expert_spread: how unevenly tokens choose among 128 experts.

    Raises:
        PolicyError: heads do not divide by ``tensor_parallel``.
    """
    check_heads_or_copies("fitted", pool)
    model, hardware, split = pool.model, pool.hardware, pool.tensor_parallel
    bytes_per_us = hardware.memory_bandwidth_tb_per_s * 1e6 * _share(hardware.reached_memory, REACHED_MEMORY)
    flops_16_per_us = hardware.peak_tflops_bf16 * 1e6
    heads_per_us = flops_16_per_us * _share(hardware.reached_products, REACHED_16_BITS)
    fp8 = _narrow(model.weight_bytes, hardware)
    reached = _share(hardware.reached_products, REACHED_8_BITS if fp8 else REACHED_16_BITS)
    flops_per_us = _rate(model.weight_bytes, hardware) * 1e6 * reached
    shape = shape_of(model)
    layers, moe_layers = model.num_hidden_layers, expert_layers(model)
    shared = float(shared_expert_width(model))
    projections, cached, decoded = _attention(model, split)
    dense_ffn = 3.0 * shape.hidden * shape.dense_ffn * (layers - moe_layers)
    dense = layers * projections + dense_ffn + moe_layers * 3.0 * shape.hidden * shared
    head = shape.hidden * model.vocab_size
    expert = 3.0 * shape.hidden * shape.expert_ffn
    expert_bytes = model.expert_weight_bytes or model.weight_bytes
    known_experts = hardware.reached_experts
    expert_rate = (_rate if known_experts else _expert_rate)(expert_bytes, hardware) * 1e6
    expert_rate *= _share(known_experts, REACHED_EXPERTS)
    dense_us = dense * model.weight_bytes / split / bytes_per_us
    windowed = min(model.sliding_window_layers, layers)
    full = layers - windowed
    context_us = cached * model.kv_cache_bytes / bytes_per_us
    # Hopper's tensor cores multiply 64 rows at a time, of which a group of query heads fills few; elsewhere it is 16.
    decode_us = 0.0 if hardware.reached_memory else decoded / flops_16_per_us
    heads_us = 4.0 * shape.query / split / flops_16_per_us
    link_per_us = hardware.interconnect_gb_per_s / 2.0 * 1e3
    ring = 2.0 * (split - 1) / split
    return Work(
        weights_us=dense_us + head * _HEAD_BYTES / split / bytes_per_us,
        token_us=2.0 * dense / split / flops_per_us,
        fp8=fp8,
        exposed=1.0 - hardware.reached_overlap,
        fp8_us=dense_us if fp8 and not hardware.reached_products else 0.0,
        row_us=2.0 * head / split / heads_per_us,
        experts_us=_touched(model, expert_spread, moe_layers * expert * expert_bytes / split / bytes_per_us),
        expert_token_us=moe_layers * 2.0 * model.num_experts_per_tok * expert / split / expert_rate,
        experts_exposed=1.0 - hardware.reached_overlap if known_experts else _EXPOSED_READING,
        kv_us=full * context_us,
        kv_window_us=windowed * context_us,
        decode_us=full * decode_us,
        decode_window_us=windowed * decode_us,
        prefill_us=full * heads_us,
        prefill_window_us=windowed * heads_us,
        window=model.sliding_window,
        all_reduce_us=2.0 * layers * shape.hidden * model.activation_bytes * ring / link_per_us if split > 1 else 0.0,
        moved_us=layers_of(model, split).moved_bytes / bytes_per_us,
        layers=layers,
        expert_layers=moe_layers,
    )


def _share(reached: float | None, reference: float) -> float:
    """How many times what the coefficients stand for is reached."""
    return reached / reference if reached else 1.0


def _narrow(weight_bytes: float, hardware: Hardware) -> bool:
    """Whether matrix products with weights of that size use 8-bit units.

    8-bit weights do; narrower ones are widened to 16 bits first, unless the accelerator has units for 4 bits: there,
    activations of 8 bits multiply them.
    """
    narrow = weight_bytes == 1.0 or (weight_bytes < 1.0 and hardware.peak_tflops_fp4 > 0.0)
    return narrow and hardware.peak_tflops_fp8 > 0.0


def _rate(weight_bytes: float, hardware: Hardware) -> float:
    """TFLOPS of dense matrix products with weights of that size."""
    return hardware.peak_tflops_fp8 if _narrow(weight_bytes, hardware) else hardware.peak_tflops_bf16


def _expert_rate(weight_bytes: float, hardware: Hardware) -> float:
    """TFLOPS of experts.

    On accelerators without units for 4 bits, kernels of 8-bit experts are no faster than those of 16 bits, and those of
    4 bits, which widen weights as they multiply, half as fast: so it is in all tables of ``operators``.
    """
    if hardware.peak_tflops_fp4 > 0.0:
        return _rate(weight_bytes, hardware)
    return hardware.peak_tflops_bf16 * (0.5 if weight_bytes < 1.0 else 1.0)


def _attention(model: Model, split: int) -> tuple[float, float, float]:
    """Weights of a layer's projections; per token of context: elements cached on an accelerator, FLOPs of a decode."""
    hidden, query = float(model.hidden_size), float(model.num_attention_heads * model.head_dim)
    if model.kv_lora_rank > 0:  # the compressed vector is cached, and decodes attend to it as it is
        cached = float(model.kv_lora_rank + model.qk_rope_head_dim)
        weights = 2.0 * hidden * query + hidden * cached + 2.0 * model.kv_lora_rank * query
        return weights, cached, 2.0 * model.num_attention_heads / split * (cached + model.kv_lora_rank)
    heads = float(model.num_key_value_heads or model.num_attention_heads)
    weights = 2.0 * hidden * query + 2.0 * hidden * heads * model.head_dim
    return weights, 2.0 * max(heads / split, 1.0) * model.head_dim, 4.0 * query / split


def _touched(model: Model, spread: float, expert_us: float) -> tuple[float, ...]:
    """Reading the experts that 0, 1, 2, ... tokens choose in each layer."""
    if not expert_us:
        return (0.0,)
    experts, chosen = model.num_experts, model.num_experts_per_tok
    own = spread * min(1.0, experts / SPREAD_EXPERTS)
    times = [expert_us * chosen_experts(experts, chosen, tokens, own) for tokens in range(_MOST_TOKENS)]
    return (*times, expert_us * experts)
