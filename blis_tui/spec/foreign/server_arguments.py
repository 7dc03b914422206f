"""The arguments of engines' servers: which a simulation knows, which change nothing, and which it cannot have.

One table for each server, and a function for each argument that is no key of the same kind. An argument that no table
has is listed as unknown, never dropped. Sources: vLLM 0.33, ``engine/arg_utils.py`` and
``entrypoints/openai/cli_args.py``; SGLang 0.5.23, ``server_args.py``; TensorRT-LLM 1.1, ``commands/serve.py`` and
``llmapi/llm_args.py``.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.source import as_map
from blis_tui.spec.foreign.reading import Fate
from blis_tui.spec.schema import default

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.base.source import DataPath, Json
    from blis_tui.spec.foreign.reading import Input


class Server(NamedTuple):
    """What is known of a server's arguments."""

    taken: Mapping[str, str]
    """Argument -> key of the experiment, or empty if the converter has a rule of its own for it."""
    flags: frozenset[str]
    """Taken arguments without a value: they are on, or off behind ``--no-``."""
    short: Mapping[str, str]
    """Other names of arguments."""
    no_effect: Mapping[str, str]
    """Argument -> why it changes nothing."""
    lost: Mapping[str, str]
    """Argument -> what the simulation therefore has otherwise."""

    def in_full(self, name: str) -> str:
        """Return an argument by its name, another of its names, or the beginning of no other one's (as argparse)."""
        name = self.short.get(name, name)
        known = dict.fromkeys((*self.taken, *self.flags, *self.short, *self.no_effect, *self.lost))
        if name in known or name.startswith("no-"):
            return name
        begun = dict.fromkeys(self.short.get(full, full) for full in known if full.startswith(name))
        return next(iter(begun)) if len(begun) == 1 else name


def _each(table: Mapping[str, str]) -> Mapping[str, str]:
    """Return a table by argument from one whose keys are several names."""
    return MappingProxyType({name: why for names, why in table.items() for name in names.split()})


_REACHED = "how the server is reached and what it logs"
_LOADED = "how the model is found and loaded, before the first request"
_ANSWERED = "how answers are parsed and named"
_KERNELS = "step times are of the kernels that the engine chooses itself"
_PLACED = "how the server's processes are started and find each other"

VLLM: Final = Server(
    taken=MappingProxyType(
        {
            "model": "model",
            "tensor-parallel-size": "cluster.tensor_parallel",
            "pipeline-parallel-size": "engine.pipeline_parallel",
            "data-parallel-size": "",
            "enable-expert-parallel": "engine.expert_parallel",
            "max-num-seqs": "engine.max_num_seqs",
            "max-num-batched-tokens": "engine.max_num_batched_tokens",
            "max-model-len": "engine.max_model_len",
            "block-size": "engine.block_size_tokens",
            "gpu-memory-utilization": "engine.gpu_memory_utilization",
            "kv-cache-dtype": "engine.kv_cache_dtype",
            "num-gpu-blocks-override": "engine.kv_blocks",
            "enforce-eager": "engine.enforce_eager",
            "compilation-config": "",
            "enable-prefix-caching": "engine.enable_prefix_caching",
            "enable-chunked-prefill": "policy.batching.enable_chunked_prefill",
            "async-scheduling": "policy.batching.async_scheduling",
            "long-prefill-token-threshold": "engine.long_prefill_token_threshold",
            "max-num-partial-prefills": "",
            "disable-hybrid-kv-cache-manager": "engine.disable_hybrid_kv_cache_manager",
            "scheduling-policy": "",
            "speculative-config": "",
            "quantization": "",
            "api-server-count": "engine.front_end.processes",
            "enable-lora": "",
            "max-loras": "engine.lora.max_loras",
            "max-cpu-loras": "engine.lora.max_cpu_loras",
            "max-lora-rank": "engine.lora.max_lora_rank",
            "kv-transfer-config": "",
            "kv-offloading-size": "",
            "is-prefill-worker": "",
            "is-decode-worker": "",
            "disaggregation-mode": "",
        }
    ),
    flags=frozenset(
        {
            *("enable-expert-parallel", "enforce-eager", "enable-prefix-caching", "enable-chunked-prefill"),
            *("async-scheduling", "disable-hybrid-kv-cache-manager", "enable-lora"),
            *("is-prefill-worker", "is-decode-worker"),
        }
    ),
    short=MappingProxyType(
        {
            "tp": "tensor-parallel-size",
            "pp": "pipeline-parallel-size",
            "dp": "data-parallel-size",
            "ep": "enable-expert-parallel",
            "q": "quantization",
            "O": "compilation-config",
            "asc": "api-server-count",
            "sc": "speculative-config",
            "cc": "compilation-config",
        }
    ),
    no_effect=_each(
        {
            "host port uds api-key root-path allowed-origins allowed-methods allowed-headers": _REACHED,
            "allow-credentials ssl-keyfile ssl-certfile ssl-ca-certs ssl-cert-reqs middleware": _REACHED,
            "uvicorn-log-level disable-uvicorn-access-log disable-log-requests enable-log-requests": _REACHED,
            "disable-log-stats max-log-len log-config-file enable-log-outputs h11-max-header-count": _REACHED,
            "otlp-traces-endpoint collect-detailed-traces show-hidden-metrics-for-version": _REACHED,
            "enable-server-load-tracking enable-request-id-headers kv-events-config": _REACHED,
            "disable-fastapi-docs enable-offline-docs h11-max-incomplete-event-size": _REACHED,
            "served-model-name response-role chat-template chat-template-content-format": _ANSWERED,
            "enable-auto-tool-choice tool-call-parser tool-parser-plugin reasoning-parser enable-reasoning": _ANSWERED,
            "exclude-tools-when-tool-choice-none enable-prompt-tokens-details enable-force-include-usage": _ANSWERED,
            "return-tokens-as-token-ids max-logprobs logprobs-mode trust-request-chat-template": _ANSWERED,
            "tokenizer tokenizer-mode tokenizer-revision skip-tokenizer-init hf-config-path": _LOADED,
            "trust-remote-code download-dir load-format config-format revision code-revision hf-token": _LOADED,
            "model-loader-extra-config safetensors-load-strategy max-parallel-loading-workers": _LOADED,
            "ignore-patterns use-tqdm-on-load pt-load-map-location enable-sleep-mode dtype": _LOADED,
            "lora-modules prompt-adapters allowed-local-media-path allowed-media-domains": _LOADED,
            "distributed-executor-backend worker-cls worker-extension-cls ray-workers-use-nsight": _PLACED,
            "data-parallel-address data-parallel-rpc-port data-parallel-backend data-parallel-start-rank": _PLACED,
            "data-parallel-size-local data-parallel-rank data-parallel-external-lb data-parallel-hybrid-lb": _PLACED,
            "endpoint namespace migration-limit request-plane event-plane discovery-backend": _PLACED,
            "dyn-tool-call-parser dyn-reasoning-parser dyn-endpoint-types custom-jinja-template": _ANSWERED,
            "enable-ssl-refresh shutdown-timeout disable-access-log-for-endpoints kv-offloading-backend": _REACHED,
            "headless master-addr master-port nnodes node-rank": _PLACED,
            "disable-frontend-multiprocessing distributed-timeout-seconds numa-bind": _PLACED,
            "seed": "write it as `seed` into the experiment, if the workload is to be that of the server",
            "swap-space": "vLLM's V1 engine swaps nothing",
            "preemption-mode num-lookahead-slots use-v2-block-manager": "vLLM's V1 engine has it no more",
            "prefix-caching-hash-algo calculate-kv-scales": "it changes no time that is simulated",
            "guided-decoding-backend structured-outputs-config": "no request here asks for structured output",
        }
    ),
    lost=_each(
        {
            "cpu-offload-gb offload-backend": "weights are all on the GPU, so steps are simulated too fast",
            "attention-backend disable-cascade-attn disable-custom-all-reduce": _KERNELS,
            "enable-dbo dbo-decode-token-threshold dbo-prefill-token-threshold ubatch-size": "batches are not halved:"
            " communication does not overlap with computing",
            "enable-eplb eplb-config": "experts stay where they are: see `engine.expert_imbalance`",
            "decode-context-parallel-size prefill-context-parallel-size": "the KV cache is not split over GPUs by"
            " context",
            "all2all-backend": "see `engine.all_to_all`",
            "stream-interval": "each token is streamed by itself",
            "generation-config override-generation-config": "sampling is the model document's `generation_config`",
            "hf-overrides rope-scaling rope-theta": "the model is that of its document",
            "limit-mm-per-prompt mm-processor-kwargs mm-processor-cache-gb mm-encoder-tp-mode": "see `engine.encoder`",
            "max-seq-len-to-capture cuda-graph-sizes cudagraph-capture-sizes max-cudagraph-capture-size": "CUDA graphs"
            " are those that vLLM captures by default",
            "long-prefill-threshold max-long-partial-prefills": "all long prompts wait alike",
            "performance-mode optimization-level": _KERNELS,
            "kv-cache-memory-bytes": "the KV cache is what `gpu_memory_utilization` leaves: see `engine.kv_blocks`",
            "scheduler-cls": "the scheduler is vLLM's own",
            "mamba-cache-mode mamba-block-size": "states are never copied for the prefix cache, as with `none`",
            "mamba-cache-dtype mamba-ssm-cache-dtype": "states have the types of the model document: `mamba_ssm_dtype`",
        }
    ),
)

TENSORRT_LLM: Final = Server(
    taken=MappingProxyType(
        {
            "model": "model",
            "tp-size": "cluster.tensor_parallel",
            "pp-size": "engine.pipeline_parallel",
            "ep-size": "",
            "max-batch-size": "engine.max_num_seqs",
            "max-num-tokens": "engine.max_num_batched_tokens",
            "max-seq-len": "engine.max_model_len",
            "kv-cache-free-gpu-memory-fraction": "engine.gpu_memory_utilization",
            "kv-cache-dtype": "",
            "kv-cache-config.free-gpu-memory-fraction": "engine.gpu_memory_utilization",
            "kv-cache-config.enable-block-reuse": "engine.enable_prefix_caching",
            "kv-cache-config.dtype": "",
            "kv-cache-config.tokens-per-block": "engine.block_size_tokens",
            "enable-chunked-prefill": "policy.batching.enable_chunked_prefill",
            "disable-overlap-scheduler": "policy.batching.disable_overlap_scheduler",
            "scheduler-config.capacity-scheduler-policy": "policy.batching.capacity_scheduler_policy",
            "batch-wait-timeout-iters": "policy.batching.batch_wait_timeout_iters",
            "batch-wait-max-tokens-ratio": "policy.batching.batch_wait_max_tokens_ratio",
            "server-role": "",
            "disaggregation-mode": "",
        }
    ),
    flags=frozenset({"enable-chunked-prefill", "disable-overlap-scheduler"}),
    short=MappingProxyType(
        {
            "tensor-parallel-size": "tp-size",
            "pipeline-parallel-size": "pp-size",
            "expert-parallel-size": "ep-size",
            "moe-expert-parallel-size": "ep-size",
            "free-gpu-memory-fraction": "kv-cache-free-gpu-memory-fraction",
            "model-path": "model",
        }
    ),
    no_effect=_each(
        {
            "host port log-level print-iter-log enable-iter-perf-stats return-perf-metrics": _REACHED,
            "metadata-server-config-file metrics-log-interval": _REACHED,
            "reasoning-parser tool-parser chat-template served-model-name": _ANSWERED,
            "tokenizer trust-remote-code backend load-format revision dtype": _LOADED,
            "gpus-per-node cluster-size num-postprocess-workers": _PLACED,
        }
    ),
    lost=_each(
        {
            "speculative-config": "speculative decoding of TensorRT-LLM is not simulated",
            "cuda-graph-config torch-compile-config moe-config attn-backend use-cuda-graph": _KERNELS,
            "enable-attention-dp attention-dp-config": "attention is split over all GPUs of the instance",
            "cache-transceiver-config disaggregation-strategy": "see `cluster.disaggregation`",
            "kv-cache-config.host-cache-size kv-cache-config.max-tokens": "the KV cache is what"
            " `gpu_memory_utilization` leaves on the GPU",
            "stream-interval": "each token is streamed by itself",
            "max-beam-width": "answers have one beam",
            "max-input-len": "see `engine.max_model_len`",
        }
    ),
)

SGLANG: Final = Server(
    taken=MappingProxyType(
        {
            "model-path": "model",
            "tp-size": "cluster.tensor_parallel",
            "pp-size": "engine.pipeline_parallel",
            "dp-size": "",
            "enable-dp-attention": "",
            "ep-size": "",
            "max-running-requests": "engine.max_num_seqs",
            "chunked-prefill-size": "",
            "max-prefill-tokens": "policy.batching.max_prefill_tokens",
            "mem-fraction-static": "engine.gpu_memory_utilization",
            "schedule-conservativeness": "policy.batching.schedule_conservativeness",
            "page-size": "engine.block_size_tokens",
            "context-length": "engine.max_model_len",
            "kv-cache-dtype": "",
            "max-total-tokens": "",
            "disable-radix-cache": "",
            "disable-overlap-schedule": "",
            "disable-cuda-graph": "engine.enforce_eager",
            "disable-prefill-cuda-graph": "",
            "disable-piecewise-cuda-graph": "",
            "enable-mixed-chunk": "policy.batching.enable_mixed_chunk",
            "enable-priority-scheduling": "policy.batching.enable_priority_scheduling",
            "schedule-low-priority-values-first": "policy.batching.schedule_low_priority_values_first",
            "priority-scheduling-preemption-threshold": "policy.batching.priority_scheduling_preemption_threshold",
            "scheduler-recv-interval": "policy.batching.scheduler_recv_interval",
            "num-reserved-decode-tokens": "policy.batching.num_reserved_decode_tokens",
            "enable-hierarchical-cache": "",
            "hicache-ratio": "engine.kv_tiers.hicache_ratio",
            "hicache-write-policy": "engine.kv_tiers.hicache_write_policy",
            "quantization": "",
            "tokenizer-worker-num": "engine.front_end.processes",
            "max-loras-per-batch": "engine.lora.max_loras",
            "max-lora-rank": "engine.lora.max_lora_rank",
            "enable-lora": "",
            "disaggregation-mode": "",
        }
    ),
    flags=frozenset(
        {
            *("enable-dp-attention", "disable-radix-cache", "disable-overlap-schedule", "disable-cuda-graph"),
            *("enable-mixed-chunk", "enable-priority-scheduling", "schedule-low-priority-values-first"),
            *("enable-hierarchical-cache", "enable-lora", "disable-prefill-cuda-graph", "disable-piecewise-cuda-graph"),
        }
    ),
    short=MappingProxyType(
        {
            "model": "model-path",
            "tp": "tp-size",
            "tensor-parallel-size": "tp-size",
            "dp": "dp-size",
            "data-parallel-size": "dp-size",
            "pp": "pp-size",
            "pipeline-parallel-size": "pp-size",
            "ep": "ep-size",
            "expert-parallel-size": "ep-size",
        }
    ),
    no_effect=_each(
        {
            "host port api-key log-level log-level-http log-requests log-requests-level enable-metrics": _REACHED,
            "show-time-cost decode-log-interval crash-dump-folder watchdog-timeout enable-trace": _REACHED,
            "kv-events-config enable-cache-report metrics-port ssl-keyfile ssl-certfile": _REACHED,
            "served-model-name chat-template completion-template tool-call-parser reasoning-parser": _ANSWERED,
            "tokenizer-path tokenizer-mode skip-tokenizer-init load-format trust-remote-code dtype": _LOADED,
            "enable-piecewise-cuda-graph": "steps with prompts are CUDA graphs",
            "revision download-dir model-loader-extra-config weight-version warmups skip-server-warmup": _LOADED,
            "lora-paths": _LOADED,
            "disaggregation-bootstrap-port disaggregation-decode-tp disaggregation-decode-dp": _PLACED,
            "endpoint namespace migration-limit request-plane event-plane discovery-backend": _PLACED,
            "dyn-tool-call-parser dyn-reasoning-parser dyn-endpoint-types custom-jinja-template": _ANSWERED,
            "dist-init-addr nnodes node-rank dist-timeout base-gpu-id gpu-id-step nccl-port device": _PLACED,
            "random-seed": "write it as `seed` into the experiment, if the workload is to be that of the server",
            "constrained-json-whitespace-pattern grammar-backend": "no request here asks for structured output",
        }
    ),
    lost=_each(
        {
            "speculative-algorithm speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens": "its"
            " speculative decoding is not simulated: answers take as many steps as they have tokens",
            "speculative-draft-model-path speculative-draft speculative-token-map": "see `speculative-algorithm`",
            "hicache-size": "the host's cache is `hicache_ratio` times the GPU's",
            "hicache-io-backend hicache-mem-layout hicache-storage-backend hicache-storage-prefetch-policy": "see"
            " `engine.kv_tiers`",
            "disaggregation-transfer-backend disaggregation-ib-device": "transfers take the time of"
            " `cluster.disaggregation.transfer`",
            "disaggregation-decode-enable-radix-cache disaggregation-decode-enable-offload-kvcache": "servers that"
            " decode have no prefix cache",
            "disaggregation-decode-polling-interval": "they look for room and for KV blocks before each step",
            "schedule-policy": "the queue is first come, first served",
            "attention-backend prefill-attention-backend decode-attention-backend sampling-backend": _KERNELS,
            "moe-runner-backend fp8-gemm-backend enable-flashinfer-allreduce-fusion enable-torch-compile": _KERNELS,
            "disable-custom-all-reduce enable-nccl-nvls enable-symm-mem torch-compile-max-bs": _KERNELS,
            "moe-a2a-backend deepep-mode enable-deepep-moe": "see `engine.all_to_all`",
            "enable-two-batch-overlap enable-single-batch-overlap": "communication does not overlap with computing",
            "enable-eplb ep-num-redundant-experts eplb-algorithm init-expert-location": "experts stay where they are:"
            " see `engine.expert_imbalance`",
            "cuda-graph-max-bs cuda-graph-bs disable-cuda-graph-padding": "CUDA graphs are those that SGLang"
            " captures by default",
            "stream-interval": "each token is streamed by itself",
            "cpu-offload-gb": "weights are all on the GPU, so steps are simulated too fast",
            "load-balance-method": "ranks take turns",
            "moe-dense-tp-size enable-dp-lm-head": "dense layers are split as attention is",
            "json-model-override-args": "the model is that of its document",
            "mamba-ssm-dtype": "states have the types of the model document: `mamba_ssm_dtype`",
            "mamba-full-memory-ratio max-mamba-cache-size": "there are as many states as requests may run:"
            " `engine.max_num_seqs`",
            "mamba-radix-cache-strategy mamba-scheduler-strategy mamba-track-interval": "states are never copied for"
            " the prefix cache",
            "linear-attn-backend linear-attn-decode-backend linear-attn-prefill-backend": _KERNELS,
        }
    ),
)

SHARED_STORE: Final = "its size is not in here: add it to `engine.kv_tiers` as the last tier, with `shared: true`"
"""Advice for a store of KV blocks behind several servers."""
_OF_LMCACHE = "LMCache keeps what `engine.kv_tiers` has, in blocks of the engine"

ENVIRONMENT: Final[Mapping[str, tuple[bool, str]]] = MappingProxyType(
    {
        name: (lost, why)
        for lost, names, why in (
            (False, "VLLM_LOGGING_* VLLM_CONFIGURE_LOGGING VLLM_LOG_* VLLM_NO_USAGE_STATS VLLM_DO_NOT_TRACK", _REACHED),
            (False, "VLLM_API_KEY VLLM_HOST_IP VLLM_PORT VLLM_RPC_* VLLM_HTTP_* VLLM_NIXL_SIDE_CHANNEL_*", _REACHED),
            (False, "VLLM_SERVER_DEV_MODE VLLM_TORCH_PROFILER_* VLLM_DEBUG_* VLLM_TRACE_*", _REACHED),
            (False, "VLLM_CACHE_ROOT VLLM_CONFIG_ROOT VLLM_ASSETS_* VLLM_USE_MODELSCOPE VLLM_*_TIMEOUT*", _LOADED),
            (False, "VLLM_ALLOW_* VLLM_PLUGINS VLLM_SKIP_* VLLM_TARGET_DEVICE VLLM_IMAGE* VLLM_TAG", _LOADED),
            (False, "VLLM_WORKER_MULTIPROC_METHOD VLLM_ENABLE_V1_MULTIPROCESSING VLLM_DP_* VLLM_RAY_*", _PLACED),
            (False, "VLLM_KEEP_ALIVE_* VLLM_RANDOMIZE_* VLLM_LOOPBACK_IP VLLM_DISABLE_COMPILE_CACHE", _PLACED),
            (False, "VLLM_USE_V1", "the V1 engine is simulated"),
            (False, "VLLM_ADDITIONAL_ARGS", "see the arguments in it"),
            (False, "SGLANG_ENABLE_LOGGING* SGLANG_*LOG* SGLANG_*TIMEOUT* SGLANG_HOST_IP SGLANG_PORT", _REACHED),
            (False, "LMCACHE_LOG_* LMCACHE_TRACK_* LMCACHE_USE_EXPERIMENTAL LMCACHE_LOCAL_CPU LMCACHE_*_ID", _REACHED),
            (True, "VLLM_ALL2ALL_BACKEND", "see `engine.all_to_all`"),
            (True, "VLLM_ATTENTION_BACKEND VLLM_*FLASHINFER* VLLM_*FLASH_ATTN* VLLM_*DEEP_GEMM* VLLM_*MOE*", _KERNELS),
            (True, "VLLM_ROCM_* VLLM_*TRITON* VLLM_*MARLIN* VLLM_*MXFP4* VLLM_*CUTLASS* VLLM_*TRTLLM*", _KERNELS),
            (True, "VLLM_*ALLREDUCE* VLLM_*NCCL* VLLM_*CUDA_GRAPH* VLLM_DISABLED_KERNELS VLLM_*MLA*", _KERNELS),
            (True, "SGL_* SGLANG_*DEEPEP* SGLANG_*GEMM* SGLANG_*MOE* TRTLLM_*", _KERNELS),
            (True, "LMCACHE_REMOTE_URL", f"a store that servers share: {SHARED_STORE}"),
            (True, "LMCACHE_*", _OF_LMCACHE),
            (True, "VLLM_* SGLANG_*", "unknown variable"),
        )
        for name in names.split()
    }
)
"""Patterns of environment variables, the first that fits counts -> whether it changes figures, and what that means."""


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
_STORES: Final = frozenset({"MooncakeStoreConnector", "LMCacheMPConnector"})
"""Connectors that keep KV blocks in a store behind several servers."""
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
    for part in [as_map(entry) for entry in inside] if isinstance(inside, list) else [config]:
        connector, role = str(part.get("kv_connector") or "?"), str(part.get("kv_role") or config.get("kv_role"))
        extra = as_map(part.get("kv_connector_extra_config"))
        if connector in _OFFLOADING and role == "kv_both":
            size = extra.get("cpu_bytes_to_use") or extra.get("cpu_bytes_to_use_per_rank")
            own, many = made.options.get("block-size", 16), extra.get("num_cpu_blocks")
            tokens, blocks = extra.get("block_size", own), 0
            if isinstance(many, int) and isinstance(tokens, int) and isinstance(own, int) and own > 0:
                blocks = many * tokens // own
            made.host_cache = (name, float(size) if isinstance(size, int | float) else 0.0, blocks)
            if any("remote_url" in key for key in extra):
                made.note(Fate.NOT_CARRIED, name, f"`remote_url` is a store that servers share: {SHARED_STORE}")
        elif role in _ROLES:
            _role(made, name, role)
        elif role == "kv_both" and connector in _STORES:
            made.note(Fate.NOT_CARRIED, name, f"`{connector}` is a store that servers share: {SHARED_STORE}")
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
    if (others := [name for name in config if name != "cudagraph_mode"]) or not isinstance(mode, str):
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
    size = made.options.get("page-size", default("Experiment", "engine", "block_size_tokens"))
    blocks: Json = value // size if isinstance(value, int) and isinstance(size, int) and size > 0 else value
    made.set("engine.kv_blocks", blocks, ("max-total-tokens",))


def _sglang_disable_radix_cache(made: Conversion, value: Json) -> None:
    made.set("engine.enable_prefix_caching", not value, ("disable-radix-cache",))


def _sglang_no_prompt_graphs(name: str) -> Callable[[Conversion, Json], None]:
    """Return what an argument means that leaves steps with prompts without CUDA graphs."""

    def rule(made: Conversion, value: Json) -> None:
        if value:
            made.set("engine.cudagraph_mode", "FULL_DECODE_ONLY", (name,))

    return rule


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
        ("sglang", "disable-prefill-cuda-graph"): _sglang_no_prompt_graphs("disable-prefill-cuda-graph"),
        ("sglang", "disable-piecewise-cuda-graph"): _sglang_no_prompt_graphs("disable-piecewise-cuda-graph"),
        ("sglang", "enable-hierarchical-cache"): _sglang_enable_hierarchical_cache,
    }
)
"""Engine and argument -> what it means."""
