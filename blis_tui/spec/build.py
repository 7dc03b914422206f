"""Builds the frozen experiment from a resolved document: type-checked access, records by their keys, pools.

A resolved document is plain data with defaults and references filled in. This module uses only the standard library, so
that one can be simulated without PyYAML.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from blis_tui import model as spec
from blis_tui.base.canonical import to_sorted_json
from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.errors import InputError, PolicyError
from blis_tui.base.input_files import MAX_TRACE_BYTES, input_digest, real_path
from blis_tui.base.portable_math import power
from blis_tui.engine.kv.capacity import InstanceMemory, block_size_of, kv_capacity
from blis_tui.engine.options.adapters import reserved_bytes
from blis_tui.engine.rules.rule import BATCHING
from blis_tui.engine.rules.traits import EngineBehavior
from blis_tui.model import Budget
from blis_tui.model.engine import UNLIMITED
from blis_tui.model.keys import AUTO, keys_of
from blis_tui.spec.hf import build_model
from blis_tui.spec.operator_files import tables_for
from blis_tui.spec.shipped import builtin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from blis_tui.engine.kv.capacity import KvGroups
    from blis_tui.model import PluginConfig
    from blis_tui.model.keys import Key
    from blis_tui.model.plug_ins import Registry


T = TypeVar("T")

_NOUNS: Final[Mapping[type, str]] = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    dict: "a map",
    list: "a list",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A map of the document with type-checked access; ``path`` is its name in errors."""

    data: Mapping[str, object]
    path: str

    def _wrong(self, key: str, wanted: str) -> InputError:
        where = f"{self.path}.{key}" if self.path else key
        problem = "missing" if key not in self.data else f"not {wanted}"
        return InputError(f"not a resolved experiment: `{where}` is {problem}")

    def _of(self, key: str, kind: type[T], otherwise: T | None = None) -> T:
        """Return the value at a key, which must be of a type; a boolean is no number."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._wrong(key, _NOUNS[kind])
        return value

    def _entries(self, key: str) -> Part:
        """Return the list at a key as a map of its positions."""
        path = f"{self.path}.{key}" if self.path else key
        return Part({str(at): entry for at, entry in enumerate(self._of(key, list))}, path)

    def part(self, key: str) -> Part:
        """Return the map at a key."""
        return Part(self._of(key, dict), f"{self.path}.{key}" if self.path else key)

    def parts(self, key: str) -> Iterator[Part]:
        """Return the maps of the list at a key."""
        entries = self._entries(key)
        return map(entries.part, entries.data)

    def name(self) -> str:
        """Return the document's name."""
        return self.part("metadata").text("name")

    def text(self, key: str, otherwise: str | None = None) -> str:
        """Return a text."""
        return self._of(key, str, otherwise)

    def integer(self, key: str, otherwise: int | None = None) -> int:
        """Return an integer."""
        return self._of(key, int, otherwise)

    def flag(self, key: str, otherwise: bool | None = None) -> bool:
        """Return a bool."""
        return self._of(key, bool, otherwise)

    def number(self, key: str, otherwise: float | None = None) -> float:
        """Return a number."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(key, "a number")
        return float(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers."""
        return tuple(self._entries(key).floats().values())

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return tuple(self._entries(key).words().values())

    def optional(self, key: str, read: Callable[[Part], T]) -> T | None:
        """Return what ``read`` makes of the map at a key; None if there is none."""
        return read(self.part(key)) if key in self.data else None

    def integers(self) -> dict[str, int]:
        """Return all entries, which must be integers."""
        return {key: self.integer(key) for key in self.data}

    def floats(self) -> dict[str, float]:
        """Return all entries, which must be numbers."""
        return {key: self.number(key) for key in self.data}

    def words(self) -> dict[str, str]:
        """Return all entries, which must be texts."""
        return {key: self.text(key) for key in self.data}

    def setting(self, key: str) -> spec.Setting:
        """Return the value of a plug-in's setting."""
        value = self.data.get(key)
        if isinstance(value, list):
            if value and isinstance(value[0], dict):
                return tuple(plugin_of(part) for part in self.parts(key))
            return self.numbers(key)
        if isinstance(value, dict):
            return self.part(key).floats()
        return self.plain(key)

    def plain(self, key: str) -> bool | float | str:
        """Return a value that is neither a map nor a list."""
        value = self.data.get(key)
        if not isinstance(value, bool | int | float | str):
            raise self._wrong(key, "a plain value")
        return value


def plugin_of(part: Part) -> spec.PluginConfig:
    """Return the plug-in and settings given at a plug point."""
    return spec.PluginConfig(
        kind=part.text("kind"), settings={key: part.setting(key) for key in part.data if key != "kind"}
    )


_R = TypeVar("_R")


class _Step(NamedTuple):
    """How to read one field."""

    field: str
    name: str
    required: bool
    read: Callable[[Part, str], object]
    group: str
    """The key of the map that contains the field; empty = the field stands directly in the record's map."""
    group_required: bool


def decode(record: type[_R], part: Part, **given: object) -> _R:
    """Return the record that a map of a resolved document describes.

    Args:
        record: a dataclass whose fields are made by functions of ``blis_tui.model.keys``.
        part: the map, with defaults filled in.
        given: values of fields that are not read from the map.

    Raises:
        InputError: the map lacks a key, or a value has the wrong type.
    """
    steps = _STEPS.get(record)
    if steps is None:
        steps = _STEPS[record] = _steps(record)
    for step in steps:
        if step.field in given:
            continue
        within = part
        if step.group:
            if not step.group_required and step.group not in part.data:
                continue
            within = part.part(step.group)
        if step.required or step.name in within.data:
            given[step.field] = step.read(within, step.name)
    return record(**given)


def _steps(record: type) -> tuple[_Step, ...]:
    keys = keys_of(record)
    held = {field.name for field in fields(record)}
    required = {about.name or name: not about.optional for name, (about, _) in keys.items()}
    return tuple(
        _Step(
            field=name,
            name=about.name or name,
            required=not about.optional,
            read=_reader(about, annotation),
            group=about.group,
            group_required=bool(about.group) and required[about.group],
        )
        for name, (about, annotation) in keys.items()
        if name in held
    )


def _reader(about: Key, annotation: str) -> Callable[[Part, str], object]:
    """Return the reader for a key whose field has the annotated type."""
    kind, plain = about.kind, annotation.removesuffix(" | None")
    if about.point:
        return Part.text if plain == "str" else _plug_in
    if about.variants is not None:
        return _kind
    if plain == "int" and (about.words or about.default is None):
        return partial(_amount, about.words) if plain != annotation else Part.integer
    if about.words and plain != "float":
        return Part.text
    if plain in _READERS:
        return _READERS[plain]
    if isinstance(kind, tuple):
        return partial(_records, cast("type", kind[0]))
    return partial(_record, kind) if isinstance(kind, type) else partial(_by_name, cast("Mapping[str, Key]", kind))


def _plug_in(part: Part, name: str) -> PluginConfig:
    return plugin_of(part.part(name))


def _kind(part: Part, name: str) -> str:
    return part.part(name).text("kind")


def _amount(words: Collection[str], part: Part, name: str) -> int | None:
    """Return an integer, or None for null and for the key's words except ``auto``, which must be resolved by then."""
    value = part.data.get(name, AUTO)
    return None if value is None or (value != AUTO and value in words) else part.integer(name)


def _budget(part: Part, name: str) -> Budget:
    """Return the declared output budget: a word for none, a multiple of the answer, or a distribution."""
    value = part.data.get(name)
    if isinstance(value, str):
        return Budget()
    within = part.part(name)
    return Budget(ratio=within.number("ratio")) if "ratio" in within.data else Budget(tokens=plugin_of(within))


def _record(kind: type[_R], part: Part, name: str) -> _R:
    return decode(kind, part.part(name))


def _records(kind: type[_R], part: Part, name: str) -> tuple[_R, ...]:
    return tuple(decode(kind, entry) for entry in part.parts(name))


def _by_name(entries: Mapping[str, Key], part: Part, name: str) -> dict[str, object]:
    """Return a map with arbitrary keys, each of which holds a record."""
    within, kind = part.part(name), cast("type", next(iter(entries.values())).kind)
    return {key: _record(kind, within, key) for key in within.data}


_READERS: Final[Mapping[str, Callable[[Part, str], object]]] = {
    "bool": Part.flag,
    "int": Part.integer,
    "float": Part.number,
    "str": Part.text,
    "float | str | bool": Part.plain,
    "tuple[str, ...]": Part.texts,
    "tuple[float, ...]": Part.numbers,
    "Mapping[str, float]": lambda part, name: part.part(name).floats(),
    "Mapping[str, int]": lambda part, name: part.part(name).integers(),
    "Mapping[str, str]": lambda part, name: part.part(name).words(),
    "Budget": _budget,
}
"""Reader of each plain field type."""
_STEPS: Final[dict[type, tuple[_Step, ...]]] = {}
"""Cached steps for reading each record."""


def digest(document: Mapping[str, object]) -> str:
    """Return the hexadecimal SHA-256 of a resolved document; a trace counts by its content instead of its path."""
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
    """Build the experiment that a resolved document describes.

    Args:
        document: plain data as in ``Experiment.document`` after :func:`blis_tui.spec.load.load`; ``auto`` for
            ``kv_blocks`` and ``max_model_len`` is replaced by numbers here.
        trace_path: path of the trace, if it is not ``workload.trace.file``.
        plugins: plug-ins that the document may name; None = those of this package.

    Raises:
        InputError: the document is not a resolved experiment, or its trace is missing or has other content.
    """
    resolved = with_numbers(document, plugins)
    top = Part(resolved, "")
    metadata = top.part("metadata")
    policy = _policy(top.part("policy"))
    pools = _pools(resolved)
    expected = tuple(top.parts("expect"))
    return decode(
        spec.Experiment,
        top,
        name=metadata.text("name"),
        description=metadata.text("description", ""),
        workload=build_workload(top.part("workload"), trace_path),
        policy=policy,
        cluster=_cluster(top.part("cluster"), policy, pools),
        pools=pools,
        expect=tuple(decode(spec.Expectation, part) for part in expected if "metric" in part.data),
        course=tuple(decode(spec.CourseExpectation, part) for part in expected if "metric" not in part.data),
        sha256=digest(resolved),
        document=resolved,
        plugins=plugins or builtin(),
    )


def stack_of(document: Mapping[str, object], pool: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the stack of a pool: its own keys, and the (resolved) experiment's for those that it lacks."""
    cluster = Part(document, "").part("cluster").data
    keys = {**document, **{key: cluster[key] for key in ("tensor_parallel",) if key in cluster}, **(pool or {})}
    return {key: keys[key] for key in ("model", "hardware", "latency", "engine", "tensor_parallel") if key in keys}


def build_model_part(stack: Mapping[str, object]) -> spec.Model:
    """Return the model of a stack, with the KV cache type that the engine sets."""
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
    """Return the accelerator of a stack."""
    part = Part(stack, "").part("hardware")
    to_host = part.optional("host_link", _bandwidth)
    between = part.optional("interconnect", _bandwidth)
    given = {
        "host_link_gb_per_s": to_host,
        "interconnect_gb_per_s": to_host if between is None else between,
    }
    return decode(
        spec.Hardware,
        part,
        name=part.name(),
        **{name: value for name, value in given.items() if value is not None},
    )


def _bandwidth(link: Part) -> float:
    return link.number("bandwidth_gb_per_s")


def with_numbers(document: Mapping[str, object], plugins: Registry | None = None) -> dict[str, object]:
    """Return the document with numbers instead of ``auto``, for each pool separately.

    ``kv_blocks: auto`` is what fits into memory beside the weights, as the batching rule sizes it. ``max_model_len:
    auto`` is the model's own limit, capped by the KV cache. A stack that no instance uses is not changed.
    """
    cluster = Part(document, "").part("cluster")
    traits = batching_traits(document, plugins)
    numbered = {**document}
    pools: list[Mapping[str, object]] = []
    for part in cluster.parts("pools") if "pools" in cluster.data else ():
        stack = stack_of(document, part.data)
        own = any(key in part.data for key in stack)
        pools.append({**part.data, "engine": _numbers(document, stack, traits)} if own else part.data)
    if pools:
        numbered["cluster"] = {**cluster.data, "pools": pools}
    if not pools or any("engine" not in pool for pool in pools):
        numbered["engine"] = _numbers(document, stack_of(document), traits)
    return numbered


def _numbers(document: Mapping[str, object], stack: Mapping[str, object], traits: EngineBehavior) -> dict[str, object]:
    """Return the engine of a stack with numbers instead of ``auto``."""
    part = Part(stack, "").part("engine")
    engine = dict(part.data)
    model, groups = build_model_part(stack), groups_in(document, stack, traits)
    block_size = engine["block_size_tokens"] = block_size_in(stack, groups)
    if groups is not None:
        engine["disable_hybrid_kv_cache_manager"] = False
    if model.linear is not None:
        engine["enable_prefix_caching"] = False
    if engine.get("kv_blocks") == "auto":
        engine["kv_blocks"] = kv_capacity(memory_of(stack, groups), traits.sizes_pool).blocks
    if engine.get("max_model_len") == "auto":
        blocks = Part(engine, "engine").integer("kv_blocks")
        longest = blocks * block_size
        if groups is not None:
            longest = groups.longest(blocks, block_size, part.integer("max_num_batched_tokens"), None, traits)
        engine["max_model_len"] = min(model.max_position_embeddings, longest)
    return engine


def memory_of(stack: Mapping[str, object], groups: KvGroups | None) -> InstanceMemory:
    """Return what an instance's memory budget depends on; its limits are numbers."""
    part, model = Part(stack, "").part("engine"), build_model_part(stack)
    tokens = part.integer("max_num_batched_tokens")
    return InstanceMemory(
        model=model,
        hardware=build_hardware_part(stack),
        tensor_parallel=Part(stack, "").integer("tensor_parallel"),
        block_size_tokens=block_size_in(stack, groups),
        gpu_memory_utilization=part.number("gpu_memory_utilization"),
        max_num_batched_tokens=tokens,
        max_num_seqs=part.integer("max_num_seqs", tokens) or tokens,
        graphs=not part.flag("enforce_eager", False),
        pipeline_parallel=part.integer("pipeline_parallel", 1),
        reserved_bytes=reserved_bytes(_lora(part.part("lora")), model) if "lora" in part.data else 0,
        expert_ranks=part.integer("data_parallel", 1) if part.flag("expert_parallel", False) else 1,
        groups=groups,
    )


def block_size_in(stack: Mapping[str, object], groups: KvGroups | None) -> int:
    """Return the tokens per KV block of a stack: blocks that also hold states are larger than configured."""
    size = Part(stack, "").part("engine").integer("block_size_tokens")
    if groups is None or not groups.states:
        return size
    return block_size_of(build_model_part(stack), Part(stack, "").integer("tensor_parallel"), size)


def groups_in(document: Mapping[str, object], stack: Mapping[str, object], traits: EngineBehavior) -> KvGroups | None:
    """Return the groups of layers whose KV blocks a stack's instances manage apart; None = they do not."""
    model = build_model_part(stack)
    if not traits.vllm_block_pool or not (model.sliding_window_layers or model.linear):
        return None
    from blis_tui.engine.kv.capacity import groups_of  # noqa: PLC0415  (few models have them)

    if model.linear is not None:
        return groups_of(model)
    groups = groups_of(model)
    disabled = Part(stack, "").part("engine").data.get("disable_hybrid_kv_cache_manager")
    if groups is None or disabled:
        return None
    return groups if disabled is False or not ungrouped_with(document, stack) else None


def ungrouped_with(document: Mapping[str, object], stack: Mapping[str, object]) -> str:
    """Return the key of what a stack has that is not simulated with groups of layers, or states; empty = nothing."""
    engine = Part(stack, "").part("engine").data
    for key in ("speculative", "kv_tiers"):
        if engine.get(key) is not None and engine.get(key) != {"kind": "none"}:
            return f"engine.{key}"
    if engine.get("pipeline_parallel", 1) != 1:
        return "engine.pipeline_parallel"
    if Part(document, "").part("cluster").data.get("disaggregation") is not None:
        return "cluster.disaggregation"
    policy = Part(document, "").part("policy")
    swaps = "preemption" in policy.data and policy.part("preemption").text("restore", "recompute") != "recompute"
    return "policy.preemption.restore" if swaps else ""


def _engine(part: Part) -> spec.Engine:
    return decode(
        spec.Engine,
        part,
        max_num_seqs=part.integer("max_num_seqs") or UNLIMITED,
        kv_tiers=part.optional("kv_tiers", _kv_tiers),
        lora=part.optional("lora", _lora),
    )


def _lora(part: Part) -> spec.Lora:
    return decode(spec.Lora, part, max_cpu_loras=part.integer("max_cpu_loras", part.integer("max_loras")))


def _kv_tiers(part: Part) -> spec.KvTiers | None:
    kind = part.text("kind")
    if kind == "none":
        return None
    if kind == "hicache":
        host = decode(spec.KvTier, part, name="host", blocks=0)
        ratio, policy = part.number("hicache_ratio"), part.text("hicache_write_policy")
        return spec.KvTiers(kind=kind, tiers=(host,), ratio=ratio, write_policy=policy)
    tiers = (
        tuple(decode(spec.KvTier, entry) for entry in part.parts("tiers"))
        if kind == "offload"
        else (decode(spec.KvTier, part, name="cpu", blocks=part.integer("cpu_blocks")),)
    )
    at = part.number("offload_at", 0.0)
    return spec.KvTiers(kind=kind, tiers=tiers, offload_at=at, overlap=part.flag("overlap"))


def _pools(document: Mapping[str, object]) -> tuple[spec.Pool, ...]:
    """Return the pools: as listed, as disaggregation divides the instances, or a single one."""
    cluster = Part(document, "").part("cluster")
    if "pools" in cluster.data:
        return tuple(
            replace(
                _pool(stack_of(document, part.data), part.integer("instances")),
                name=part.text("name"),
                role=part.text("role", "any"),
            )
            for part in cluster.parts("pools")
        )
    base = _pool(stack_of(document), cluster.integer("instances"))
    if "disaggregation" not in cluster.data:
        return (base,)
    split = cluster.part("disaggregation")
    ranks = base.engine.data_parallel
    counts = {role: split.integer(f"{role}_instances") * ranks for role in ("prefill", "decode")}
    parts = (*counts.items(), ("whole", base.instances - counts["prefill"] - counts["decode"]))
    return tuple(replace(base, name=role, role=role, instances=count) for role, count in parts if count)


def _pool(stack: Mapping[str, object], instances: int) -> spec.Pool:
    part = Part(stack, "")
    latency, model = plugin_of(part.part("latency")), build_model_part(stack)
    engine = _engine(part.part("engine"))
    return spec.Pool(
        name="default",
        instances=instances * engine.data_parallel,
        model=model,
        hardware=build_hardware_part(stack),
        tensor_parallel=part.integer("tensor_parallel"),
        engine=engine,
        latency=latency,
        operators=tables_for(latency, model),
    )


def _cluster(part: Part, policy: spec.Policy, pools: tuple[spec.Pool, ...]) -> spec.Cluster:
    return decode(
        spec.Cluster,
        part,
        disaggregation=part.optional("disaggregation", lambda split: _disaggregation(split, policy)),
        autoscaler=part.optional("autoscaler", lambda scaler: _autoscaler(scaler, part, pools)),
    )


def _autoscaler(part: Part, cluster: Part, pools: tuple[spec.Pool, ...]) -> spec.Autoscaler:
    own = {pool.text("name"): pool for pool in cluster.parts("pools")} if "pools" in cluster.data else {}

    def bound(pool: spec.Pool, key: str) -> int:
        return (own[pool.name] if pool.name in own and key in own[pool.name].data else part).integer(key)

    bounds = {pool.name: (bound(pool, "min_instances"), bound(pool, "max_instances")) for pool in pools}
    return decode(spec.Autoscaler, part, bounds=bounds)


def _disaggregation(part: Part, policy: spec.Policy) -> spec.Disaggregation:
    routes = {key: policy.routing for key in ("prefill_routing", "decode_routing") if key not in part.data}
    return decode(spec.Disaggregation, part, **routes)


def build_workload(part: Part, trace_path: str | None = None) -> spec.Workload:
    """Return the workload that a complete document describes; ``trace_path`` replaces the path of its trace."""
    if "trace" in part.data:
        trace = trace_of(part.part("trace"), trace_path)
        return decode(spec.Workload, part, name=part.name(), trace=trace)
    return decode(
        spec.Workload, part, name=part.name(), clients=tuple(_client(client) for client in part.parts("clients"))
    )


def trace_of(part: Part, trace_path: str | None) -> spec.Trace:
    """Return a recorded workload; ``trace_path`` replaces the path in the document.

    Raises:
        InputError: the file cannot be read, or has other content.
    """
    path = real_path(part.text("file") if trace_path is None else trace_path)
    actual = input_digest(path, limit=MAX_TRACE_BYTES)
    if actual != (expected := part.text("sha256", actual)):
        raise InputError(f"{path} is not the recorded trace: its SHA-256 is not {expected}")
    return decode(spec.Trace, part, path=str(path), sha256=actual, slice=part.optional("slice", _slice))


def _slice(part: Part) -> tuple[float, float | None]:
    return part.number("from_s"), part.number("to_s") if "to_s" in part.data else None


def _client(part: Part) -> spec.Client:
    return decode(spec.Client, part, adapters=part.optional("adapters", _adapters))


def _adapters(part: Part) -> spec.AdapterMix:
    if "names" in part.data:
        names = part.texts("names")
    else:
        names = tuple(f"{part.text('prefix')}-{number}" for number in range(1, part.integer("count") + 1))
    if "weights" in part.data:
        return spec.AdapterMix(names=names, weights=part.numbers("weights"))
    exponent = part.number("zipf", 0.0)
    return spec.AdapterMix(names=names, weights=tuple(1.0 / power(rank, exponent) for rank in range(1, len(names) + 1)))


def _policy(part: Part) -> spec.Policy:
    return decode(spec.Policy, part, name=part.name(), gateway=part.optional("gateway", _gateway))


def _gateway(part: Part) -> spec.Gateway:
    dispatch = part.part("dispatch")
    return decode(spec.Gateway, part, tick_us=dispatch.integer("interval_us", 0))


def batching_traits(document: Mapping[str, object], plugins: Registry | None) -> EngineBehavior:
    """Return the traits of a resolved experiment's batching rule; default traits if the rule is invalid."""
    config = plugin_of(Part(document, "").part("policy").part("batching"))
    try:
        return (plugins or builtin()).create(BATCHING, config.kind, config.settings).traits
    except PolicyError:
        return EngineBehavior()
