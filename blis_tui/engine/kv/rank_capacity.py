"""How many KV blocks fit, by the ways in which engines work that out.

``kv.capacity`` takes the share ``gpu_memory_utilization`` of the whole memory of all accelerators. nano-vLLM takes that
share of what is free once the weights are loaded, for each rank alone, less what its largest step needed beside it; the
rank with the fewest blocks decides for all. For SGLang that share (its ``mem_fraction_static``) is of what is free
before the weights are loaded, and weights and KV cache have it together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.engine.kv.capacity import kv_bytes_per_token, kv_capacity

if TYPE_CHECKING:
    from blis_tui.spec.model import Hardware, Model

_GIB: Final = 2**30


def kv_blocks(
    model: Model,
    hardware: Hardware,
    *,
    tensor_parallel: int,
    block_size_tokens: int,
    gpu_memory_utilization: float,
    sizing: str,
    pipeline_parallel: int = 1,
    reserved_bytes: int = 0,
    expert_ranks: int = 1,
) -> int:
    """The KV blocks of an instance; 0 when not even one fits.

    With ``pipeline_parallel``, those of the stage with the most layers, as if it had all embeddings, too.
    ``reserved_bytes`` are what LoRA adapters take; ``expert_ranks`` instances share the experts.

    ``sizing`` is the rule's (``Traits.sizes_pool``).

    ``rank``: ``floor((free memory * utilization - peak overhead) / block bytes)`` of the rank where that is least.
    Block bytes are block size * 2 * layers * KV heads of the rank * head size * bytes of an element. Weights,
    activations and overhead are those of :func:`blis_tui.engine.kv.capacity.kv_capacity`, divided evenly among the
    ranks.
    Source: nano-vLLM, ``engine/model_runner.py`` (``allocate_kv_cache``).

    ``static``: ``floor((memory before loading * utilization - weights) / token bytes)`` tokens of a rank, in whole
    blocks. Before loading, the overhead is taken.
    Source: SGLang 0.5.23, ``mem_cache/kv_cache_configurator.py`` (``_profile_available_bytes``).

    Raises:
        PolicyError: as for :func:`blis_tui.engine.kv.capacity.kv_capacity`.
    """
    model = replace(model, num_hidden_layers=-(-model.num_hidden_layers // pipeline_parallel))
    whole = kv_capacity(
        model,
        hardware,
        tensor_parallel=tensor_parallel,
        block_size_tokens=block_size_tokens,
        gpu_memory_utilization=gpu_memory_utilization,
        reserved_bytes=reserved_bytes,
        expert_ranks=expert_ranks,
    )
    if not sizing:
        return whole.blocks
    if sizing == "static":
        before_gib = hardware.memory_gib - whole.overhead_gib / tensor_parallel
        left_gib = before_gib * gpu_memory_utilization - whole.weights_gib / tensor_parallel
        return max(0, int(left_gib * _GIB) // kv_bytes_per_token(model, tensor_parallel)) // block_size_tokens
    free_gib = hardware.memory_gib - whole.weights_gib / tensor_parallel
    peak_gib = (whole.activation_gib + whole.overhead_gib) / tensor_parallel
    # Key/value heads divide evenly or are replicated (BLIS2004), so that all ranks have the same block.
    block_bytes = block_size_tokens * kv_bytes_per_token(model, tensor_parallel)
    return max(0, int((free_gib * gpu_memory_utilization - peak_gib) * _GIB) // block_bytes)
