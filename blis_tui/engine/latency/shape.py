"""Figures of a model's shape that several step-time formulas need, with the fallbacks applied."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.kv.states import projections

if TYPE_CHECKING:
    from blis_tui.model import Hardware, Model, Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Widths and layer counts as floats, ready for formulas."""

    layers: float
    attention_layers: float
    """Layers with attention; the others have a state."""
    projections: float
    """Weights of all layers' projections: of queries, keys, values and output, and those of layers with a state."""
    matrices: float
    """Matrices of a feed-forward block."""
    moe_layers: float
    dense_layers: float
    hidden: float
    heads: float
    head_dim: float
    query: float
    """Width of all query heads; the hidden size unless the model declares its own head dimension."""
    key_value: float
    """Width of all KV heads."""
    ffn: float
    dense_ffn: float
    expert_ffn: float
    shared_ffn: float


def shape_of(model: Model) -> Shape:
    """Derive the shape; a model with one expert is dense.

    Interleaved models follow BLIS: every ``(step + 1)``-th layer has experts. A dense prefix
    (``first_k_dense_replace``) is ignored here, as in the fits of the formulas.
    """
    layers = model.feed_forwards
    if model.num_experts <= 1:
        moe_layers = 0
    elif model.interleave_moe_layer_step > 0:
        moe_layers = layers // (model.interleave_moe_layer_step + 1)
    else:
        moe_layers = layers
    ffn = model.intermediate_size or 4 * model.hidden_size
    return Shape(
        layers=float(model.num_hidden_layers),
        attention_layers=float(model.attention_layers),
        projections=float(_projections(model)),
        matrices=float(model.feed_forward_matrices),
        moe_layers=float(moe_layers),
        dense_layers=float(layers - moe_layers),
        hidden=float(model.hidden_size),
        heads=float(model.num_attention_heads),
        head_dim=float(model.head_dim),
        query=float(model.num_attention_heads * model.head_dim),
        key_value=float((model.num_key_value_heads or model.num_attention_heads) * model.head_dim),
        ffn=float(ffn),
        dense_ffn=float(model.dense_intermediate_size or ffn),
        expert_ffn=float(model.moe_intermediate_size or ffn),
        shared_ffn=float(model.shared_expert_intermediate_size),
    )


def _projections(model: Model) -> int:
    """Number of weights of the projections of all layers, as in the formulas: latent attention's are not compressed."""
    hidden, query = model.hidden_size, model.num_attention_heads * model.head_dim
    key_value = (model.num_key_value_heads or model.num_attention_heads) * model.head_dim
    attention = hidden * ((3 if model.output_gate else 2) * query + 2 * key_value)
    if model.linear is None:
        return model.num_hidden_layers * attention
    own = whole_sum([outputs * inputs for outputs, inputs in projections(model.linear, hidden)])
    return model.attention_layers * attention + model.linear.layers * own


def expert_layers(model: Model) -> int:
    """Layers with experts, as engines build them: all but a dense prefix, or every ``interleave_moe_layer_step``-th."""
    if model.num_experts <= 1:
        return 0
    if model.interleave_moe_layer_step > 0:
        return model.num_hidden_layers // model.interleave_moe_layer_step
    return model.feed_forwards - min(model.feed_forwards, model.first_k_dense_replace)


def shared_expert_width(model: Model) -> int:
    """Width of the shared experts, which each layer with experts applies to all tokens.

    Llama 4 models have one shared expert, as wide as the others, that their configuration does not mention.
    """
    if model.num_experts > 1 and model.interleave_moe_layer_step > 0:
        return model.shared_expert_intermediate_size or model.intermediate_size
    return model.shared_expert_intermediate_size


def check_heads(kind: str, pool: Pool) -> None:
    """Check that heads can be split, for formulas that give each accelerator its share of them.

    Raises:
        PolicyError: they do not divide evenly.
    """
    model, split = pool.model, pool.tensor_parallel
    if model.num_attention_heads % split or model.num_key_value_heads % split:
        raise PolicyError(
            f"{kind} cannot split {model.num_attention_heads} heads and "
            f"{model.num_key_value_heads} KV heads of {model.name!r} over {split} accelerators",
            help="choose a tensor_parallel that divides both",
        )


def check_heads_or_copies(kind: str, pool: Pool) -> None:
    """Check heads like :func:`check_heads`, but let several accelerators hold copies of a KV head.

    Raises:
        PolicyError: neither the heads nor their copies divide evenly.
    """
    heads, split = pool.model.num_key_value_heads, pool.tensor_parallel
    if pool.model.kv_lora_rank or not split % heads:
        heads = split
    check_heads(kind, replace(pool, model=replace(pool.model, num_key_value_heads=heads)))


def check_expert_parallel(model: Model, split: int, apart: int) -> None:
    """Check that whole experts can be spread over ``apart`` of an instance's ``split`` accelerators.

    Raises:
        PolicyError: there are no experts, or they or the accelerators do not divide evenly.
    """
    if apart == 1:
        return
    experts = model.num_experts
    if experts <= 1:
        raise PolicyError(
            f"{model.name} has no experts to spread over {apart} accelerators", help="remove `expert_parallel`"
        )
    if split % apart or experts % apart:
        whole = f"{split} accelerators of an instance" if split % apart else f"{experts} experts of {model.name}"
        usable = ", ".join(str(count) for count in range(1, split + 1) if not (split % count or experts % count))
        raise PolicyError(f"expert_parallel {apart} does not divide the {whole}", help=f"possible values are {usable}")


def kv_cache_share(model: Model) -> float:
    """Bytes of a KV-cache element relative to those with ``kv_cache_dtype: auto``.

    The trained formulas count every element with the same number of bytes, whatever the model's type. This preserves
    the fit, and a narrower KV cache scales its traffic.
    """
    return model.kv_cache_bytes / model.activation_bytes


def peak_tflops(model: Model, hardware: Hardware) -> float:
    """Peak rate of the model's matrix products in TFLOP/s.

    Only weights of exactly one byte use the FP8 units; narrower ones are widened to 16 bits before
    multiplying.
    """
    if model.weight_bytes == 1.0 and hardware.peak_tflops_fp8 > 0.0:
        return hardware.peak_tflops_fp8
    return hardware.peak_tflops_bf16
