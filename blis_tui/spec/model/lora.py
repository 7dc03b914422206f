"""LoRA adapters of an instance, as experiments describe them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """How many adapters an instance holds, and what they cost. The first three are vLLM's."""

    max_loras: int
    """Different adapters in one batch, and on the accelerators."""
    max_cpu_loras: int
    """Adapters in the host's memory, those on the accelerators among them."""
    max_lora_rank: int
    """Of which a place on the accelerators has the size."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Of adapters that have a smaller one."""
    bytes_per_rank: int | None = None
    """Size of an adapter / its rank; None = as the model's shape has it."""
    base_latency_us: int = 0
    """Of a load from the host's memory, beside its bytes."""
    bandwidth_gb_per_s: float | None = None
    """From the host's memory to one accelerator; None = the hardware's link."""
    storage_latency_us: int = 0
    """Of a load into the host's memory; likewise."""
    storage_gb_per_s: float = 1.0
    step_overhead: float | None = None
    """What each adapter of a batch makes its steps longer, as a share of them; None = by ``max_lora_rank``."""
