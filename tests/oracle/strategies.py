"""Small simulations in which everything can go wrong.

Sizes are chosen for pressure, not for realism: pools of a few blocks, budgets of a few tokens, requests that arrive
together and share what others have computed. Being small, failures also shrink to something that a person can follow
by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from blis_tui.engine.request import Media, Reasoning, Request, Segments
from blis_tui.model import (
    SLO_CLASSES,
    Cluster,
    Encoder,
    Engine,
    Experiment,
    Hardware,
    HostLink,
    KvTier,
    KvTiers,
    Lora,
    Model,
    PluginConfig,
    Policy,
    Pool,
    Speculative,
    Workload,
)
from blis_tui.model.engine import UNLIMITED
from blis_tui.spec.shipped import builtin

from . import draws as st
from .runs import Source

if TYPE_CHECKING:
    from blis_tui.workload.source import RequestSource

    from .draws import Choice, Draw

_MODEL: Final = Model(
    name="tiny",
    hidden_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    intermediate_size=512,
    vocab_size=1000,
    activation_bytes=2,
    kv_cache_bytes=2,
    weight_bytes=2,
    max_position_embeddings=4096,
)
_HARDWARE: Final = Hardware(
    name="slow",
    memory_gib=1,
    peak_tflops_bf16=0.05,
    peak_tflops_fp8=0,
    memory_bandwidth_tb_per_s=0.001,
    mfu_prefill=0.5,
    mfu_decode=0.3,
)
_CACHING: Final = st.sampled_from((True, True, True, False))
_ANY: Final = "any"
_SHORT_OF_BLOCKS: Final = "short of blocks"
_SHORT_OF_TOKENS: Final = "short of tokens"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The parameters of one request, from which each simulation makes its own ``Request``."""

    name: str
    arrival_us: int
    input_tokens: int
    output_tokens: int
    declared_tokens: int
    segments: Segments = ()
    slo_class: str = "standard"
    deadline_us: int = 0
    tenant: str = ""
    session: str = ""
    adapter: str = ""

    def request(self, index: int) -> Request:
        made = Request(
            index,
            self.name,
            self.arrival_us,
            self.input_tokens,
            self.output_tokens,
            self.segments,
            self.slo_class,
            self.tenant,
            self.deadline_us,
            self.session,
            adapter=self.adapter,
        )
        made.declare(self.declared_tokens or None)
        made.reasoning = thought(index, self.output_tokens)
        made.media = Media(*(self.input_tokens * (index % part == 0) // 4 for part in (2, 3, 5)))
        return made


def thought(index: int, output_tokens: int) -> Reasoning | None:
    """All kinds of reasoning, independent of other draws: none, part of the answer, all of it."""
    return Reasoning(index * 3 % 5 * output_tokens // 4) if index % 4 else None


class Scenario:
    """One simulation: the experiment and its requests in order of arrival."""

    def __init__(self, experiment: Experiment, asked: tuple[Asked, ...]) -> None:
        self.experiment = experiment
        self.asked = asked

    def requests(self) -> list[Request]:
        return [asked.request(index) for index, asked in enumerate(self.asked)]

    def source(self) -> RequestSource:
        """A workload that feeds the requests to a cluster."""
        return Source(self.requests())

    @property
    def tokens(self) -> int:
        """All tokens to process, plus one per request for prompts that are cached already."""
        return sum(asked.input_tokens + asked.output_tokens + 1 for asked in self.asked)

    def __repr__(self) -> str:
        experiment, policy = self.experiment, self.experiment.policy
        parts = [
            *(
                f"{pool.instances} x {pool.role}: {pool.engine} {pool.latency} TP {pool.tensor_parallel}"
                for pool in experiment.pools
            ),
            str(experiment.cluster),
            *(
                f"{name}: {plug.kind} {dict(plug.settings)}"
                for name, plug in (
                    ("batching", policy.batching),
                    ("scheduling", policy.scheduling),
                    ("priority", policy.priority),
                    ("admission", policy.admission),
                    ("routing", policy.routing),
                )
            ),
            f"victim: {policy.preemption_victim}, {policy.preemption_restore}, {policy.preemption_recompute}",
            f"{policy.tenant_budgets} deferral: {policy.deferral} {policy.gateway} {policy.slo_priorities}",
            f"horizon: {experiment.horizon_us}",
            *(str(asked) for asked in self.asked),
        ]
        return "\n  ".join(["Scenario", *parts])


def _batching(draw: Draw, pressure: str) -> PluginConfig:
    if draw(st.integers(0, 3)) < (3 if pressure == _SHORT_OF_TOKENS else 2):
        return PluginConfig(kind="blis")
    return vllm(
        draw,
        watermark=draw(st.sampled_from((0.0, 0.0, 0.01, 0.1, 0.25, 0.5))),
        enable_chunked_prefill=draw(st.sampled_from((True, True, True, False))),
    )


def vllm(draw: Draw, **settings: float) -> PluginConfig:
    """vLLM's rule in any version, with these settings and random others."""
    settings |= {"reserve_full_input": draw(st.booleans()), "async_scheduling": draw(st.booleans())}
    version = draw(st.sampled_from(("0.32", "0.33", "0.10")))
    if version == "0.10":
        settings["max_num_partial_prefills"] = draw(st.integers(1, 2))
    else:
        settings["long_prefill_token_threshold_adaptive"] = draw(st.booleans())
        if not draw(st.integers(0, 3)):
            settings["max_num_active_seqs"] = draw(st.integers(1, 4))
    return PluginConfig(kind="vllm-v1", settings={**settings, "version": version})


def other(draw: Draw, engine: Engine, policy: Policy) -> tuple[Engine, Policy]:
    """The same with a rule that does not serve running requests first."""
    engine = replace(engine, host_link=None, kv_tiers=None)
    victim = "tail" if policy.preemption_victim == "cheapest-recompute" else policy.preemption_victim
    policy = replace(policy, preemption_victim=victim, preemption_restore="recompute", preemption_recompute=None)
    if draw(st.booleans()):
        engine = replace(engine, long_prefill_token_threshold=0, enforce_eager=draw(st.booleans()))
        return engine, replace(policy, batching=PluginConfig(kind="nano"))
    batching = PluginConfig(kind="llm-serving-sim", settings={"prioritize_prefill": draw(st.booleans())})
    if not draw(st.integers(0, 3)):
        engine = replace(engine, max_num_seqs=UNLIMITED)
    engine = replace(engine, pipeline_parallel=draw(st.sampled_from((1, 1, 2, 3, 5))))
    return engine, replace(policy, batching=batching, scheduling=PluginConfig(kind="fcfs"))


def with_drafts(draw: Draw, engine: Engine, policy: Policy) -> Engine:
    """The same with speculative decoding, and a drafter that the rule supports with its other settings."""
    settings = policy.batching.settings
    methods = ("ngram",) if policy.batching.kind == "blis" else ("ngram_gpu", "eagle")
    if not settings.get("async_scheduling"):
        methods = ("ngram", *methods)
    return replace(engine, speculative=replace(speculative(draw), method=draw(st.sampled_from(methods))))


_ORDERS = ("fcfs", "fcfs", "priority-fcfs", "sjf", "reverse-priority")


def _policy(draw: Draw, pressure: str) -> Policy:
    admission = PluginConfig(kind="always-admit")
    if pressure == _ANY and draw(st.integers(0, 4)) == 4:
        settings = {
            "capacity_tokens": draw(st.integers(1, 100)),
            "refill_tokens_per_s": draw(st.integers(0, 100_000)),
        }
        admission = PluginConfig(kind="token-bucket", settings=settings)
    return Policy(
        name="drawn",
        admission=admission,
        routing=PluginConfig(kind="round-robin"),
        scheduling=PluginConfig(
            kind=draw(st.sampled_from(("fcfs", "fcfs", "priority-fcfs", "sjf", "reverse-priority")))
        ),
        priority=PluginConfig(kind=draw(st.sampled_from(("constant", "slo-based", "inverted-slo", "slo-class")))),
        batching=_batching(draw, pressure),
        preemption_victim=draw(st.sampled_from(("tail", "priority", "cheapest-recompute"))),
        preemption_restore=(restore := draw(st.sampled_from(RESTORES))),
        preemption_recompute=draw(st.sampled_from((None, None, "prompt", "all"))) if restore == "recompute" else None,
    )


RESTORES: Final = ("recompute", "swap", "auto")


def _host_link(draw: Draw) -> HostLink | None:
    """Times of the same size as those of steps."""
    return HostLink(
        bandwidth_gb_per_s=draw(st.sampled_from((0.03, 0.2, 1.0))),
        base_latency_us=draw(st.sampled_from((0, 7))),
        blocks=draw(st.one_of(st.none(), st.integers(0, 6))),
        overlap=draw(st.booleans()),
    )


def _kv_tiers(draw: Draw) -> KvTiers | None:
    kind = draw(st.sampled_from(("none", "none", "mirror", "threshold", "offload", "offload")))
    if kind == "none":
        return None
    tiers = tuple(
        KvTier(
            name=name,
            blocks=draw(st.integers(0, 12)),
            bandwidth_tokens_per_us=draw(st.sampled_from((0.3, 100.0))),
            base_latency_us=draw(st.sampled_from((0, 5))),
        )
        for name in ("cpu", "disk")[: draw(st.integers(1, 2)) if kind == "offload" else 1]
    )
    offload_at = draw(st.sampled_from((0.0, 0.5, 0.9)))
    return KvTiers(kind=kind, tiers=tiers, offload_at=offload_at, overlap=draw(st.booleans()))


def _latency(draw: Draw) -> PluginConfig:
    if draw(st.integers(0, 7)) == 7:
        return PluginConfig(kind="roofline", settings={"alpha": (0.0, 0.0, 0.0)})
    alpha = draw(st.one_of(st.just((0, 0, 0)), st.tuples(*(st.integers(0, top) for top in (20, 2, 10)))))
    beta = draw(st.tuples(*(st.integers(0, top) for top in (40, 3, 5))))
    return PluginConfig(kind="blackbox", settings={"alpha": tuple(map(float, alpha)), "beta": tuple(map(float, beta))})


def speculative(draw: Draw) -> Speculative:
    """Few or many drafts, of which none, all, some, or fewer and fewer are accepted."""
    drafts, chance = draw(st.sampled_from((1, 2, 4, 7))), draw(st.sampled_from((0.0, 0.3, 0.7, 0.9, 1.0, None)))
    rates = draw(st.lists(st.sampled_from((0.0, 0.2, 0.5, 0.9, 1.0)), min_size=drafts, max_size=drafts))
    return Speculative(
        draft_tokens=drafts,
        acceptance=chance,
        acceptance_rates=() if chance is not None else tuple(sorted(rates, reverse=True)),
        draft_token_us=draw(st.sampled_from((0, 3))),
    )


def encoding(engine: Engine, *, always: bool = False) -> Engine:
    """Every third engine has an encoder that takes time, independent of other draws, with little room or enough."""
    if engine.kv_blocks % 3 and not always:
        return engine
    some = engine.kv_blocks + engine.max_num_batched_tokens
    encoder = Encoder(
        token_us=0.75 * engine.block_size_tokens,
        max_num_encoder_input_tokens=(3, 8, 25, 100)[some % 4],
        encoder_cache_size=(12, 25, 5)[some % 3],
        max_tokens_per_mm_item=0,
        disable_chunked_mm_input=not some % 5,
    )
    return replace(engine, encoder=encoder)


def _any_engine(draw: Draw) -> Engine:
    return Engine(
        max_num_seqs=draw(st.one_of(st.integers(1, 4), st.integers(1, 16))),
        max_num_batched_tokens=draw(st.one_of(st.integers(1, 8), st.integers(1, 64), st.just(2048))),
        long_prefill_token_threshold=draw(st.one_of(st.just(0), st.integers(1, 8))),
        max_model_len=draw(st.one_of(st.none(), st.none(), st.none(), st.integers(2, 40), st.integers(25, 200))),
        block_size_tokens=draw(st.sampled_from((1, 2, 4, 16))),
        kv_blocks=draw(st.one_of(st.integers(1, 10), st.integers(1, 40), st.just(200))),
        enable_prefix_caching=draw(_CACHING),
    )


def _engine_short_of_blocks(draw: Draw) -> Engine:
    """Pools so small that most runs preempt."""
    return Engine(
        max_num_seqs=draw(st.integers(2, 8)),
        max_num_batched_tokens=draw(st.one_of(st.integers(1, 12), st.integers(8, 64))),
        long_prefill_token_threshold=draw(st.sampled_from((0, 1, 2, 3, 8))),
        max_model_len=draw(st.sampled_from((None, None, None, 20, 50))),
        block_size_tokens=draw(st.sampled_from((1, 1, 2, 4))),
        kv_blocks=draw(st.integers(2, 12)),
        enable_prefix_caching=draw(_CACHING),
        host_link=_host_link(draw),
        kv_tiers=_kv_tiers(draw),
    )


def _engine_short_of_tokens(draw: Draw) -> Engine:
    """Cached prompts cost no budget, so more requests may decode than it covers, and stall."""
    threshold = draw(st.integers(1, 4))
    return Engine(
        max_num_seqs=draw(st.integers(4, 8)),
        max_num_batched_tokens=threshold + draw(st.integers(0, 3)),
        long_prefill_token_threshold=draw(st.sampled_from((0, threshold, threshold))),
        max_model_len=None,
        block_size_tokens=draw(st.sampled_from((1, 2, 4))),
        kv_blocks=draw(st.sampled_from((12, 30, 200))),
        enable_prefix_caching=draw(_CACHING),
    )


def _chain(segments: list[tuple[str, int]]) -> Segments:
    return tuple(segments)


_SEGMENT: Final = st.pairs(st.sampled_from("xy"), st.sampled_from((1, 2, 4, 4, 6, 8, 16)))
_GROUPS: Final = st.lists(st.lists(_SEGMENT, min_size=1, max_size=2).map(_chain), max_size=3)
"""Few names and round lengths: chains that share a head, and chains that only seem to."""
_WHOLE_BLOCKS: Final = [(("x", 4),), (("x", 4), ("y", 4))]
"""Prefixes that end at block boundaries, so that prompts of nothing else are fully cached."""


def segments() -> Choice[Segments]:
    """The shared head of a prompt, up to three segments long."""
    return st.lists(_SEGMENT, min_size=1, max_size=3).map(_chain)


def _cut(whole: Segments, tokens: int) -> Segments:
    """The first ``tokens`` tokens of ``whole``."""
    left: list[tuple[str, int]] = []
    for name, length in whole:
        if tokens > 0:
            left.append((name, min(length, tokens)))
        tokens -= length
    return tuple(left)


_ENGINES: Final = {
    _ANY: _any_engine,
    _SHORT_OF_BLOCKS: _engine_short_of_blocks,
    _SHORT_OF_TOKENS: _engine_short_of_tokens,
}


def _lengths(draw: Draw, engine: Engine, pressure: str, most: int) -> tuple[int, int]:
    """Prompt and output of one request; sometimes it is too large for the pool."""
    room = engine.kv_blocks * engine.block_size_tokens
    if pressure == _SHORT_OF_TOKENS:
        return min(draw(st.sampled_from((1, 8, 30, 30))), room), draw(st.integers(0, 12))
    if pressure == _SHORT_OF_BLOCKS and draw(st.integers(0, 3)):
        inputs = draw(st.integers(1, max(1, most // draw(st.integers(1, 3)))))
        return inputs, draw(st.integers(max(1, (room - inputs) // 3), max(1, room - inputs + 1)))
    inputs = draw(st.integers(1, most))
    return inputs, draw(st.one_of(st.integers(0, 1), st.integers(0, max(0, min(most, room - inputs + 2)))))


def _asked(draw: Draw, engine: Engine, pressure: str) -> tuple[Asked, ...]:
    """Up to a dozen requests."""
    groups = _WHOLE_BLOCKS if pressure == _SHORT_OF_TOKENS else draw(_GROUPS)
    most = min(draw(st.sampled_from((8, 24, 48))), engine.kv_blocks * engine.block_size_tokens + 1)
    bursts = st.sampled_from((0, 0, 0, 7, 40))
    gaps = bursts
    if pressure == _ANY:
        gaps = draw(st.sampled_from((st.just(0), st.integers(0, 3), bursts, st.integers(0, 400))))
    mortal = draw(st.sampled_from((0, 0, 1, 3)))
    asked: list[Asked] = []
    now = 0
    for index in range(draw(st.integers(1 if pressure == _ANY else 3, 12))):
        now += draw(gaps)
        inputs, outputs = _lengths(draw, engine, pressure, most)
        prefix: Segments = ()
        if draw(st.integers(0, 3)) and groups:
            prefix = draw(st.sampled_from(groups))
            shared = sum(length for _, length in prefix)
            if shared <= most and draw(st.integers(0, 2 if pressure == _SHORT_OF_TOKENS else 1)):
                inputs = shared  # the prompt is nothing but the shared prefix
            prefix = _cut(prefix, inputs)
        declared = outputs
        if not draw(st.integers(0, 3)):
            declared = draw(st.integers(0, 2 * outputs))
        deadline = max(1, now + draw(st.integers(-20, 600))) if draw(st.integers(0, 5)) < mortal else 0
        asked.append(
            Asked(
                name=f"{draw(st.sampled_from('ab'))}{index}",
                arrival_us=now,
                input_tokens=inputs,
                output_tokens=outputs,
                declared_tokens=declared,
                segments=prefix,
                slo_class=draw(st.sampled_from(SLO_CLASSES)),
                deadline_us=deadline,
            )
        )
    return tuple(asked)


def lora(draw: Draw) -> Lora:
    """Few places for adapters, and loads that take as long as some steps."""
    slots = draw(st.sampled_from((1, 1, 2, 3)))
    return Lora(
        max_loras=slots,
        max_cpu_loras=slots + draw(st.sampled_from((0, 1, 3))),
        max_lora_rank=draw(st.sampled_from((8, 12, 64))),
        ranks={"p": 4},
        bytes_per_rank=draw(st.sampled_from((1, 50_000))),
        base_latency_us=draw(st.sampled_from((0, 1, 30, 200))),
        storage_latency_us=draw(st.sampled_from((0, 100))),
        step_overhead=draw(st.sampled_from((None, 0.0, 0.5))),
    )


def adapted(draw: Draw, asked: tuple[Asked, ...]) -> tuple[Asked, ...]:
    """The same requests, most of them with an adapter."""
    names = ("", "p", "q", "r", "s")[: draw(st.integers(3, 5))]
    return tuple(replace(one, adapter=draw(st.sampled_from(names))) for one in asked)


def draw_scenario(
    draw: Draw,
    *,
    running_first: bool = True,
    starved: bool = False,
    adapters: bool = False,
    drafts: bool = False,
    media: bool = False,
) -> Scenario:
    """Any small simulation, with ``blis`` or ``vllm-v1`` batching, or else with one of the others.

    ``starved``: one with too few KV blocks; ``adapters``: one with LoRA adapters; ``drafts``: one with speculative
    decoding; ``media``: one whose encoder is scheduled.
    """
    pressure = _SHORT_OF_BLOCKS if starved else draw(st.sampled_from(tuple(_ENGINES)))
    engine = encoding(_ENGINES[pressure](draw), always=media)
    asked = _asked(draw, engine, pressure)
    policy = _policy(draw, pressure)
    if (drafts or media) and policy.batching.kind == "blis":
        policy = replace(policy, batching=vllm(draw, watermark=0.0, enable_chunked_prefill=True))
    if not running_first:
        engine, policy = other(draw, engine, policy)
    elif drafts or not draw(st.integers(0, 2)):
        engine = with_drafts(draw, engine, policy)
    if adapters:
        engine, asked = replace(engine, lora=lora(draw)), adapted(draw, asked)
    experiment = _experiment(
        engine,
        policy,
        latency=_latency(draw),
        instances=draw(st.sampled_from((1, 1, 1, 1, 2, 3))),
        cluster=Cluster(
            admission_latency_us=draw(st.sampled_from((0, 0, 3))),
            routing_latency_us=draw(st.sampled_from((0, 0, 5))),
        ),
        horizon_us=draw(st.one_of(st.none(), st.none(), st.none(), st.integers(0, 800))),
    )
    return Scenario(_in_stages(draw, experiment), asked)


def _in_stages(draw: Draw, experiment: Experiment) -> Experiment:
    """The same, sometimes with a pipeline if the rule is vLLM's."""
    (pool,) = experiment.pools
    engine, batching = pool.engine, experiment.policy.batching
    if batching.kind != "vllm-v1":
        return experiment
    if engine.speculative is not None and not batching.settings["async_scheduling"]:
        return experiment
    stages = draw(st.sampled_from((1, 1, 2, 3, 5)))
    return replace(experiment, pools=(replace(pool, engine=replace(engine, pipeline_parallel=stages)),))


def draw_two_phases(draw: Draw) -> Scenario:
    """Any small simulation with the rewritten rule of LLMServingSim."""
    scenario = draw_scenario(draw, starved=draw(st.booleans()))
    experiment = scenario.experiment
    (pool,) = experiment.pools
    engine = replace(pool.engine, speculative=None)
    chunked = draw(st.booleans())
    if not chunked:
        engine = replace(engine, max_num_batched_tokens=max(engine.max_num_batched_tokens, 100))
    settings: dict[str, bool | float | str] = {
        "version": "2026-08",
        "reserve_full_isl": draw(st.booleans()),
        "enable_chunked_prefill": chunked,
    }
    policy = replace(
        experiment.policy,
        batching=PluginConfig(kind="llm-serving-sim", settings=settings),
        scheduling=PluginConfig(kind="fcfs"),
    )
    pools = (_pool_for(policy, replace(pool, engine=engine)),)
    return Scenario(replace(experiment, policy=policy, pools=pools), scenario.asked)


def draw_tensorrt_llm(draw: Draw) -> Scenario:
    """Any small simulation with TensorRT-LLM's rule, often short of KV blocks."""
    scenario = draw_scenario(draw, starved=draw(st.booleans()))
    experiment = scenario.experiment
    (pool,) = experiment.pools
    engine = replace(pool.engine, speculative=None, pipeline_parallel=1)
    chunked = draw(st.booleans())
    if not chunked:
        engine = replace(engine, max_num_batched_tokens=max(engine.max_num_batched_tokens, 100))
    settings: dict[str, bool | float | str] = {
        "capacity_scheduler_policy": draw(
            st.sampled_from(("GUARANTEED_NO_EVICT", "GUARANTEED_NO_EVICT", "MAX_UTILIZATION"))
        ),
        "enable_chunked_prefill": chunked,
        "disable_overlap_scheduler": draw(st.booleans()),
        "batch_wait_timeout_iters": draw(st.sampled_from((0, 1, 2, 5))),
        "batch_wait_max_tokens_ratio": draw(st.sampled_from((0.0, 0.1, 0.5, 0.9))),
    }
    policy = replace(experiment.policy, batching=PluginConfig(kind="tensorrt-llm", settings=settings))
    pools = (_pool_for(policy, replace(pool, engine=engine)),)
    return Scenario(replace(experiment, policy=policy, pools=pools), scenario.asked)


def draw_overload(draw: Draw) -> Scenario:
    """One instance with a far too small KV cache, under any rule; every prompt fits into a step."""
    engine = _engine_short_of_blocks(draw)
    policy = _policy(draw, _SHORT_OF_BLOCKS)
    if draw(st.booleans()):
        engine, policy = other(draw, engine, policy)
    settings = policy.batching.settings
    if policy.batching.kind == "nano" or not settings.get("enable_chunked_prefill", True):
        engine = replace(engine, max_num_batched_tokens=2048)
    asked = _asked(draw, engine, _SHORT_OF_BLOCKS)
    cluster = Cluster(admission_latency_us=0, routing_latency_us=0)
    return Scenario(_experiment(engine, policy, latency=_latency(draw), cluster=cluster, horizon_us=None), asked)


def uncomputed_victim() -> Scenario:
    """A less urgent prefill, served first in its step, falls victim to a more urgent decode behind it.

    Two of its shared blocks were granted in that very step; only the four before them may be found when it returns.
    """
    policy = Policy(
        name="by hand",
        admission=PluginConfig(kind="always-admit"),
        routing=PluginConfig(kind="round-robin"),
        scheduling=PluginConfig(kind="fcfs"),
        priority=PluginConfig(kind="slo-class"),
        batching=PluginConfig(kind="blis"),
        preemption_victim="priority",
        preemption_restore="recompute",
    )
    engine = Engine(
        max_num_seqs=2,
        max_num_batched_tokens=8,
        long_prefill_token_threshold=2,
        max_model_len=None,
        block_size_tokens=1,
        kv_blocks=8,
    )
    long = Asked(
        name="long",
        arrival_us=0,
        input_tokens=8,
        output_tokens=1,
        declared_tokens=1,
        segments=(("x", 8),),
        slo_class="background",
    )
    urgent = Asked(
        name="urgent", arrival_us=0, input_tokens=1, output_tokens=3, declared_tokens=3, slo_class="critical"
    )
    latency = PluginConfig(kind="blackbox", settings={"alpha": (0.0, 0.0, 0.0), "beta": (10.0, 0.0, 0.0)})
    cluster = Cluster(admission_latency_us=0, routing_latency_us=0)
    return Scenario(_experiment(engine, policy, latency=latency, cluster=cluster, horizon_us=None), (long, urgent))


def aborted_decode() -> Scenario:
    """A request times out in the very step that fills its last block, under synchronous scheduling.

    The token is known when the step is planned, so the block has content and is reused last: before it comes what
    a preempted request has left behind, which is not found when that request returns.
    """
    policy = Policy(
        name="by hand",
        admission=PluginConfig(kind="always-admit"),
        routing=PluginConfig(kind="round-robin"),
        scheduling=PluginConfig(kind="fcfs"),
        priority=PluginConfig(kind="constant"),
        batching=PluginConfig(
            kind="vllm-v1",
            settings={
                "version": "0.32",
                "watermark": 0.5,
                "enable_chunked_prefill": False,
                "reserve_full_input": False,
                "async_scheduling": False,
                "long_prefill_token_threshold_adaptive": False,
            },
        ),
        preemption_victim="tail",
        preemption_restore="recompute",
    )
    engine = Engine(
        max_num_seqs=4,
        max_num_batched_tokens=5,
        long_prefill_token_threshold=3,
        max_model_len=None,
        block_size_tokens=4,
        kv_blocks=11,
    )
    requests = (("a", 0, 2, 22, 0), ("b", 17, 6, 21, 175), ("c", 28, 22, 5, 0), ("d", 37, 16, 12, 0))
    asked = tuple(
        Asked(
            name=name,
            arrival_us=arrival_us,
            input_tokens=inputs,
            output_tokens=outputs,
            declared_tokens=outputs,
            deadline_us=deadline_us,
        )
        for name, arrival_us, inputs, outputs, deadline_us in requests
    )
    latency = PluginConfig(kind="blackbox", settings={"alpha": (0.0, 0.0, 0.0), "beta": (10.0, 0.0, 0.0)})
    cluster = Cluster(admission_latency_us=0, routing_latency_us=0)
    return Scenario(_experiment(engine, policy, latency=latency, cluster=cluster, horizon_us=None), asked)


def _experiment(
    engine: Engine,
    policy: Policy,
    *,
    latency: PluginConfig,
    cluster: Cluster,
    horizon_us: int | None,
    instances: int = 1,
) -> Experiment:
    return assemble(policy, cluster, (pool_of(engine, latency, instances=instances),), horizon_us=horizon_us)


def pool_of(
    engine: Engine,
    latency: PluginConfig,
    *,
    instances: int,
    name: str = "only",
    role: str = "any",
    tensor_parallel: int = 1,
) -> Pool:
    return Pool(
        name=name,
        role=role,
        instances=instances,
        model=_MODEL,
        hardware=_HARDWARE,
        tensor_parallel=tensor_parallel,
        engine=engine,
        latency=latency,
    )


def _pool_for(policy: Policy, pool: Pool) -> Pool:
    """The pool without the scheduling of its encoder unless the rule is vLLM's, which alone has it."""
    encoder = pool.engine.encoder
    if encoder is None or policy.batching.kind == "vllm-v1":
        return pool
    return replace(pool, engine=replace(pool.engine, encoder=Encoder(token_us=encoder.token_us)))


def assemble(policy: Policy, cluster: Cluster, pools: tuple[Pool, ...], *, horizon_us: int | None) -> Experiment:
    pools = tuple(_pool_for(policy, pool) for pool in pools)
    return Experiment(
        name="small",
        description="",
        seed=0,
        workload=Workload(name="small"),
        policy=policy,
        cluster=cluster,
        pools=pools,
        horizon_us=horizon_us,
        expect=(),
        sha256="",
        document={},
        plugins=builtin(),
    )
