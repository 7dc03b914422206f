"""The limits of one instance, and its memory, adapters, drafts and encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.base.classes import dataclass
from blis_tui.model.defaults import SEQS, SHARE, TOKENS, left_out
from blis_tui.model.keys import AUTO, SMALLEST, DocumentKey, amount, choice, document_key, key, part, variants

if TYPE_CHECKING:
    from collections.abc import Mapping


_READ_HIDDEN_STATES: Final = ("eagle", "mtp")
"""Draft methods that use the model's hidden states and keep KV entries of their own."""
_MOST_BLOCKS: Final = 10**15
_OVERLAP: Final = (
    "Overlap steps with transfers, so that a step takes as long as the longer of the two; off = transfers come first."
)
_CPU_BLOCKS: Final = "KV blocks that fit into the host's memory."
_THRESHOLD: Final = (
    "What is overwritten while the cache is nearly full goes to the host; it comes back when a request does not fit."
)
_OFFLOAD: Final = (
    "What a request gives up is copied to the first tier and sinks from there; requests are admitted with what any tier"
    " has."
)
_HICACHE: Final = (
    "SGLang's HiCache (`batching: sglang` only): what the radix tree has is written to host memory beside steps, and"
    " loaded for requests that go on from it."
)
_BANDWIDTH: Final = "Tokens whose KV cache is moved per microsecond, in either direction."
_LATENCY: Final = "Additional time of each transfer, in microseconds."


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """Host memory of one instance that victims are swapped to, and the way there."""

    bandwidth_gb_per_s: float | None = key(
        "Of one accelerator, in one direction. Default: the hardware's `host_link`, or 32.",
        absent=None,
        minimum=SMALLEST,
        maximum=10**6,
    )
    base_latency_us: int = key(_LATENCY, default=10, minimum=0, maximum=10**9)
    blocks: int | None = key(
        "KV blocks that fit into the host memory of one instance. Default: as many as the instance itself has.",
        absent=None,
        minimum=0,
        maximum=_MOST_BLOCKS,
    )
    overlap: bool = key(
        "Overlap steps with their transfers, so that a step takes as long as the longer of the two; off = transfers "
        "come first.",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTier:
    """One tier for KV blocks."""

    name: str = key("What reports call it, such as `cpu`, `disk`, `remote`.", minLength=1, maxLength=40)
    blocks: int = key("KV blocks that fit there.", minimum=0, maximum=_MOST_BLOCKS)
    bandwidth_tokens_per_us: float = key(_BANDWIDTH, default=100.0, minimum=SMALLEST, maximum=10**9)
    base_latency_us: int = key(_LATENCY, default=0, minimum=0, maximum=10**9)
    shared: bool = key(
        "Whether this is one store for all instances that list a tier of this name, like a Mooncake store or an LMCache"
        " server: each finds there what any of them has stored, over a link of its own. Only the last tier may be"
        " shared. Default: off, each instance has its own.",
        absent=False,
    )


class Mirror:
    """Settings of ``kv_tiers: mirror``."""

    cpu_blocks = document_key(int, _CPU_BLOCKS, required=True, minimum=0, maximum=_MOST_BLOCKS)
    bandwidth_tokens_per_us = document_key(float, _BANDWIDTH, default=100.0, minimum=SMALLEST, maximum=10**9)
    base_latency_us = document_key(int, _LATENCY, default=0, minimum=0, maximum=10**9)
    overlap = document_key(bool, _OVERLAP, default=False)


class Threshold:
    """Settings of ``kv_tiers: threshold``."""

    cpu_blocks = Mirror.cpu_blocks
    offload_at = document_key(
        float,
        "Share of the KV blocks in use from which content is kept that is overwritten.",
        default=0.9,
        minimum=0,
        maximum=1,
    )
    bandwidth_tokens_per_us = Mirror.bandwidth_tokens_per_us
    base_latency_us = Mirror.base_latency_us
    overlap = Mirror.overlap


class Offload:
    """Settings of ``kv_tiers: offload``."""

    tiers = document_key((KvTier,), "The fastest first.", required=True, minItems=1, maxItems=8)
    overlap = document_key(bool, _OVERLAP, default=True)


class Hicache:
    """Settings of ``kv_tiers: hicache``, with SGLang's names."""

    hicache_ratio = document_key(
        float,
        "Host memory for KV blocks, as a multiple of the GPU's KV cache; each tensor parallel rank has its share.",
        default=2.0,
        minimum=SMALLEST,
        maximum=10**6,
    )
    hicache_write_policy = document_key(
        str,
        "When the host gets what the radix tree has: as it is put in, when it is put in for the second time, or when"
        " the GPU evicts it.",
        default="write_through",
        enum=["write_through", "write_through_selective", "write_back"],
    )
    bandwidth_tokens_per_us = Mirror.bandwidth_tokens_per_us
    base_latency_us = Mirror.base_latency_us


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTiers:
    """Tiers for KV blocks that leave the GPU, the fastest first."""

    kind: str
    """``mirror``, ``threshold``, ``offload`` or ``hicache``."""
    tiers: tuple[KvTier, ...]
    offload_at: float = 0.0
    """``threshold``: share of blocks in use from which overwritten blocks are kept."""
    overlap: bool = True
    """Whether a step computes during its transfers; otherwise the transfers come before it."""
    ratio: float = 0.0
    """``hicache``: host blocks per GPU block."""
    write_policy: str = ""
    """``hicache``: when content is written to the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculative:
    """How many tokens are drafted, and how good they are."""

    draft_tokens: int = key(
        "Tokens per draft (vLLM's `num_speculative_tokens`); a decode computes one token more than that.",
        minimum=1,
        maximum=64,
    )
    acceptance: float | None = key(
        "Probability that a drafted token is accepted if all before it are, the same for each position. Either this or"
        " `acceptance_rates`.",
        absent=None,
        minimum=0,
        maximum=1,
        examples=[0.7],
    )
    acceptance_rates: tuple[float, ...] = key(
        "Share of all drafts of which at least the first token is accepted, the first two, and so on, one for each of"
        " `draft_tokens`: the per-position acceptance rates that vLLM logs, and the report of a run has.",
        absent=(),
        items={"type": "number", "minimum": 0, "maximum": 1},
        minItems=1,
        maxItems=64,
        examples=[[0.8, 0.55, 0.36]],
    )
    draft_token_us: int = key(
        "Drafting one token for all decodes of a step, in microseconds: steps that verify drafts take `draft_tokens` "
        "times this longer.",
        default=0,
        minimum=0,
        maximum=10**7,
    )
    method: str = choice(
        "What drafts, `method` of vLLM's `speculative_config`: `ngram` and `ngram_gpu` look into the prompt and the"
        " answer, `eagle` and `mtp` are models that go on from hidden states and take KV blocks. vllm-v1 schedules"
        " asynchronously beside all but `ngram`.",
        ("ngram", "ngram_gpu", *_READ_HIDDEN_STATES),
        default="ngram",
    )

    @property
    def acceptance_probabilities(self) -> tuple[float, ...]:
        """For each draft token, the probability that it is accepted if all before it are."""
        if self.acceptance is not None:
            return (self.acceptance,) * self.draft_tokens
        before = (1.0, *self.acceptance_rates)
        return tuple(rate / of if of else 0.0 for of, rate in zip(before, self.acceptance_rates, strict=False))

    @property
    def lookahead_tokens(self) -> int:
        """KV slots that the drafter needs beyond those of the verified tokens."""
        return self.draft_tokens if self.reads_hidden_states else 0

    @property
    def reads_hidden_states(self) -> bool:
        """Whether the drafter goes on from hidden states, which the cache does not keep, and has KV of its own."""
        return self.method in _READ_HIDDEN_STATES


ENCODER_BUDGETS: Final = (
    *("max_num_encoder_input_tokens", "encoder_cache_size"),
    *("max_tokens_per_mm_item", "disable_chunked_mm_input"),
)
"""Keys of an encoder that have an effect only if steps schedule it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """What turns images, audio and video into tokens."""

    token_us: float = key(
        "What the encoder takes for one token of media, in microseconds: about 2 x parameters x patches per token /"
        " (FLOP/s x utilisation).",
        minimum=SMALLEST,
        maximum=10**6,
        examples=[8],
    )
    max_num_encoder_input_tokens: int | None = key(
        "Tokens of media that the encoder makes in one step at most (vllm-v1 batching); left out, as vLLM does it:"
        " max_num_batched_tokens, or max_tokens_per_mm_item if that is more.",
        absent=None,
        minimum=1,
        maximum=10**9,
        examples=[8192],
    )
    encoder_cache_size: int | None = key(
        "Tokens of media that the encoder's cache holds, under the hash of each item (vllm-v1 batching); left out ="
        " likewise.",
        absent=None,
        minimum=1,
        maximum=10**9,
        examples=[8192],
    )
    max_tokens_per_mm_item: int = key(
        "The largest item of media that the model takes, in tokens (vllm-v1 batching): what vLLM knows from the model."
        " Left out, nothing is larger than max_num_batched_tokens.",
        absent=0,
        minimum=1,
        maximum=10**9,
        examples=[16384],
    )
    disable_chunked_mm_input: bool = key(
        "Compute the tokens of an item in one step, not in parts (vllm-v1 batching; `--disable-chunked-mm-input`)."
        " Left out: off.",
        absent=False,
    )

    @property
    def scheduled(self) -> tuple[str, ...]:
        """The given keys that have an effect only if steps schedule the encoder."""
        return tuple(name for name in ENCODER_BUDGETS if getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """The API server in front of an instance, which takes in requests that wait together, and works on one at a time.

    What is left out is what the step-time model has (``operators``), or else what it has for vLLM.
    """

    request_us: float | None = key(
        "A request: HTTP, checking it, handing it over to the engine, in microseconds of one processor core: a process"
        " takes no more than one request in that time. Left out = as the step-time model has it, or 3900: measured were"
        " 1.6 to 4 ms for gpt-oss, 8 to 14 for Qwen3 (docs/accuracy.md).",
        absent=None,
        minimum=0,
        maximum=10**9,
    )
    prompt_token_us: float | None = key(
        "Tokenizing, per token of a prompt, in microseconds. Left out = as the step-time model has it, or 0.5.",
        absent=None,
        minimum=0,
        maximum=10**6,
    )
    stream_us: float | None = key(
        "Turning a token into text and sending it to its client, in microseconds. While it does, requests wait; up to"
        " four fifths of its time. Left out = as the step-time model has it, or 20.",
        absent=None,
        minimum=0,
        maximum=10**6,
    )
    varying: float = key(
        "Share of a request's time that varies between requests (exponentially distributed); the rest is constant.",
        default=0.5,
        minimum=0,
        maximum=1,
    )
    processes: int = key(
        "API server processes, which accept requests in turn (vLLM's `--api-server-count`).",
        default=1,
        minimum=1,
        maximum=1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """How many LoRA adapters an instance holds, and what they cost. The first three are vLLM's."""

    max_loras: int = key(
        "Maximum number of different adapters in one batch, and of adapter slots on the accelerators. `kv_blocks: "
        "auto` leaves room"
        " for them, each of `max_lora_rank`.",
        default=1,
        minimum=1,
        maximum=10**5,
    )
    max_cpu_loras: int = key(
        "Adapters in the host's memory, those on the accelerators among them; left out = `max_loras`, so that whatever"
        " makes room is loaded from storage again.",
        optional=True,
        minimum=1,
        maximum=10**7,
    )
    max_lora_rank: int = key(
        "The largest rank of an adapter, and the rank of those that `ranks` does not name.",
        default=16,
        minimum=1,
        maximum=4096,
    )
    ranks: Mapping[str, int] = key(
        "Ranks of adapters by name.",
        absent={},
        additionalProperties={"type": "integer", "minimum": 1, "maximum": 4096},
        examples=[{"sql": 8}],
    )
    bytes_per_rank: int | None = key(
        "Size of an adapter in bytes, divided by its rank, on all accelerators of an instance together; left out ="
        " what adapters of all attention and dense MLP projections take in the model's `torch_dtype`.",
        absent=None,
        minimum=1,
        maximum=10**12,
    )
    base_latency_us: int = key(
        "What each load from the host's memory takes beside its bytes, in microseconds.",
        default=1500,
        minimum=0,
        maximum=10**9,
    )
    bandwidth_gb_per_s: float | None = key(
        "From the host's memory to one accelerator, each of which loads its share. Default: the hardware's "
        "`host_link`, or 32.",
        absent=None,
        minimum=SMALLEST,
        maximum=10**6,
    )
    storage_latency_us: int = key(
        "What each load from storage into the host's memory takes beside its bytes, in microseconds; a round figure,"
        " to be measured.",
        default=10_000,
        minimum=0,
        maximum=10**9,
    )
    storage_gb_per_s: float = key(
        "From storage into the host's memory: a local disk unless told otherwise.",
        default=2.0,
        minimum=SMALLEST,
        maximum=10**6,
    )
    step_overhead: float | None = key(
        "By what share each different adapter of a batch makes its steps longer; left out = as in BLIS, by the nearest"
        " `max_lora_rank`: 0.02 for 8, 0.035 for 16, 0.06 for 32.",
        absent=None,
        minimum=0,
        maximum=100,
        examples=[0.035],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllToAll:
    """How tokens reach their experts on other accelerators, and come back: dispatch and combine of each layer.

    The defaults are fitted to DeepEP's kernels on H800 with a network card of 400 Gb/s each: within 10 % of all twenty
    published times and bandwidths (``docs/lab/comparisons.md``).
    """

    backend: str = choice(
        "Whose kernels.",
        {
            "auto": "Those of high throughput in steps that compute prompts, those of low latency in others (SGLang's"
            " `--deepep-mode auto`).",
            "deepep_low_latency": "A token goes to each of its experts by itself.",
            "deepep_high_throughput": "A token goes once to each node with any of its experts, and once to each GPU"
            " from there.",
        },
        default="auto",
    )

    gpus_per_node: int = key(
        "Accelerators that NVLink connects, numbered through the ranks; those of other nodes are reached by network.",
        default=8,
        minimum=1,
        maximum=1024,
    )
    intra_node_gb_per_s: float = key(
        "What one accelerator sends to others of its node, in 10^9 bytes per second.",
        default=150.0,
        minimum=SMALLEST,
        maximum=10**6,
    )
    inter_node_gb_per_s: float = key(
        "What one accelerator sends over the network, in 10^9 bytes per second.",
        default=43.5,
        minimum=SMALLEST,
        maximum=10**6,
    )
    latency_us: float = key(
        "What each dispatch and each combine takes beside its bytes, in microseconds.",
        default=30.0,
        minimum=0,
        maximum=10**6,
    )
    dispatch_bytes: float = key(
        "Bytes of an element that is sent to experts: 1.03125 is FP8 with a scale of four bytes for each 128; results"
        " come back in the type of the activations.",
        default=1.03125,
        minimum=SMALLEST,
        maximum=8,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One instance's limits."""

    max_num_seqs: int = amount(
        "Maximum number of requests running at the same time; 0 = no limit (llm-serving-sim batching only). "
        + left_out(SEQS),
        [AUTO],
        default=AUTO,
        made=256,
        minimum=0,
        maximum=10**6,
    )
    max_num_batched_tokens: int = amount(
        "Maximum number of tokens that one step processes, prefill and decode together. " + left_out(TOKENS),
        [AUTO],
        default=AUTO,
        made=2048,
        minimum=1,
        maximum=10**9,
    )
    long_prefill_token_threshold: int = key(
        "A prompt contributes at most this many tokens to one step; 0 = no such limit.",
        default=0,
        minimum=0,
        maximum=10**9,
    )
    version: str = key(
        "The engine's version, such as `0.13.0`, for what depends on it beside the scheduler's rules, which"
        " `policy.batching.version` names: how vLLM's `operators` step times sample, what they take for a chat request"
        " (`workload.endpoint`) and for experts (`latency.old_expert_tiles`). Left out = as that of the rules samples.",
        absent="",
        pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){1,2}$",
        examples=["0.13.0"],
    )
    max_model_len: int | None = amount(
        "Longest prompt plus output in tokens: `auto` = the model's own limit capped by the KV cache, `none` ="
        " unlimited, or a number.",
        [AUTO, "none"],
        default=AUTO,
        minimum=1,
        maximum=10**15,
    )
    block_size_tokens: int = key("Tokens per KV cache block.", default=16, minimum=1, maximum=4096)
    kv_blocks: int = amount(
        "KV-cache blocks of one instance: `auto` = what fits into the accelerator's memory, or a number.",
        [AUTO],
        default=AUTO,
        minimum=1,
        maximum=_MOST_BLOCKS,
    )
    gpu_memory_utilization: float = amount(
        "Share of the accelerator's memory the engine may use, for `kv_blocks: auto`; what it is a share of depends on"
        " the engine (docs/memory.md). " + left_out(SHARE),
        [AUTO],
        default=AUTO,
        made=0.9,
        minimum=SMALLEST,
        maximum=1,
    )
    kv_cache_dtype: ClassVar[DocumentKey] = document_key(
        None,
        "Type of the KV cache's elements. A narrower one gives more KV blocks and less KV traffic per step; `blackbox`"
        " step times, being measured, do not change.",
        words={
            "auto": "The type of the model's activations (`torch_dtype`).",
            "float16": "Two bytes.",
            "bfloat16": "Two bytes.",
            "fp8": "One byte.",
            "fp8_e4m3": "One byte.",
            "fp8_e5m2": "One byte.",
        },
        default="auto",
    )
    enforce_eager: bool = key(
        "Launch the operators of each step one by one, without CUDA graphs: small batches wait for the host"
        " (`hardware.launch_us`). Default: off.",
        absent=False,
    )
    cudagraph_mode: str = choice(
        "Which steps CUDA graphs hold, where `enforce_eager` is off. The operators of others are launched one by one"
        " (`hardware.launch_us`). Left out = `FULL_AND_PIECEWISE`.",
        {
            "FULL_AND_PIECEWISE": "All; steps longer than the largest graph are not distinguished.",
            "FULL_DECODE_ONLY": "Those of decodes alone. One with a part of a prompt takes no less than its launches."
            " So were SGLang's servers by default up to 0.5.9.",
        },
        absent="FULL_AND_PIECEWISE",
    )
    enable_prefix_caching: bool = key(
        "Keep computed KV blocks in the prefix cache, so that prompts with the same beginning and preempted requests"
        " compute them only once; off = every request computes all of its prompt.",
        default=True,
    )
    disable_hybrid_kv_cache_manager: bool | None = key(
        "Keep the KV blocks of all tokens for layers with a sliding window, too. Off = in these layers, requests give"
        " back blocks that their windows have passed (vllm-v1 batching). Default: off with vllm-v1 batching, unless the"
        " experiment has KV tiers, speculative decoding, pipeline_parallel, disaggregation or swapping.",
        absent=None,
    )
    host_link: HostLink | None = part(
        "Host memory that preempted requests are swapped to (`policy.preemption.restore`), and the way there. Default: "
        "the values below.",
        HostLink,
        absent=None,
    )
    kv_tiers: KvTiers | None = variants(
        "KV tiers below the GPU's KV cache, for blocks that would otherwise be lost. Default: none.",
        {
            "none": ("No tiers: what is overwritten is lost.", None),
            "mirror": (
                "What a request gives up is copied to the host; it comes back when a request does not fit.",
                Mirror,
            ),
            "threshold": (_THRESHOLD, Threshold),
            "offload": (_OFFLOAD, Offload),
            "hicache": (_HICACHE, Hicache),
        },
        absent=None,
        prefix="tiers",
        which="The kind; it determines the other keys.",
    )
    speculative: Speculative | None = part(
        "Speculative decoding: each step of a decode verifies drafted tokens, too (blis and vllm-v1 batching); left out"
        " = off.",
        Speculative,
        absent=None,
    )
    encoder: Encoder | None = part(
        "The encoder of images, audio and video: steps that compute tokens of media take longer; left out = it takes"
        " no time.",
        Encoder,
        absent=None,
        examples=[{"token_us": 8}],
    )
    front_end: ApiServer | None = part(
        "The API server, which works on one request at a time and streams tokens beside it; left out = what the"
        " step times say (`operators` has one, others none).",
        ApiServer,
        absent=None,
        examples=[{"request_us": 3900}, {"processes": 4}],
    )
    lora: Lora | None = part(
        "LoRA adapters on each instance, under vLLM's names (`--enable-lora`; blis, vllm-v1 or sglang batching). "
        "Default: none.",
        Lora,
        absent=None,
        examples=[{"max_loras": 4, "max_cpu_loras": 32}],
    )
    pipeline_parallel: int = key(
        "Stages over which the layers of an instance are spread, each on tensor_parallel GPUs; at most that many "
        "batches are in progress, one more with async_scheduling (vllm-v1 and llm-serving-sim batching only). Default: "
        "1.",
        absent=1,
        minimum=1,
        maximum=64,
    )

    data_parallel: int = key(
        "Attention ranks of a model replica (vLLM's `--data-parallel-size`; SGLang's `--dp-size` with DP attention),"
        " each on tensor_parallel GPUs with its own scheduler, queue and KV cache. Each rank is an instance; those of "
        "a model with experts step together. Default: 1.",
        absent=1,
        minimum=1,
        maximum=1024,
    )
    expert_parallel: bool = key(
        "Spread whole experts over all GPUs of a replica, data_parallel x tensor_parallel (vLLM's"
        " `--enable-expert-parallel`); off = each expert is split over the tensor_parallel GPUs. Default: off.",
        absent=False,
    )
    expert_imbalance: float = key(
        "With expert_parallel: tokens of the GPU with the most, relative to the mean, when there are many; by chance it"
        " has more of few. Default: 1, experts balanced perfectly (by EPLB).",
        absent=1.0,
        minimum=1,
        maximum=1024,
        examples=[1.2],
    )
    all_to_all: AllToAll | None = part(
        "With expert_parallel across ranks: the way of tokens to experts on other GPUs. Default: the values below.",
        AllToAll,
        absent=None,
        examples=[{"gpus_per_node": 8, "inter_node_gb_per_s": 43.5}],
    )

    @property
    def expert_ranks(self) -> int:
        """Number of ranks that share the experts, each holding a part of them."""
        return self.data_parallel if self.expert_parallel else 1

    @property
    def verify_width(self) -> int:
        """Number of tokens that a decode computes in a step: the next token, and the drafts after it."""
        return 1 if self.speculative is None else 1 + self.speculative.draft_tokens


# Values of limits that a spec turns off.

UNLIMITED: Final = 10**9
"""``max_num_seqs`` if a spec says 0."""
