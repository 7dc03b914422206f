"""Memory beyond an instance's own KV blocks: part of a resolved document -> frozen records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec.model import HostLink, KvTier, KvTiers

if TYPE_CHECKING:
    from blis_tui.spec.document_parts import Part


def host_link_of(part: Part) -> HostLink:
    """What ``engine.host_link`` says."""
    return HostLink(
        bandwidth_gb_per_s=part.number("bandwidth_gb_per_s") if "bandwidth_gb_per_s" in part.data else None,
        base_latency_us=part.integer("base_latency_us"),
        blocks=part.integer("blocks") if "blocks" in part.data else None,
        overlap=part.flag("overlap", otherwise=False),
    )


def kv_tiers_of(part: Part) -> KvTiers | None:
    """What ``engine.kv_tiers`` says; None = there are none."""
    kind = part.text("kind")
    if kind == "none":
        return None
    if kind == "offload":
        tiers = tuple(_tier(one, one.text("name"), one.integer("blocks")) for one in part.parts("tiers"))
    else:
        tiers = (_tier(part, "cpu", part.integer("cpu_blocks")),)
    return KvTiers(
        kind=kind,
        tiers=tiers,
        offload_at=part.number("offload_at", 0.0),
        overlap=part.flag("overlap", otherwise=True),
    )


def _tier(part: Part, name: str, blocks: int) -> KvTier:
    return KvTier(
        name=name,
        blocks=blocks,
        bandwidth_tokens_per_us=part.number("bandwidth_tokens_per_us"),
        base_latency_us=part.integer("base_latency_us"),
    )
