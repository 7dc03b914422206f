"""The arguments of engines' servers: which of them a simulation knows, which change nothing, and which it cannot have.

One table for each server. An argument that no table has is listed as unknown, never dropped. Sources: vLLM 0.33,
``engine/arg_utils.py`` and ``entrypoints/openai/cli_args.py``; SGLang 0.5.23, ``server_args.py``; TensorRT-LLM 1.1,
``commands/serve.py`` and ``llmapi/llm_args.py``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


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
            "enable-mixed-chunk": "policy.batching.enable_mixed_chunk",
            "enable-priority-scheduling": "policy.batching.enable_priority_scheduling",
            "schedule-low-priority-values-first": "policy.batching.schedule_low_priority_values_first",
            "priority-scheduling-preemption-threshold": "policy.batching.priority_scheduling_preemption_threshold",
            "scheduler-recv-interval": "policy.batching.scheduler_recv_interval",
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
            *("enable-hierarchical-cache", "enable-lora"),
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
            "schedule-policy": "the queue is first come, first served",
            "attention-backend prefill-attention-backend decode-attention-backend sampling-backend": _KERNELS,
            "moe-runner-backend fp8-gemm-backend enable-flashinfer-allreduce-fusion enable-torch-compile": _KERNELS,
            "disable-custom-all-reduce enable-nccl-nvls enable-symm-mem torch-compile-max-bs": _KERNELS,
            "moe-a2a-backend deepep-mode enable-deepep-moe": "see `engine.all_to_all`",
            "enable-two-batch-overlap enable-single-batch-overlap": "communication does not overlap with computing",
            "enable-eplb ep-num-redundant-experts eplb-algorithm init-expert-location": "experts stay where they are:"
            " see `engine.expert_imbalance`",
            "cuda-graph-max-bs cuda-graph-bs disable-cuda-graph-padding disable-piecewise-cuda-graph": "CUDA graphs are"
            " those that SGLang captures by default",
            "stream-interval": "each token is streamed by itself",
            "cpu-offload-gb": "weights are all on the GPU, so steps are simulated too fast",
            "load-balance-method": "ranks take turns",
            "moe-dense-tp-size enable-dp-lm-head": "dense layers are split as attention is",
            "json-model-override-args": "the model is that of its document",
        }
    ),
)

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
            (True, "LMCACHE_*", _OF_LMCACHE),
            (True, "VLLM_* SGLANG_*", "unknown variable"),
        )
        for name in names.split()
    }
)
"""Patterns of environment variables, the first that fits counts -> whether it changes figures, and what that means."""
