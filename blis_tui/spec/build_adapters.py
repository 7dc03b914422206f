"""LoRA adapters: parts of a resolved document -> frozen records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.portable_math import power
from blis_tui.spec.model import AdapterMix, Lora

if TYPE_CHECKING:
    from blis_tui.spec.document_parts import Part


def lora_of(part: Part) -> Lora:
    """What ``engine.lora`` says."""
    slots = part.integer("max_loras")
    return Lora(
        max_loras=slots,
        max_cpu_loras=part.integer("max_cpu_loras", slots),
        max_lora_rank=part.integer("max_lora_rank"),
        ranks=part.part("ranks").integers() if "ranks" in part.data else {},
        bytes_per_rank=part.integer("bytes_per_rank") if "bytes_per_rank" in part.data else None,
        base_latency_us=part.integer("base_latency_us"),
        bandwidth_gb_per_s=part.number("bandwidth_gb_per_s") if "bandwidth_gb_per_s" in part.data else None,
        storage_latency_us=part.integer("storage_latency_us"),
        storage_gb_per_s=part.number("storage_gb_per_s"),
        step_overhead=part.number("step_overhead") if "step_overhead" in part.data else None,
    )


def adapters_of(part: Part) -> AdapterMix:
    """What a client's ``adapters`` says."""
    if "names" in part.data:
        names = part.texts("names")
    else:
        names = tuple(f"{part.text('prefix')}-{number}" for number in range(1, part.integer("count") + 1))
    if "weights" in part.data:
        return AdapterMix(names=names, weights=part.numbers("weights"))
    exponent = part.number("zipf", 0.0)
    return AdapterMix(names=names, weights=tuple(1.0 / power(rank, exponent) for rank in range(1, len(names) + 1)))
