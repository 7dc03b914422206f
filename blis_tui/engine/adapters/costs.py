"""What LoRA adapters take: memory, time to load, and time in every step."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model import Hardware, Lora, Model

HOST: Final = "host"
STORAGE: Final = "storage"

_BYTES_PER_US: Final = 1000
"""Of one GB/s."""
_STEP_OVERHEADS: Final = ((8, 0.02), (16, 0.035), (32, 0.06))
"""Rank, and what each adapter of a batch adds to its steps. Source: BLIS (``lora.step_overhead_tiers``)."""


def bytes_per_rank(model: Model) -> int:
    """Bytes that each rank of an adapter takes on all accelerators of an instance together.

    An adapter of rank r has, for a weight matrix of m rows and n columns, r (m + n) numbers of the activations' type;
    it adapts the projections of attention and of dense MLPs (shared experts included), all of them; routed experts are
    left as they are.
    """
    hidden = model.hidden_size
    query, key_value = model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim
    attention = 2 * (hidden + query) + 2 * (hidden + key_value)
    sparse = model.num_hidden_layers - min(model.num_hidden_layers, model.first_k_dense_replace)
    dense = model.num_hidden_layers
    shared = 0
    if model.num_experts > 1:
        dense -= sparse
        shared = sparse * 3 * (hidden + model.shared_expert_intermediate_size)
        shared *= bool(model.shared_expert_intermediate_size)
    numbers = model.num_hidden_layers * attention + dense * 3 * (hidden + model.intermediate_size) + shared
    return int(numbers * model.activation_bytes)


def reserved_bytes(lora: Lora, model: Model) -> int:
    """Memory that the places for adapters take, on all accelerators of an instance together."""
    return lora.max_loras * lora.max_lora_rank * (lora.bytes_per_rank or bytes_per_rank(model))


def step_overhead(lora: Lora) -> float:
    """What each adapter of a batch adds to its steps, as a share of them: that of the nearest rank there is."""
    if lora.step_overhead is not None:
        return lora.step_overhead
    return min(_STEP_OVERHEADS, key=lambda one: (abs(one[0] - lora.max_lora_rank), one[0]))[1]


class LoadTimes:
    """How long adapters take to get onto the accelerators, each of which loads its share.

    Args:
        lora: what adapters are like.
        model: the model that they adapt.
        hardware: one of the accelerators.
        tensor_parallel: how many there are.
    """

    __slots__ = (
        "_base_us",
        "_bytes_per_rank",
        "_gb_per_s",
        "_ranks",
        "_storage_gb_per_s",
        "_storage_us",
        "_usual_rank",
    )

    def __init__(self, lora: Lora, model: Model, hardware: Hardware, tensor_parallel: int) -> None:
        self._bytes_per_rank = lora.bytes_per_rank or bytes_per_rank(model)
        self._ranks: Mapping[str, int] = lora.ranks
        self._usual_rank = lora.max_lora_rank
        self._base_us = lora.base_latency_us
        self._gb_per_s = (lora.bandwidth_gb_per_s or hardware.host_link_gb_per_s) * tensor_parallel
        self._storage_us = lora.storage_latency_us
        self._storage_gb_per_s = lora.storage_gb_per_s

    def us(self, adapter: str, source: str) -> int:
        """From the host's memory, or from storage into that and then on; each rounded up."""
        size = self._bytes_per_rank * self._ranks.get(adapter, self._usual_rank)
        time = self._base_us + ceil(size / (self._gb_per_s * _BYTES_PER_US))
        if source == STORAGE:
            time += self._storage_us + ceil(size / (self._storage_gb_per_s * _BYTES_PER_US))
        return time
