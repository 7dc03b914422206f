"""How many KV-cache blocks fit into the accelerators' memory beside the weights.

The arithmetic is that of the llm-d capacity planner, which BLIS uses too: usable memory of all accelerators of an
instance, minus the weights, minus a measured allowance for activations and for memory outside PyTorch's pool (CUDA
context, NCCL buffers), divided by the bytes of a block on all of them.

On one accelerator the result equals BLIS's. On several it does not: BLIS divides the memory of the whole group by the
bytes of a block on *one* member, so its capacity grows with the square of ``tensor_parallel`` and exceeds the actual
memory several times. A known approximation: an interleaved model counts as if every layer had experts.

Engines differ in what ``gpu_memory_utilization`` is a share of: see ``kv_blocks``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from blis_tui.engine.kv.groups import KvGroups
    from blis_tui.spec.model import Hardware, Model

_GIB: Final = 2**30
_ACTIVATION_DENSE_GIB: Final = 5.5
_ACTIVATION_MOE_GIB: Final = 8.0
_OVERHEAD_SINGLE_GIB: Final = 0.15
_OVERHEAD_PER_ACCELERATOR_GIB: Final = 0.6
_GATED_ACTIVATIONS: Final = ("silu", "swiglu", "geglu", "")
_LARGEST_TENSOR_PARALLEL: Final = 64
_USUAL_BLOCK_TOKENS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCapacity:
    """The memory budget of one instance, summed over its accelerators, and the KV blocks it leaves."""

    blocks: int
    """0 when not even one block fits."""
    weights_gib: float
    activation_gib: float
    overhead_gib: float
    """Memory outside the allocator's pool: contexts and communication buffers."""
    available_gib: float
    """What the instance may use in total: memory times utilization times accelerators."""
    bytes_per_block: int
    """Bytes of one block on all accelerators of the instance together."""


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
        return model if self.groups is None else replace(model, num_hidden_layers=self.groups.layers)


def kv_capacity(memory: InstanceMemory) -> KvCapacity:
    """Budget the memory of an instance's largest stage.

    Returns:
        The budget; ``blocks`` is 0 when weights and allowances leave too little.

    Raises:
        PolicyError: the model's MLP is not of the gated kind the weight formula counts, or a figure is
            out of range.
    """
    model, hardware, tensor_parallel = memory.stage_model(), memory.hardware, memory.tensor_parallel
    block_size_tokens, gpu_memory_utilization = memory.block_size_tokens, memory.gpu_memory_utilization
    if tensor_parallel < 1 or block_size_tokens < 1 or not 0.0 < gpu_memory_utilization <= 1.0:
        raise PolicyError(
            f"no KV capacity for tensor_parallel {tensor_parallel}, block_size_tokens {block_size_tokens}, "
            f"gpu_memory_utilization {gpu_memory_utilization}",
            help="the first two must be at least 1, the utilization in (0, 1]",
        )
    if model.hidden_act not in _GATED_ACTIVATIONS:
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
    activation = _ACTIVATION_MOE_GIB if model.num_experts > 1 else _ACTIVATION_DENSE_GIB
    per_accelerator = _OVERHEAD_SINGLE_GIB if tensor_parallel == 1 else _OVERHEAD_PER_ACCELERATOR_GIB
    overhead = per_accelerator * tensor_parallel
    available = hardware.memory_gib * gpu_memory_utilization * tensor_parallel
    bytes_per_block = _bytes_per_block(memory.block_model(), tensor_parallel, block_size_tokens)
    left = available - (weights + activation + overhead + memory.reserved_bytes / _GIB)
    return KvCapacity(
        blocks=int(left * _GIB) // bytes_per_block if left > 0.0 else 0,
        weights_gib=weights,
        activation_gib=activation,
        overhead_gib=overhead,
        available_gib=available,
        bytes_per_block=bytes_per_block,
    )


def kv_blocks(memory: InstanceMemory, sizing: str) -> int:
    """Return the number of KV blocks of an instance; 0 when not even one fits.

    Without a ``sizing`` (``Traits.sizes_pool``), :func:`kv_capacity` applies: ``gpu_memory_utilization`` is a share of
    the whole memory of all accelerators. The two variants below use the same weights, activations and overhead, divided
    evenly among the ranks; block bytes are block size * 2 * layers * KV heads of the rank * head size * bytes of an
    element.

    ``rank``: a share of the memory that is free on a rank once the weights are loaded, minus the peak overhead of its
    largest step: ``floor((free memory * utilization - peak overhead) / block bytes)``; the rank with the fewest blocks
    decides for all. Source: nano-vLLM, ``engine/model_runner.py`` (``allocate_kv_cache``).

    ``static``: weights and KV cache together get a share of the memory that is free before the weights are loaded (but
    not of the overhead): ``floor((memory before loading * utilization - weights) / token bytes)`` tokens of a rank, in
    whole blocks. Source: SGLang 0.5.23, ``mem_cache/kv_cache_configurator.py`` (``_profile_available_bytes``).

    Raises:
        PolicyError: as for :func:`blis_tui.engine.kv.capacity.kv_capacity`.
    """
    whole, model, hardware = kv_capacity(memory), memory.stage_model(), memory.hardware
    tensor_parallel, block_size_tokens = memory.tensor_parallel, memory.block_size_tokens
    if not sizing:
        return whole.blocks
    if sizing == "static":
        before_gib = hardware.memory_gib - whole.overhead_gib / tensor_parallel
        left_gib = before_gib * memory.gpu_memory_utilization - whole.weights_gib / tensor_parallel
        return max(0, int(left_gib * _GIB) // kv_bytes_per_token(model, tensor_parallel)) // block_size_tokens
    free_gib = hardware.memory_gib - whole.weights_gib / tensor_parallel
    peak_gib = (whole.activation_gib + whole.overhead_gib) / tensor_parallel
    # Key/value heads divide evenly or are replicated (BLIS2004), so all ranks have the same block size.
    block_bytes = block_size_tokens * kv_bytes_per_token(model, tensor_parallel)
    return max(0, int((free_gib * memory.gpu_memory_utilization - peak_gib) * _GIB) // block_bytes)


def minimum_tensor_parallel(model: Model, hardware: Hardware, gpu_memory_utilization: float) -> int | None:
    """Smallest power of two of accelerators that can hold the model and divides its heads, up to 64."""
    tensor_parallel = 1
    while tensor_parallel <= _LARGEST_TENSOR_PARALLEL:
        if _divides_heads(model, tensor_parallel):
            memory = InstanceMemory(
                model=model,
                hardware=hardware,
                tensor_parallel=tensor_parallel,
                block_size_tokens=_USUAL_BLOCK_TOKENS,
                gpu_memory_utilization=gpu_memory_utilization,
            )
            if kv_capacity(memory).blocks > 0:
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
    accelerator. Other attention stores a key and a value per KV head, split over the accelerators, with at least one
    head on each.
    """
    if model.kv_lora_rank > 0:
        per_layer = tensor_parallel * (model.kv_lora_rank + model.qk_rope_head_dim)
    else:
        per_layer = 2 * model.head_dim * max(model.num_key_value_heads, tensor_parallel)
    return max(1, int(model.num_hidden_layers * per_layer * model.kv_cache_bytes * block_size_tokens))


def kv_bytes_per_token(model: Model, tensor_parallel: int) -> int:
    """Bytes of one token's keys and values on one accelerator of an instance, at least 1."""
    return max(1, _bytes_per_block(model, tensor_parallel, 1) // tensor_parallel)


def active_parameters(model: Model) -> int:
    """Number of weights that one token is multiplied with; of the experts, only those it is routed to."""
    if model.num_experts <= 1:
        return parameters(model)
    experts = _expert_parameters(model)
    return parameters(model) - experts + experts * model.num_experts_per_tok // model.num_experts


def _expert_parameters(model: Model) -> int:
    """Number of weights of the routed experts."""
    layers = model.num_hidden_layers - min(model.num_hidden_layers, model.first_k_dense_replace)
    expert = model.moe_intermediate_size or model.intermediate_size
    return layers * 3 * model.hidden_size * expert * model.num_experts


def _attention_parameters(model: Model) -> int:
    """Number of weights of one layer's attention.

    Multi-head latent attention compresses keys and values, usually queries, too, and expands them for each head; values
    are as wide as the part of a key that is not rotated.
    """
    hidden, heads = model.hidden_size, model.num_attention_heads
    query = heads * model.head_dim
    if not model.kv_lora_rank:
        key_value = model.num_key_value_heads * model.head_dim
        return hidden * (query + 2 * key_value) + query * hidden
    rank, rope, compressed = model.kv_lora_rank, model.qk_rope_head_dim, model.q_lora_rank
    asked = query + heads * rope
    queries = compressed * (hidden + asked) if compressed else hidden * asked
    return queries + hidden * (rank + rope) + rank * 2 * query + query * hidden


def parameters(model: Model) -> int:
    """Number of weights of the whole model, counted from its shape."""
    hidden = model.hidden_size
    attention = _attention_parameters(model)
    norms = 2 * hidden
    dense_mlp = 3 * hidden * model.intermediate_size
    layers = model.num_hidden_layers
    if model.num_experts > 1:
        expert = model.moe_intermediate_size or model.intermediate_size
        routed = 3 * hidden * expert * model.num_experts
        shared = 3 * hidden * model.shared_expert_intermediate_size
        router = model.num_experts * hidden
        dense_layers = min(layers, model.first_k_dense_replace)
        mlp = dense_layers * dense_mlp + (layers - dense_layers) * (routed + shared + router)
    else:
        mlp = layers * dense_mlp
    embeddings = model.vocab_size * hidden * (1 if model.tie_word_embeddings else 2)
    return embeddings + layers * (attention + norms) + mlp + hidden
