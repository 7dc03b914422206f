"""Small clusters in which everything can go wrong: stale signals, queues, tenants, transfers, failures.

Prompts are a few blocks long and latencies a few steps, so routers decide while steps run, caches fill and queues
overflow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.model import (
    SLO_CLASSES,
    SLO_PRIORITIES,
    Autoscaler,
    Cluster,
    Delay,
    Disaggregation,
    Engine,
    Failure,
    Gateway,
    KvTier,
    KvTiers,
    Lifecycle,
    NodePool,
    PluginConfig,
    Policy,
    Pool,
    Signals,
    TenantBudgets,
    Transfer,
)
from blis_tui.model.engine import UNLIMITED

from . import draws as st
from .nodes import gpus_of
from .other_rules import OTHERS
from .strategies import (
    Asked,
    Scenario,
    adapted,
    assemble,
    encoding,
    lora,
    other,
    pool_of,
    vllm,
    with_drafts,
)

if TYPE_CHECKING:
    from blis_tui.engine.request import Segments

    from .draws import Draw

_APRIL: Final = {"critical": 4, "standard": 3, "sheddable": 2, "batch": 1, "background": 0}
_TENANTS: Final = ("", "red", "green", "blue")
_PLAIN_SCORERS: Final = (
    "no-hit-lru",
    "kv-utilization",
    "load-balance",
    "active-requests",
    "running-requests",
    "load-aware",
    "vllm-dp",
)
_WEIGHTS: Final = (1.0, 1.0, 2.0, 0.5, 3.0)
_PREFIXES: Final[tuple[Segments, ...]] = (
    (("x", 8),),
    (("x", 8), ("y", 8)),
    (("x", 16),),
    (("y", 4), ("x", 12)),
    (("z", 6),),
)
_ROLES: Final = (("prefill", "decode"), ("prefill", "decode", "any"), ("any",), ("any", "prefill"))
ROUTERS: Final = (
    "round-robin",
    "least-loaded",
    "always-busiest",
    "weighted",
    "weighted",
    "weighted",
    "power-of-two",
    "session-affinity",
)


def _one_of(draw: Draw, *values: int) -> int:
    return draw(st.sampled_from(values))


def _scorers(draw: Draw) -> tuple[PluginConfig, ...]:
    """One to four different scorers."""
    special: dict[str, dict[str, float | str]] = {
        "prefix-affinity": {"capacity_blocks": _one_of(draw, 3, 8, 10_000)},
        "precise-prefix-cache": {"nobody_has_it": draw(st.sampled_from((1.0, 0.5)))},
        "queue-depth": {"signal": draw(st.sampled_from(("queue-depth", "effective-load")))},
    }
    names = draw(st.lists(st.sampled_from((*special, *special, *_PLAIN_SCORERS)), min_size=1, max_size=4, unique=True))
    return tuple(
        PluginConfig(kind=name, settings={"weight": draw(st.sampled_from(_WEIGHTS)), **special.get(name, {})})
        for name in names
    )


def _router(draw: Draw) -> PluginConfig:
    kind = draw(st.sampled_from(ROUTERS))
    if kind == "weighted":
        return PluginConfig(kind=kind, settings={"scorers": _scorers(draw)})
    if kind == "power-of-two":
        return PluginConfig(kind=kind, settings={"choices": _one_of(draw, 1, 2, 2, 3, 9)})
    return PluginConfig(kind=kind)


def _busy(draw: Draw) -> dict[str, float]:
    return {
        "queue_depth_threshold": draw(st.sampled_from((1.0, 2.0, 5.0))),
        "kv_utilization_threshold": draw(st.sampled_from((0.2, 0.5, 0.8, 1.0))),
    }


def _admission(draw: Draw) -> PluginConfig:
    kind = draw(st.sampled_from(("always-admit", "always-admit", "tier-shed", "gaie-legacy", "token-bucket")))
    if kind == "tier-shed":
        settings = {"overload_threshold": _one_of(draw, 0, 2, 6), "min_priority": _one_of(draw, -1, 0, 3, 4)}
        return PluginConfig(kind=kind, settings=settings)
    if kind == "gaie-legacy":
        return PluginConfig(kind=kind, settings=_busy(draw))
    if kind == "token-bucket":
        settings = {"capacity_tokens": _one_of(draw, 20, 60, 200), "refill_tokens_per_s": _one_of(draw, 0, 100_000)}
        return PluginConfig(kind=kind, settings=settings)
    return PluginConfig(kind=kind)


def _budgets(draw: Draw) -> TenantBudgets | None:
    if draw(st.integers(0, 2)):
        return None
    return TenantBudgets(
        fractions={tenant: draw(st.sampled_from((0.0, 0.1, 0.25, 0.5))) for tenant in _TENANTS[1:3]},
        checked=draw(st.sampled_from(("before-admission", "after-admission"))),
        shed_below_priority=_one_of(draw, 0, 3, 4, 5),
    )


def _gateway(draw: Draw) -> Gateway | None:
    if draw(st.booleans()):
        return None
    kind = draw(st.sampled_from(("never", "utilization", "concurrency", "concurrency")))
    settings: dict[str, float] = {}
    if kind == "utilization":
        settings = _busy(draw)
    if kind == "concurrency":
        settings = {"max_concurrency": _one_of(draw, 1, 1, 2, 4)}
    ticks = draw(st.booleans())
    return Gateway(
        order=draw(st.sampled_from(("fifo", "priority", "slo-deadline"))),
        saturation=PluginConfig(kind=kind, settings=settings),
        dispatch="tick" if ticks else "on-completion",
        tick_us=_one_of(draw, 1, 20, 70) if ticks else 0,
        max_depth=_one_of(draw, 0, 0, 1, 3, 6),
        when_full=draw(st.sampled_from(("reject", "shed-least-urgent", "shed-sheddable"))),
        bands=draw(st.booleans()),
        per_band_capacity=_one_of(draw, 0, 0, 1, 3),
        fairness=draw(st.sampled_from(("global-strict", "round-robin", "weighted"))),
        weights={"red": draw(st.sampled_from((0.01, 0.05, 1.0, 2.0)))},
        request_ttl_us=_one_of(draw, 0, 0, 40, 300),
        usage_limit=draw(st.sampled_from((1.0, 0.8, 0.3))),
        slo_targets_us={"critical": 50, "batch": _one_of(draw, 20, 400)},
    )


def _signals(draw: Draw) -> Signals:
    return Signals(
        results=draw(st.sampled_from(("step-end", "step-end", "step-start"))),
        refresh_interval_us=_one_of(draw, 0, 0, 1, 30, 200),
        cache_signal_delay_us=_one_of(draw, 0, 0, 1, 50, 300),
    )


def _disaggregation(draw: Draw, main: PluginConfig) -> Disaggregation:
    kind = draw(st.sampled_from(("always", "always", "never", "prefix-threshold", "direct-to-decode")))
    settings = {"threshold_tokens": _one_of(draw, 0, 4, 9, 17)} if kind[0] in "pd" else {}
    order = draw(st.sampled_from(("prefill-first", "decode-first")))
    starts = draw(st.sampled_from(("step-end", "step-end", "step-start")))
    layer_wise = draw(st.booleans()) and starts == "step-end"
    return Disaggregation(
        decider=PluginConfig(kind=kind, settings=settings),
        order=order,
        undisaggregated=draw(st.sampled_from(("decode-pool", "all"))),
        transfer=Transfer(
            bandwidth_gb_per_s=draw(st.sampled_from((0.001, 0.002, 0.008, 1.0))),
            base_latency_us=_one_of(draw, 0, 0, 3, 25),
            bytes_per_token=_one_of(draw, 1, 2, 5),
            starts=starts,
            contention=draw(st.sampled_from(("none", "fixed-at-start", "fair-share", "fair-share"))),
            overlap="layer-wise" if layer_wise else "none",
            reuse_cached_blocks=draw(st.booleans()) and order == "decode-first",
        ),
        prefill_routing=draw(st.one_of(st.just(main), st.builds(lambda: _router(draw)))),
        decode_routing=draw(st.one_of(st.just(main), st.builds(lambda: _router(draw)))),
    )


def _engine(draw: Draw) -> Engine:
    engine = Engine(
        max_num_seqs=_one_of(draw, 1, 2, 4, 8),
        max_num_batched_tokens=_one_of(draw, 6, 16, 64, 2048),
        long_prefill_token_threshold=_one_of(draw, 0, 0, 0, 5),
        max_model_len=draw(st.sampled_from((None, None, None, 40))),
        block_size_tokens=_one_of(draw, 1, 2, 4, 4),
        kv_blocks=_one_of(draw, 10, 20, 40, 200),
        enable_prefix_caching=draw(st.sampled_from((True, True, True, False))),
    )
    return encoding(engine)


def _latency(draw: Draw) -> PluginConfig:
    if not draw(st.integers(0, 7)):
        return PluginConfig(kind="roofline", settings={"alpha": (2.0, 0.0, 3.0)})
    alpha = (float(_one_of(draw, 0, 0, 9)), draw(st.sampled_from((0.0, 0.5))), float(_one_of(draw, 0, 4)))
    beta = (float(_one_of(draw, 5, 20, 40)), float(_one_of(draw, 0, 1, 2)), float(_one_of(draw, 0, 1, 3)))
    return PluginConfig(kind="blackbox", settings={"alpha": alpha, "beta": beta})


def _pools(draw: Draw, *, split: bool) -> tuple[Pool, ...]:
    """Pools with one block size; everything else may differ."""
    engine, latency = _engine(draw), _latency(draw)
    few = st.integers(1, 3)
    if not split:
        pools = [pool_of(engine, latency, instances=draw(st.integers(1, 4)))]
        if draw(st.booleans()):
            pools.append(pool_of(engine, latency, instances=draw(few), name="other", tensor_parallel=2))
    else:
        roles = draw(
            st.sampled_from((("prefill", "decode"), ("prefill", "decode", "any"), ("any",), ("any", "prefill")))
        )
        pools = [
            pool_of(engine, latency, instances=draw(few), name=role, role=role, tensor_parallel=_one_of(draw, 1, 1, 2))
            for role in roles
        ]
    if draw(st.integers(0, 3)):
        return tuple(pools)
    return tuple(
        replace(
            pool,
            latency=_latency(draw),
            engine=replace(engine, max_num_seqs=_one_of(draw, 1, 3, 6), kv_blocks=_one_of(draw, 12, 30, 200)),
        )
        for pool in pools
    )


def _asked(draw: Draw, blocks: int, size: int) -> tuple[Asked, ...]:
    """5 to 40 requests."""
    most = min(_one_of(draw, 8, 20, 36), blocks * size)
    gap = _one_of(draw, 0, 3, 12, 40)
    mortal = _one_of(draw, 0, 0, 0, 1, 3)
    count = draw(st.sampled_from((5, 8, 12, 12, 20, 20, 40)))
    # One list per column: drawing costs more than using the values.
    gaps = draw(st.lists(st.integers(0, 2 * gap), min_size=count, max_size=count))
    inputs = draw(st.lists(st.integers(1, most), min_size=count, max_size=count))
    outputs = draw(st.lists(st.sampled_from((0, 1, 1, 2, 3, 5, 9, 16)), min_size=count, max_size=count))
    heads = draw(st.lists(st.integers(-3, len(_PREFIXES) - 1), min_size=count, max_size=count))
    classes = draw(st.lists(st.sampled_from(SLO_CLASSES), min_size=count, max_size=count))
    others = draw(st.lists(st.integers(0, 4 * 3 * 6 - 1), min_size=count, max_size=count))
    asked: list[Asked] = []
    now = 0
    for index in range(count):
        now += gaps[index]
        other, tenant = divmod(others[index], len(_TENANTS))
        hurry, session = divmod(other, 3)
        prefix = _PREFIXES[heads[index]] if heads[index] >= 0 else ()
        prompt = inputs[index] + sum(length for _, length in prefix)
        asked.append(
            Asked(
                name=f"{'ab'[index % 2]}{index}",
                arrival_us=now,
                input_tokens=prompt,
                output_tokens=outputs[index],
                declared_tokens=outputs[index],
                segments=prefix,
                slo_class=classes[index],
                deadline_us=now + 20 + 60 * hurry if hurry < mortal else 0,
                tenant=_TENANTS[tenant],
                session="" if session == 2 else f"s{session}",
            )
        )
    return tuple(asked)


def _failures(draw: Draw, instances: int) -> tuple[Failure, ...]:
    """One to four failures, of one instance or of all."""
    return tuple(
        Failure(
            instance=draw(st.sampled_from((None, *range(instances), *range(instances)))),
            pool=None,
            at_us=draw(st.integers(0, 400)),
            mean_time_between_us=None,
            repair_us=draw(st.sampled_from((None, 0, 10, 60, 300))),
            requests=draw(st.sampled_from(("retry", "retry", "lose"))),
            max_retries=_one_of(draw, 0, 1, 3),
        )
        for _ in range(_one_of(draw, 1, 2, 4))
    )


def draw_mortal_fleet(draw: Draw) -> Scenario:
    """Any small cluster with nothing between arrival and router, whose instances die at given times."""
    pools = _pools(draw, split=False)
    policy = Policy(
        name="drawn",
        admission=PluginConfig(kind="always-admit"),
        routing=_router(draw),
        scheduling=PluginConfig(kind=draw(st.sampled_from(("fcfs", "fcfs", "priority-fcfs", "sjf")))),
        priority=PluginConfig(kind="slo-class"),
        batching=_batching(draw),
        preemption_victim=draw(st.sampled_from(("tail", "tail", "priority"))),
        preemption_restore="recompute",
    )
    pools, policy = _another_engine(draw, pools, policy)
    pools = _in_stages(draw, pools, policy)
    instances = 0
    for pool in pools:
        instances += pool.instances
    cluster = Cluster(
        admission_latency_us=_one_of(draw, 0, 3),
        routing_latency_us=_one_of(draw, 0, 5),
        signals=_signals(draw),
        failures=_failures(draw, instances),
        lifecycle=draw(st.sampled_from((None, Lifecycle(loading_delay_us=40)))),
    )
    engine = pools[0].engine
    return Scenario(
        assemble(policy, cluster, pools, horizon_us=draw(st.sampled_from((None, None, 300)))),
        _asked(draw, engine.kv_blocks, engine.block_size_tokens),
    )


def _delay(draw: Draw) -> Delay:
    return Delay(mean_us=_one_of(draw, 0, 10, 50), std_dev_us=_one_of(draw, 0, 0, 20))


def _deaths(draw: Draw) -> tuple[Failure, ...]:
    """Random failures of any instance, or of those of a pool."""
    return tuple(
        replace(
            failure,
            pool=draw(st.sampled_from((None, "only"))) if failure.instance is None else None,
            at_us=None,
            mean_time_between_us=_one_of(draw, 60, 200, 600),
        )
        if draw(st.booleans())
        else failure
        for failure in _failures(draw, 4)
    )


def _nodes(draw: Draw) -> tuple[NodePool, ...]:
    """One or two kinds of nodes, few of each; some have no room for some instances."""
    return tuple(
        NodePool(
            name=name,
            gpu="slow",
            gpus_per_node=_one_of(draw, 1, 2, 2, 3),
            initial=_one_of(draw, 0, 1, 2),
            min=_one_of(draw, 0, 0, 1),
            max=_one_of(draw, 1, 2, 4),
            provisioning_delay=_delay(draw),
            cost_per_hour=draw(st.sampled_from((None, 1.0, 1.0, 3.0))),
        )
        for name in ("small", "large")[: _one_of(draw, 1, 1, 2)]
    )


def _autoscaler(draw: Draw, pools: tuple[Pool, ...]) -> Autoscaler:
    held = sum(pool.instances * gpus_of(pool) for pool in pools)
    return Autoscaler(
        interval_us=_one_of(draw, 15, 40, 100),
        bounds={pool.name: (_one_of(draw, 0, 0, 1), pool.instances + _one_of(draw, 0, 1, 3)) for pool in pools},
        kv_utilization_threshold=draw(st.sampled_from((0.2, 0.8, 1.0))),
        scale_up_threshold=draw(st.sampled_from((0.5, 0.8))),
        scale_down_boundary=draw(st.sampled_from((0.1, 0.4))),
        avg_input_tokens=_one_of(draw, 4, 20, 100),
        scale_up_window_us=_one_of(draw, 0, 0, 30, 60),
        scale_down_window_us=_one_of(draw, 0, 30, 60),
        scrape_delay=_delay(draw),
        max_gpus=draw(st.sampled_from((None, None, held, held + 1, held + 2))),
    )


def draw_living_fleet(draw: Draw) -> Scenario:
    """A cluster whose instances come and go in all ways: random failures, missing nodes, the autoscaler."""
    scenario = draw_mortal_fleet(draw)
    experiment = scenario.experiment
    lifecycle = Lifecycle(
        loading_delay_us=_one_of(draw, 0, 0, 40),
        warm_up_requests=_one_of(draw, 0, 1, 3),
        warm_up_factor=draw(st.sampled_from((1.0, 1.5, 3.0))),
        drain=draw(st.sampled_from(("wait", "redirect", "immediate"))),
    )
    cluster = replace(
        experiment.cluster,
        lifecycle=lifecycle,
        failures=_deaths(draw) if draw(st.booleans()) else (),
        nodes=_nodes(draw) if draw(st.booleans()) else (),
        autoscaler=_autoscaler(draw, experiment.pools) if draw(st.integers(0, 2)) else None,
    )
    return Scenario(replace(experiment, cluster=cluster), scenario.asked)


def draw_fleet(draw: Draw) -> Scenario:
    """Any small cluster."""
    split = draw(st.booleans())
    pools = _pools(draw, split=split)
    routing = _router(draw)
    policy = Policy(
        name="drawn",
        admission=_admission(draw),
        routing=routing,
        scheduling=PluginConfig(kind=draw(st.sampled_from(("fcfs", "fcfs", "priority-fcfs", "sjf")))),
        priority=PluginConfig(kind=draw(st.sampled_from(("constant", "slo-class")))),
        batching=_batching(draw),
        preemption_victim=draw(st.sampled_from(("tail", "priority", "cheapest-recompute"))),
        preemption_restore=draw(st.sampled_from(("recompute", "swap", "auto"))),
        slo_priorities=draw(st.sampled_from((SLO_PRIORITIES, _APRIL, {"standard": 1, "batch": 5}))),
        tenant_budgets=_budgets(draw),
        deferral=draw(st.sampled_from(("none", "none", "none", "idle-only"))),
        gateway=_gateway(draw),
    )
    pools, policy = _another_engine(draw, pools, policy)
    pools = _in_stages(draw, pools, policy)
    cluster = Cluster(
        admission_latency_us=_one_of(draw, 0, 0, 3),
        routing_latency_us=_one_of(draw, 0, 0, 5),
        signals=_signals(draw),
        disaggregation=_disaggregation(draw, routing) if split else None,
    )
    engine = pools[0].engine
    return Scenario(
        assemble(policy, cluster, pools, horizon_us=draw(st.sampled_from((None, None, None, 150, 600)))),
        _asked(draw, engine.kv_blocks, engine.block_size_tokens),
    )


def _in_stages(draw: Draw, pools: tuple[Pool, ...], policy: Policy) -> tuple[Pool, ...]:
    """Sometimes with a pipeline in each instance, if its rule is vLLM's."""
    ahead = policy.batching.settings.get("async_scheduling")
    if policy.batching.kind != "vllm-v1" or not (ahead or pools[0].engine.speculative is None):
        return pools
    stages = draw(st.sampled_from((1, 1, 1, 2, 3)))
    return tuple(replace(pool, engine=replace(pool.engine, pipeline_parallel=stages)) for pool in pools)


def _another_engine(draw: Draw, pools: tuple[Pool, ...], policy: Policy) -> tuple[tuple[Pool, ...], Policy]:
    """Sometimes the same with another batching rule, or with speculative decoding."""
    which = draw(st.sampled_from(("none", "none", "none", "other", "other", "speculative")))
    if which == "speculative":
        drafts = with_drafts(draw, pools[0].engine, policy).speculative
        return tuple(replace(pool, engine=replace(pool.engine, speculative=drafts)) for pool in pools), policy
    if which == "none":
        return pools, policy
    engine, policy = other(draw, pools[0].engine, policy)
    stages, any_number = engine.pipeline_parallel, engine.max_num_seqs == UNLIMITED
    splits = policy.batching.kind != "nano"

    def changed(of: Engine) -> Engine:
        return replace(
            of,
            pipeline_parallel=stages,
            max_num_seqs=UNLIMITED if any_number else of.max_num_seqs,
            long_prefill_token_threshold=of.long_prefill_token_threshold if splits else 0,
            max_num_batched_tokens=of.max_num_batched_tokens if splits else 2048,
        )

    return tuple(replace(pool, engine=changed(pool.engine)) for pool in pools), policy


def _batching(draw: Draw) -> PluginConfig:
    if draw(st.integers(0, 2)):
        return PluginConfig(kind="blis")
    return vllm(draw, watermark=draw(st.sampled_from((0.0, 0.0, 0.1))), enable_chunked_prefill=True)


def with_adapters(draw: Draw, scenario: Scenario) -> Scenario:
    """The same with LoRA adapters for most requests, if the batching rule supports them."""
    experiment, policy = scenario.experiment, scenario.experiment.policy
    if policy.batching.kind in OTHERS:
        return scenario
    engines = [replace(pool.engine, lora=lora(draw), pipeline_parallel=1) for pool in experiment.pools]
    pools = tuple(replace(pool, engine=engine) for pool, engine in zip(experiment.pools, engines, strict=True))
    scorers = (_scorer("lora-affinity", 2.0), _scorer(draw(st.sampled_from(("load-balance", "kv-utilization"))), 1.0))
    routing = PluginConfig(kind="weighted", settings={"scorers": scorers})
    if draw(st.booleans()):
        policy = replace(policy, routing=routing)
    return Scenario(replace(experiment, pools=pools, policy=policy), adapted(draw, scenario.asked))


def _scorer(kind: str, weight: float) -> PluginConfig:
    return PluginConfig(kind=kind, settings={"weight": weight})


def draw_fleet_with_adapters(draw: Draw) -> Scenario:
    """Any cluster, with adapters."""
    return with_adapters(draw, draw_fleet(draw))


def draw_mortal_fleet_with_adapters(draw: Draw) -> Scenario:
    """Any cluster whose instances die."""
    return with_adapters(draw, draw_mortal_fleet(draw))


def _sharing(draw: Draw, scenario: Scenario) -> Scenario:
    """The same with a tier that all instances share, or two pools each, often below a small one of their own."""
    made = scenario.experiment
    if made.policy.batching.kind in OTHERS:
        return scenario
    own = tuple(
        KvTier(name=name, blocks=_one_of(draw, 0, 1, 2, 6), bandwidth_tokens_per_us=_one_of(draw, 1, 100))
        for name in ("cpu", "disk")[: _one_of(draw, 0, 0, 1, 2)]
    )
    store = KvTier(
        name="store",
        blocks=_one_of(draw, 0, 3, 6, 12, 40),
        bandwidth_tokens_per_us=draw(st.sampled_from((0.3, 1.0, 100.0))),
        base_latency_us=_one_of(draw, 0, 5, 40),
        shared=True,
    )
    overlap, fewer, apart = draw(st.booleans()), draw(st.booleans()), not draw(st.integers(0, 3))
    pools = []
    for number, pool in enumerate(made.pools):
        last = replace(store, name=f"store {number}") if apart else store
        tiers = KvTiers(kind="offload", tiers=(*own, last), overlap=overlap)
        blocks = min(pool.engine.kv_blocks, 12) if fewer else pool.engine.kv_blocks
        engine = replace(pool.engine, kv_tiers=tiers, enable_prefix_caching=True, kv_blocks=blocks)
        pools.append(replace(pool, engine=engine))
    return Scenario(replace(made, pools=tuple(pools)), scenario.asked)


def draw_sharing_fleet(draw: Draw) -> Scenario:
    """Any small cluster with a tier that instances share."""
    return _sharing(draw, draw_fleet(draw))


def draw_mortal_sharing_fleet(draw: Draw) -> Scenario:
    """The same whose instances die."""
    return _sharing(draw, draw_mortal_fleet(draw))
