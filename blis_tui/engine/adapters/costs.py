"""Costs of LoRA adapters: memory, load time, and time added to every step."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model import Hardware, Lora, Model

HOST: Final = "host"
STORAGE: Final = "storage"

_BYTES_PER_US: Final = 1000
"""Conversion factor from GB/s."""
_STEP_OVERHEADS: Final = ((8, 0.02), (16, 0.035), (32, 0.06))
"""Pairs of rank and step time share per adapter in the batch. Source: BLIS (``lora.step_overhead_tiers``)."""


def bytes_per_rank(model: Model) -> int:
    """Bytes per adapter rank, on all accelerators of an instance together.

    For a weight matrix of m rows and n columns, an adapter of rank r has r (m + n) numbers of the activations' type. It
    adapts all projections of attention and of dense MLPs (shared experts included), but not routed experts.
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
    """Memory reserved for adapter slots, on all accelerators of an instance together."""
    return lora.max_loras * lora.max_lora_rank * (lora.bytes_per_rank or bytes_per_rank(model))


def step_overhead(lora: Lora) -> float:
    """Share by which each adapter of a batch lengthens its steps: that of the nearest known rank."""
    if lora.step_overhead is not None:
        return lora.step_overhead
    return min(_STEP_OVERHEADS, key=lambda one: (abs(one[0] - lora.max_lora_rank), one[0]))[1]


class LoadTimes:
    """Load times of adapters; each accelerator loads its share.

    Args:
        lora: the adapter settings.
        model: the model that they adapt.
        hardware: one of the accelerators.
        tensor_parallel: number of accelerators.
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
        """Load time from host memory or, in addition, from storage to host memory; each part is rounded up."""
        size = self._bytes_per_rank * self._ranks.get(adapter, self._usual_rank)
        time = self._base_us + ceil(size / (self._gb_per_s * _BYTES_PER_US))
        if source == STORAGE:
            time += self._storage_us + ceil(size / (self._storage_gb_per_s * _BYTES_PER_US))
        return time
