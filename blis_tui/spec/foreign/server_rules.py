"""What arguments of servers mean that are no key of the same kind, one function each."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import as_map
from blis_tui.spec.foreign.reading import Fate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.base.source import DataPath, Json
    from blis_tui.spec.foreign.reading import Input

_ACCEPTANCE: Final = 0.7


class Conversion:
    """The arguments of a server, and the experiment that they become.

    Attributes:
        given: the command, with the place of each argument, and the notes.
        options: the arguments by name.
        body: the experiment.
        origins: path in the experiment -> argument.
        role: what the server does of each request: ``prefill``, ``decode``, or all if empty.
        hands_over: the connector between servers whose command does not say which of them does what.
        host_cache: argument, bytes and blocks of host memory for KV blocks; 0 = not said in this unit.
    """

    def __init__(self, given: Input) -> None:
        self.given = given
        self.options: dict[str, Json] = {}
        self.body: dict[str, Json] = {}
        self.origins: dict[DataPath, DataPath] = {}
        self.role = ""
        self.hands_over = ""
        self.host_cache: tuple[str, float, int] | None = None

    def set(self, key: str, value: Json, origin: DataPath) -> None:
        """Set a key of the experiment, and note the argument that says so; an empty origin = none says so."""
        *folders, last = key.split(".")
        inside = self.body
        for folder in folders:
            inside = as_map(inside.setdefault(folder, {}))
        inside[last] = value
        self.origins[tuple(key.split("."))] = origin
        if origin:
            self.given.note(Fate.TAKEN, origin, f"`{key}: {json.dumps(value)}`")

    def note(self, fate: Fate, name: str, text: str) -> None:
        """Note what became of an argument."""
        self.given.note(fate, (name,), text)


_ROLES: Final = MappingProxyType(
    {
        **dict.fromkeys(("kv_producer", "prefill", "context", "is-prefill-worker"), "prefill"),
        **dict.fromkeys(("kv_consumer", "decode", "generation", "is-decode-worker"), "decode"),
    }
)
_OFFLOADING: Final = frozenset({"OffloadingConnector", "SimpleCPUOffloadConnector", "LMCacheConnectorV1"})
"""Connectors that keep KV blocks in host memory."""
_GIB: Final = 2**30


def _role(made: Conversion, name: str, value: Json) -> None:
    role = _ROLES.get(str(value).lower(), "")
    made.role = role or made.role
    if role:
        made.note(Fate.TAKEN, name, f"`role: {role}` of `cluster.disaggregation`")
    else:
        made.note(Fate.NO_EFFECT, name, "prefill and decode on each instance is the default")


def _is_prefill_worker(made: Conversion, value: Json) -> None:
    _role(made, "is-prefill-worker", "prefill" if value else "")


def _is_decode_worker(made: Conversion, value: Json) -> None:
    _role(made, "is-decode-worker", "decode" if value else "")


def _disaggregation_mode(made: Conversion, value: Json) -> None:
    _role(made, "disaggregation-mode", value)


def _server_role(made: Conversion, value: Json) -> None:
    _role(made, "server-role", value)


def _vllm_kv_transfer_config(made: Conversion, value: Json) -> None:
    name, config = "kv-transfer-config", as_map(value)
    inside = as_map(config.get("kv_connector_extra_config")).get("connectors")
    for one in [as_map(one) for one in inside] if isinstance(inside, list) else [config]:
        connector, role = str(one.get("kv_connector") or "?"), str(one.get("kv_role") or config.get("kv_role"))
        extra = as_map(one.get("kv_connector_extra_config"))
        if connector in _OFFLOADING and role == "kv_both":
            size = extra.get("cpu_bytes_to_use") or extra.get("cpu_bytes_to_use_per_rank")
            own, many = made.options.get("block-size", 16), extra.get("num_cpu_blocks")
            tokens, blocks = extra.get("block_size", own), 0
            if isinstance(many, int) and isinstance(tokens, int) and isinstance(own, int) and own > 0:
                blocks = many * tokens // own
            made.host_cache = (name, float(size) if isinstance(size, int | float) else 0.0, blocks)
        elif role in _ROLES:
            _role(made, name, role)
        elif role == "kv_both":
            made.hands_over = connector
        else:
            made.note(Fate.NOT_CARRIED, name, f"what `{connector}` with `kv_role: {role}` does is not known")


def _vllm_kv_offloading_size(made: Conversion, value: Json) -> None:
    size = float(value) if isinstance(value, int | float) else 0.0
    made.host_cache = ("kv-offloading-size", size * _GIB, 0)


def _replicas(made: Conversion, name: str, value: Json) -> None:
    """Ranks that share nothing are instances: as many for each copy of the server."""
    copies = as_map(made.body.get("cluster")).get("instances", 1)
    many = value * copies if isinstance(value, int) and isinstance(copies, int) else value
    made.set("cluster.instances", many, (name,))


def _vllm_data_parallel_size(made: Conversion, value: Json) -> None:
    if made.options.get("enable-expert-parallel"):
        made.set("engine.data_parallel", value, ("data-parallel-size",))
    else:
        _replicas(made, "data-parallel-size", value)
        made.set("policy.routing", {"kind": "least-loaded"}, ())


def _vllm_enable_expert_parallel(made: Conversion, value: Json) -> None:
    split = made.options.get("tensor-parallel-size", 1)
    if not value:
        made.note(Fate.NO_EFFECT, "enable-expert-parallel", "it is off")
    elif made.options.get("data-parallel-size", 1) != 1:
        made.set("engine.expert_parallel", True, ("enable-expert-parallel",))
    elif isinstance(split, int) and split > 1:
        made.set("latency", {"kind": "operators", "expert_parallel": split}, ("enable-expert-parallel",))
    else:
        made.note(Fate.NO_EFFECT, "enable-expert-parallel", "with one GPU all experts are on it")


def _vllm_compilation_config(made: Conversion, value: Json) -> None:
    config = as_map(value)
    mode = config.get("cudagraph_mode")
    if isinstance(mode, str) and mode in ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"):
        made.set("engine.cudagraph_mode", mode, ("compilation-config",))
    elif mode == "NONE":
        made.set("engine.enforce_eager", True, ("compilation-config",))
    if (others := [one for one in config if one != "cudagraph_mode"]) or not isinstance(mode, str):
        text = f"`{'`, `'.join(others)}`: not simulated" if others else "only `cudagraph_mode` is known of it"
        made.note(Fate.NOT_CARRIED, "compilation-config", text)


def _vllm_scheduling_policy(made: Conversion, value: Json) -> None:
    if value == "priority":
        made.set("policy.scheduling", {"kind": "priority-fcfs"}, ("scheduling-policy",))
    else:
        made.note(Fate.NO_EFFECT, "scheduling-policy", "first come, first served is the default")


def _vllm_speculative_config(made: Conversion, value: Json) -> None:
    config = as_map(value)
    tokens, method = config.get("num_speculative_tokens"), str(config.get("method") or "draft_model")
    if not isinstance(tokens, int):
        made.given.problem(("speculative-config",), "it lacks `num_speculative_tokens`")
        return
    known = "mtp" if method.endswith("mtp") else "eagle" if method == "eagle3" else method
    known = known if known in ("ngram", "ngram_gpu", "eagle", "mtp") else ""
    if not known:
        made.note(Fate.NOT_CARRIED, "speculative-config", f"drafts by `{method}` are not simulated")
        return
    drafts: dict[str, Json] = {"draft_tokens": tokens, "method": known, "acceptance": _ACCEPTANCE}
    made.set("engine.speculative", drafts, ("speculative-config",))
    if known == "ngram":  # as vLLM does: this drafter runs on the host
        made.set("policy.batching.async_scheduling", False, ())
    text = f"how often drafts are accepted is in no command: {_ACCEPTANCE} of each token is assumed"
    made.note(Fate.APPROXIMATED, "speculative-config", text)


def _vllm_max_num_partial_prefills(made: Conversion, value: Json) -> None:
    batching = as_map(as_map(made.body["policy"])["batching"])
    if batching.get("version") == "0.10":
        made.set("policy.batching.max_num_partial_prefills", value, ("max-num-partial-prefills",))
    else:
        made.note(Fate.NOT_CARRIED, "max-num-partial-prefills", "vLLM 0.32 has it no more")


def _vllm_quantization(made: Conversion, value: Json) -> None:
    _quantised(made, str(value))


def _sglang_quantization(made: Conversion, value: Json) -> None:
    _quantised(made, str(value))


def _quantised(made: Conversion, method: str) -> None:
    if method == "fp8":
        made.note(Fate.TAKEN, "quantization", "the weights of `model`")
    else:
        made.note(Fate.NO_EFFECT, "quantization", "the model's document says how its weights are quantised")


def _vllm_enable_lora(made: Conversion, value: Json) -> None:
    _lora(made, "enable-lora", value)


def _sglang_enable_lora(made: Conversion, value: Json) -> None:
    _lora(made, "enable-lora", value)


def _lora(made: Conversion, name: str, value: Json) -> None:
    if value:
        as_map(made.body.setdefault("engine", {})).setdefault("lora", {})
        made.note(Fate.TAKEN, name, "`engine.lora`")


def _sglang_dp_size(made: Conversion, value: Json) -> None:
    if made.options.get("enable-dp-attention"):
        text = "ranks that share their experts are not simulated with SGLang's scheduler: one instance has all requests"
        made.note(Fate.NOT_CARRIED, "dp-size", text)
    else:
        _replicas(made, "dp-size", value)


def _sglang_enable_dp_attention(made: Conversion, _: Json) -> None:
    made.note(Fate.NOT_CARRIED, "enable-dp-attention", "attention is split over all GPUs of the instance instead")


def _tensorrt_llm_ep_size(made: Conversion, value: Json) -> None:
    made.set("latency.expert_parallel", value, ("ep-size",))


def _tensorrt_llm_kv_cache_dtype(made: Conversion, value: Json) -> None:
    name = "kv-cache-config.dtype" if "kv-cache-config.dtype" in made.options else "kv-cache-dtype"
    made.set("engine.kv_cache_dtype", value, (name,))


def _sglang_ep_size(made: Conversion, value: Json) -> None:
    if value == 1:
        made.note(Fate.NO_EFFECT, "ep-size", "experts are split as all else")
    else:
        made.set("latency", {"kind": "operators", "expert_parallel": value}, ("ep-size",))


def _sglang_chunked_prefill_size(made: Conversion, value: Json) -> None:
    chunk: Json = "none" if value == -1 else value
    made.set("policy.batching.chunked_prefill_size", chunk, ("chunked-prefill-size",))


def _sglang_kv_cache_dtype(made: Conversion, value: Json) -> None:
    known: Json = "fp8" if str(value).startswith("fp8") else "auto" if value in ("auto", "bf16", "bfloat16") else value
    made.set("engine.kv_cache_dtype", known, ("kv-cache-dtype",))


def _sglang_max_total_tokens(made: Conversion, value: Json) -> None:
    size = made.options.get("page-size", 1)
    blocks: Json = value // size if isinstance(value, int) and isinstance(size, int) and size > 0 else value
    made.set("engine.kv_blocks", blocks, ("max-total-tokens",))


def _sglang_disable_radix_cache(made: Conversion, value: Json) -> None:
    made.set("engine.enable_prefix_caching", not value, ("disable-radix-cache",))


def _sglang_disable_overlap_schedule(made: Conversion, value: Json) -> None:
    made.set("policy.batching.overlap_schedule", not value, ("disable-overlap-schedule",))


def _sglang_enable_hierarchical_cache(made: Conversion, value: Json) -> None:
    if value:
        made.set("engine.kv_tiers.kind", "hicache", ("enable-hierarchical-cache",))


RULES: Final[Mapping[tuple[str, str], Callable[[Conversion, Json], None]]] = MappingProxyType(
    {
        ("vllm", "kv-transfer-config"): _vllm_kv_transfer_config,
        ("vllm", "kv-offloading-size"): _vllm_kv_offloading_size,
        ("vllm", "is-prefill-worker"): _is_prefill_worker,
        ("vllm", "is-decode-worker"): _is_decode_worker,
        ("vllm", "disaggregation-mode"): _disaggregation_mode,
        ("sglang", "disaggregation-mode"): _disaggregation_mode,
        ("tensorrt-llm", "disaggregation-mode"): _disaggregation_mode,
        ("tensorrt-llm", "server-role"): _server_role,
        ("vllm", "data-parallel-size"): _vllm_data_parallel_size,
        ("vllm", "enable-expert-parallel"): _vllm_enable_expert_parallel,
        ("vllm", "compilation-config"): _vllm_compilation_config,
        ("vllm", "scheduling-policy"): _vllm_scheduling_policy,
        ("vllm", "speculative-config"): _vllm_speculative_config,
        ("vllm", "max-num-partial-prefills"): _vllm_max_num_partial_prefills,
        ("vllm", "quantization"): _vllm_quantization,
        ("sglang", "quantization"): _sglang_quantization,
        ("vllm", "enable-lora"): _vllm_enable_lora,
        ("sglang", "enable-lora"): _sglang_enable_lora,
        ("sglang", "dp-size"): _sglang_dp_size,
        ("sglang", "enable-dp-attention"): _sglang_enable_dp_attention,
        ("tensorrt-llm", "ep-size"): _tensorrt_llm_ep_size,
        ("tensorrt-llm", "kv-cache-dtype"): _tensorrt_llm_kv_cache_dtype,
        ("tensorrt-llm", "kv-cache-config.dtype"): _tensorrt_llm_kv_cache_dtype,
        ("sglang", "ep-size"): _sglang_ep_size,
        ("sglang", "chunked-prefill-size"): _sglang_chunked_prefill_size,
        ("sglang", "kv-cache-dtype"): _sglang_kv_cache_dtype,
        ("sglang", "max-total-tokens"): _sglang_max_total_tokens,
        ("sglang", "disable-radix-cache"): _sglang_disable_radix_cache,
        ("sglang", "disable-overlap-schedule"): _sglang_disable_overlap_schedule,
        ("sglang", "enable-hierarchical-cache"): _sglang_enable_hierarchical_cache,
    }
)
"""Engine and argument -> what it means."""
