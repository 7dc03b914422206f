"""What documents say of LoRA adapters, checked for sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec.batching_traits import batching_traits
from blis_tui.spec.diagnostics import about
from blis_tui.spec.pools import stacks, where
from blis_tui.spec.source import as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.registry import Registry
    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.source import DataPath, Document, Json


def check_lora(document: Document, plugins: Registry | None) -> Iterator[Diagnostic]:
    """Can instances have the adapters that are described, and are there any for those who ask for them?"""
    found = {owner: where(document, owner, "engine", "lora") for owner in stacks(document)}
    kind = document.get("policy", "batching", "kind")
    for path in (path for path in found.values() if document.get(*path) is not None):
        if not batching_traits(as_map(document.data), plugins).adapters:
            message, hint = f"`{kind}` batching knows no LoRA adapters", "remove it, or take blis or vllm-v1 batching"
            yield about(document, path, "BLIS2027", message, key=True, hint=hint)
        slots, places, most = (document.get(*path, key) for key in ("max_loras", "max_cpu_loras", "max_lora_rank"))
        if isinstance(slots, int) and isinstance(places, int) and places < slots:
            message = f"max_cpu_loras {places} is less than max_loras {slots}: the host has all that the GPUs have"
            hint = f"set it to {slots} or more, or leave it out"
            yield about(document, (*path, "max_cpu_loras"), "BLIS2029", message, hint=hint)
        for name, rank in as_map(document.get(*path, "ranks")).items():
            if isinstance(rank, int) and isinstance(most, int) and rank > most:
                message = f"adapter `{name}` has rank {rank}, max_lora_rank is {most}"
                yield about(document, (*path, "ranks", name), "BLIS2029", message, hint=f"set max_lora_rank: {rank}")
    if any(document.get(*path) is not None for path in found.values()):
        return
    for at, client in enumerate(map(as_map, as_list(document.get("workload", "clients")))):
        if "adapters" in client:
            message = f"client `{client.get('id')}` asks for LoRA adapters, and no instance has any"
            hint = "add `engine.lora`, such as `lora: {max_loras: 4}`, or remove `adapters`"
            yield about(document, ("workload", "clients", at, "adapters"), "BLIS2026", message, key=True, hint=hint)


def check_adapters(document: Document, path: DataPath, client: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Is it said once which adapters a client asks for, and how often?"""
    at, mix = (*path, "adapters"), as_map(client.get("adapters"))
    if ("names" in mix) == ("count" in mix):
        message = "adapters have both `names` and a `count`" if "names" in mix else "it is not said which adapters"
        hint = "give one of them" if "names" in mix else "give `names`, or a `count`"
        yield about(document, at, "BLIS2029", message, key=True, hint=hint)
        return
    if "weights" not in mix:
        return
    weights, count = as_list(mix.get("weights")), mix.get("count", len(as_list(mix.get("names"))))
    if "zipf" in mix:
        message = "both `weights` and `zipf` say how often adapters are asked for"
        yield about(document, (*at, "zipf"), "BLIS2029", message, key=True, hint="give one of them")
    if len(weights) != count:
        message = f"{len(weights)} `weights` for {count} adapters"
        yield about(document, (*at, "weights"), "BLIS2029", message, key=True, hint="give one for each")
    elif not any(weights):
        yield about(document, (*at, "weights"), "BLIS2010", "all weights are zero", key=True)
