"""What an instance runs, and on what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer's shape, derived from its Hugging Face ``config.json`` fields."""

    name: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    activation_bytes: float
    """Bytes of one activation (from ``torch_dtype``)."""
    kv_cache_bytes: float
    """Bytes of one KV-cache element (from ``engine.kv_cache_dtype``, else the activation's)."""
    weight_bytes: float
    """Bytes of one weight (from ``quantization_config``, else the activation's)."""
    max_position_embeddings: int
    """Longest context in tokens, rotary scaling already applied."""
    tie_word_embeddings: bool = False
    hidden_act: str = "silu"
    num_experts: int = 0
    """Routed experts per MoE layer; 0 = dense."""
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    """Width of one routed expert; 0 = ``intermediate_size``."""
    shared_expert_intermediate_size: int = 0
    """Width of all always-active experts of a layer together; 0 = none."""
    interleave_moe_layer_step: int = 0
    """Every (step+1)-th layer is MoE; 0 = all of them (when there are experts)."""
    dense_intermediate_size: int = 0
    """Width of the dense layers of an interleaved MoE model; 0 = ``intermediate_size``."""
    first_k_dense_replace: int = 0
    """The first k layers are dense although the model has experts."""
    kv_lora_rank: int = 0
    """Rank of the compressed KV cache (multi-head latent attention); 0 = ordinary KV heads."""
    qk_rope_head_dim: int = 0
    q_lora_rank: int = 0
    """Rank to which queries are compressed before they are expanded; 0 = they are not."""
    qk_norm: str = ""
    """How queries and keys are normalised: each of the ``heads``, or all of a ``layer``; empty = not at all."""
    fp8_scales: str = ""
    """Of FP8 weights: one scale per ``block`` or per ``channel``; empty = weights of another type."""
    expert_weight_bytes: float = 0.0
    """Bytes of one weight of a routed expert; 0 = ``weight_bytes``."""
    sliding_window: int = 0
    """Tokens that layers with a sliding window see; 0 = there are none."""
    sliding_window_layers: int = 0
    """How many layers have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One accelerator's datasheet figures and measured utilisation."""

    name: str
    memory_gib: float
    peak_tflops_bf16: float
    peak_tflops_fp8: float
    """0 = the accelerator has no FP8 units."""
    memory_bandwidth_tb_per_s: float
    mfu_prefill: float
    mfu_decode: float
    peak_tflops_fp4: float = 0.0
    """0 = the accelerator has no units for 4 bits."""
    host_link_gb_per_s: float = 32.0  # of one accelerator, in one direction
    interconnect_gb_per_s: float = 64.0
    """Between the accelerators of a node, both directions together; without such a link, that to the host."""
    usd_per_hour: float | None = None
    """Price of one accelerator; None = the document does not say; likewise below."""
    idle_watts: float | None = None
    """What one takes while nothing runs."""
    peak_watts: float | None = None
    """Thermal design power of one."""
