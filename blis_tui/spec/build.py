"""A resolved document (plain data, defaults filled in, references followed) -> the frozen experiment.

Standard library only: a resolved document can be simulated where neither PyYAML nor jsonschema is installed.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from blis_tui.canonical import to_sorted_json
from blis_tui.engine.adapters.costs import reserved_bytes
from blis_tui.engine.kv.rank_capacity import kv_blocks
from blis_tui.errors import InputError
from blis_tui.inputs import MAX_TRACE_BYTES, input_digest, real_path
from blis_tui.registry import builtin
from blis_tui.spec import model as spec
from blis_tui.spec.batching_traits import batching_traits
from blis_tui.spec.build_adapters import adapters_of, lora_of
from blis_tui.spec.build_clients import multimodal_of, rate_curve_of, reasoning_of, session_of
from blis_tui.spec.build_memory import host_link_of, kv_tiers_of
from blis_tui.spec.document_parts import Part, floats_of, plugin_of
from blis_tui.spec.hf import build_model
from blis_tui.spec.limits import UNLIMITED
from blis_tui.spec.operator_files import tables_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.registry import Registry


def digest(document: Mapping[str, object]) -> str:
    """SHA-256 of a resolved document in hexadecimal; a trace counts by its content, not by where it lies."""
    hashed = dict(document)
    workload = document.get("workload")
    if isinstance(workload, dict) and isinstance(trace := workload.get("trace"), dict):
        hashed["workload"] = {
            **workload,
            "trace": {key: value for key, value in trace.items() if key != "file"},
        }
    return hashlib.sha256(to_sorted_json(hashed).encode()).hexdigest()


def build_experiment(
    document: Mapping[str, object], *, trace_path: str | None = None, plugins: Registry | None = None
) -> spec.Experiment:
    """Build the experiment a resolved document describes.

    Args:
        document: plain data as :func:`blis_tui.spec.load.load` leaves it in ``Experiment.document``;
            ``auto`` for ``kv_blocks`` and ``max_model_len`` is worked out here.
        trace_path: where the trace lies, when not where ``workload.trace.file`` says.
        plugins: what its names may refer to; None = this package's own plug-ins.

    Raises:
        InputError: the document is not a resolved experiment, or its trace is missing or another one.
    """
    resolved = with_numbers(document, plugins)
    top = Part(resolved, "")
    metadata, cluster = top.part("metadata"), top.part("cluster")
    policy = _policy(top.part("policy"))
    pools = _pools(resolved)
    return spec.Experiment(
        name=metadata.text("name"),
        description=metadata.text("description", ""),
        seed=top.integer("seed"),
        workload=build_workload(top.part("workload"), trace_path),
        policy=policy,
        cluster=_cluster(cluster, policy, pools),
        pools=pools,
        horizon_us=top.limit("horizon_us"),
        warm_up_us=top.integer("warm_up_us", 0),
        expect=tuple(build_expectation(entry) for entry in top.parts("expect")),
        sha256=digest(resolved),
        document=resolved,
        plugins=plugins or builtin(),
        slo_targets=_slo_targets(top.part("slo_targets")) if "slo_targets" in document else {},
        fitness=floats_of(top.part("fitness").part("weights")) if "fitness" in document else {},
        report=top.text("report", "auto"),
    )


def stack_of(document: Mapping[str, object], pool: Mapping[str, object] | None = None) -> dict[str, object]:
    """What the instances of a pool run with: its own keys, and those of the (resolved) experiment where it has none."""
    cluster = Part(document, "").part("cluster").data
    said = {**document, **{key: cluster[key] for key in ("tensor_parallel",) if key in cluster}, **(pool or {})}
    return {key: said[key] for key in ("model", "hardware", "latency", "engine", "tensor_parallel") if key in said}


def build_model_part(stack: Mapping[str, object]) -> spec.Model:
    """The model of a stack, with its KV cache in the type that the engine is set to."""
    part = Part(stack, "").part("model")
    engine = Part(stack, "").part("engine")
    config = part.part("config")
    for key in (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "max_position_embeddings",
    ):
        config.integer(key)
    config.text("torch_dtype")
    config.text("hidden_act")
    return build_model(part.name(), config.data, engine.text("kv_cache_dtype", "auto"))


def build_hardware_part(stack: Mapping[str, object]) -> spec.Hardware:
    """The accelerator of a stack."""
    part = Part(stack, "").part("hardware")
    peak, mfu = part.part("peak_tflops"), part.part("mfu")
    link = next((key for key in ("interconnect", "host_link") if key in part.data), None)
    watts = part.part("watts") if "watts" in part.data else Part({}, "")
    return spec.Hardware(
        name=part.name(),
        memory_gib=part.number("memory_gib"),
        peak_tflops_bf16=peak.number("bf16"),
        peak_tflops_fp8=peak.number("fp8"),
        memory_bandwidth_tb_per_s=part.number("memory_bandwidth_tb_per_s"),
        mfu_prefill=mfu.number("prefill"),
        mfu_decode=mfu.number("decode"),
        peak_tflops_fp4=peak.number("fp4", 0.0),
        host_link_gb_per_s=part.part("host_link").number("bandwidth_gb_per_s") if "host_link" in part.data else 32.0,
        interconnect_gb_per_s=64.0 if link is None else part.part(link).number("bandwidth_gb_per_s"),
        usd_per_hour=part.number("cost_per_hour_usd") if "cost_per_hour_usd" in part.data else None,
        idle_watts=watts.number("idle") if "idle" in watts.data else None,
        peak_watts=watts.number("peak") if "peak" in watts.data else None,
    )


def with_numbers(document: Mapping[str, object], plugins: Registry | None = None) -> dict[str, object]:
    """The document with numbers in place of ``auto``, for each pool its own.

    ``kv_blocks: auto`` is what fits into the memory beside the weights, as the batching rule sizes it;
    ``max_model_len: auto`` is the model's own limit, capped by the KV cache. What no instance runs with stays as it is.
    """
    cluster = Part(document, "").part("cluster")
    by_rank = batching_traits(document, plugins).sizes_pool_by_rank
    numbered = {**document}
    pools: list[Mapping[str, object]] = []
    for one in cluster.parts("pools") if "pools" in cluster.data else ():
        stack = stack_of(document, one.data)
        own = any(key in one.data for key in stack)
        pools.append({**one.data, "engine": _numbers(stack, by_rank=by_rank)} if own else one.data)
    if pools:
        numbered["cluster"] = {**cluster.data, "pools": pools}
    if not pools or any("engine" not in pool for pool in pools):
        numbered["engine"] = _numbers(stack_of(document), by_rank=by_rank)
    return numbered


def _numbers(stack: Mapping[str, object], *, by_rank: bool) -> dict[str, object]:
    """The engine of a stack with numbers in place of ``auto``."""
    part = Part(stack, "").part("engine")
    engine = dict(part.data)
    block_size = part.integer("block_size_tokens")
    model = build_model_part(stack)
    if engine.get("kv_blocks") == "auto":
        engine["kv_blocks"] = kv_blocks(
            model,
            build_hardware_part(stack),
            tensor_parallel=Part(stack, "").integer("tensor_parallel"),
            block_size_tokens=block_size,
            gpu_memory_utilization=part.number("gpu_memory_utilization"),
            by_rank=by_rank,
            pipeline_parallel=part.integer("pipeline_parallel", 1),
            reserved_bytes=adapter_bytes(part, model),
        )
    if engine.get("max_model_len") == "auto":
        blocks = Part(engine, "engine").integer("kv_blocks")
        engine["max_model_len"] = min(model.max_position_embeddings, blocks * block_size)
    return engine


def adapter_bytes(engine: Part, model: spec.Model) -> int:
    """What the places for LoRA adapters take, on all accelerators of an instance together."""
    return reserved_bytes(lora_of(engine.part("lora")), model) if "lora" in engine.data else 0


def _engine(part: Part) -> spec.Engine:
    return spec.Engine(
        max_num_seqs=part.integer("max_num_seqs") or UNLIMITED,
        max_num_batched_tokens=part.integer("max_num_batched_tokens"),
        long_prefill_token_threshold=part.integer("long_prefill_token_threshold"),
        max_model_len=part.limit("max_model_len"),
        block_size_tokens=part.integer("block_size_tokens"),
        kv_blocks=part.integer("kv_blocks"),
        enable_prefix_caching=part.flag("enable_prefix_caching", otherwise=True),
        host_link=host_link_of(part.part("host_link")) if "host_link" in part.data else None,
        kv_tiers=kv_tiers_of(part.part("kv_tiers")) if "kv_tiers" in part.data else None,
        pipeline_parallel=part.integer("pipeline_parallel", 1),
        speculative=_speculative(part.part("speculative")) if "speculative" in part.data else None,
        lora=lora_of(part.part("lora")) if "lora" in part.data else None,
        encoder=spec.Encoder(token_us=part.part("encoder").number("token_us")) if "encoder" in part.data else None,
    )


def _speculative(part: Part) -> spec.Speculative:
    return spec.Speculative(
        draft_tokens=part.integer("draft_tokens"),
        acceptance=part.number("acceptance"),
        draft_token_us=part.integer("draft_token_us"),
        method=part.text("method"),
    )


def _pools(document: Mapping[str, object]) -> tuple[spec.Pool, ...]:
    """The groups of equal instances: as they are listed, or as disaggregation divides them, or one."""
    cluster = Part(document, "").part("cluster")
    if "pools" in cluster.data:
        return tuple(
            replace(
                _pool(stack_of(document, one.data), one.integer("instances")),
                name=one.text("name"),
                role=one.text("role", "any"),
            )
            for one in cluster.parts("pools")
        )
    base = _pool(stack_of(document), cluster.integer("instances"))
    if "disaggregation" not in cluster.data:
        return (base,)
    split = cluster.part("disaggregation")
    prefill, decode = split.integer("prefill_instances"), split.integer("decode_instances")
    parts = (("prefill", prefill), ("decode", decode), ("whole", base.instances - prefill - decode))
    return tuple(replace(base, name=role, role=role, instances=count) for role, count in parts if count)


def _pool(stack: Mapping[str, object], instances: int) -> spec.Pool:
    part = Part(stack, "")
    latency = plugin_of(part.part("latency"))
    return spec.Pool(
        name="default",
        instances=instances,
        model=build_model_part(stack),
        hardware=build_hardware_part(stack),
        tensor_parallel=part.integer("tensor_parallel"),
        engine=_engine(part.part("engine")),
        latency=latency,
        operators=tables_for(latency),
    )


def _cluster(part: Part, policy: spec.Policy, pools: tuple[spec.Pool, ...]) -> spec.Cluster:
    signals = spec.Signals()
    if "signals" in part.data:
        given = part.part("signals")
        signals = spec.Signals(
            results=given.text("results"),
            refresh_interval_us=given.integer("refresh_interval_us"),
            cache_signal_delay_us=given.integer("cache_signal_delay_us"),
        )
    return spec.Cluster(
        admission_latency_us=part.integer("admission_latency_us"),
        routing_latency_us=part.integer("routing_latency_us"),
        signals=signals,
        disaggregation=_disaggregation(part.part("disaggregation"), policy) if "disaggregation" in part.data else None,
        lifecycle=_lifecycle(part.part("lifecycle")) if "lifecycle" in part.data else None,
        failures=tuple(map(_failure, part.parts("failures"))) if "failures" in part.data else (),
        nodes=tuple(map(_nodes, part.parts("nodes"))) if "nodes" in part.data else (),
        autoscaler=_autoscaler(part, pools) if "autoscaler" in part.data else None,
    )


def _lifecycle(part: Part) -> spec.Lifecycle:
    return spec.Lifecycle(
        loading_delay_us=part.integer("loading_delay_us"),
        warm_up_requests=part.integer("warm_up_requests"),
        warm_up_factor=part.number("warm_up_factor"),
        drain=part.text("drain"),
    )


def _failure(part: Part) -> spec.Failure:
    return spec.Failure(
        instance=part.integer("instance") if "instance" in part.data else None,
        pool=part.text("pool") if "pool" in part.data else None,
        at_us=part.integer("at_us") if "at_us" in part.data else None,
        mean_time_between_us=part.integer("mean_time_between_us") if "mean_time_between_us" in part.data else None,
        repair_us=part.limit("repair_us"),
        requests=part.text("requests"),
        max_retries=part.integer("max_retries"),
    )


def _delay(part: Part) -> spec.Delay:
    return spec.Delay(mean_us=part.integer("mean"), std_dev_us=part.integer("std_dev"))


def _nodes(part: Part) -> spec.NodePool:
    return spec.NodePool(
        name=part.text("name"),
        gpu=part.text("gpu"),
        gpus_per_node=part.integer("gpus_per_node"),
        initial=part.integer("initial"),
        min=part.integer("min"),
        max=part.integer("max"),
        provisioning_delay=_delay(part.part("provisioning_delay_us")),
        cost_per_hour=part.number("cost_per_hour") if "cost_per_hour" in part.data else None,
    )


def _autoscaler(cluster: Part, pools: tuple[spec.Pool, ...]) -> spec.Autoscaler:
    part = cluster.part("autoscaler")
    own = {one.text("name"): one for one in cluster.parts("pools")} if "pools" in cluster.data else {}
    bounds = {
        pool.name: tuple(
            (own[pool.name] if pool.name in own and key in own[pool.name].data else part).integer(key)
            for key in ("min_instances", "max_instances")
        )
        for pool in pools
    }
    return spec.Autoscaler(
        interval_us=part.integer("interval_us"),
        bounds={name: (least, most) for name, (least, most) in bounds.items()},
        kv_utilization_threshold=part.number("kv_utilization_threshold"),
        scale_up_threshold=part.number("scale_up_threshold"),
        scale_down_boundary=part.number("scale_down_boundary"),
        avg_input_tokens=part.integer("avg_input_tokens"),
        scale_up_window_us=part.integer("scale_up_stabilization_window_us"),
        scale_down_window_us=part.integer("scale_down_stabilization_window_us"),
        scrape_delay=_delay(part.part("scrape_delay_us")),
    )


def _disaggregation(part: Part, policy: spec.Policy) -> spec.Disaggregation:
    link = part.part("transfer")
    routes = {
        role: plugin_of(part.part(f"{role}_routing")) if f"{role}_routing" in part.data else policy.routing
        for role in ("prefill", "decode")
    }
    return spec.Disaggregation(
        decider=plugin_of(part.part("decider")),
        order=part.text("order"),
        undisaggregated=part.text("undisaggregated"),
        transfer=spec.Transfer(
            bandwidth_gb_per_s=link.number("bandwidth_gb_per_s"),
            base_latency_us=link.integer("base_latency_us"),
            bytes_per_token=None if link.data.get("bytes_per_token") == "model" else link.integer("bytes_per_token"),
            starts=link.text("starts"),
            contention=link.text("contention"),
            overlap=link.text("overlap", "none"),
            reuse_cached_blocks=link.flag("reuse_cached_blocks", otherwise=False),
        ),
        prefill_routing=routes["prefill"],
        decode_routing=routes["decode"],
    )


def build_workload(part: Part, trace_path: str | None = None) -> spec.Workload:
    """The workload that a complete document describes; its trace lies at ``trace_path``, else where it says."""
    requests = None if part.data.get("requests") is None else part.integer("requests")
    if "trace" in part.data:
        return spec.Workload(name=part.name(), requests=requests, trace=trace_of(part.part("trace"), trace_path))
    return spec.Workload(
        name=part.name(),
        requests=requests,
        sessions=part.integer("sessions") if "sessions" in part.data else None,
        rate_per_s=part.number("rate_per_s", 0.0),
        stages=tuple(spec.Stage(**floats_of(one)) for one in part.parts("stages")) if "stages" in part.data else (),
        exact_stage_counts=part.flag("exact_stage_counts", otherwise=False),
        clients=tuple(_client(client) for client in part.parts("clients")),
    )


def trace_of(part: Part, trace_path: str | None) -> spec.Trace:
    """A recorded workload; ``trace_path`` is where it lies, when not where the document says.

    Raises:
        InputError: the file cannot be read, or is another one.
    """
    path = real_path(part.text("file") if trace_path is None else trace_path)
    found = input_digest(path, limit=MAX_TRACE_BYTES)
    if found != (expected := part.text("sha256", found)):
        raise InputError(f"{path} is not the recorded trace: its SHA-256 is {found}, expected {expected}")
    columns = part.part("columns") if "columns" in part.data else None
    return spec.Trace(
        path=str(path),
        format=part.text("format"),
        sha256=found,
        columns={} if columns is None else {key: columns.text(key) for key in columns.data},
        time_unit=part.text("time_unit", ""),
        limit=part.integer("limit") if "limit" in part.data else None,
        slice=_slice(part.part("slice")) if "slice" in part.data else None,
        scale_rate=part.number("scale_rate", 1.0),
        rate_per_s=part.number("rate_per_s") if "rate_per_s" in part.data else None,
        pacing=part.text("pacing", "clock"),
    )


def _slice(part: Part) -> tuple[float, float | None]:
    return part.number("from_s"), part.number("to_s") if "to_s" in part.data else None


def _client(part: Part) -> spec.Client:
    prefix = part.part("prefix") if "prefix" in part.data else None
    return spec.Client(
        id=part.text("id"),
        share=part.number("share"),
        arrivals=plugin_of(part.part("arrivals")),
        input_tokens=plugin_of(part.part("input_tokens")),
        output_tokens=plugin_of(part.part("output_tokens")),
        prefix=None if prefix is None else spec.Prefix(group=prefix.text("group"), tokens=prefix.integer("tokens")),
        slo_class=part.text("slo_class"),
        tenant=part.text("tenant", ""),
        model=part.text("model", ""),
        timeout_us=part.limit("timeout_us"),
        network=_network(part.part("network")) if "network" in part.data else None,
        repeated_prompts=part.integer("repeated_prompts", 0),
        rate_curve=rate_curve_of(part.part("rate_curve")) if "rate_curve" in part.data else None,
        session=session_of(part.part("session")) if "session" in part.data else None,
        adapters=adapters_of(part.part("adapters")) if "adapters" in part.data else None,
        reasoning=reasoning_of(part.part("reasoning")) if "reasoning" in part.data else None,
        multimodal=multimodal_of(part.part("multimodal")) if "multimodal" in part.data else None,
    )


def _network(part: Part) -> spec.Network:
    return spec.Network(
        rtt_ms=part.number("rtt_ms"),
        bandwidth_mbps=part.number("bandwidth_mbps") if "bandwidth_mbps" in part.data else None,
    )


def _policy(part: Part) -> spec.Policy:
    preemption = part.part("preemption")
    return spec.Policy(
        name=part.name(),
        admission=plugin_of(part.part("admission")),
        routing=plugin_of(part.part("routing")),
        scheduling=plugin_of(part.part("scheduling")),
        priority=plugin_of(part.part("priority")),
        batching=plugin_of(part.part("batching")),
        preemption_victim=preemption.text("victim"),
        preemption_restore=preemption.text("restore"),
        preemption_recompute=preemption.text("recompute") if "recompute" in preemption.data else None,
        slo_priorities=part.part("slo_priorities").integers() if "slo_priorities" in part.data else spec.SLO_PRIORITIES,
        tenant_budgets=_budgets(part.part("tenant_budgets")) if "tenant_budgets" in part.data else None,
        deferral=part.part("deferral").text("kind") if "deferral" in part.data else "none",
        gateway=_gateway(part.part("gateway")) if "gateway" in part.data else None,
    )


def _budgets(part: Part) -> spec.TenantBudgets:
    fractions = part.part("fractions")
    return spec.TenantBudgets(
        fractions={tenant: fractions.number(tenant) for tenant in fractions.data},
        checked=part.text("checked"),
        shed_below_priority=part.integer("shed_below_priority"),
    )


def _gateway(part: Part) -> spec.Gateway:
    dispatch = part.part("dispatch")
    weights = part.part("weights") if "weights" in part.data else None
    return spec.Gateway(
        order=part.text("order"),
        saturation=plugin_of(part.part("saturation")),
        dispatch=dispatch.text("kind"),
        tick_us=dispatch.integer("interval_us") if "interval_us" in dispatch.data else 0,
        max_depth=part.integer("max_depth"),
        when_full=part.text("when_full"),
        bands=part.flag("bands", otherwise=False),
        per_band_capacity=part.integer("per_band_capacity"),
        fairness=part.text("fairness"),
        weights={} if weights is None else {tenant: weights.number(tenant) for tenant in weights.data},
        request_ttl_us=part.integer("request_ttl_us"),
        usage_limit=part.number("usage_limit"),
        slo_targets_us=part.part("slo_targets_us").integers() if "slo_targets_us" in part.data else {},
    )


def build_expectation(part: Part) -> spec.Expectation:
    """An ``expect:`` entry."""
    return spec.Expectation(
        metric=part.text("metric"),
        min=part.number("min") if "min" in part.data else None,
        max=part.number("max") if "max" in part.data else None,
        equals=part.plain("equals") if "equals" in part.data else None,
    )


def _slo_targets(part: Part) -> dict[str, spec.SloTarget]:
    return {name: spec.SloTarget(**floats_of(part.part(name))) for name in part.data}
