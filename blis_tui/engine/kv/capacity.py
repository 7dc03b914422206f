"""How many KV-cache blocks fit beside the weights, and how layers that attend differently share them.

How vLLM's hybrid KV cache manager groups the layers of a model that attend differently far back.

A block holds some tokens for the layers of one group. All groups have the same number of layers, so that all blocks are
of one size and come from one pool. A layer with a sliding window needs only the tokens in its window, and one with a
state (linear attention, Mamba-2) one block for each request.

Memory is what an engine may use, minus the weights, the peak of activations, and what lies outside the allocator's pool
(CUDA context, NCCL buffers). Engines differ in the order: see :func:`kv_capacity`.

BLIS's way, the llm-d capacity planner's, is that of its batching rule: an allowance for activations, whatever a step
computes, and ``gpu_memory_utilization`` as a share of all memory. On one accelerator the result equals BLIS's. On
several it does not: BLIS divides the memory of the whole group by the bytes of a block on *one* member, so its capacity
grows with the square of ``tensor_parallel`` and exceeds the actual memory several times. A known approximation: an
interleaved model counts as if every layer had experts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.engine.kv.states import enlarged, linear_parameters, state_bytes
from blis_tui.model.machine import MXFP4_BYTES

if TYPE_CHECKING:
    from blis_tui.engine.rules.traits import EngineBehavior
    from blis_tui.model import Engine, Hardware, Model


_PADDED: Final = 1.5
"""With fewer than so many times the layers of the rarer kind, the other kind's layers stay one group."""
_NARROWEST: Final = 2
"""The narrowest window with which vLLM's prefix cache finds anything."""
_ANY: Final = 1 << 40
"""More tokens than any request has."""


@dataclass(frozen=True, slots=True)
class KvGroups:
    """The groups of a model whose layers, or some of them, have a sliding window or a state.

    Source: vLLM 0.32.0, ``v1/core/kv_cache_utils.py`` (``_get_kv_cache_groups_uniform_page_size``).
    """

    windowed: int
    """Number of groups of layers with a sliding window."""
    full: int
    """Number of groups of layers that attend to the whole context."""
    layers: int
    """Layers in a group; in the last one of a kind, some may be padding."""
    window: int
    """Tokens that a layer with a sliding window attends to, the next one included; 0 = there is none."""
    states: int = 0
    """Number of groups of layers with a state, in each of which a request holds one block."""

    @property
    def count(self) -> int:
        """Number of groups in which a request's blocks grow with its tokens."""
        return self.windowed + self.full

    def window_blocks(self, in_flight_tokens: int, block_size_tokens: int, max_model_len: int | None) -> int:
        """Maximum number of blocks that a request holds in a group with a window.

        Source: vLLM 0.32.0, ``v1/kv_cache_interface.py`` line 873.

        Args:
            in_flight_tokens: the most tokens in steps whose results are not known.
            block_size_tokens: tokens per block.
            max_model_len: limit on prompt and answer together; None = no limit.
        """
        tokens = self.window - 1 + in_flight_tokens
        if max_model_len is not None:
            tokens = min(tokens, max_model_len)
        return -(-tokens // block_size_tokens) + 1

    def blocks_for(self, tokens: int, block_size_tokens: int, window_blocks: int) -> int:
        """Number of blocks that a request of this length holds at most."""
        blocks = -(-tokens // block_size_tokens)
        return self.full * blocks + self.windowed * min(blocks, window_blocks) + (self.states if blocks else 0)

    def longest(
        self, blocks: int, block_size_tokens: int, budget: int, max_model_len: int | None, traits: EngineBehavior
    ) -> int:
        """Number of tokens of the longest request for which ``blocks`` blocks suffice; ``budget``: of a step."""
        held = self.window_blocks(_in_flight_tokens(budget, traits), block_size_tokens, max_model_len)
        return self.tokens_in(blocks, block_size_tokens, held)

    def tokens_held(self, blocks: int, requests: int, block_size_tokens: int) -> int:
        """Estimate the tokens of requests of equal length that hold these blocks together and share none."""
        tokens = max(0, blocks - self.states * requests) * block_size_tokens
        if not self.full or tokens <= requests * self.window * self.count:
            return tokens // self.count
        return (tokens - self.windowed * requests * self.window) // self.full

    def tokens_in(self, blocks: int, block_size_tokens: int, window_blocks: int) -> int:
        """Number of tokens of the longest request for which ``blocks`` blocks suffice."""
        blocks = max(0, blocks - self.states)
        short = blocks // self.count
        if short < window_blocks:
            return short * block_size_tokens
        if not self.full:
            return _ANY
        return (blocks - self.windowed * window_blocks) // self.full * block_size_tokens


def groups_of(model: Model) -> KvGroups | None:
    """Return the groups of a model; None = no layer has a sliding window or a state."""
    if model.linear is not None:
        states, full = model.linear.layers, model.attention_layers
        layers = _layers_of_a_group(states, full)
        return KvGroups(0, -(-full // layers), layers, 0, -(-states // layers))
    windowed = min(model.sliding_window_layers, model.num_hidden_layers)
    if not windowed or model.sliding_window < _NARROWEST:
        return None
    full = model.num_hidden_layers - windowed
    if not full:
        return KvGroups(1, 0, windowed, model.sliding_window)
    layers = _layers_of_a_group(windowed, full)
    return KvGroups(-(-windowed // layers), -(-full // layers), layers, model.sliding_window)


def _layers_of_a_group(some: int, others: int) -> int:
    """Number of layers in each group, of so many layers of each of two kinds."""
    fewer, more = sorted((some, others))
    return more if more < fewer * _PADDED else fewer


def kv_groups(model: Model, engine: Engine) -> KvGroups | None:
    """Return the groups in which an instance manages its KV cache; None = all layers with a KV cache are one."""
    return groups_of(model) if engine.disable_hybrid_kv_cache_manager is False else None


def window_blocks(groups: KvGroups, engine: Engine, traits: EngineBehavior) -> int:
    """Return the most blocks that a request holds in a group with a window."""
    in_flight = _in_flight_tokens(engine.max_num_batched_tokens, traits)
    return groups.window_blocks(in_flight, engine.block_size_tokens, engine.max_model_len)


def _in_flight_tokens(budget: int, traits: EngineBehavior) -> int:
    """Return the most tokens in steps whose results are not known; ``budget``: of one step."""
    return budget * 2 if traits.plans_ahead else budget


_GIB: Final = 2**30
_ACTIVATION_DENSE_GIB: Final = 5.5
_ACTIVATION_MOE_GIB: Final = 8.0
_OVERHEAD_SINGLE_GIB: Final = 0.15
_OVERHEAD_PER_ACCELERATOR_GIB: Final = 0.6
_COUNTED_ACTIVATIONS: Final = ("silu", "swiglu", "geglu", "relu2", "")
_LARGEST_TENSOR_PARALLEL: Final = 64
_PADDED_HIDDEN: Final = 256
_PADDED_WIDTH: Final = 128
_SAMPLER_BYTES: Final = 38.4
"""Bytes that vLLM's sampler takes for each request and word of the vocabulary, in its profile run of ``max_num_seqs``
requests. Source: peak activations of five models on H100, 0.6B to 120B, with 1,024 requests and 8,192 tokens
(llm-d-benchmark, ``config_explorer/empirical-vllm-memory-results.md``): 38.2 to 38.6. Llama 3.1 8B with 256 requests:
38 to 40."""
_SCALE_BYTES: Final = 4
_SCALED: Final = 128
"""Bytes of a scale of FP8 values, and how many values share one."""
_STATES_TO_KV: Final = 0.9
"""SGLang's ``mamba_full_memory_ratio``."""
_GRAPHS_GIB: Final = 0.7
"""What vLLM from 0.21 on sets aside for CUDA graphs on each accelerator. Logs of servers say 0.4 to 1.2 GiB, 2 for a
large model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCapacity:
    """The memory budget of one instance, summed over its accelerators, and the KV blocks it leaves."""

    blocks: int
    """0 when not even one block fits."""
    weights_gib: float
    activation_gib: float
    """Of the largest step; 0 where what an engine may use does not include it."""
    overhead_gib: float
    """Memory outside the allocator's pool: contexts and communication buffers, and CUDA graphs where they count."""
    available_gib: float
    """What weights, activations, overhead and KV cache may use in total."""
    bytes_per_block: int
    """Bytes of one block on all accelerators of the instance together."""
    reserved_gib: float = 0.0
    """Memory reserved for LoRA adapters, and for states that no KV blocks hold."""

    @property
    def needed_gib(self) -> float:
        """What everything but the KV cache takes."""
        return self.weights_gib + self.activation_gib + self.overhead_gib + self.reserved_gib


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceMemory:
    """The inputs to an instance's memory budget."""

    model: Model
    """Shape and precision."""
    hardware: Hardware
    """The accelerator; each stage has ``tensor_parallel`` of them."""
    tensor_parallel: int
    """Accelerators that share each layer."""
    block_size_tokens: int
    """Tokens per KV block."""
    gpu_memory_utilization: float
    """Share of the memory that may be used, in (0, 1]."""
    max_num_batched_tokens: int
    """Tokens of the largest step."""
    max_num_seqs: int
    """Requests of the largest step."""
    graphs: bool = True
    """Whether steps are held in CUDA graphs."""
    pipeline_parallel: int = 1
    """Pipeline stages; the one with the most layers counts, as if it also had all embeddings."""
    reserved_bytes: int = 0
    """Memory reserved for LoRA adapters, on all accelerators together."""
    expert_ranks: int = 1
    """Instances that share the experts, each holding its part of them (``engine.expert_parallel``)."""
    groups: KvGroups | None = None
    """Groups of layers, each with blocks of its own; None = a block holds its tokens for all layers."""

    def stage_model(self) -> Model:
        """The part of the model on the largest stage."""
        layers = -(-self.model.num_hidden_layers // self.pipeline_parallel)
        return self.model if self.pipeline_parallel == 1 else replace(self.model, num_hidden_layers=layers)

    def block_model(self) -> Model:
        """The part of the model for which a block holds tokens."""
        model = self.stage_model()
        if self.groups is None:
            return model
        return replace(model, num_hidden_layers=self.groups.layers, linear=None)

    @property
    def states_bytes(self) -> int:
        """What the states of as many requests as may run take on all accelerators, where no KV blocks hold them.

        TensorRT-LLM reserves that; of the other engines it is an assumption. Source: TensorRT-LLM of 2026,
        ``_torch/pyexecutor/mamba_cache_manager.py`` (``PythonMambaCacheManager``; 1.1 was not compared).
        """
        linear, split = self.model.linear, self.tensor_parallel
        if linear is None or self.groups is not None:
            return 0
        requests = min(self.max_num_seqs, self.max_num_batched_tokens)  # either may be unlimited
        return requests * linear.layers * state_bytes(linear, split) * split


def kv_capacity(memory: InstanceMemory, sizing: str = "") -> KvCapacity:
    """Budget the memory of an instance's largest stage.

    ``sizing`` (``EngineBehavior.sizes_pool``) says what ``gpu_memory_utilization`` is a share of, and what it holds:

    - empty: all memory, for weights, an allowance for activations, overhead and KV cache. Source: BLIS, llm-d.
    - ``profiled``, ``profiled-with-graphs``: all memory, for weights, the peak of the largest step, overhead (with CUDA
      graphs) and KV cache. Source: vLLM 0.32.0, ``v1/worker/gpu_worker.py`` (``determine_available_memory``).
    - ``free``: what is free beside weights, that peak and overhead, for the KV cache alone. Source: TensorRT-LLM 1.1,
      ``_torch/pyexecutor/_util.py``.
    - ``rank``: what is free on a rank once the weights are loaded, for that peak, overhead and KV cache; the rank with
      the fewest blocks decides for all. Source: nano-vLLM, ``engine/model_runner.py`` (``allocate_kv_cache``).
    - ``static``: what is free before the weights are loaded, for weights and KV cache; activations and CUDA graphs
      take the rest. Source: SGLang 0.5.23, ``mem_cache/kv_cache_configurator.py`` (``_profile_available_bytes``).

    Returns:
        The budget; ``blocks`` is 0 when weights and the rest leave too little.

    Raises:
        PolicyError: the model's MLP is not of the gated kind the weight formula counts, or a figure is
            out of range.
    """
    split, share = memory.tensor_parallel, memory.gpu_memory_utilization
    if split < 1 or memory.block_size_tokens < 1 or not 0.0 < share <= 1.0:
        raise PolicyError(
            f"no KV capacity for tensor_parallel {split}, block_size_tokens {memory.block_size_tokens}, "
            f"gpu_memory_utilization {share}",
            help="the first two must be at least 1, the utilization in (0, 1]",
        )
    weights = _weights_gib(memory) + (_more_weights_gib(memory, sizing) if sizing else 0.0)
    reserved = (memory.reserved_bytes + memory.states_bytes) / _GIB
    activation = _activation_gib(memory, sizing)
    overhead = (_OVERHEAD_SINGLE_GIB if split == 1 else _OVERHEAD_PER_ACCELERATOR_GIB) * split
    whole = memory.hardware.memory_gib * split
    if sizing == "profiled-with-graphs" and memory.graphs:
        overhead += _GRAPHS_GIB * split
    needed = weights + activation + overhead + reserved
    match sizing:
        case "static":
            left = (whole - overhead) * share - weights - reserved
        case "rank":
            left = (whole - weights) * share - activation - overhead - reserved
        case "free":
            left = (whole - needed) * share
        case _:
            left = whole * share - needed
    bytes_per_block = _bytes_per_block(memory.block_model(), split, memory.block_size_tokens)
    return KvCapacity(
        blocks=int(left * _GIB) // bytes_per_block if left > 0.0 else 0,
        weights_gib=weights,
        activation_gib=activation,
        overhead_gib=overhead,
        available_gib=needed + left,
        bytes_per_block=bytes_per_block,
        reserved_gib=reserved,
    )


def states_beside_kv(memory: InstanceMemory, sizing: str) -> int:
    """Number of states that SGLang has room for, at least 1: they share what is left with the KV cache, 0.9 to 1.

    Source: SGLang 0.5.23, ``mem_cache/kv_cache_configurator.py`` (``_handle_max_mamba_cache``), without a radix
    cache and ``max_running_requests``. One of them is for padding there, and counts as a request's here.
    """
    instance_memory = replace(memory, max_num_seqs=1)
    capacity = kv_capacity(instance_memory, sizing)
    left = capacity.blocks * capacity.bytes_per_block + instance_memory.states_bytes
    return max(1, int(left * _STATES_TO_KV / (1.0 + _STATES_TO_KV)) // instance_memory.states_bytes)


def _weights_gib(memory: InstanceMemory) -> float:
    """Return what the weights of the largest stage take on all its accelerators."""
    model = memory.stage_model()
    if model.hidden_act not in _COUNTED_ACTIVATIONS:
        raise PolicyError(
            f"weights of {model.name!r} cannot be estimated: activation {model.hidden_act!r} is not gated",
            help="set engine.kv_blocks to a number",
        )
    weights = int(parameters(model) * model.weight_bytes) / _GIB
    if model.expert_weight_bytes:
        weights += int(_expert_parameters(model) * (model.expert_weight_bytes - model.weight_bytes)) / _GIB
    if memory.expert_ranks > 1:
        elsewhere = _expert_parameters(model) * (memory.expert_ranks - 1) // memory.expert_ranks
        weights -= int(elsewhere * (model.expert_weight_bytes or model.weight_bytes)) / _GIB
    return weights


def _more_weights_gib(memory: InstanceMemory, sizing: str) -> float:
    """Return what servers hold beyond that, and BLIS does not count."""
    model = memory.stage_model()
    shared = int((unmentioned_parameters(model) + _repeated_parameters(memory)) * model.weight_bytes) / _GIB
    return shared + _unquantised_gib(memory) + _padding_gib(memory, sizing)


def _repeated_parameters(memory: InstanceMemory) -> int:
    """Return how many more weights all accelerators of the largest stage hold than the model has.

    What compresses queries and keys of latent attention has no heads to be split by, so each accelerator holds all of
    it. Source: vLLM 0.24, ``models/deepseek_v2.py`` (``ReplicatedLinear``); SGLang and TensorRT-LLM alike.
    """
    model = memory.stage_model()
    if not model.kv_lora_rank:
        return 0
    compressed = model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim
    return model.num_hidden_layers * model.hidden_size * compressed * (memory.tensor_parallel - 1)


def _unquantised_gib(memory: InstanceMemory) -> float:
    """Return what embeddings and head take beyond quantised weights: checkpoints keep them in 16 bits."""
    model = memory.model
    width = max(0.0, model.activation_bytes - model.weight_bytes)
    return int(_embedding_parameters(model) * width) / _GIB


def _padding_gib(memory: InstanceMemory, sizing: str) -> float:
    """Return what padding adds to MXFP4 experts where vLLM multiplies them with Marlin's kernel: below Hopper.

    The kernel takes hidden sizes in multiples of 256 and a rank's part of an expert's width in multiples of 128, so
    gpt-oss 120B on one A100 has 9 % more (2,880 becomes 3,072 and 2,944). Source: vLLM 0.11,
    ``model_executor/layers/quantization/mxfp4.py`` (``create_weights``). GPUs without FP8 units stand for those below
    Hopper, so Ada's (RTX 4090, L40S) are taken as unpadded.
    """
    model = memory.stage_model()
    mxfp4 = model.expert_weight_bytes == MXFP4_BYTES
    if not (mxfp4 and sizing.startswith("profiled")) or memory.hardware.peak_tflops_fp8:
        return 0.0
    ranks, split = memory.expert_ranks, 1 if memory.expert_ranks > 1 else memory.tensor_parallel
    hidden, width = model.hidden_size, (model.moe_intermediate_size or model.intermediate_size) / split
    padded = (-(-hidden // _PADDED_HIDDEN) * _PADDED_HIDDEN) * (-(-width // _PADDED_WIDTH) * _PADDED_WIDTH)
    return _expert_parameters(model) / ranks * model.expert_weight_bytes * (padded / (hidden * width) - 1.0) / _GIB


def _activation_gib(memory: InstanceMemory, sizing: str) -> float:
    """Return what activations take at most on all accelerators together, as far as it comes out of the budget.

    It is the peak of the engine's profile run, with as many requests and tokens as a step may have: the sampler's on
    each rank, beside the hidden states, or that of one layer. nano-vLLM's run samples for as few requests as have the
    longest prompts, which is less than a layer's peak.
    """
    model, split = memory.stage_model(), memory.tensor_parallel
    if not sizing:
        return _ACTIVATION_MOE_GIB if model.num_experts > 1 else _ACTIVATION_DENSE_GIB
    if sizing == "static":
        return 0.0
    tokens, hidden = memory.max_num_batched_tokens, model.hidden_size
    states = tokens * hidden * model.activation_bytes
    if model.num_experts > 1:
        expert = model.moe_intermediate_size or model.intermediate_size
        width = model.num_experts_per_tok * (max(2 * expert // split, hidden) + expert // split)
    else:
        width = 3 * model.intermediate_size // split
    peak = 2 * states + tokens * width * model.activation_bytes
    if sizing.startswith("profiled"):
        requests = min(memory.max_num_seqs, tokens)
        peak = max(peak, states + _SAMPLER_BYTES * requests * model.vocab_size)
    return peak * split / _GIB


def minimum_tensor_parallel(memory: InstanceMemory, sizing: str) -> int | None:
    """Smallest power of two of accelerators that can hold the model and divides its heads, up to 64."""
    tensor_parallel = 1
    while tensor_parallel <= _LARGEST_TENSOR_PARALLEL:
        if _divides_heads(memory.model, tensor_parallel):
            split = replace(memory, tensor_parallel=tensor_parallel)
            if kv_capacity(split, sizing).blocks > 0:
                return tensor_parallel
        tensor_parallel *= 2
    return None


def _divides_heads(model: Model, tensor_parallel: int) -> bool:
    """Whether query heads divide evenly, and KV heads divide or are replicated evenly."""
    kv_heads = model.num_key_value_heads
    even_kv = kv_heads % tensor_parallel == 0 or tensor_parallel % kv_heads == 0
    return model.num_attention_heads % tensor_parallel == 0 and even_kv


def _bytes_per_block(model: Model, tensor_parallel: int, block_size_tokens: int) -> int:
    """Bytes of one KV block on all accelerators of an instance together, at least 1.

    Multi-head latent attention stores one compressed vector and one rotary key per token and layer, replicated on every
    accelerator, and with sparse attention the indexer's key. Other attention stores a key and a value per KV head,
    split over the accelerators, with at least one head on each.
    """
    if model.kv_lora_rank > 0:
        per_layer = tensor_parallel * (model.kv_lora_rank + model.qk_rope_head_dim)
    else:
        per_layer = 2 * model.head_dim * max(model.num_key_value_heads, tensor_parallel)
    elements = per_layer * model.kv_cache_bytes + tensor_parallel * index_bytes(model)
    return max(1, int(model.attention_layers * elements * block_size_tokens))


def index_bytes(model: Model) -> int:
    """Bytes of the key that sparse attention's indexer keeps of a token in a layer.

    FP8 elements, and a scale of four bytes for every 128 of them. Source: vLLM 0.24, ``models/deepseek_v2.py``
    (``DeepseekV32IndexerCache``).
    """
    return model.index_head_dim + _SCALE_BYTES * -(-model.index_head_dim // _SCALED) if model.index_topk else 0


def kv_bytes_per_token(model: Model, tensor_parallel: int) -> int:
    """Bytes of one token's keys and values on one accelerator of an instance, at least 1."""
    return max(1, _bytes_per_block(model, tensor_parallel, 1) // tensor_parallel)


def block_size_of(model: Model, tensor_parallel: int, block_size_tokens: int) -> int:
    """Return the tokens per KV block where the blocks also hold states; of other models, what is configured."""
    if model.linear is None:
        return block_size_tokens
    layer = replace(model, num_hidden_layers=1, linear=None)
    state = state_bytes(model.linear, tensor_parallel)
    token = kv_bytes_per_token(layer, tensor_parallel)
    return enlarged(block_size_tokens, state, token, latent=model.kv_lora_rank > 0)


def active_parameters(model: Model) -> int:
    """Number of weights that one token is multiplied with; of the experts, only those it is routed to."""
    if model.num_experts <= 1:
        return parameters(model)
    experts = _expert_parameters(model)
    return parameters(model) - experts + experts * model.num_experts_per_tok // model.num_experts


def _expert_parameters(model: Model) -> int:
    """Number of weights of the routed experts."""
    layers = model.feed_forwards - min(model.feed_forwards, model.first_k_dense_replace)
    expert = model.moe_intermediate_size or model.intermediate_size
    return layers * model.feed_forward_matrices * model.hidden_size * expert * model.num_experts


def _attention_parameters(model: Model) -> int:
    """Number of weights of one layer's attention.

    Multi-head latent attention compresses keys and values, usually queries, too, and expands them for each head; values
    are as wide as the part of a key that is not rotated.
    """
    hidden, heads = model.hidden_size, model.num_attention_heads
    query = heads * model.head_dim
    if not model.kv_lora_rank:
        key_value = model.num_key_value_heads * model.head_dim
        asked = 2 * query if model.output_gate else query
        return hidden * (asked + 2 * key_value) + query * hidden
    rank, rope, compressed = model.kv_lora_rank, model.qk_rope_head_dim, model.q_lora_rank
    asked = query + heads * rope
    queries = compressed * (hidden + asked) if compressed else hidden * asked
    return queries + hidden * (rank + rope) + rank * 2 * query + query * hidden


def parameters(model: Model) -> int:
    """Number of weights of the whole model, counted from its shape."""
    hidden = model.hidden_size
    layers, blocks, matrices = model.num_hidden_layers, model.feed_forwards, model.feed_forward_matrices
    attention = model.attention_layers * _attention_parameters(model)
    if model.linear is not None:
        attention += model.linear.layers * linear_parameters(model.linear, hidden)
    norms = (layers + blocks) * hidden
    dense_mlp = matrices * hidden * model.intermediate_size
    if model.num_experts > 1:
        expert = model.moe_intermediate_size or model.intermediate_size
        routed = matrices * hidden * expert * model.num_experts
        shared = matrices * hidden * model.shared_expert_intermediate_size
        router = model.num_experts * hidden
        dense_layers = min(blocks, model.first_k_dense_replace)
        mlp = dense_layers * dense_mlp + (blocks - dense_layers) * (routed + shared + router)
    else:
        mlp = blocks * dense_mlp
    return _embedding_parameters(model) + attention + norms + mlp + hidden


def unmentioned_parameters(model: Model) -> int:
    """Number of weights that a model has and its configuration does not mention: the shared expert of Llama 4."""
    if model.num_experts < 2 or not model.interleave_moe_layer_step or model.shared_expert_intermediate_size:
        return 0
    return 3 * model.hidden_size * model.intermediate_size * model.num_hidden_layers // model.interleave_moe_layer_step


def _embedding_parameters(model: Model) -> int:
    """Number of weights of the embeddings and the head."""
    return model.vocab_size * model.hidden_size * (1 if model.tie_word_embeddings else 2)
