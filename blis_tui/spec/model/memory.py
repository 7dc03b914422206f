"""Memory beyond an instance's own KV blocks, as a spec describes it."""

from __future__ import annotations

from blis_tui.classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """Host memory of one instance that victims are swapped to, and the way there."""

    bandwidth_gb_per_s: float | None = None
    """Of one accelerator, in one direction; None = the hardware's."""
    base_latency_us: int = 10
    """Of each transfer."""
    blocks: int | None = None
    """KV blocks that fit there; None = as many as the instance has itself."""
    overlap: bool = False
    """Whether a step computes while its transfers run; else they come before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTier:
    """One place for KV blocks that the GPU gives up."""

    name: str
    blocks: int
    bandwidth_tokens_per_us: float
    """Either way."""
    base_latency_us: int = 0
    """Of each transfer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTiers:
    """Places for KV blocks that the GPU gives up, the fastest first."""

    kind: str
    """``mirror``, ``threshold`` or ``offload``."""
    tiers: tuple[KvTier, ...]
    offload_at: float = 0.0
    """``threshold``: the share of blocks in use from which those that are overwritten are kept."""
    overlap: bool = True
    """Whether a step computes while its transfers run; else they come before it."""
