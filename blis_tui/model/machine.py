"""The model that an instance runs, and its hardware."""

from __future__ import annotations

from typing import ClassVar, Final

from blis_tui.base.classes import dataclass
from blis_tui.model.keys import SMALLEST, DocumentKey, document_key, group_of, key

MXFP4_BYTES: Final = 4.25 / 8
"""Four bits per weight, plus eight bits for every 32 weights."""
NVFP4_BYTES: Final = 4.5 / 8
"""Four bits per weight, plus eight bits for every 16 weights."""
_MOST_TFLOPS = 10**6
_MOST_WATTS = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLayers:
    """Layers that keep a state of fixed size for each request instead of keys and values of each token.

    A state has two parts: the last inputs of a short convolution, and a matrix for each value head. Names are those of
    Gated DeltaNet; in Mamba-2 a key head is a group, its width the state size, and a value head is a head.
    """

    kind: str
    """``gdn`` (Gated DeltaNet), ``kda`` (Kimi Delta Attention) or ``mamba2``."""
    layers: int
    """Number of such layers."""
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    conv_kernel: int
    """Tokens that the convolution sees."""
    conv_bytes: float
    """Bytes per element of the convolution's inputs."""
    state_bytes: float
    """Bytes per element of the matrices."""

    @property
    def keys(self) -> int:
        """Width of all key heads."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of all value heads."""
        return self.value_heads * self.value_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer's shape, derived from its Hugging Face ``config.json`` fields."""

    name: str
    hidden_size: int
    num_hidden_layers: int
    """Layers with attention or a state. Where the configuration lists feed-forward blocks as layers (Nemotron-H), they
    are not counted: see ``feed_forward_layers``."""
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    activation_bytes: float
    """Bytes per activation (from ``torch_dtype``)."""
    kv_cache_bytes: float
    """Bytes per KV-cache element (from ``engine.kv_cache_dtype``, else those of an activation)."""
    weight_bytes: float
    """Bytes per weight (from ``quantization_config``, else those of an activation)."""
    max_position_embeddings: int
    """Longest context in tokens, after RoPE scaling."""
    tie_word_embeddings: bool = False
    hidden_act: str = "silu"
    num_experts: int = 0
    """Routed experts per MoE layer; 0 = dense."""
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    """Width of one routed expert; 0 = ``intermediate_size``."""
    shared_expert_intermediate_size: int = 0
    """Combined width of a layer's shared experts; 0 = none."""
    interleave_moe_layer_step: int = 0
    """Every (step+1)-th layer is MoE; 0 = all layers (if there are experts)."""
    dense_intermediate_size: int = 0
    """Width of the dense layers of an interleaved MoE model; 0 = ``intermediate_size``."""
    first_k_dense_replace: int = 0
    """The first k layers are dense although the model has experts."""
    kv_lora_rank: int = 0
    """Rank of the compressed KV cache (multi-head latent attention); 0 = ordinary KV heads."""
    qk_rope_head_dim: int = 0
    q_lora_rank: int = 0
    """Rank to which queries are compressed; 0 = not compressed."""
    qk_norm: str = ""
    """How queries and keys are normalised: per head (``heads``), or over a whole ``layer``; empty = not at all."""
    fp8_scales: str = ""
    """Scaling of FP8 weights: one scale per ``block`` or per ``channel``; empty = weights are not FP8."""
    expert_weight_bytes: float = 0.0
    """Bytes per weight of a routed expert; 0 = ``weight_bytes``."""
    sliding_window: int = 0
    """Width of the sliding window in tokens; 0 = none."""
    sliding_window_layers: int = 0
    """Number of layers with a sliding window."""
    index_topk: int = 0
    """Tokens of its context that each token attends to, chosen by an indexer (DeepSeek's sparse attention); 0 = all."""
    index_head_dim: int = 0
    """Elements of the key by which the indexer chooses a token, cached beside the token's keys and values."""
    other_layers: str = ""
    """Layers that are simulated as full attention although they are not: ``linear attention``, ``sparse attention`` or
    ``state-space layers``; empty = none."""
    linear: LinearLayers | None = None
    """Layers with a state instead of a KV cache, which ``num_hidden_layers`` includes; None = there are none."""
    feed_forward_layers: int | None = None
    """Number of feed-forward blocks; None = one in each layer."""
    output_gate: bool = False
    """Whether attention's output is multiplied by a gate, which is projected beside the queries."""

    @property
    def attention_layers(self) -> int:
        """Number of layers with a KV cache."""
        return self.num_hidden_layers - (0 if self.linear is None else self.linear.layers)

    @property
    def feed_forwards(self) -> int:
        """Number of feed-forward blocks."""
        return self.num_hidden_layers if self.feed_forward_layers is None else self.feed_forward_layers

    @property
    def feed_forward_matrices(self) -> int:
        """Matrices of a feed-forward block: three if it is gated; a squared ReLU is not."""
        return 2 if self.hidden_act == "relu2" else 3


class Link:
    """A data link."""

    bandwidth_gb_per_s = document_key(
        float,
        "Bandwidth in GB/s (10^9 bytes a second).",
        required=True,
        minimum=SMALLEST,
        maximum=10**6,
        examples=[900],
    )
    latency_us = document_key(float, "Latency in microseconds.", minimum=0, maximum=10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One accelerator: datasheet figures and measured utilisation."""

    name: str
    memory_gib: float = key("Memory of one accelerator in GiB.", minimum=SMALLEST, maximum=10_000, examples=[80])
    peak_tflops: ClassVar[DocumentKey] = group_of(
        "Dense matrix throughput (no sparsity) in 10^12 floating-point operations a second.",
        required=True,
        examples=[{"bf16": 989.5, "fp8": 1979.0}],
    )
    peak_tflops_bf16: float = key(
        "At 16-bit precision, in TFLOPS.",
        name="bf16",
        group="peak_tflops",
        minimum=SMALLEST,
        maximum=_MOST_TFLOPS,
        examples=[989.5],
    )
    peak_tflops_fp8: float = key(
        "At 8-bit precision, in TFLOPS; 0 = no FP8 units.",
        name="fp8",
        group="peak_tflops",
        default=0,
        minimum=0,
        maximum=_MOST_TFLOPS,
    )
    peak_tflops_fp4: float = key(
        "At 4-bit precision, in TFLOPS; absent = no such units.",
        name="fp4",
        group="peak_tflops",
        absent=0.0,
        minimum=0,
        maximum=_MOST_TFLOPS,
        examples=[9000.0],
    )
    memory_bandwidth_tb_per_s: float = key(
        "Memory bandwidth in TB/s (10^12 bytes a second).", minimum=SMALLEST, maximum=200, examples=[3.35]
    )
    mfu: ClassVar[DocumentKey] = group_of(
        "Share of the peak throughput that real kernels reach. Only `roofline` counts with it; the defaults are those"
        " of Hopper."
    )
    mfu_prefill: float = key(
        "While processing prompts, 0 to 1.",
        name="prefill",
        group="mfu",
        default=0.45,
        minimum=SMALLEST,
        maximum=1,
        examples=[0.45],
    )
    mfu_decode: float = key(
        "While generating tokens, 0 to 1.",
        name="decode",
        group="mfu",
        default=0.3,
        minimum=SMALLEST,
        maximum=1,
        examples=[0.3],
    )
    reached: ClassVar[DocumentKey] = group_of(
        "What kernels were measured to reach of the figures above, where that is known. `fitted` counts with it; left"
        " out, it takes the shares that its coefficients were fitted with, those of NVIDIA's GPUs.",
        examples=[{"products": 0.45, "experts": 0.28, "memory": 0.81, "overlap": 0}],
    )
    reached_products: float | None = key(
        "Share of `peak_tflops` that dense matrix products of many tokens reach, with 8 as with 16 bits.",
        name="products",
        group="reached",
        absent=None,
        minimum=SMALLEST,
        maximum=1,
        examples=[0.45],
    )
    reached_memory: float | None = key(
        "Share of `memory_bandwidth_tb_per_s` that reading reaches, of weights as of the KV cache.",
        name="memory",
        group="reached",
        absent=None,
        minimum=SMALLEST,
        maximum=1,
        examples=[0.81],
    )
    reached_experts: float | None = key(
        "Share of `peak_tflops` that products of experts with many tokens each reach, in the units that their weights"
        " take. Left out beside `products`: none is known, and the share is that of NVIDIA's kernels.",
        name="experts",
        group="reached",
        absent=None,
        minimum=SMALLEST,
        maximum=1,
        examples=[0.28],
    )
    reached_overlap: float = key(
        "Share of reading the weights that multiplying hides: 1 = a product takes the longer of the two, 0 = their sum;"
        " of experts, too, where `experts` says what they reach. Left out = 1.",
        name="overlap",
        group="reached",
        absent=1.0,
        minimum=0,
        maximum=1,
        examples=[0],
    )
    interconnect: ClassVar[DocumentKey] = document_key(
        Link, "Link between the accelerators of one node, both directions together; `fitted` reads it."
    )
    host_link: ClassVar[DocumentKey] = document_key(
        Link, "Link between accelerator and host memory. Recorded; no step-time model reads it yet."
    )
    host_link_gb_per_s: float = 32.0
    """Host link of one accelerator, in one direction."""
    interconnect_gb_per_s: float = 64.0
    """Link between the accelerators of a node, both directions together; without one, the host link."""
    launch_us: float = key(
        "What the host takes to launch one operator, in microseconds: without CUDA graphs (`engine.enforce_eager`,"
        " `engine.cudagraph_mode`) a step takes no less than its launches. Left out = 38, as on two servers of vLLM;"
        " on a shared host it was 80.",
        absent=38.0,
        minimum=0,
        maximum=10**5,
        examples=[38],
    )
    watts: ClassVar[DocumentKey] = group_of(
        "Electrical power, for the energy that studies work out. No simulation depends on it.",
        examples=[{"idle": 100, "peak": 700}, {"idle": 120, "memory_bound": 415, "peak": 700}],
    )
    idle_watts: float | None = key(
        "Between steps, with the model loaded, in watts.",
        name="idle",
        group="watts",
        absent=None,
        minimum=0,
        maximum=_MOST_WATTS,
    )
    memory_bound_watts: float | None = key(
        "In steps that wait for memory and compute next to nothing, as a few decodes do, in watts. Left out = `peak`.",
        name="memory_bound",
        group="watts",
        absent=None,
        minimum=0,
        maximum=_MOST_WATTS,
        examples=[415],
    )
    peak_watts: float | None = key(
        "Thermal design power, in watts.", name="peak", group="watts", absent=None, minimum=0, maximum=_MOST_WATTS
    )
    peak_watts_mfu: float = key(
        "The share of the 16-bit peak FLOPS from which on a step takes `peak`; below it the power grows from"
        " `memory_bound` in proportion. Left out = 0.25, as on H100.",
        name="peak_at_mfu",
        group="watts",
        absent=0.25,
        minimum=SMALLEST,
        maximum=1,
        examples=[0.25],
    )
    usd_per_hour: float | None = key(
        "Price of one accelerator in US dollars an hour, for the cost that studies work out. No simulation depends on"
        " it.",
        name="cost_per_hour_usd",
        absent=None,
        minimum=0,
        maximum=10**6,
        examples=[3.5],
    )
