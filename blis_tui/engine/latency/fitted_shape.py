"""What an accelerator reads and computes in a step per token, request and context, before coefficients apply.

Coefficients are multiples of the datasheet's limits, as measured on servers with NVIDIA's GPUs. If a hardware document
states the share that its kernels reach (``reached``), times are scaled so that the same coefficients give that share.
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
"""Shares of bandwidth and peak rates that the shipped coefficients correspond to."""
_EXPOSED_READING: Final = 0.5
"""Share of reading experts that products of many tokens do not hide; the same in all tables of ``operators``."""
_REFERENCE_TFLOPS: Final = 989.5
"""16-bit peak of the accelerator on which ``flops`` was fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Microseconds on one accelerator of an instance, at the datasheet's rates or at the hardware document's."""

    weights_us: float
    """Reading all dense weights and the output head, once a step."""
    token_us: float
    """Multiplying these weights with one token."""
    fp8: bool
    """Whether those products use 8-bit units."""
    exposed: float
    """Share of reading dense weights that multiplying does not hide."""
    fp8_us: float
    """Reading the weights whose 8-bit kernels are slowed down by uneven sizes."""
    row_us: float
    """The output head for one request."""
    experts_us: tuple[float, ...]
    """Reading the experts that 0, 1, 2, ... tokens choose; more tokens than listed choose all of them."""
    expert_token_us: float
    """Multiplying experts with one token."""
    experts_exposed: float
    """Share of reading experts that multiplying does not hide."""
    kv_us: float
    """Reading one token of context, on layers that see all of it; the next two fields refer to these layers, too."""
    kv_window_us: float
    decode_us: float
    """Attention of a decode to one token of context."""
    decode_window_us: float
    prefill_us: float
    """Attention of one prompt token to one earlier token."""
    prefill_window_us: float
    window: int
    """Tokens that layers with a sliding window see."""
    all_reduce_us: float
    """All-reduces for one token."""
    moved_us: float
    """Reading and writing activations between products, for one token."""
    layers: int
    expert_layers: int


def growth_of(hardware: Hardware, lost: float) -> float:
    """Factor for the time of products, as a peak above the reference's is not fully reached; 1 if its share is known.

    Args:
        hardware: the accelerator.
        lost: the coefficient ``flops_growth``.
    """
    if hardware.reached_products:
        return 1.0
    return power(max(1.0, hardware.peak_tflops_bf16 / _REFERENCE_TFLOPS), lost)


def work_of(pool: Pool, expert_spread: float = 0.0) -> Work:
    """Return the work of a pool's model on its accelerators.

    Args:
        pool: the model, the accelerator, and how many accelerators share the model.
        expert_spread: how unevenly tokens choose among 128 experts.

    Raises:
        PolicyError: heads do not divide by ``tensor_parallel``.
    """
    check_heads_or_copies("fitted", pool)
    model, hardware, split = pool.model, pool.hardware, pool.tensor_parallel
    bytes_per_us = hardware.memory_bandwidth_tb_per_s * 1e6 * _share(hardware.reached_memory, REACHED_MEMORY)
    flops_16_per_us = hardware.peak_tflops_bf16 * 1e6
    heads_per_us = flops_16_per_us * _share(hardware.reached_products, REACHED_16_BITS)
    fp8 = _uses_8_bit_units(model.weight_bytes, hardware)
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
    # Hopper's tensor cores multiply 64 rows at a time, few of which a group of query heads fills; elsewhere it is 16.
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
        experts_us=_expert_read_times(model, expert_spread, moe_layers * expert * expert_bytes / split / bytes_per_us),
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
    """Reached share relative to the one that the coefficients correspond to."""
    return reached / reference if reached else 1.0


def _uses_8_bit_units(weight_bytes: float, hardware: Hardware) -> bool:
    """Whether matrix products with weights of that size use 8-bit units.

    8-bit weights do. Narrower ones are widened to 16 bits first, unless the accelerator has 4-bit units; then they are
    multiplied by 8-bit activations.
    """
    narrow = weight_bytes == 1.0 or (weight_bytes < 1.0 and hardware.peak_tflops_fp4 > 0.0)
    return narrow and hardware.peak_tflops_fp8 > 0.0


def _rate(weight_bytes: float, hardware: Hardware) -> float:
    """TFLOPS of dense matrix products with weights of that size."""
    return hardware.peak_tflops_fp8 if _uses_8_bit_units(weight_bytes, hardware) else hardware.peak_tflops_bf16


def _expert_rate(weight_bytes: float, hardware: Hardware) -> float:
    """TFLOPS of expert products.

    On accelerators without 4-bit units, 8-bit expert kernels are no faster than 16-bit ones, and 4-bit ones, which
    widen weights as they multiply, are half as fast. All tables of ``operators`` show this.
    """
    if hardware.peak_tflops_fp4 > 0.0:
        return _rate(weight_bytes, hardware)
    return hardware.peak_tflops_bf16 * (0.5 if weight_bytes < 1.0 else 1.0)


def _attention(model: Model, split: int) -> tuple[float, float, float]:
    """Return a layer's projection weights and, per context token, cached elements per accelerator and decode FLOPs."""
    hidden, query = float(model.hidden_size), float(model.num_attention_heads * model.head_dim)
    if model.kv_lora_rank > 0:  # the compressed vector is cached, and decodes attend to it directly
        cached = float(model.kv_lora_rank + model.qk_rope_head_dim)
        weights = 2.0 * hidden * query + hidden * cached + 2.0 * model.kv_lora_rank * query
        return weights, cached, 2.0 * model.num_attention_heads / split * (cached + model.kv_lora_rank)
    heads = float(model.num_key_value_heads or model.num_attention_heads)
    weights = 2.0 * hidden * query + 2.0 * hidden * heads * model.head_dim
    return weights, 2.0 * max(heads / split, 1.0) * model.head_dim, 4.0 * query / split


def _expert_read_times(model: Model, spread: float, expert_us: float) -> tuple[float, ...]:
    """Reading the experts that 0, 1, 2, ... tokens choose in each layer."""
    if not expert_us:
        return (0.0,)
    experts, chosen = model.num_experts, model.num_experts_per_tok
    own = spread * min(1.0, experts / SPREAD_EXPERTS)
    times = [expert_us * chosen_experts(experts, chosen, tokens, own) for tokens in range(_MOST_TOKENS)]
    return (*times, expert_us * experts)
