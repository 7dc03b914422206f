"""Is there room for the LoRA adapters that requests ask for?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.metrics.lints.finding import Finding

if TYPE_CHECKING:
    from blis_tui.metrics.lints.finding import Seen

_MISSED: Final = 0.25
"""A share of requests for whose adapter another one had to go that is worth a warning; likewise of those held."""


def adapter_places(seen: Seen) -> Finding | str:
    """Instances load adapters again and again, or requests wait for a place for theirs."""
    found = [one.batch.adapters for one in seen.cluster.instances if one.batch.adapters is not None]
    scheduled = evictions = held = loads = load_us = held_us = 0
    for one in found:
        scheduled += one.admitted
        evictions += one.evictions
        held += one.holds
        held_us += one.held_us
        load_us += one.load_us
        for count in one.loads.values():
            loads += count
    if max(evictions, held) <= _MISSED * scheduled or not evictions:
        return ""
    slots = max(one.limits.max_loras for one in (instance.batch for instance in seen.cluster.instances))
    adapters = len(dict.fromkeys(name for one in found for name in one.loads_of))
    return Finding(
        id="adapter-places",
        message=f"{adapters:,} LoRA adapters share {slots:,} places an instance: of {scheduled:,} requests with one, "
        f"{loads:,} had it loaded first, for {evictions:,} of them another one had to go; {held:,} were held.",
        figures={
            "adapters": adapters,
            "max_loras": slots,
            "loads": loads,
            "evictions": evictions,
            "load_us": load_us,
            "held": held,
            "held_us": held_us,
        },
        advice="Raise engine.lora.max_loras, or send requests where their adapter is (scorer lora-affinity).",
        keys=("engine.lora.max_loras", "policy.routing"),
    )


def adapters_without_cost(seen: Seen) -> Finding | str:
    """Requests name adapters, and no instance has any."""
    if any(one.batch.adapters is not None for one in seen.cluster.instances):
        return ""
    named = len([row for row in seen.table.plain() if seen.table.adapter(row)]) if seen.table.has_adapters else 0
    if not named:
        return ""
    return Finding(
        id="adapters-without-cost",
        message=f"{named:,} requests name a LoRA adapter, and no instance has any: they cost nothing here.",
        figures={"requests": named},
        advice="Add engine.lora, such as `lora: {max_loras: 4}`.",
        keys=("engine.lora",),
    )
