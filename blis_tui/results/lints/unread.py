"""Checks for keys that are set but have no effect, and whether step times rest on measurements."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from blis_tui.base.units import percent_text, plural, span_text
from blis_tui.engine.kv.capacity import InstanceMemory, kv_capacity
from blis_tui.engine.kv.states import state_bytes
from blis_tui.engine.latency.model import ModelWrapper
from blis_tui.engine.latency.operator_steps import OperatorModel
from blis_tui.engine.latency.wrappers import COMPUTED, HookedModel, Launched, ScaledStepTimes, without_graphs
from blis_tui.engine.options.adapters import reserved_bytes
from blis_tui.model.control_plane import SLO_PRIORITIES, Autoscaler, PluginConfig, Signals
from blis_tui.model.defaults import CHUNK, SHARE, TOKENS, Server, default_of, static_share
from blis_tui.model.keys import keys_of
from blis_tui.results.lints.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.engine.kv.capacity import KvGroups
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.engine.rules.traits import EngineBehavior
    from blis_tui.model import Disaggregation, Pool
    from blis_tui.results.lints.finding import Group, LintContext

WITHOUT_PRIORITIES: Final = ("fcfs", "sjf", "lof", "lpm")
"""Scheduling orders that ignore priorities."""
BY_PRIORITY: Final = ("priority-fcfs", "reverse-priority")
"""Scheduling orders that use nothing but priorities."""
WITHOUT_CLASSES: Final = ("always-admit", "token-bucket", "reject-all")
"""Admission policies that ignore SLO classes."""
_AS_MEASURED: Final = 0.05
"""Share by which a figure of a GPU may differ from that of the measured one, as sources do."""
_WITHOUT_LOADS: Final = (
    *("round-robin", "weighted"),
    *("active-requests", "lora-affinity", "no-hit-lru", "precise-prefix-cache", "prefix-affinity"),
)
"""Routing policies and scorers that ignore queues, batches and KV caches; requests in flight are always known. Like all
lists here, it has those of which something can be said: a policy that nobody listed is never said to ignore a key."""
_WITHOUT_CACHED: Final = (
    *("always-busiest", "least-loaded", "power-of-two", "round-robin", "session-affinity", "weighted"),
    *("active-requests", "kv-utilization", "load-aware", "load-balance", "prefix-affinity", "queue-depth"),
    *("running-requests", "vllm-dp"),
)
"""Those that do not ask what instances have cached."""

_THRESHOLDS: Final = ("scale_up_threshold", "scale_down_boundary")
"""What the autoscaler's own rule compares demand and supply with."""
_WITHOUT_WINDOWS: Final = ("dynamo-load", "dynamo-throughput")
"""Scaling rules that decide by the latest figures alone."""


def unread_keys(seen: LintContext) -> Finding | str:
    """Keys are set, but nothing uses them.

    In the policy: priorities, orders and victims by priority when all requests have the same one, the values of SLO
    classes, a gateway that holds nothing, shares of tenants and targets of classes that have no requests. In the
    engine: the share of memory (``gpu_memory_utilization``, SGLang's ``mem_fraction_static``) where ``kv_blocks``
    is a number, the token budget of steps where the batching rule has one of its own, what becomes of blocks behind
    sliding windows where no layer has one, a shared KV tier that one instance has for itself, ranks of adapters that no
    request asks for, an encoder without media. In the hardware: figures that measured step times do not depend on. In
    the cluster: the age of signals where no decision uses them, how instances start where none does, thresholds and
    windows of an autoscaler with a rule that does not go by them, failures after the end, where unsplit requests go
    where all are split or have a decode instance, pools for unsplit requests alone that get none. Keys at their default
    are not reported: the normal form of an experiment has them all. Experiments with plug-ins are not checked: these
    may use any key.
    """
    if seen.experiment.plugins.origins:
        return ""
    parts = (
        _unread,
        _alike,
        _unknown_tenants,
        _unknown_classes,
        _unread_of_engines,
        _unread_of_tiers,
        _unread_of_hardware,
        _unread_signals,
        _unused_of_cluster,
        _unused_of_engines,
    )
    unread = dict(entry for part in parts for entry in part(seen))
    if not unread:
        return ""
    return Finding(
        id="unread-keys",
        message=" ".join(f"{key} has no effect: {why}." for key, why in unread.items()),
        figures={"keys": len(unread)},
        advice=f"Remove {' and '.join(unread)}, or configure something that uses it.",
        keys=tuple(unread),
    )


def _unread(seen: LintContext) -> Iterator[tuple[str, str]]:
    policy = seen.experiment.policy
    order, victim = policy.scheduling.kind, policy.preemption_victim
    silent = policy.priority.kind != "constant" and order in WITHOUT_PRIORITIES and victim != "priority"
    if silent and not seen.cluster.instances[0].batch.traits.priorities:
        yield "policy.priority", f"neither `scheduling: {order}` nor `victim: {victim}` uses priorities"
    admission = policy.admission.kind
    if (
        dict(policy.slo_priorities) != dict(SLO_PRIORITIES)
        and admission in WITHOUT_CLASSES
        and policy.tenant_budgets is None
        and policy.gateway is None
    ):
        yield "policy.slo_priorities", f"there is no gateway, and `admission: {admission}` does not use SLO classes"
    gateway = policy.gateway
    if gateway is not None and gateway.saturation.kind == "never" and gateway.dispatch == "on-completion":
        yield "policy.gateway", "with `saturation: never`, it dispatches every request immediately"
    elif gateway is not None and gateway.when_full != "reject" and not gateway.max_depth:
        bands = ": a band of `per_band_capacity` rejects newcomers" if gateway.per_band_capacity else ""
        yield "policy.gateway.when_full", f"without `max_depth`, the queue is never full{bands}"


def _alike(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield keys that order by priority although all requests have the same one."""
    policy = seen.experiment.policy
    order, victim = policy.scheduling.kind, policy.preemption_victim
    if policy.priority.kind != "constant":
        return
    # With other victims, the order decides where a preempted request goes.
    if order in BY_PRIORITY and victim in {"tail", "priority"} and _queue_by_arrival(seen):
        yield "policy.scheduling", f"`priority: constant` makes all priorities equal, and `{order}` uses nothing else"
    if victim == "priority":
        yield "policy.preemption.victim", "`priority: constant` makes all priorities equal; the youngest is preempted"


def _queue_by_arrival(seen: LintContext) -> bool:
    """Whether requests enter each queue one by one, in the order of their arrivals, by which equals are sorted.

    A gateway, deferral, or a longer time in front of the engine can change that; retries and transfers do.
    """
    cluster = seen.experiment.cluster
    if cluster.varies or cluster.disaggregation is not None:
        return False
    ways = sorted((row.instance, row.arrival_us, row.queued_us) for row in seen.table.plain() if row.queued_us >= 0)
    return all(way[0] != other[0] or (way[1] < other[1] and way[2] < other[2]) for way, other in pairwise(ways))


def _unknown_tenants(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield shares of tenants that no request of the whole run has, such as misspelt names."""
    policy = seen.experiment.policy
    if not seen.done:
        return
    tenants = {tenant for _, tenant in seen.table.group_names()}
    shares = {} if policy.tenant_budgets is None else {"tenant_budgets.fractions": policy.tenant_budgets.fractions}
    if policy.gateway is not None:
        shares["gateway.weights"] = policy.gateway.weights
    for key, of in shares.items():
        for name in of:
            if name not in tenants:
                yield f"policy.{key}.{name}", "no request has that tenant"


def _unknown_classes(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield targets of SLO classes that no request of the whole run has, so that nothing can meet them."""
    if not seen.done:
        return
    classes = {name for name, _ in seen.table.group_names()}
    gateway = seen.experiment.policy.gateway
    asked = {"slo_targets": [*seen.experiment.slo_targets]}
    if gateway is not None:
        asked["policy.gateway.slo_targets_us"] = [*gateway.slo_targets_us]
    for key, names in asked.items():
        for name in names:
            if name not in classes:
                yield f"{key}.{name}", "no request has that SLO class"


def _unread_of_engines(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield unused engine keys; a key that several pools do not use is reported once."""
    for instance, pool in zip(seen.cluster.instances, seen.cluster.pools, strict=True):
        engine, traits = pool.engine, instance.batch.traits
        share, budget = _left_out(seen.experiment.policy.batching, pool, traits)
        if engine.gpu_memory_utilization != share and engine.kv_blocks != _fitting(
            pool, instance.batch.limits.kv_groups, traits.sizes_pool
        ):
            yield (
                "engine.gpu_memory_utilization",
                f"`kv_blocks` is set to {engine.kv_blocks:,}, regardless of what would fit",
            )
        grouped = pool.model.sliding_window_layers or pool.model.linear
        if engine.disable_hybrid_kv_cache_manager is not None and not grouped:
            yield "engine.disable_hybrid_kv_cache_manager", f"no layer of {pool.model.name} has a sliding window"
        own = traits.step_tokens
        if own and engine.max_num_batched_tokens != budget:
            kind = seen.experiment.policy.batching.kind
            yield "engine.max_num_batched_tokens", f"`{kind}` batching uses its own setting, {own:,} tokens"


def _unread_of_tiers(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield that a tier is shared where a single instance lists it, which never dies."""
    users: dict[str, list[str]] = {}
    for pool in seen.cluster.pools:
        tiers = () if pool.engine.kv_tiers is None else pool.engine.kv_tiers.tiers
        for at, tier in enumerate(tiers):
            if tier.shared:
                users.setdefault(tier.name, []).append(f"engine.kv_tiers.tiers.{at}.shared")
    for name, keys in users.items():
        if len(keys) == 1 and not seen.experiment.cluster.varies:
            yield keys[0], f"no other instance lists a tier named `{name}`"


def _unread_of_hardware(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield figures of GPUs that differ from those of the GPU whose measured step times are used."""
    for instance, pool in zip(seen.cluster.instances, seen.cluster.pools, strict=True):
        model = operators_of(instance.latency)
        if model is None:
            continue
        hardware = pool.hardware
        own = {
            "memory_bandwidth_tb_per_s": hardware.memory_bandwidth_tb_per_s,
            "peak_tflops.bf16": hardware.peak_tflops_bf16,
        }
        for path, measured in model.costs.gpu_figures.items():
            if abs(own[path] - measured) > _AS_MEASURED * measured:
                why = f"step times are those measured on {hardware.name}, of {measured:g};"
                yield f"hardware.{path}", f"{why} a `latency` such as `fitted` derives them from the hardware's figures"


def _unread_signals(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield the age of signals that no decision uses."""
    signals, usual = seen.experiment.cluster.signals, Signals()
    if signals == usual:
        return
    routings = _routings(seen)
    policy, split = seen.experiment.policy, seen.experiment.cluster.disaggregation
    figures = (
        policy.admission.kind not in WITHOUT_CLASSES
        or (policy.gateway is not None and policy.gateway.saturation.kind == "utilization")
        or not all(routing in _WITHOUT_LOADS for routing in routings)
    )
    if signals.refresh_interval_us and not figures:
        yield (
            "cluster.signals.refresh_interval_us",
            "no decision between instances depends on their queues, batches or KV caches",
        )
    decides = split is not None and split.order == "decode-first" and split.decider.kind == "prefix-threshold"
    if signals.cache_signal_delay_us and not decides and all(routing in _WITHOUT_CACHED for routing in routings):
        yield "cluster.signals.cache_signal_delay_us", "no decision between instances depends on what they have cached"


def _routings(seen: LintContext) -> list[str]:
    """Return the kinds of the routing policies that have a choice of instances, and of their scorers."""
    cluster = seen.experiment.cluster
    if seen.experiment.instances == 1 and cluster.autoscaler is None:
        return []
    split = cluster.disaggregation
    rules = [seen.experiment.policy.routing]
    if split is not None:
        rules += [split.prefill_routing, split.decode_routing]
    kinds = []
    for rule in rules:
        scorers = rule.settings.get("scorers")
        kinds.append(rule.kind)
        if isinstance(scorers, tuple):
            kinds += [scorer.kind for scorer in scorers if isinstance(scorer, PluginConfig)]
    return kinds


def _unused_of_cluster(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield rules for instances that never start and for requests that are never left whole, and failures to come."""
    cluster = seen.experiment.cluster
    comes_back = any(failure.repair_us is not None for failure in cluster.failures)
    if cluster.lifecycle is not None and cluster.autoscaler is None and not comes_back:
        yield "cluster.lifecycle", "no instance starts later, or is removed: there is no autoscaler, and no repair"
    elif cluster.lifecycle is not None:
        requests, factor = cluster.lifecycle.warm_up_requests, cluster.lifecycle.warm_up_factor
        if factor != 1 and not requests:
            yield "cluster.lifecycle.warm_up_factor", "with `warm_up_requests: 0`, instances are warm when they start"
        if requests and factor == 1:
            yield (
                "cluster.lifecycle.warm_up_requests",
                "with `warm_up_factor: 1`, cold instances are as fast as warm ones",
            )
    life = cluster.lifecycle
    if life is not None and life.drain != "wait" and comes_back and cluster.autoscaler is None:
        yield "cluster.lifecycle.drain", "no instance is removed: there is no autoscaler"
    scaler = cluster.autoscaler
    if scaler is not None and scaler.rule is not None:
        yield from _unused_beside(scaler, scaler.rule)
    if cluster.disaggregation is not None:
        yield from _unused_of_split(seen, cluster.disaggregation)
    for number, failure in enumerate(cluster.failures):
        if seen.done and failure.at_us is not None and failure.at_us > seen.duration_us:
            yield f"cluster.failures.{number}", f"the run ended before it, at {span_text(seen.duration_us)}"


def _unused_beside(scaler: Autoscaler, rule: PluginConfig) -> Iterator[tuple[str, str]]:
    """Yield thresholds and windows of an autoscaler that its rule does not go by."""
    unread = dict.fromkeys(_THRESHOLDS, f"`rule: {rule.kind}` says how many instances there should be")
    if rule.kind in _WITHOUT_WINDOWS:
        why = f"`rule: {rule.kind}` has no stabilization windows"
        unread |= {"scale_up_window_us": why, "scale_down_window_us": why}
    elif rule.kind == "hpa" and rule.settings.get("behavior") is False:
        unread["scale_up_window_us"] = "with `behavior: false`, only the window for fewer instances counts"
    for name, (key, _) in keys_of(Autoscaler).items():
        if name in unread and getattr(scaler, name) != key.default:
            yield f"cluster.autoscaler.{key.name or name}", unread[name]


def _unused_of_split(seen: LintContext, split: Disaggregation) -> Iterator[tuple[str, str]]:
    """Yield where unsplit requests go if that is settled otherwise, and pools for them that get none."""
    key, first = "cluster.disaggregation.undisaggregated", split.order == "decode-first"
    if split.undisaggregated != "decode-pool":
        if first:
            yield key, "with `order: decode-first`, requests that are not split run on their decode instance"
        elif split.decider.kind == "always":
            yield key, "with `decider: always`, every request is split"
    if split.undisaggregated == "decode-pool" or first:
        for number, pool in enumerate(seen.experiment.pools):
            if pool.role == "whole":
                why = "`order: decode-first`" if first else "`undisaggregated: decode-pool`"
                yield f"cluster.pools.{number}", f"with {why}, no request goes to instances of role `whole`"


def _unused_of_engines(seen: LintContext) -> Iterator[tuple[str, str]]:
    """Yield ranks of LoRA adapters that no request of the whole run asks for, and an encoder of media without any."""
    engines = [pool.engine for pool in seen.experiment.pools]
    if not seen.done:
        return
    named = dict.fromkeys(name for engine in engines if engine.lora is not None for name in engine.lora.ranks)
    if named:
        asked = {seen.table.adapter(row) for row in seen.table.plain()} if seen.table.has_adapters else set()
        for name in named:
            if name not in asked:
                yield f"engine.lora.ranks.{name}", "no request asks for that adapter"
    if any(engine.encoder is not None for engine in engines) and not seen.table.has_media:
        yield "engine.encoder", "no prompt has images, audio or video"


def _left_out(batching: PluginConfig, pool: Pool, traits: EngineBehavior) -> tuple[float, int]:
    """Return the share of memory and the token budget that a pool has if its document leaves them out."""
    server = Server(
        engine=batching.kind,
        version=str(batching.settings.get("version", "")),
        hardware=pool.hardware.name,
        memory_gib=pool.hardware.memory_gib,
        tensor_parallel=pool.tensor_parallel,
        pipeline_parallel=pool.engine.pipeline_parallel,
        latent_attention=pool.model.kv_lora_rank > 0,
        graphs=not pool.engine.enforce_eager,
    )
    if traits.sizes_pool == "static":
        split = traits.step_tokens_setting == CHUNK
        return static_share(server, traits.step_tokens, pool.engine.max_num_seqs, split=split), traits.step_tokens
    share, tokens = (default_of(key, server) for key in (SHARE, TOKENS))
    return float(share[0]) if share else 0.0, int(tokens[0]) if tokens else 0


def _fitting(pool: Pool, groups: KvGroups | None, sizing: str) -> int:
    """Return the number of KV blocks that ``kv_blocks: auto`` would give."""
    engine = pool.engine
    memory = InstanceMemory(
        model=pool.model,
        hardware=pool.hardware,
        tensor_parallel=pool.tensor_parallel,
        block_size_tokens=engine.block_size_tokens,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        graphs=not engine.enforce_eager,
        pipeline_parallel=engine.pipeline_parallel,
        reserved_bytes=0 if engine.lora is None else reserved_bytes(engine.lora, pool.model),
        expert_ranks=engine.expert_ranks,
        groups=groups,
    )
    return kv_capacity(memory, sizing).blocks


def states(seen: LintContext) -> Finding | str:
    """A model has layers with a state for each request (linear attention, Mamba-2), whose servers were not measured.

    Their prefix cache is off: what vLLM calls ``mamba_cache_mode: none``, its default up to 0.25. From 0.26 on it keeps
    copies of states (``align``), which is not simulated. Where the batching rule is not vLLM's, states of as many
    requests as may run take memory of their own, as TensorRT-LLM reserves it.
    """
    index = next((at for at, pool in enumerate(seen.cluster.pools) if pool.model.linear is not None), None)
    if index is None:
        return ""
    pool, limits = seen.cluster.pools[index], seen.cluster.instances[index].batch.limits
    linear = pool.model.linear
    if linear is None:
        return ""
    bytes_ = linear.layers * state_bytes(linear, pool.tensor_parallel) * pool.tensor_parallel
    where = (
        f"in KV blocks, enlarged to {limits.block_size_tokens:,} tokens"
        if limits.kv_groups is not None
        else f"reserved for {limits.max_num_seqs:,} requests beside the KV blocks"
    )
    return Finding(
        id="states",
        message=f"{linear.layers} layers of {pool.model.name} have a state for each request, "
        f"{bytes_ / 2**20:,.1f} MiB, {where}. No server with such layers was measured, and no prefix is cached.",
        figures={"layers": linear.layers, "state_bytes": bytes_, "block_size_tokens": limits.block_size_tokens},
        advice="Compare with a server without prefix caching: vLLM 0.26 and later is started with "
        "--no-enable-prefix-caching, SGLang with --disable-radix-cache.",
        keys=("model", "engine.enable_prefix_caching"),
    )


EXTRAPOLATED_SHARE: Final = 10
"""Maximum percentage of a step for extrapolated operators without a warning."""


def eager_without_cost(seen: LintContext) -> Finding | str:
    """CUDA graphs are off (``enforce_eager``, ``cudagraph_mode``), but the cost of that is not known here.

    Step times that were measured as a whole apply to servers with graphs or without, whichever was measured.
    """
    kinds = {
        pool.latency.kind: key
        for pool in seen.cluster.pools
        if pool.latency.kind not in COMPUTED and (key := without_graphs(pool.engine))
    }
    if not kinds:
        return ""
    names = " and ".join(f"`{kind}`" for kind in kinds)
    keys = [f"engine.{key}" for key in sorted({*kinds.values()})]
    return Finding(
        id="eager-without-cost",
        message=(
            f"{' and '.join(keys)} has no effect: the cost of launching operators one by one is not known for {names}"
            " step times."
        ),
        figures={"kinds": len(kinds)},
        advice=(
            "Measure the step times on a server without CUDA graphs, or use a step-time model that computes this cost"
            f" (latency.kind: {', '.join(COMPUTED)})."
        ),
        keys=(*keys, "latency.kind"),
    )


def extrapolated(seen: LintContext) -> Finding | str:
    """Operators that were not measured take more than 10 % of a step of the run's largest batch."""
    findings = (_extrapolated(seen, group) for group in seen.by_pool())
    return next((finding for finding in findings if finding is not None), "")


def _extrapolated(seen: LintContext, group: Group) -> Finding | None:
    model = operators_of(group.instances[0].latency)
    batch = max((instance.tallies.peak_running for instance in group.instances), default=0)
    if model is None or not batch:
        return None
    flow = seen.flow
    context = flow.input_tokens // max(1, flow.total)
    parts = model.costs.parts_us(batch, context)
    whole = guessed = 0.0
    names = []
    for name, (time_us, guessed_us) in parts.items():
        whole += time_us
        guessed += guessed_us
        if 2.0 * guessed_us > time_us:
            names.append(name)
    share = round(guessed), round(whole)
    if 100 * guessed <= EXTRAPOLATED_SHARE * whole:
        return None
    return Finding(
        id="extrapolated",
        message=(
            f"{percent_text(*share)} of a step of {plural(batch, 'decode')}{group.of} is extrapolated from sizes"
            f" or types other than the model's: {', '.join(names)}."
        ),
        figures={"extrapolated_us": share[0], "step_us": share[1], "decodes": batch, "context_tokens": context},
        advice="Treat the step times with more caution than usual, or compare with another step-time model "
        "(latency.kind).",
        keys=("latency.kind",),
    )


def operators_of(latency: StepTimeModel) -> OperatorModel | None:
    """Return the model of measured operators that a step-time model is or wraps; None = it has none."""
    while isinstance(latency, Launched | HookedModel | ScaledStepTimes) or (
        isinstance(latency, ModelWrapper) and latency.paces
    ):
        latency = latency.model
    return latency if isinstance(latency, OperatorModel) else None
