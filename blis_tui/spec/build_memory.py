"""Memory beyond an instance's own KV blocks: part of a resolved document -> frozen records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec.memory import HostLink

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
