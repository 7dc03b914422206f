"""Checks whether ranks can serve a model, and whether its experts can be spread over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple
from blis_tui.engine.batching.versions import advice_for
from blis_tui.engine.latency.shape import check_expert_parallel
from blis_tui.errors import PolicyError
from blis_tui.spec.build import batching_traits, build_model_part, stack_of
from blis_tui.spec.diagnostics import about
from blis_tui.spec.pools import stacks, where
from blis_tui.spec.source import as_map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.engine.batching.traits import Traits
    from blis_tui.registry import Registry
    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.model import Model
    from blis_tui.spec.source import DataPath, Document, Json

_RANKS: Final = "BLIS2031"
_ALONE: Final = ("lifecycle", "failures", "nodes", "autoscaler")
"""Keys of a cluster that treat instances individually and do not know replicas with several ranks."""
_BESIDE: Final = ("lora", "speculative", "kv_tiers")
"""Engine features that steps wait for; ranks in lockstep would have to wait for each other's, which is not simulated.
"""
KINDS: Final = ("operators",)
"""Built-in step-time models that support experts on other accelerators."""


class _Ranks(NamedTuple):
    """Instances that are the ranks of a replica, each with the same number of accelerators."""

    document: Document
    owner: DataPath
    """The pool, or ``()``."""
    model: Model
    ranks: int
    spreads: bool
    gpus: int
    """Accelerators of the replica."""

    def at(self, *path: str) -> DataPath:
        return where(self.document, self.owner, *path)

    def get(self, *path: str) -> Json:
        return self.document.get(*self.at(*path))

    def wrong(self, path: tuple[str, ...], code: str, message: str, hint: str | None) -> Diagnostic:
        """Return a diagnostic about a key of the stack."""
        return about(self.document, self.at(*path), code, message, key=True, hint=hint)


def check_wide(document: Document, plugins: Registry | None) -> Iterator[Diagnostic]:
    """Yield every problem of ranks and of expert parallelism."""
    traits = batching_traits(as_map(document.data), plugins)
    for owner in stacks(document):
        engine = as_map(document.get(*where(document, owner, "engine")))
        ranks = document.whole(*where(document, owner, "engine", "data_parallel")) or 1
        spreads = engine.get("expert_parallel") is True
        if not spreads:
            for key in ("expert_imbalance", "all_to_all"):
                if key in engine:
                    path = where(document, owner, "engine", key)
                    message, hint = f"`{key}` has no effect without `expert_parallel`", "set `expert_parallel: true`"
                    yield about(document, path, "BLIS2026", message, key=True, hint=hint)
        if not spreads and ranks == 1:
            continue
        stack = stack_of(as_map(document.data), as_map(document.get(*owner)) if owner else None)
        split = stack.get("tensor_parallel")
        gpus = ranks * (split if isinstance(split, int) else 1)
        found = _Ranks(document, owner, build_model_part(stack), ranks, spreads, gpus)
        if spreads:
            yield from _check_experts(found, plugins)
        if ranks > 1:
            yield from _check_ranks(found, traits)


def _check_experts(found: _Ranks, plugins: Registry | None) -> Iterator[Diagnostic]:
    """Check that the experts can be spread in this way, and that the step-time model covers it."""
    path = ("engine", "expert_parallel")
    try:
        check_expert_parallel(found.model, found.gpus, max(2, found.gpus))
    except PolicyError as error:
        gpus, experts = found.gpus, found.model.num_experts
        if experts <= 1:
            yield found.wrong(path, "BLIS2030", f"{found.model.name} has no experts to spread", error.help)
        elif gpus > 1:
            message = f"{experts} experts of {found.model.name} do not divide evenly among {gpus} GPUs"
            usable = ", ".join(str(count) for count in range(1, experts + 1) if not experts % count)
            hint = f"choose data_parallel x tensor_parallel among {usable}"
            yield found.wrong(path, "BLIS2030", message, hint)
    kind = str(found.get("latency", "kind"))
    ours = plugins is None or (kind in plugins.names("latency") and plugins.find("latency", kind, "").origin is None)
    if ours and kind not in KINDS:
        message = f"`{kind}` step times do not cover experts on other GPUs"
        hint = "use `latency: operators`, for GPUs with measured operators, or remove `expert_parallel`"
        yield found.wrong(("latency", "kind"), _RANKS, message, hint)
    if found.get("latency", "expert_parallel") not in (None, 1):
        message = "`latency.expert_parallel` repeats how experts are spread"
        yield found.wrong(("latency", "expert_parallel"), _RANKS, message, "remove it: the engine sets it")
    if found.ranks == 1 and found.get("engine", "all_to_all") is not None:
        message = "`all_to_all` has no effect with one rank: its GPUs combine the outputs of experts by all-reduce"
        yield found.wrong(("engine", "all_to_all"), "BLIS2026", message, "set `data_parallel`, or remove it")


def _check_ranks(found: _Ranks, traits: Traits) -> Iterator[Diagnostic]:
    """Check that all other settings are compatible with ranks."""
    document, path = found.document, ("engine", "data_parallel")
    cluster = as_map(document.get("cluster"))
    for key in _ALONE:
        if key in cluster:
            message = f"data_parallel with `cluster.{key}` is not simulated: it would treat each rank as a replica"
            hint = f"remove `{key}`, or `data_parallel` (cluster.instances counts independent engines)"
            yield found.wrong(path, _RANKS, message, hint)
    if found.model.num_experts > 1 and not found.spreads:
        message = f"the experts of {found.model.name} would be split over the GPUs of all ranks, which is not simulated"
        yield found.wrong(path, _RANKS, message, "set `expert_parallel: true`, which gives each GPU whole experts")
    if not found.spreads:
        return
    kind = document.get("policy", "batching", "kind")
    if not traits.ranks:
        message = f"`{kind}` batching does not support ranks that share experts and step together"
        yield found.wrong(path, _RANKS, message, advice_for(str(kind), "data_parallel", "use vllm-v1 or blis batching"))
    path_of_interval = ("policy", "batching", "prefill_schedule_interval")
    if (document.whole(*path_of_interval) or 1) > 1:
        message = "`prefill_schedule_interval` of ranks that step together is not simulated"
        yield about(document, path_of_interval, _RANKS, message, key=True, hint="remove it")
    if (document.whole(*found.at("engine", "pipeline_parallel")) or 1) > 1:
        message = "data_parallel of a model with experts is not simulated together with pipeline_parallel"
        yield found.wrong(path, _RANKS, message, "set `pipeline_parallel: 1`")
    for key in _BESIDE:
        value = found.get("engine", key)
        if value is not None and as_map(value).get("kind") != "none":
            message = f"`{key}` is not simulated with ranks that step together"
            yield found.wrong(("engine", key), _RANKS, message, f"remove `{key}`")
    restore = document.get("policy", "preemption", "restore")
    if restore not in (None, "recompute"):
        message = f"`restore: {restore}` is not simulated with ranks that step together"
        hint = "remove `restore`: victims are recomputed"
        yield about(document, ("policy", "preemption", "restore"), _RANKS, message, hint=hint)
