"""The operators of a model on one of several GPUs, as vLLM decomposes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.engine.kv.states import projections
from blis_tui.engine.latency.shape import expert_layers, shared_expert_width
from blis_tui.model.machine import MXFP4_BYTES, NVFP4_BYTES

if TYPE_CHECKING:
    from blis_tui.model import LinearLayers, Model

_TYPES: Final = {2.0: "bfloat16", 1.0: "fp8", NVFP4_BYTES: "nvfp4", MXFP4_BYTES: "mxfp4", 0.5: "int4"}


@dataclass(frozen=True, slots=True)
class Product:
    """A dense product of the tokens with a matrix of ``k`` times ``n`` weights, with its number per step."""

    times: int
    n: int
    k: int
    weights: str
    """Type of the weights; routers and the head are never quantized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The operators of a model on one of ``split`` GPUs."""

    expert_weights: str
    expert_scales: str
    """Scaling of FP8 experts: ``block`` or ``channel``; empty for others."""
    products: tuple[Product, ...]
    head: Product
    expert_layers: int
    attention_layers: int
    """Number of layers with full attention."""
    linear: LinearLayers | None
    """Layers with a state; their projections are among the products."""
    window_layers: int
    """Number of layers with attention to the last ``window`` tokens only."""
    window: int
    heads: int
    kv_heads: int
    head_dim: int
    cache_dim: int
    """Half the KV-cache elements of a token per layer and KV head; keys and values are equally wide."""
    kv_cache: str
    latent: bool
    """Whether attention is multi-head latent attention."""
    sums: int
    """Number of all-reduces in a step."""
    norm_sums: int
    """Number of all-reduces of four bytes a token: sums of squares over heads that are split over the GPUs."""
    moved_bytes: float
    """Bytes that a token reads and writes between the operators in all layers: norms, activations, rotations."""


def weight_type(bytes_: float) -> str:
    """Return the type of weights of that size; for other sizes the next wider type."""
    return next(name for size, name in sorted(_TYPES.items()) if bytes_ <= size or size == 2.0)


def layers_of(model: Model, split: int) -> Layers:
    """Decompose a model as vLLM does: fused QKV and gate-up products, columns or rows split over the GPUs."""
    hidden, layers, act = model.hidden_size, model.attention_layers, model.activation_bytes
    query = model.num_attention_heads * model.head_dim
    kv_heads = max(1, model.num_key_value_heads // split)
    experts = expert_layers(model)
    expert_bytes = model.expert_weight_bytes or model.weight_bytes
    width = model.intermediate_size or 4 * hidden
    dense = (model.dense_intermediate_size or width) if model.num_experts > 1 else width
    weights = weight_type(model.weight_bytes)
    if model.kv_lora_rank:
        products = _latent_attention(model, split, weights)
        kv_heads, elements = 1, model.kv_lora_rank + model.qk_rope_head_dim
    else:
        elements = 2 * kv_heads * model.head_dim
        gates = query // split if model.output_gate else 0
        shapes = ((query // split + gates + elements, hidden), (hidden, query // split))
        products = [Product(layers, n, k, weights) for n, k in shapes]
    moved = layers * (8.0 * hidden + (3.0 * query + elements) / split) * act
    if model.qk_norm:
        moved += layers * 2.0 * (query / split + elements / 2.0) * act
    if model.linear is not None:
        products += [Product(model.linear.layers, n, k, weights) for n, k in projections(model.linear, hidden, split)]
        gated = 3.0 * model.linear.values / split
        moved += (model.linear.layers * (4.0 * hidden + gated) + 4.0 * hidden * _lone_blocks(model)) * act
    for count, wide in ((model.feed_forwards - experts, dense), (experts, shared_expert_width(model))):
        if count and wide:
            products.append(Product(count, (model.feed_forward_matrices - 1) * wide // split, hidden, weights))
            products.append(Product(count, hidden, wide // split, weights))
            moved += count * 3.0 * wide / split * act
    if experts:
        products.append(Product(experts, model.num_experts, hidden, "bfloat16"))
        moved += experts * 2.0 * hidden * act
    return Layers(
        expert_weights=weight_type(expert_bytes),
        expert_scales=model.fp8_scales if expert_bytes == 1.0 else "",
        products=tuple(products),
        head=Product(1, -(-model.vocab_size // split), hidden, "bfloat16"),
        expert_layers=experts,
        attention_layers=layers - model.sliding_window_layers,
        linear=model.linear,
        window_layers=model.sliding_window_layers,
        window=model.sliding_window,
        heads=max(1, model.num_attention_heads // split),
        kv_heads=kv_heads,
        head_dim=model.head_dim,
        cache_dim=max(1, elements // (2 * kv_heads)),
        kv_cache="fp8" if model.kv_cache_bytes < 2.0 else "bfloat16",
        latent=model.kv_lora_rank > 0,
        sums=model.num_hidden_layers + model.feed_forwards + 1 if split > 1 else 0,
        norm_sums=2 * layers if split > 1 and model.qk_norm == "layer" else 0,
        moved_bytes=moved,
    )


def _lone_blocks(model: Model) -> int:
    """Feed-forward blocks beyond those that are counted with attention: each reads and writes the residual stream."""
    return model.feed_forwards - model.attention_layers


def _latent_attention(model: Model, split: int, weights: str) -> list[Product]:
    """Products of multi-head latent attention.

    What compresses queries, keys and values has no heads: every GPU computes it, in one product. The two products that
    absorb the expansion of keys and values are batched over the heads, and have 16 bits whatever the weights have.
    Source: vLLM, ``fused_qkv_a_proj`` in ``models/deepseek_v2.py`` and ``W_UK_T``, ``W_UV`` in
    ``attention/mla_attention.py``; SGLang and TensorRT-LLM fuse the first product, too.
    """
    heads = max(1, model.num_attention_heads // split)
    rank, rope, wide, layers = model.kv_lora_rank, model.qk_rope_head_dim, model.head_dim, model.attention_layers
    compressed = model.q_lora_rank
    queries = Product(layers, heads * (wide + rope), compressed or model.hidden_size, weights)
    return [
        Product(layers, compressed + rank + rope, model.hidden_size, weights),
        queries,
        Product(2 * layers, heads * wide, rank, "bfloat16"),
        Product(layers, model.hidden_size, heads * wide, weights),
    ]
