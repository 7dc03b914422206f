"""Hints that translate names of other tools and of former versions; they take precedence over similar names.

Names that other tools use, and the corresponding names here: keys, words, documents and metrics.

The names come from vLLM (engine arguments, ``vllm session serve``), BLIS, Vidur, SGLang, GuideLLM, inference-perf and
genai-perf, written in lower case with ``_``. Hints look here before they look for misspellings.

Former spellings of keys, used by ``blis-tui upgrade`` to rewrite documents and by hints.

Every key that is renamed, moved or removed gets a row here; ``docs/lab/former-names.md`` lists them.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.diagnostics import nearest, suggestion, words_of
from blis_tui.base.scalars import flow
from blis_tui.model import latencies

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from blis_tui.base.source import DataPath, Json


_NAMES_OF_KEYS: Final = {
    "model": "model_name model_id model_path model_tag served_model_name pretrained_model_name_or_path llm",
    "hardware": "gpu gpu_type gpu_name gpu_model device device_type accelerator accelerator_type sku "
    "replica_config_device",
    "seed": "random_seed rng_seed",
    "workload": "",
    "cluster": "",
    "engine": "",
    "policy": "policies policy_config replica_scheduler",
    "latency": "latency_model latency_backend backend execution_time_predictor",
    "horizon_us": "horizon simulation_horizon duration duration_s max_seconds max_duration time_limit stage_duration",
    "expect": "slo slos goodput assertions",
    "expect.max": "lt le lte less_than below at_most upper upper_bound limit",
    "expect.min": "gt ge gte greater_than above at_least lower lower_bound",
    "expect.equals": "eq equal value is",
    "engine.max_num_seqs": "max_num_sequences max_sequences max_batch_size batch_size batch_size_cap "
    "max_num_running_reqs max_running_requests max_concurrent_requests max_num_requests max_seqs batch_cap "
    "vllm_scheduler_config_batch_size_cap",
    "engine.max_num_batched_tokens": "max_num_scheduled_tokens max_tokens_in_batch max_batch_tokens token_budget "
    "max_scheduled_tokens chunk_size chunked_prefill_size max_prefill_tokens max_num_tokens max_batched_tokens",
    "engine.long_prefill_token_threshold": "prefill_token_threshold long_prefill_threshold prefill_chunk_size",
    "engine.max_model_len": "max_model_length max_seq_len max_sequence_length max_seq_length context_length "
    "max_context_len max_context_length context_len context_window max_total_tokens_per_request",
    "engine.block_size_tokens": "block_size block_size_in_tokens kv_block_size page_size tokens_per_block",
    "engine.kv_blocks": "num_gpu_blocks num_gpu_blocks_override total_kv_blocks num_kv_blocks num_blocks gpu_blocks "
    "kv_cache_blocks total_gpu_blocks",
    "engine.gpu_memory_utilization": "mem_fraction_static gpu_mem_util gpu_memory_util free_gpu_memory_fraction "
    "memory_utilization kv_cache_free_gpu_mem_fraction gpu_memory_fraction",
    "engine.enforce_eager": "enforce_eager disable_cuda_graph",
    "engine.cudagraph_mode": "cuda_graph_mode cudagraphs_mode",
    "engine.kv_cache_dtype": "cache_dtype kv_dtype kv_cache_type kv_cache_data_type",
    "engine.pipeline_parallel": "pipeline_parallel_size num_pipeline_stages pipeline_parallelism pp pp_size",
    "engine.data_parallel": "data_parallel_size dp dp_size",
    "engine.expert_parallel": "enable_expert_parallel expert_parallel_size ep ep_size",
    "engine.all_to_all": "all2all_backend",
    "engine.speculative": "speculative_config speculative_decoding speculation spec_decode",
    "engine.speculative.draft_tokens": "num_speculative_tokens speculative_num_draft_tokens num_draft_tokens "
    "num_spec_tokens",
    "engine.speculative.method": "kind speculative_method speculative_algorithm drafter",
    "engine.speculative.acceptance": "acceptance_rate synthetic_acceptance_rate draft_acceptance_rate",
    "engine.encoder": "vision_encoder mm_encoder multimodal_encoder encoder_cost",
    "engine.front_end": "api_server http_server frontend",
    "engine.front_end.processes": "api_server_count",
    "engine.lora": "lora_config",
    "engine.lora.max_loras": "max_loras max_loras_per_batch adapter_capacity",
    "engine.lora.max_cpu_loras": "max_cpu_loras max_loaded_loras",
    "engine.lora.max_lora_rank": "max_lora_rank",
    "engine.enable_prefix_caching": "prefix_caching prefix_cache enable_prefix_cache enable_automatic_prefix_caching "
    "automatic_prefix_caching apc enable_radix_cache kv_cache_reuse enable_block_reuse",
    "cluster.instances": "num_instances instance_count replicas num_replicas replica_count "
    "cluster_config_num_replicas num_servers num_engines",
    "cluster.tensor_parallel": "tensor_parallel_size tensor_parallelism tensor_parallel_degree tp tp_size "
    "num_gpus gpus_per_instance num_tensor_parallel_workers",
    "cluster.admission_latency_us": "admission_latency",
    "cluster.routing_latency_us": "routing_latency",
    "cluster.pools": "instance_groups groups",
    "cluster.autoscaler": "autoscaling hpa scaler",
    "cluster.autoscaler.min_instances": "min minimum min_replicas",
    "cluster.autoscaler.max_instances": "max maximum max_replicas",
    "cluster.disaggregation.prefill_instances": "prefill prefill_replicas num_prefill",
    "cluster.disaggregation.decode_instances": "decode decode_replicas num_decode",
    "cluster.disaggregation": "disagg pd pd_disaggregation prefill_decode_disaggregation",
    "cluster.lifecycle": "",
    "cluster.nodes": "node_pools",
    "cluster.failures": "failure outages",
    "cluster.signals": "",
    "policy.admission": "",
    "policy.routing": "",
    "policy.scheduling": "",
    "policy.priority": "",
    "policy.batching": "",
    "policy.preemption": "",
    "policy.gateway": "",
    "policy.batching.kind": "scheduler scheduler_type scheduler_cls replica_scheduler_type batching_policy",
    "policy.batching.enable_chunked_prefill": "enable_chunked_prefill chunked_prefill chunked_prefill_enabled",
    "policy.batching.max_num_partial_prefills": "max_num_partial_prefills num_partial_prefills",
    "policy.batching.watermark": "watermark watermark_blocks_fraction",
    "policy.batching.reserve_full_input": "scheduler_reserve_full_isl reserve_full_isl",
    "policy.scheduling.kind": "scheduling_policy schedule_policy queue_policy request_scheduler",
    "policy.priority.kind": "priority_policy",
    "policy.routing.kind": "routing_policy router global_scheduler global_scheduler_type load_balancer "
    "load_balancing lb_policy",
    "policy.admission.kind": "admission_policy",
    "policy.admission.capacity_tokens": "token_bucket_capacity bucket_capacity",
    "policy.admission.refill_tokens_per_s": "token_bucket_refill_rate refill_rate",
    "policy.preemption.restore": "preemption_mode mode",
    "policy.preemption.victim": "preemption_policy preemption_victim",
    "workload.rate_per_s": "rate request_rate requests_per_second requests_per_s req_per_s qps rps arrival_rate "
    "aggregate_rate poisson_rate rate_qps rate_rps",
    "workload.requests": "num_requests n_requests request_count num_prompts max_requests number_of_requests "
    "total_requests count num_reqs",
    "workload.clients": "client cohorts streams users",
    "workload.trace": "trace_file dataset dataset_path trace_path input_file custom_dataset",
    "workload.trace.file": "path filename file_path trace_file dataset_path",
    "workload.trace.scale_rate": "speedup speedup_ratio time_scale rate_scale",
    "workload.trace.pacing": "session_mode closed_loop sessions loop mode",
    "workload.trace.format": "type dataset_name dataset_format custom_dataset_type",
    "workload.clients.id": "name client_id",
    "workload.clients.share": "rate_fraction weight fraction proportion",
    "workload.clients.arrivals": "arrival arrival_process arrival_distribution interarrival interval_generator "
    "request_interval_generator load_type rate_type",
    "workload.clients.arrivals.cv": "coefficient_of_variation interval_cv request_rate_cv",
    "workload.clients.input_tokens": "prompt_tokens prompt_len prompt_length prompt_size num_prompt_tokens isl "
    "input_len input_length input_sequence_length prefill_tokens num_prefill_tokens prefill_length input "
    "random_input_len synthetic_input_tokens_mean input_distribution prompt_tokens_mean mean_input_len",
    "workload.clients.output_tokens": "completion_tokens completion_len completion_length num_completion_tokens osl "
    "output_len output_length output_sequence_length decode_tokens num_decode_tokens decode_length output "
    "generated_tokens generation_len max_tokens max_new_tokens random_output_len output_tokens_mean "
    "output_distribution mean_output_len",
    "workload.clients.prefix": "shared_prefix system_prompt",
    "workload.clients.prefix.tokens": "prefix_tokens prefix_len prefix_length shared_prefix_len "
    "random_prefix_len system_prompt_len shared_system_prompt_length length",
    "workload.clients.prefix.group": "prefix_group prefix_id prefix_name",
    "workload.sessions": "num_sessions num_conversations conversations_count max_sessions",
    "workload.clients.rate_curve": "lifecycle windows diurnal spike drain rate_schedule rate_function rate_profile",
    "workload.clients.rate_curve.points.at_s": "time time_s t start_s at",
    "workload.clients.rate_curve.points.factor": "multiplier scale rate",
    "workload.clients.session": "sessions multi_turn multiturn conversation conversations enable_multi_turn_chat",
    "workload.clients.session.turns": "rounds max_rounds num_rounds num_turns max_turns max_num_turns turn_count",
    "workload.clients.session.think_time_ms": "think_time think_time_us think_time_s turn_delay delay",
    "workload.clients.session.history": "context_growth context accumulate",
    "workload.clients.session.pacing": "closed_loop loop mode",
    "workload.clients.session.max_context_tokens": "max_context max_session_tokens",
    "workload.clients.session.calls": "graph dag steps tasks nodes",
    "workload.clients.session.calls.after": "depends_on needs parents dependencies requires",
    "workload.clients.session.calls.wait_ms": "tool_wait tool_time tool_latency_ms delay_ms wait",
    "workload.clients.session.calls.parallel": "count copies fan_out branches n",
    "workload.clients.reasoning": "thinking reasoning_config reasoning_tokens",
    "workload.clients.reasoning.ratio": "reason_ratio reason_ratio_distribution reasoning_ratio share fraction",
    "workload.clients.reasoning.history": "context keep_reasoning preserve_thinking",
    "workload.clients.multimodal": "modalities mm_data random_mm",
    "workload.clients.multimodal.images": "image image_distribution image_tokens",
    "workload.clients.multimodal.audio": "audios audio_tokens",
    "workload.clients.multimodal.video": "videos video_tokens",
    "workload.clients.multimodal.images.count": "image_count_distribution items base_items_per_request",
    "workload.clients.multimodal.images.tokens": "tokens_per_item tokens_per_image",
    "workload.clients.slo_class": "slo priority_class service_class priority",
    "workload.clients.tenant": "tenant_id user user_id",
    "workload.clients.timeout_us": "timeout deadline deadline_us timeout_s request_timeout",
    "workload.clients.input_tokens.kind": "distribution type",
    "workload.clients.arrivals.kind": "process type distribution",
    "workload.clients.input_tokens.value": "tokens length fixed",
    "workload.clients.input_tokens.mean": "average avg mu_tokens",
    "workload.clients.input_tokens.std_dev": "std stdev stddev sd sigma_tokens standard_deviation",
    "workload.clients.input_tokens.min": "minimum min_tokens lower low",
    "workload.clients.input_tokens.max": "maximum max_tokens upper high",
    "workload.clients.input_tokens.weights": "histogram pdf probabilities buckets",
    "hardware.memory_gib": "memory memory_gb vram hbm total_memory_gb memory_size",
    "hardware.peak_tflops": "tflops fp16_tflops peak_flops tflops_peak",
    "study.experiment": "base base_experiment base_config spec scenario template extends experiments",
    "study.case": "cases variant",
    "study.set": "fixed overrides common defaults constants base_params",
    "study.axes": "grid grids axis parameters params parameter_grid sweep sweeps sweep_parameters sweep_params "
    "search_space space matrix variables vary dimensions factors",
    "study.zip": "zipped zips together linked paired",
    "study.exclude": "excludes excluded exclusions skip skips filter filters where except",
    "study.seeds": "seed replications replicas_of_runs repetitions repeats repeat num_seeds runs num_runs trials "
    "random_seeds",
    "study.objectives": "objective metrics metric goals optimize optimise minimize minimise maximize maximise targets",
    "study.constraints": "slo slos constraint goodput limits sla slas expect expectations bounds slo_targets",
    "study.prices": "price cost costs cost_per_hour_usd usd_per_hour price_per_hour hourly_price",
    "study.objectives.goal": "direction sense mode optimize order",
    "study.axes.from": "start low begin min minimum first lower",
    "study.axes.to": "stop end high until max maximum last upper",
    "study.axes.step": "increment stride by interval delta",
    "study.axes.count": "num n points steps samples size",
    "study.axes.scale": "spacing distribution log kind type",
    "hardware.memory_bandwidth_tb_per_s": "bandwidth memory_bandwidth bw_peak_tbs bwpeaktbs hbm_bandwidth",
}
"""Path of a key (as ``explain`` takes it) -> its names in other tools."""


def _by_name(table: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    by_name: dict[str, tuple[str, ...]] = {}
    for ours, theirs in table.items():
        for name in theirs.split():
            by_name[name] = (*by_name.get(name, ()), ours)
    return MappingProxyType(by_name)


KEYS: Final = _by_name(_NAMES_OF_KEYS)
"""Name in other tools -> paths of keys it may mean, the likeliest first."""

OWN_PATHS: Final = tuple(_NAMES_OF_KEYS)
"""Paths of keys that users often put in the wrong place."""

_NOTES: Final = {
    "dtype torch_dtype quantization": "set it in the model's `model.config`: `torch_dtype`, `quantization_config`",
    "load_format": "no weights are loaded",
    "gpus": "accelerators are `cluster.instances` times `cluster.tensor_parallel`; their kind is `hardware`",
    "host port api_key chat_template tokenizer tokenizer_mode disable_log_requests disable_log_stats": (
        "nothing here depends on it: remove it"
    ),
    "cuda_graph use_cuda_graph": "write `enforce_eager` under `engine`: true is without CUDA graphs",
    "cuda_graph_sizes compilation_config": "see `engine.cudagraph_mode` and `engine.enforce_eager`",
    "num_scheduler_steps multi_step_stream_outputs": "schedulers plan one step at a time here: remove it",
    "kv_transfer_config kv_offloading_size kv_offloading_backend": "it is `engine.kv_tiers` here",
    "shared remote_url": "the last of the `tiers` of `engine.kv_tiers` with `kind: offload` can be `shared: true`",
    "swap_space cpu_offload_gb": (
        "victims are swapped out with `policy.preemption.restore: swap`, to the host memory of `engine.host_link`"
    ),
    "kv_cache_memory_bytes": "set `engine.kv_blocks` or `engine.gpu_memory_utilization`",
    "speculative_model": "no drafter is run: `engine.speculative` says how many of its tokens are accepted",
    "disable_radix_cache no_enable_prefix_caching": "write `enable_prefix_caching: false` under `engine`",
    "enable_chunked_prefill no_enable_chunked_prefill": (
        "it is `policy.batching.enable_chunked_prefill` here, of the batching kind `vllm-v1`"
    ),
    "max_num_partial_prefills": "it is `policy.batching.max_num_partial_prefills` here, of the batching kind `vllm-v1`",
    "scheduler_reserve_full_isl": "it is `policy.batching.reserve_full_input` here, of the batching kind `vllm-v1`",
    "async_scheduling": "it is `policy.batching.async_scheduling` here, of the batching kind `vllm-v1`",
    "enable_lora": "write `engine.lora`, such as `lora: {max_loras: 4}`, and `adapters` of clients",
    "lora_modules lora_path lora_name": "clients name the adapters they ask for: `adapters: {names: [sql, chat]}`",
    "fully_sharded_loras lora_dtype": "each accelerator loads its share of an adapter, in the model's type",
    "trust_remote_code": "no code is loaded",
    "burstiness": "write `arrivals: {kind: gamma, cv: X}` with X = 1 / sqrt(burstiness)",
    "concurrency max_concurrency num_users": (
        "write `arrivals: {kind: closed-loop, users: N}` of a client; `engine.max_num_seqs` limits the batch"
    ),
    "warmup": "set `warm_up_us` of the experiment: requests that arrive before are left out of the latencies",
    "range_ratio random_range_ratio": "write `input_tokens: {kind: uniform, min: A, max: B}`",
}
NOTES: Final = MappingProxyType({name: note for names, note in _NOTES.items() for name in names.split()})
"""Keys of other tools without an equivalent -> what to do instead."""

_NAMES_OF_WORDS: Final = {
    "constant": "fixed deterministic static fixed_length",
    "gaussian": "normal norm gauss truncated_normal",
    "lognormal": "log_normal",
    "poisson": "exponential memoryless random",
    "empirical": "discrete table",
    "percentiles": "percentile quantiles quantile",
    "histogram": "hist bins binned",
    "fcfs": "fifo first_come_first_served first_come_first_serve",
    "sjf": "shortest_job_first shortest_first spf",
    "priority-fcfs": "priority priority_queue",
    "vllm-v1": "vllm v1 sarathi vllm_v1_scheduler",
    "round-robin": "rr",
    "weighted": "prefix_aware prefix_cache_aware kv_aware kv_cache_aware cache_aware llm_d epp prefix_match",
    "least-loaded": "least_requests least_request least_connections least_busy shortest_queue jsq min_load",
    "session-affinity": "session sticky sticky_session consistent_hash consistent_hashing",
    "power-of-two": "power_of_2 p2c two_choices power_of_two_choices",
    "always-admit": "always none all accept_all",
    "reject-all": "never reject",
    "trained-physics": "evolved physics trained",
    "blackbox": "linear regression linear_regression",
    "bfloat16": "bf16",
    "float16": "fp16 half",
    "fp8": "float8 fp8_e4m3fn e4m3",
    "priority": "least_urgent lowest_priority",
    "tail": "youngest last lifo",
}

WORDS: Final = _by_name(_NAMES_OF_WORDS)
"""Word in other tools -> words that it may mean here."""

_NAMES_OF_DOCUMENTS: Final = {
    "Hardware": {
        "a100-80": "a100 a100_80gb a100_80g nvidia_a100 nvidia_a100_80gb a100_pcie nvidia_a100_80gb_pcie",
        "a100-40": "a100_40gb nvidia_a100_40gb a100_sxm4_40gb nvidia_a100_sxm4_40gb a100_pcie_40gb",
        "a100-sxm": "a100_sxm4 nvidia_a100_sxm4_80gb a100_sxm4_80gb a100_sxm_80gb",
        "a10g": "nvidia_a10g",
        "b200": "nvidia_b200 b200_sxm",
        "h100": "nvidia_h100 h100_80gb h100_sxm h100_sxm5 nvidia_h100_80gb_hbm3 h100_80 h100_sxm5_80gb",
        "h100-nvl": "nvidia_h100_nvl h100_nvl_94gb",
        "h100-pcie": "nvidia_h100_pcie h100_pcie_80gb h100_80gb_pcie",
        "h20": "nvidia_h20 h20_96gb",
        "h200": "nvidia_h200 h200_sxm h200_141gb h200_sxm5",
        "l40": "nvidia_l40",
        "l40s": "nvidia_l40s",
        "mi300x": "amd_instinct_mi300x mi300 amd_mi300x",
        "mi325x": "amd_instinct_mi325x mi325 amd_mi325x",
        "mi355x": "amd_instinct_mi355x mi355 amd_mi355x",
        "rtx-5090": "5090 geforce_rtx_5090 nvidia_geforce_rtx_5090",
        "rtx-3090": "3090 geforce_rtx_3090 nvidia_geforce_rtx_3090",
        "rtx-6000-ada": "6000_ada nvidia_rtx_6000_ada_generation rtx_6000_ada_generation",
        "rtx-a6000": "a6000 nvidia_rtx_a6000 nvidia_a6000",
        "rtx-4090": "4090 geforce_rtx_4090 nvidia_geforce_rtx_4090",
    },
    "Model": {
        "llama-3.1-8b-instruct": "llama_8b llama3_8b llama_3_8b llama3_1_8b llama_3_1_8b",
        "llama-3.1-70b-instruct": "llama_70b llama3_70b llama_3_70b llama3_1_70b llama_3_1_70b",
        "llama-2-7b-hf": "llama_2_7b llama2_7b",
        "codellama-34b-instruct-hf": "codellama codellama_34b",
        "mixtral-8x7b-v0.1": "mixtral mixtral_8x7b mixtral_8x7b_instruct_v0_1",
        "qwen2.5-7b-instruct": "qwen2_5_7b qwen_2_5_7b qwen_7b",
        "mistral-nemo-instruct-2407": "mistral_nemo mistral_nemo_12b",
    },
    "Policy": {"vllm-v1": "vllm v1", "default": "fcfs blis fifo", "sjf": "shortest_job_first"},
    "Workload": {"chatbot": "chat conversation sharegpt", "summarization": "summarize summary"},
}

DOCUMENTS: Final = MappingProxyType({kind: _by_name(table) for kind, table in _NAMES_OF_DOCUMENTS.items()})
"""Kind of document -> common names -> names of shipped documents."""

_NAMES_OF_STATISTICS: Final = {
    "mean": "avg average",
    "p50": "median p50th 50th",
    "p90": "p90th 90th",
    "p95": "p95th 95th",
    "p99": "p99th 99th",
    "min": "minimum",
    "max": "maximum",
}
_NAMES_OF_METRICS: Final = {
    "throughput.requests_per_s": "request_throughput throughput requests_per_second requests_per_sec rps qps "
    "completed_per_s request_throughput_rps",
    "throughput.output_tokens_per_s": "output_throughput output_token_throughput token_throughput tokens_per_second "
    "tokens_per_s tps output_tokens_per_second tokens_per_sec output_token_throughput_tps",
    "requests.completed": "completed completed_requests successful_requests num_completed success successes",
    "requests.total": "num_requests request_count total_requests num_prompts",
    "requests.timed_out": "timeouts timed_out timeout_requests",
    "requests.rejected": "rejected rejected_requests failed_requests",
    "requests.dropped_unservable": "dropped dropped_requests",
    "tokens.input": "input_tokens prompt_tokens total_input_tokens total_input prompt_tokens_total",
    "tokens.output": "output_tokens completion_tokens generated_tokens total_output_tokens generation_tokens_total",
    "tokens.cached": "cached_tokens prefix_cache_hits",
    "kv.hit_rate": "hit_rate cache_hit_rate prefix_cache_hit_rate prefix_hit_rate",
    "kv.preemptions": "preemptions num_preemptions preemption_count",
    "kv.peak_used": "peak_kv_blocks peak_kv_blocks_used peak_blocks",
    "kv.blocks": "kv_blocks num_gpu_blocks",
    "duration_us": "duration makespan benchmark_duration simulated_time",
}

LATENCIES: Final = _by_name({latency.field: f"{latency.name} {latency.also}" for latency in latencies.LATENCIES})
STATISTICS: Final = _by_name({ours: f"{ours} {named}" for ours, named in _NAMES_OF_STATISTICS.items()})
METRICS: Final = _by_name(_NAMES_OF_METRICS)
"""Names of latencies, statistics and other metrics in other tools -> their names in a report."""


FORMATS: Final = ("blis/v1",)
"""All versions of the document format (``apiVersion``), oldest first; only the last one is current."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerKey:
    """A former key."""

    format: str
    """The last version of the format with the key; the current one if it was removed before that version's release."""
    holders: tuple[str, ...]
    """The keys of the maps that contained it."""
    key: str
    now: str
    """The new key in the same map, or with dots a path of the experiment; empty = removed."""
    instead: str = ""
    """What to write instead of a removed key."""
    kind: str = ""
    """The ``kind`` of the map that contained it; empty = any. A key of the same name in another kind of map is current.
    """

    def sentence(self) -> str:
        """Return what happened to the key."""
        return f"it is `{self.now}` now" if self.now else f"it is gone: {self.instead}"


_EAGER: Final = "what launching operators takes is `hardware.launch_us`"
FORMER_KEYS: Final = (
    FormerKey(format="blis/v1", holders=("autoscaler",), key="kv_cache_threshold", now="kv_utilization_threshold"),
    FormerKey(format="blis/v1", holders=("latency", "step_time"), key="kv_cache", now="kv_read", kind="fitted"),
    FormerKey(format="blis/v1", holders=("latency", "step_time"), key="eager_step_us", now="", instead=_EAGER),
    FormerKey(format="blis/v1", holders=("latency", "step_time"), key="eager_layer_us", now="", instead=_EAGER),
    FormerKey(format="blis/v1", holders=("batching",), key="enforce_eager", now="engine.enforce_eager"),
)
"""All former keys, oldest first."""


def former_key(
    path: DataPath, key: str, kind: str = "", older: tuple[FormerKey, ...] = FORMER_KEYS
) -> FormerKey | None:
    """Return the row of a key in the map at ``path``, or of a dotted path as in ``set`` and ``cases``.

    ``kind``: the ``kind`` of the map; empty = unknown.
    """
    *above, name = key.split(".")
    holder = above[-1] if above else next((step for step in reversed(path) if isinstance(step, str)), "")
    return next(
        (
            former
            for former in older
            if former.key == name and holder in former.holders and former.kind in ("", kind or former.kind)
        ),
        None,
    )


_NO_MEANING: Final = frozenset({"ms", "s", "us", "seconds", "latency", "percentile"})
"""Words that do not tell which latency a metric is."""
_PARTS: Final = frozenset({"model", "hardware", "latency", "workload", "policy", "cluster", "engine"})
"""Keys of experiments that contain other keys."""
_OF_METADATA: Final = ("name", "description")
_KIND: Final = "kind"
"""A key of so many maps that it does not tell where it belongs."""
_COLUMNS: Final = ["trace", "columns"]
_LONGEST: Final = 40
"""Longer values are not repeated in hints."""


def plain(name: str) -> str:
    """Return a name as in the tables of synonyms: ``--max-num-seqs`` gives ``max_num_seqs``."""
    return "_".join(words_of(name))


def key_hint(
    kind: str, path: DataPath, key: str, value: Json, known: Collection[str], *, as_argument: bool = False
) -> str:
    """Return a hint for an unknown key at ``path`` of a document of a kind whose valid keys there are ``known``.

    With ``as_argument`` the key was written on the command line, and the hint is for there.
    """
    older = former_key(path, key)
    if older is not None and (older.now in known or not older.now or "." in older.now):
        return f"{older.sentence()}; `blis-tui upgrade FILE` rewrites older documents"
    if "." in key and (top := key.partition("."))[0] in known:
        written = f"{top[0]}: {{{top[2]}: {_shortly(value)}}}"
        return f"dotted paths are for `--set`, `cases` and `axes`: write `{written}`"
    if key.strip() != key:  # YAML itself strips spaces, but no other white space
        return "delete the white space around it: only plain spaces indent a line"
    if not path and key in _OF_METADATA and "metadata" in known:
        return f"write `metadata: {{{key}: {_shortly(value)}}}`"
    if path and "from" in known and "to" in known and isinstance(value, list | dict):
        return f"paths are written with dots: `{path[-1]}.{key}: {_shortly(value)}`"
    if "metric" in known and "equals" in known and (hint := expected_hint(key, value)):
        return hint
    name = plain(key)
    same = next((candidate for candidate in known if plain(candidate) == name), None)
    if same is not None:
        return f"write `{same}`"
    meant = KEYS.get(name, ())
    inside = str(next((step for step in reversed(path) if isinstance(step, str)), ""))
    if here := [
        last
        for candidate in meant
        if (last := _last(candidate)) in known and (last != _KIND or f".{inside}." in candidate)
    ]:
        return _meaning(key, value, here[0])
    if name in NOTES:
        return NOTES[name]
    place = [str(step) for step in path if isinstance(step, str)]
    place = place if kind == "Experiment" else [kind.lower(), *place]
    if place[-2:] == _COLUMNS:  # what a column holds is no key of clients that has the same name
        near = next((longer for longer in sorted(known) if longer.startswith(f"{name}_")), None) or nearest(key, known)
        return f"did you mean `{near}`?" if near else suggestion(key, known, otherwise="known keys are")
    own = [
        candidate
        for candidate in OWN_PATHS
        if _last(candidate) == name and name != _KIND and not candidate.startswith("expect.")
    ]
    if not own and (near := nearest(key, known)):
        return _meaning(key, value, near)
    meant = (*own, *(candidate for candidate in meant if name != _KIND))
    if kind == "Study" and (hint := _of_the_experiment(key, value, meant)):
        return hint
    elsewhere = [candidate for candidate in meant if _may_mean(place, candidate) and candidate.split(".")[:-1] != place]
    if elsewhere:
        owner = (
            " of the experiment" if kind != "Experiment" else " here" if "." in elsewhere[0] else " at the top level"
        )
        return f"it is `{elsewhere[0]}`{owner}{_line(elsewhere[0], value, as_argument=as_argument)}"
    if (near := nearest(key, known)) is not None:
        return _meaning(key, value, near)
    return suggestion(key, known, otherwise="known keys are")


def _shortly(value: Json) -> str:
    """Return a value as it is written, if it is short."""
    text = flow(value)
    return text if len(text) <= _LONGEST else "…"


def expected_hint(text: str, value: Json = None) -> str:
    """Return how to write an expectation such as ``ttft_p99 <= 200``, or the key ``ttft_p99`` with a bound."""
    match = _COMPARED.fullmatch(text.strip())
    metric, sign, bound = match.groups() if match else (text, "<=", "")
    if not match and (isinstance(value, bool) or not isinstance(value, int | float)):
        return ""
    from blis_tui.spec.metric_names import is_metric  # noqa: PLC0415  (only needed for wrong documents)

    named = metric if is_metric(metric) else next(iter(metrics_meant(metric)), "")
    key = "equals" if sign.startswith("=") else "min" if sign.startswith(">") else "max"
    return f"write `metric: {named}, {key}: {bound or flow(value)}`" if named else ""


_COMPARED: Final = re.compile(r"([A-Za-z_][\w.-]{0,99}) ?(<=?|>=?|==?) ?([0-9.]{1,20})")


def _meaning(key: str, value: Json, meant: str) -> str:
    """Return a hint for a key that is probably another one; a number in another unit is converted."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        unit = _split(plain(key))[1]
        same = in_unit_of(meant, unit, value) if unit != _split(meant)[1] else None
        if same is not None:
            return f"write `{meant}: {same}`: it is {unit_of(meant)}"
    return f"did you mean `{meant}`?"


def unit_of(key: str) -> str:
    """Return the unit of a key as it is said: ``in microseconds``, ``per second``, ``in TB``; empty = it has none."""
    stem, unit = _split(key)
    name = _UNITS.get(unit, ("", "", 0))[1]
    rate = "/s" if unit and key.endswith(f"{unit}_per_s") else ""
    return f"per {name.removesuffix('s')}" if stem.endswith("_per") else f"in {name}{rate}" if name else ""


def in_unit_of(key: str, unit: str, value: float) -> str | None:
    """Return an amount in the unit of a key; None if it has none, or one of something else."""
    stem, own = _split(key)
    what, _, ours = _UNITS.get(own, ("", "", 0))
    other, _, theirs = _UNITS.get(_SHORT.get(unit.lower(), unit.lower()), ("", "", 0))
    if not what or what != other:
        return None
    converted = value * ours / theirs if stem.endswith("_per") else value * theirs / ours
    return f"{converted:.0f}" if converted == int(converted) else f"{converted:g}"


def _split(key: str) -> tuple[str, str]:
    """Return a key without its unit, and the unit; a rate of bytes has theirs."""
    stem, _, last = key.removesuffix("_per_s").rpartition("_")
    if key.endswith("_per_s") and _UNITS.get(last, ("",))[0] == "bytes":
        return stem, last
    stem, _, last = key.rpartition("_")
    unit = _SHORT.get(last, last)
    return (stem, unit) if stem and unit in _UNITS else (key, "")


_UNITS: Final = {
    "us": ("time", "microseconds", 1),
    "ms": ("time", "milliseconds", 1000),
    "s": ("time", "seconds", 10**6),
    "min": ("time", "minutes", 60 * 10**6),
    "h": ("time", "hours", 3600 * 10**6),
    "mb": ("bytes", "MB", 10**6),
    "gb": ("bytes", "GB", 10**9),
    "tb": ("bytes", "TB", 10**12),
}
"""Unit, as in the names of keys -> what is measured, its name, and its size."""
_SHORT: Final = {
    **dict.fromkeys(("microseconds", "micros", "usec", "usecs"), "us"),
    **dict.fromkeys(("milliseconds", "millis", "msec", "msecs"), "ms"),
    **dict.fromkeys(("seconds", "second", "sec", "secs"), "s"),
    **dict.fromkeys(("minutes", "minute", "mins", "m"), "min"),
    **dict.fromkeys(("hours", "hour", "hrs"), "h"),
}
"""Other names of these units."""


def _of_the_experiment(key: str, value: Json, meant: Collection[str]) -> str:
    """Return a hint for an experiment key in a study, which assigns by path; empty if it is none."""
    if key in _PARTS:
        below = next(iter(value), "") if isinstance(value, dict) else ""
        path = f"{key}.{below}" if below else key
    else:
        path = next((candidate for candidate in meant if not candidate.startswith("study.")), "")
    return f"it belongs to the experiment: assign to `{path}` under `set` or `axes`" if path else ""


def renamed(given: Collection[str], missing: str) -> str | None:
    """Return the given key that is a synonym of the missing one; None if there is none."""
    return next((key for key in given if any(_last(name) == missing for name in KEYS.get(plain(key), ()))), None)


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _may_mean(place: Sequence[str], path: str) -> bool:
    """Return whether a key at ``place`` can mean ``path``; generic client words count only near clients."""
    if path.startswith(("study.", "expect.")):
        return False
    return not path.startswith(("workload.clients.", "workload.trace.")) or place[:1] in ([], ["workload"])


def _line(path: str, value: Json, *, as_argument: bool) -> str:
    """Return the line or argument that sets the value, if keys of maps do, and the key can have it."""
    steps = path.split(".")
    shown = flow(value)
    if (
        steps[0] not in ("cluster", "engine")
        or isinstance(value, dict | list)
        or value is None
        or len(shown) > _LONGEST
    ):
        return ""
    written = f"{steps[-1]}: {shown}"
    for step in reversed(steps[:-1]):
        written = f"{step}: {{{written}}}"
    return f": write `--set {path}={shown}`" if as_argument else f": write `{written}`"


def word_hint(value: str, options: Collection[str], *, otherwise: str = "one of") -> str:
    """Return a hint for an unknown word where one of ``options`` is expected."""
    return suggestion(value, options, otherwise=otherwise, meant=WORDS.get(plain(value), ()))


def document_hint(kind: str, name: str, known: Collection[str]) -> str:
    """Return a hint for a name that no document of the kind has."""
    meant = DOCUMENTS.get(kind, {}).get(plain(name), ())
    return suggestion(name, known, otherwise="known names are", meant=meant)


def metric_hint(metric: str, known: Collection[str]) -> str:
    """Return a hint for a metric that no report has, such as ``ttft_p99`` or ``mean_tpot_ms``."""
    from blis_tui.spec.metric_names import entry_meant  # noqa: PLC0415  (only needed for wrong documents)

    if entry := entry_meant(metric):
        return f"did you mean `{entry}`?"
    group = {other for other in known if other.startswith(f"{metric.partition('.')[0]}.")}
    return suggestion(metric, group or known, otherwise="examples of metrics are", meant=metrics_meant(metric))


def metrics_meant(metric: str) -> tuple[str, ...]:
    """Return the metrics that a name from elsewhere may mean: ``ttft_p99``, ``mean_tpot_ms``, ``qps``."""
    words = words_of(metric)
    statistics = [statistic for word in words for statistic in STATISTICS.get(word, ())]
    rest = [word for word in words if word not in STATISTICS]
    meaningful = [word for word in rest if word not in _NO_MEANING]
    families = LATENCIES.get("_".join(meaningful or rest), ())
    latencies = [f"latency.{family}.{statistics[0] if statistics else 'p99'}" for family in families]
    return (*METRICS.get("_".join(words), ()), *latencies)
