"""Checks that an engine's settings make sense with its batching rule, its memory, its ranks and its model."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.diagnostics import about
from blis_tui.base.errors import BlisError, InputError, PolicyError
from blis_tui.base.source import as_list, as_map
from blis_tui.engine.latency.shape import check_expert_parallel
from blis_tui.engine.rules.traits import (
    MOVING,
    Splitting,
    advice_for,
    unsupported_elsewhere,
    unsupported_in_engine,
    unsupported_settings,
)
from blis_tui.model.engine import ENCODER_BUDGETS
from blis_tui.spec.build import batching_traits, build_model_part, stack_of, ungrouped_with
from blis_tui.spec.operator_files import coverage_error
from blis_tui.spec.pools import pool_paths, stacks, where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.base.diagnostics import Diagnostic
    from blis_tui.base.source import DataPath, Document, Json
    from blis_tui.engine.rules.traits import EngineBehavior
    from blis_tui.model import Model
    from blis_tui.model.plug_ins import Registry


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
        layout = _Ranks(document, owner, build_model_part(stack), ranks, spreads, gpus)
        if spreads:
            yield from _check_experts(layout, plugins)
        if ranks > 1:
            yield from _check_ranks(layout, traits)


def _check_experts(layout: _Ranks, plugins: Registry | None) -> Iterator[Diagnostic]:
    """Check that the experts can be spread in this way, and that the step-time model covers it."""
    path = ("engine", "expert_parallel")
    try:
        check_expert_parallel(layout.model, layout.gpus, max(2, layout.gpus))
    except PolicyError as error:
        gpus, experts = layout.gpus, layout.model.num_experts
        if experts <= 1:
            yield layout.wrong(path, "BLIS2030", f"{layout.model.name} has no experts to spread", error.help)
        elif gpus > 1:
            message = f"{experts} experts of {layout.model.name} do not divide evenly among {gpus} GPUs"
            usable = ", ".join(str(count) for count in range(1, experts + 1) if not experts % count)
            hint = f"choose data_parallel x tensor_parallel among {usable}"
            yield layout.wrong(path, "BLIS2030", message, hint)
    kind = str(layout.get("latency", "kind"))
    ours = plugins is None or (kind in plugins.names("latency") and plugins.find("latency", kind, "").origin is None)
    if ours and kind not in KINDS:
        message = f"`{kind}` step times do not cover experts on other GPUs"
        hint = "use `latency: operators`, for GPUs with measured operators, or remove `expert_parallel`"
        yield layout.wrong(("latency", "kind"), _RANKS, message, hint)
    if layout.get("latency", "expert_parallel") not in (None, 1):
        message = "`latency.expert_parallel` repeats how experts are spread"
        yield layout.wrong(("latency", "expert_parallel"), _RANKS, message, "remove it: the engine sets it")
    if layout.ranks == 1 and layout.get("engine", "all_to_all") is not None:
        message = "`all_to_all` has no effect with one rank: its GPUs combine the outputs of experts by all-reduce"
        yield layout.wrong(("engine", "all_to_all"), "BLIS2026", message, "set `data_parallel`, or remove it")


def _check_ranks(layout: _Ranks, traits: EngineBehavior) -> Iterator[Diagnostic]:
    """Check that all other settings are compatible with ranks."""
    document, path = layout.document, ("engine", "data_parallel")
    cluster = as_map(document.get("cluster"))
    for key in _ALONE:
        if key in cluster:
            message = f"data_parallel with `cluster.{key}` is not simulated: it would treat each rank as a replica"
            hint = f"remove `{key}`, or `data_parallel` (cluster.instances counts independent engines)"
            yield layout.wrong(path, _RANKS, message, hint)
    if layout.model.num_experts > 1 and not layout.spreads:
        message = (
            f"the experts of {layout.model.name} would be split over the GPUs of all ranks, which is not simulated"
        )
        yield layout.wrong(path, _RANKS, message, "set `expert_parallel: true`, which gives each GPU whole experts")
    if not layout.spreads:
        return
    kind = document.get("policy", "batching", "kind")
    if not traits.ranks:
        message = f"`{kind}` batching does not support ranks that share experts and step together"
        yield layout.wrong(
            path, _RANKS, message, advice_for(str(kind), "data_parallel", "use vllm-v1 or blis batching")
        )
    path_of_interval = ("policy", "batching", "prefill_schedule_interval")
    if (document.whole(*path_of_interval) or 1) > 1:
        message = "`prefill_schedule_interval` of ranks that step together is not simulated"
        yield about(document, path_of_interval, _RANKS, message, key=True, hint="remove it")
    if (document.whole(*layout.at("engine", "pipeline_parallel")) or 1) > 1:
        message = "data_parallel of a model with experts is not simulated together with pipeline_parallel"
        yield layout.wrong(path, _RANKS, message, "set `pipeline_parallel: 1`")
    for key in _BESIDE:
        value = layout.get("engine", key)
        if value is not None and as_map(value).get("kind") != "none":
            message = f"`{key}` is not simulated with ranks that step together"
            yield layout.wrong(("engine", key), _RANKS, message, f"remove `{key}`")
    restore = document.get("policy", "preemption", "restore")
    if restore not in (None, "recompute"):
        message = f"`restore: {restore}` is not simulated with ranks that step together"
        hint = "remove `restore`: victims are recomputed"
        yield about(document, ("policy", "preemption", "restore"), _RANKS, message, hint=hint)


def check_version(document: Document) -> Iterator[Diagnostic]:
    """Check for settings that the configured engine version's batching rule does not have."""
    batching = as_map(document.get("policy", "batching"))
    for name, message, hint in unsupported_settings(batching.get("kind"), batching.get("version"), batching.get):
        yield about(document, ("policy", "batching", name), "BLIS2026", message, key=True, hint=hint)


def check_memory(document: Document) -> Iterator[Diagnostic]:
    """Check KV tiers and the handling of victims: tiers need prefix caching, and swapping keeps generated tokens."""
    preemption = as_map(document.get("policy", "preemption"))
    restore = preemption.get("restore")
    for owner in stacks(document):
        engine = where(document, owner, "engine")
        tiers = as_map(document.get(*engine, "kv_tiers"))
        if tiers and tiers.get("kind") != "none" and not document.get(*engine, "enable_prefix_caching"):
            message = "KV tiers extend the prefix cache, but prefix caching is off"
            hint = "set `enable_prefix_caching: true`, or remove `kv_tiers`"
            yield about(document, (*engine, "kv_tiers"), "BLIS2026", message, key=True, hint=hint)
    if preemption.get("recompute") == "prompt" and restore != "recompute":
        message = f"`recompute: prompt` discards generated tokens, but `restore: {restore}` keeps them"
        at = ("policy", "preemption", "recompute")
        hint = "remove `recompute`, or set `restore: recompute`"
        yield about(document, at, "BLIS2026", message, key=True, hint=hint)


# ---- batching ----


def _check_tiers(
    document: Document, tiers: tuple[str | int, ...], kind: str, traits: EngineBehavior
) -> Iterator[Diagnostic]:
    """Check the kind of tiers: SGLang has only its own; rules that do not serve running requests first have none."""
    which = document.get(*tiers)
    if which in (None, "none"):
        return
    if which == "hicache" and not traits.radix_tree:
        message = f"`hicache` is SGLang's: `{kind}` batching has no radix tree to store on the host"
        hint = "use `kind: offload`, or `batching: sglang`" if traits.running_first else "remove it"
        yield about(document, tiers, "BLIS2026", message, hint=hint)
    elif which != "hicache" and traits.radix_tree:
        message = f"`{kind}` batching supports KV tiers only as SGLang's HiCache"
        yield about(document, tiers, "BLIS2026", message, hint="use `kind: hicache`")
    elif not traits.running_first and not traits.radix_tree:
        hint = advice_for(kind, "kv_tiers", "remove kv_tiers, or use blis or vllm-v1 batching")
        yield about(document, tiers, "BLIS2026", f"`{kind}` batching does not support KV tiers", hint=hint)


def _splitting(document: Document) -> Splitting | None:
    """Return how the cluster splits requests, and what not every rule supports beside it."""
    path = ("cluster", "disaggregation")
    if document.get(*path) is None:
        return None
    transfer = as_map(document.get(*path, "transfer"))
    beside = [f"cluster.{key}" for key in MOVING if key in as_map(document.get("cluster"))]
    for owner in stacks(document):
        for key in ("lora", "kv_tiers"):
            value = document.get(*(there := where(document, owner, "engine", key)))
            if value is not None and as_map(value).get("kind") != "none":
                beside.append(".".join(map(str, there)))
    order, starts = str(document.get(*path, "order")), str(transfer.get("starts"))
    return Splitting(order, starts, transfer.get("reuse_cached_blocks") is True, tuple(beside))


def check_batching(document: Document, plugins: Registry | None) -> Iterator[Diagnostic]:
    """Check for settings elsewhere that the batching rule ignores."""
    traits = batching_traits(as_map(document.data), plugins)
    kind = document.get("policy", "batching", "kind")
    if traits.in_order_of_arrival and document.get("policy", "scheduling", "kind") != "fcfs":
        message = f"`{kind}` batching serves requests in order of arrival, whatever `scheduling` says"
        hint = "set `scheduling: fcfs`, or use another batching rule"
        yield about(document, ("policy", "scheduling", "kind"), "BLIS2026", message, hint=hint)
    scheduling = document.get("policy", "scheduling", "kind")
    victim = document.get("policy", "preemption", "victim") or "tail"
    splitting = _splitting(document)
    for key, message, hint in unsupported_elsewhere(str(kind), traits, str(scheduling), str(victim), splitting):
        yield about(document, tuple(key.split(".")), "BLIS2027", message, key=key.startswith("cluster."), hint=hint)
    if not traits.running_first:
        yield from _check_victims(document, kind, traits)
    for owner in stacks(document):
        engine = where(document, owner, "engine")
        tiers = (*engine, "kv_tiers", "kind")
        yield from _check_tiers(document, tiers, str(kind), traits)
        if document.get(*engine, "max_num_seqs") == 0 and not traits.unlimited_seqs:
            message = f"max_num_seqs 0 means no limit, but `{kind}` batching needs one"
            yield about(document, (*engine, "max_num_seqs"), "BLIS2027", message, hint="give a number of at least 1")
        drafter = document.get(*engine, "speculative", "method") or ""
        adapts = document.get(*engine, "lora") is not None
        stages = document.whole(*engine, "pipeline_parallel") or 1
        budgets = [key for key in ENCODER_BUDGETS if document.get(*engine, "encoder", key)]
        for key, message, hint in unsupported_in_engine(
            str(kind), traits, stages, str(drafter), adapts=adapts, budgets=budgets
        ):
            path = (*engine, *key.split("."))
            yield about(document, path, "BLIS2027", message, key=key != "pipeline_parallel", hint=hint)
        yield from _check_groups(document, owner, str(kind), traits)
        chunked_by = traits.step_tokens_setting
        page = document.whole(*engine, "block_size_tokens") or 1
        if traits.radix_tree and traits.step_tokens < page:
            message = f"`{kind}` batching computes prompts in whole KV blocks of {page} tokens, {chunked_by} is less"
            hint = f"set it to {page} or more, or lower engine.block_size_tokens"
            yield about(document, ("policy", "batching", chunked_by), "BLIS2027", message, hint=hint)
        if document.get(*engine, "long_prefill_token_threshold") and (chunked_by or traits.prefills_apart):
            how = f"splits prompts only by `{chunked_by}`" if chunked_by else "never splits a prompt"
            message = f"`{kind}` batching {how}, so no threshold applies"
            path = (*engine, "long_prefill_token_threshold")
            yield about(document, path, "BLIS2026", message, hint="remove it")


def _check_groups(document: Document, owner: DataPath, kind: str, traits: EngineBehavior) -> Iterator[Diagnostic]:
    """Check that what is configured beside the hybrid KV cache manager is simulated with it."""
    path = (*where(document, owner, "engine"), "disable_hybrid_kv_cache_manager")
    if document.get(*path) is not False:
        return
    if not traits.vllm_block_pool:
        message = f"`{kind}` batching does not simulate the hybrid KV cache manager"
        yield about(document, path, "BLIS2027", message, key=True, hint="remove it, or use vllm-v1 batching")
        return
    stack = stack_of(as_map(document.data), as_map(document.get(*owner)) if owner else None)
    if beside := ungrouped_with(as_map(document.data), stack):
        message = f"the hybrid KV cache manager is not simulated together with `{beside}`"
        hint = f"remove either; without this key, layers with a sliding window count as full beside `{beside}`"
        yield about(document, path, "BLIS2027", message, key=True, hint=hint)


def check_states(document: Document, owner: DataPath) -> Iterator[Diagnostic]:
    """Check that what is configured beside a model whose layers have a state is simulated with it."""
    stack = stack_of(as_map(document.data), as_map(document.get(*owner)) if owner else None)
    model = build_model_part(stack)
    if model.linear is None:
        return
    engine, split = where(document, owner, "engine"), document.whole(*where(document, owner, "tensor_parallel")) or 1
    statement = f"some layers of {model.name} have a state for each request"
    if beside := ungrouped_with(as_map(document.data), stack):
        top, _, key = beside.partition(".")
        path = (*engine, key) if top == "engine" else (top, *key.split("."))
        hint = "remove it; docs/semantics.md says what is simulated of such models"
        yield about(
            document, path, "BLIS2027", f"{statement}: `{beside}` is not simulated with that", key=True, hint=hint
        )
    path = (*engine, "disable_hybrid_kv_cache_manager")
    if document.get(*path) is True:
        message = f"{statement}, which only the hybrid KV cache manager has room for"
        yield about(document, path, "BLIS2027", message, key=True, hint="remove it")
    path = (*engine, "enable_prefix_caching")
    if path in document.keys and document.get(*path) is True:
        message = (
            f"{statement}: a prefix cache with copies of states (`mamba_cache_mode` align or all) is not simulated"
        )
        hint = "set it to false, and start vLLM 0.26 or later with --no-enable-prefix-caching to compare"
        yield about(document, path, "BLIS2027", message, key=True, hint=hint)
    heads = {"key heads": model.linear.key_heads, "value heads": model.linear.value_heads}
    if model.linear.kind == "mamba2":
        heads = {"groups": model.linear.key_heads, "heads": model.linear.value_heads}
        if heads["groups"] == 1:  # the only one is copied
            del heads["groups"]
    for name, count in heads.items():
        if count % split:
            message = f"tensor_parallel {split} does not divide the {count} {name} of {model.name}'s states"
            usable = [str(n) for n in range(1, 65) if not any(each % n for each in heads.values())]
            path = where(document, owner, "tensor_parallel")
            yield about(document, path, "BLIS2004", message, hint=f"possible values are {', '.join(usable)}")
            return


def _check_victims(document: Document, kind: object, traits: EngineBehavior) -> Iterator[Diagnostic]:
    """Check for preemption settings that need a rule which serves running requests first."""
    for key, known in (("victim", ("tail", "priority")), ("restore", ("recompute",))):
        path = ("policy", "preemption", key)
        if traits.radix_tree and key == "victim":
            continue
        if (value := document.get(*path)) is not None and value not in known:
            message = f"`{kind}` batching does not support {key} `{value}`"
            yield about(document, path, "BLIS2026", message, hint=f"use {' or '.join(known)}, or another batching rule")


# ---- drafts ----


def check_drafts(document: Document) -> Iterator[Diagnostic]:
    """Check that the acceptance of drafts is given once, and is possible."""
    for owner in stacks(document):
        path = where(document, owner, "engine", "speculative")
        drafts = document.get(*path)
        if not isinstance(drafts, dict):
            continue
        rates = as_list(drafts.get("acceptance_rates"))
        if ("acceptance" in drafts) == ("acceptance_rates" in drafts):
            message = "speculative decoding needs either `acceptance` or `acceptance_rates`"
            hint = "give `acceptance: 0.7`, or the rates that vLLM logs by position: `acceptance_rates: [0.8, 0.55]`"
            yield about(document, path, "BLIS2032", message, key=True, hint=hint)
        elif rates and len(rates) != drafts.get("draft_tokens"):
            message = f"there are {len(rates)} `acceptance_rates` for {drafts.get('draft_tokens')} `draft_tokens`"
            at = (*path, "acceptance_rates")
            yield about(document, at, "BLIS2032", message, key=True, hint="give one for each drafted token")
        else:
            for number, (before, rate) in enumerate(pairwise(rates), start=1):
                if isinstance(before, int | float) and isinstance(rate, int | float) and rate > before:
                    message = f"{rate} is more than {before}: a token is accepted only after all before it"
                    place = (*path, "acceptance_rates", number)
                    hint = "each is the share of drafts that are accepted up to that token, as vLLM logs it"
                    yield about(document, place, "BLIS2032", message, hint=hint)


# ---- adapters ----


def check_lora(document: Document) -> Iterator[Diagnostic]:
    """Check that instances can hold the configured adapters, and that those that clients request exist."""
    lora_places = {owner: where(document, owner, "engine", "lora") for owner in stacks(document)}
    for path in (path for path in lora_places.values() if document.get(*path) is not None):
        slots, places, most = (document.get(*path, key) for key in ("max_loras", "max_cpu_loras", "max_lora_rank"))
        if isinstance(slots, int) and isinstance(places, int) and places < slots:
            message = (
                f"max_cpu_loras {places} is less than max_loras {slots}: the host also holds every adapter on the GPUs"
            )
            hint = f"set it to {slots} or more, or remove it"
            yield about(document, (*path, "max_cpu_loras"), "BLIS2029", message, hint=hint)
        for name, rank in as_map(document.get(*path, "ranks")).items():
            if isinstance(rank, int) and isinstance(most, int) and rank > most:
                message = f"adapter `{name}` has rank {rank}, max_lora_rank is {most}"
                yield about(document, (*path, "ranks", name), "BLIS2029", message, hint=f"set max_lora_rank: {rank}")
    if any(document.get(*path) is not None for path in lora_places.values()):
        return
    for at, client in enumerate(map(as_map, as_list(document.get("workload", "clients")))):
        if "adapters" in client:
            message = f"client `{client.get('id')}` requests LoRA adapters, but no instance has any"
            hint = "add `engine.lora`, such as `lora: {max_loras: 4}`, or remove `adapters`"
            yield about(document, ("workload", "clients", at, "adapters"), "BLIS2026", message, key=True, hint=hint)


# ---- step times ----


def check_operators(document: Document, owner: DataPath) -> Iterator[Diagnostic]:
    """Check that measured operators cover the stack of ``owner`` (a pool, or the experiment)."""
    stack = stack_of(as_map(document.data), as_map(document.get(*owner)) if owner else None)
    latency = as_map(document.get(*where(document, owner, "latency")))
    split = stack.get("tensor_parallel")
    if latency.get("kind") != "operators" or not isinstance(split, int):
        return
    model = build_model_part(stack)
    wrong: BlisError | None
    try:
        wrong = coverage_error(str(latency.get("tables")), model, split)
    except InputError as missing:
        wrong = missing
    if wrong is not None:
        hint = wrong.help or "use another step-time model, such as trained-physics"
        yield about(document, where(document, owner, "latency"), "BLIS2011", wrong.message, hint=hint)
    apart = latency.get("expert_parallel")
    try:
        check_expert_parallel(model, split, apart if isinstance(apart, int) else 1)
    except PolicyError as error:
        at = where(document, owner, "latency", "expert_parallel")
        yield about(document, at, "BLIS2030", error.message, hint=error.help)


def check_recorded(document: Document, owner: DataPath) -> Iterator[Diagnostic]:
    """Check that measured step times are used only by the single instance on which they were measured."""
    if document.get(*where(document, owner, "latency", "kind")) != "recorded":
        return
    pools = (
        [owner] if owner else [path for path in pool_paths(document) if where(document, path, "latency")[0] != path[0]]
    )
    places = [(*path, "instances") for path in pools or [("cluster",)]]
    places.append(where(document, owner, "engine", "pipeline_parallel"))
    for at in places:
        count = document.get(*at)
        if isinstance(count, int) and count > 1:
            hint = f"set `{'.'.join(map(str, at))}: 1`, or use another step-time model"
            yield about(document, at, "BLIS2026", f"{_OF_ONE}, not to {count}", hint=hint)
    scaler = ("cluster", "autoscaler")
    if document.get(*scaler) is not None:
        hint = "remove `autoscaler`, or use another step-time model"
        yield about(document, scaler, "BLIS2026", f"{_OF_ONE}, not to more", key=True, hint=hint)


_OF_ONE: Final = "`recorded` step times apply to one instance without pipeline stages"
