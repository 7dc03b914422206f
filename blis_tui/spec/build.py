"""A resolved document (plain data, defaults filled in, references followed) -> the frozen experiment.

Standard library only: a resolved document can be simulated where neither PyYAML nor jsonschema is installed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blis_tui.canonical import to_sorted_json
from blis_tui.engine.kv.capacity import kv_bytes_per_token, kv_capacity
from blis_tui.errors import InputError
from blis_tui.inputs import MAX_TRACE_BYTES, input_digest, real_path
from blis_tui.registry import builtin
from blis_tui.spec import model as spec
from blis_tui.spec.hf import build_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    top = _Part(document, "")
    model = build_model_part(document)
    hardware = build_hardware_part(document)
    resolved = with_numbers(document, model, hardware)
    metadata, cluster = top.part("metadata"), top.part("cluster")
    policy = _policy(top.part("policy"))
    base = spec.Pool(
        name="default",
        instances=cluster.integer("instances"),
        model=model,
        hardware=hardware,
        tensor_parallel=cluster.integer("tensor_parallel"),
        engine=_engine(_Part(resolved, "").part("engine")),
        latency=_plugin(top.part("latency")),
    )
    pools = _pools(cluster, base)
    return spec.Experiment(
        name=metadata.text("name"),
        description=metadata.text("description", ""),
        seed=top.integer("seed"),
        workload=_workload(top.part("workload"), trace_path),
        policy=policy,
        cluster=_cluster(cluster, policy, pools),
        pools=pools,
        horizon_us=top.limit("horizon_us"),
        expect=tuple(_expectation(entry) for entry in top.parts("expect")),
        sha256=digest(resolved),
        document=resolved,
        plugins=plugins or builtin(),
        slo_targets=_slo_targets(top.part("slo_targets")) if "slo_targets" in document else {},
        fitness=_numbers(top.part("fitness").part("weights")) if "fitness" in document else {},
        report=top.text("report", "auto"),
    )


def build_model_part(document: Mapping[str, object]) -> spec.Model:
    """The model of a resolved document, with its KV cache in the type that the engine is set to."""
    part = _Part(document, "").part("model")
    engine = _Part(document, "").part("engine")
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


def build_hardware_part(document: Mapping[str, object]) -> spec.Hardware:
    """The accelerator of a resolved document."""
    part = _Part(document, "").part("hardware")
    peak, mfu = part.part("peak_tflops"), part.part("mfu")
    return spec.Hardware(
        name=part.name(),
        memory_gib=part.number("memory_gib"),
        peak_tflops_bf16=peak.number("bf16"),
        peak_tflops_fp8=peak.number("fp8"),
        memory_bandwidth_tb_per_s=part.number("memory_bandwidth_tb_per_s"),
        mfu_prefill=mfu.number("prefill"),
        mfu_decode=mfu.number("decode"),
    )


def with_numbers(document: Mapping[str, object], model: spec.Model, hardware: spec.Hardware) -> dict[str, object]:
    """The document with numbers in place of ``auto``.

    ``kv_blocks: auto`` is what fits into the memory beside the weights; ``max_model_len: auto`` is the
    model's own limit, capped by the KV cache.
    """
    top = _Part(document, "")
    engine = dict(top.part("engine").data)
    block_size = top.part("engine").integer("block_size_tokens")
    if engine.get("kv_blocks") == "auto":
        engine["kv_blocks"] = kv_capacity(
            model,
            hardware,
            tensor_parallel=top.part("cluster").integer("tensor_parallel"),
            block_size_tokens=block_size,
            gpu_memory_utilization=top.part("engine").number("gpu_memory_utilization"),
        ).blocks
    if engine.get("max_model_len") == "auto":
        blocks = _Part(engine, "engine").integer("kv_blocks")
        engine["max_model_len"] = min(model.max_position_embeddings, blocks * block_size)
    return {**document, "engine": engine}


def _engine(part: _Part) -> spec.Engine:
    return spec.Engine(
        max_num_seqs=part.integer("max_num_seqs"),
        max_num_batched_tokens=part.integer("max_num_batched_tokens"),
        long_prefill_token_threshold=part.integer("long_prefill_token_threshold"),
        max_model_len=part.limit("max_model_len"),
        block_size_tokens=part.integer("block_size_tokens"),
        kv_blocks=part.integer("kv_blocks"),
        enable_prefix_caching=part.flag("enable_prefix_caching", otherwise=True),
    )


def _pools(cluster: _Part, base: spec.Pool) -> tuple[spec.Pool, ...]:
    """The groups of equal instances: as they are listed, or as disaggregation divides them, or one."""
    if "pools" in cluster.data:
        return tuple(
            replace(
                base,
                name=one.text("name"),
                role=one.text("role", "any"),
                instances=one.integer("instances"),
                tensor_parallel=one.integer("tensor_parallel")
                if "tensor_parallel" in one.data
                else base.tensor_parallel,
            )
            for one in cluster.parts("pools")
        )
    if "disaggregation" not in cluster.data:
        return (base,)
    split = cluster.part("disaggregation")
    prefill, decode = split.integer("prefill_instances"), split.integer("decode_instances")
    parts = (("prefill", prefill), ("decode", decode), ("any", base.instances - prefill - decode))
    return tuple(replace(base, name=role, role=role, instances=count) for role, count in parts if count)


def _cluster(part: _Part, policy: spec.Policy, pools: tuple[spec.Pool, ...]) -> spec.Cluster:
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
        disaggregation=_disaggregation(part.part("disaggregation"), policy, pools)
        if "disaggregation" in part.data
        else None,
    )


def _disaggregation(part: _Part, policy: spec.Policy, pools: tuple[spec.Pool, ...]) -> spec.Disaggregation:
    link = part.part("transfer")
    source = next((pool for pool in pools if pool.role == "prefill"), pools[0])
    own_bytes = kv_bytes_per_token(source.model, source.tensor_parallel)
    routes = {
        role: _plugin(part.part(f"{role}_routing")) if f"{role}_routing" in part.data else policy.routing
        for role in ("prefill", "decode")
    }
    return spec.Disaggregation(
        decider=_plugin(part.part("decider")),
        order=part.text("order"),
        undisaggregated=part.text("undisaggregated"),
        transfer=spec.Transfer(
            bandwidth_gb_per_s=link.number("bandwidth_gb_per_s"),
            base_latency_us=link.integer("base_latency_us"),
            bytes_per_token=own_bytes
            if link.data.get("bytes_per_token") == "model"
            else link.integer("bytes_per_token"),
            starts=link.text("starts"),
            contention=link.text("contention"),
        ),
        prefill_routing=routes["prefill"],
        decode_routing=routes["decode"],
    )


def _workload(part: _Part, trace_path: str | None) -> spec.Workload:
    requests = None if part.data.get("requests") is None else part.integer("requests")
    if "trace" in part.data:
        return spec.Workload(name=part.name(), requests=requests, trace=_trace(part.part("trace"), trace_path))
    return spec.Workload(
        name=part.name(),
        requests=requests,
        rate_per_s=part.number("rate_per_s"),
        clients=tuple(_client(client) for client in part.parts("clients")),
    )


def _trace(part: _Part, trace_path: str | None) -> spec.Trace:
    path = real_path(part.text("file") if trace_path is None else trace_path)
    found = input_digest(path, limit=MAX_TRACE_BYTES)
    expected = part.text("sha256", found)
    if found != expected:
        raise InputError(f"{path} is not the recorded trace: its SHA-256 is {found}, expected {expected}")
    columns = part.part("columns") if "columns" in part.data else None
    return spec.Trace(
        path=str(path),
        format=part.text("format"),
        sha256=found,
        columns={} if columns is None else {key: columns.text(key) for key in columns.data},
        time_unit=part.text("time_unit", ""),
    )


def _client(part: _Part) -> spec.Client:
    prefix = part.part("prefix") if "prefix" in part.data else None
    return spec.Client(
        id=part.text("id"),
        share=part.number("share"),
        arrivals=_plugin(part.part("arrivals")),
        input_tokens=_plugin(part.part("input_tokens")),
        output_tokens=_plugin(part.part("output_tokens")),
        prefix=None if prefix is None else spec.Prefix(group=prefix.text("group"), tokens=prefix.integer("tokens")),
        slo_class=part.text("slo_class"),
        tenant=part.text("tenant", ""),
        timeout_us=part.limit("timeout_us"),
    )


def _policy(part: _Part) -> spec.Policy:
    preemption = part.part("preemption")
    return spec.Policy(
        name=part.name(),
        admission=_plugin(part.part("admission")),
        routing=_plugin(part.part("routing")),
        scheduling=_plugin(part.part("scheduling")),
        priority=_plugin(part.part("priority")),
        batching=_plugin(part.part("batching")),
        preemption_victim=preemption.text("victim"),
        preemption_restore=preemption.text("restore"),
        slo_priorities=part.part("slo_priorities").integers() if "slo_priorities" in part.data else spec.SLO_PRIORITIES,
        tenant_budgets=_budgets(part.part("tenant_budgets")) if "tenant_budgets" in part.data else None,
        deferral=part.part("deferral").text("kind") if "deferral" in part.data else "none",
        gateway=_gateway(part.part("gateway")) if "gateway" in part.data else None,
    )


def _budgets(part: _Part) -> spec.TenantBudgets:
    fractions = part.part("fractions")
    return spec.TenantBudgets(
        fractions={tenant: fractions.number(tenant) for tenant in fractions.data},
        checked=part.text("checked"),
        shed_below_priority=part.integer("shed_below_priority"),
    )


def _gateway(part: _Part) -> spec.Gateway:
    dispatch = part.part("dispatch")
    weights = part.part("weights") if "weights" in part.data else None
    return spec.Gateway(
        order=part.text("order"),
        saturation=_plugin(part.part("saturation")),
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


def _plugin(part: _Part) -> spec.PluginConfig:
    return spec.PluginConfig(
        kind=part.text("kind"), settings={key: part.setting(key) for key in part.data if key != "kind"}
    )


def _expectation(part: _Part) -> spec.Expectation:
    return spec.Expectation(
        metric=part.text("metric"),
        min=part.number("min") if "min" in part.data else None,
        max=part.number("max") if "max" in part.data else None,
        equals=part.plain("equals") if "equals" in part.data else None,
    )


def _slo_targets(part: _Part) -> dict[str, spec.SloTarget]:
    return {name: spec.SloTarget(**_numbers(part.part(name))) for name in part.data}


def _numbers(part: _Part) -> dict[str, float]:
    return {name: part.number(name) for name in part.data}


@dataclass(frozen=True, slots=True)
class _Part:
    """A map of the document, read with its types checked; ``path`` names it in errors."""

    data: Mapping[str, object]
    path: str

    def _wrong(self, key: str, wanted: str) -> InputError:
        where = f"{self.path}.{key}" if self.path else key
        found = "missing" if key not in self.data else f"not {wanted}"
        return InputError(f"not a resolved experiment: `{where}` is {found}")

    def part(self, key: str) -> _Part:
        value = self.data.get(key)
        if not isinstance(value, dict):
            raise self._wrong(key, "a map")
        return _Part(value, f"{self.path}.{key}" if self.path else key)

    def parts(self, key: str) -> Iterator[_Part]:
        value = self.data.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        for at, entry in enumerate(value):
            if not isinstance(entry, dict):
                raise self._wrong(f"{key}.{at}", "a map")
            yield _Part(entry, f"{self.path}.{key}.{at}" if self.path else f"{key}.{at}")

    def name(self) -> str:
        return self.part("metadata").text("name")

    def text(self, key: str, otherwise: str | None = None) -> str:
        value = self.data.get(key, otherwise)
        if not isinstance(value, str):
            raise self._wrong(key, "text")
        return value

    def integer(self, key: str) -> int:
        value = self.data.get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, "a whole number")
        return value

    def integers(self) -> dict[str, int]:
        return {key: self.integer(key) for key in self.data}

    def flag(self, key: str, *, otherwise: bool) -> bool:
        value = self.data.get(key, otherwise)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def limit(self, key: str) -> int | None:
        """A whole number, or ``None`` for the word ``none``."""
        return None if self.data.get(key) == "none" else self.integer(key)

    def number(self, key: str, otherwise: float | None = None) -> float:
        value = self.data.get(key, otherwise)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, "a number")
        return float(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        value = self.data.get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        listed = _Part({str(at): item for at, item in enumerate(value)}, f"{self.path}.{key}")
        return tuple(listed.number(at) for at in listed.data)

    def setting(self, key: str) -> spec.Setting:
        value = self.data.get(key)
        if isinstance(value, list):
            if value and isinstance(value[0], dict):
                return tuple(_plugin(part) for part in self.parts(key))
            return self.numbers(key)
        if isinstance(value, dict):
            inside = self.part(key)
            return {name: inside.number(name) for name in inside.data}
        return self.plain(key)

    def plain(self, key: str) -> bool | float | str:
        value = self.data.get(key)
        if not isinstance(value, bool | int | float | str):
            raise self._wrong(key, "a plain value")
        return value
