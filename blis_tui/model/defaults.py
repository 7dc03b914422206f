"""What a server takes for a limit that its operator leaves out, as a table: by engine, version and GPU.

A specification stands for a server, so a limit that it leaves out is that of the engine's server, not of its library
class. Schemas, reference pages, ``spec resolve`` and ``docs/schedulers.md`` are derived from the table.
"""

from __future__ import annotations

from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.portable_math import whole_sum

if TYPE_CHECKING:
    from collections.abc import Mapping

SEQS: Final = "max_num_seqs"
TOKENS: Final = "max_num_batched_tokens"
SHARE: Final = "gpu_memory_utilization"
LENGTH: Final = "max_model_len"
CHUNK: Final = "chunked_prefill_size"
"""SGLang's name of its token budget, a setting of its batching rule."""
FORMULA: Final = "formula"
"""Instead of a value: one of the functions below works it out."""

MOST_PREFILL_TOKENS: Final = 16384
"""SGLang's ``max_prefill_tokens``."""
FEWEST_RUNNING: Final = 2048
MOST_RUNNING: Final = 4096
_RUNNING_PER_CONTEXT: Final = 512
_BATCHED_DP_TOKENS: Final = 256
_MIB_PER_GIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """The values of some limits, and when they apply. Of the rows with a limit, the first that applies counts."""

    engine: str = ""
    """The batching rule; empty = any."""
    versions: tuple[str, ...] = ()
    """Versions as ``policy.batching.version`` has them; empty = all."""
    from_gib: float = 0.0
    """Memory of one GPU from which on it applies."""
    without: str = ""
    """GPUs with this in their name, in lower case, are excluded."""
    values: Mapping[str, float | str]
    source: str
    """The program, its version, and the file that says so."""

    def condition(self) -> str:
        """Return in words on which GPUs it applies; empty = all that no row before it has."""
        but = f" except {self.without.upper()}" if self.without else ""
        return f"from {self.from_gib:g} GiB{but}" if self.from_gib else ""


_LATE: Final = ("0.33", "0.32")
_VLLM: Final = "vLLM 0.32.0, engine/arg_utils.py"
_VLLM_OLD: Final = "vLLM 0.10.2, engine/arg_utils.py"
_SGLANG: Final = "SGLang 0.5.23, arg_groups/memory_hook.py"
_NANO: Final = "nano-vLLM bb823b3, config.py"

DEFAULTS: Final = (
    Default(engine="vllm-v1", versions=_LATE, from_gib=160, values={TOKENS: 16384, SEQS: 1024}, source=_VLLM),
    Default(
        engine="vllm-v1", versions=_LATE, from_gib=70, without="a100", values={TOKENS: 8192, SEQS: 1024}, source=_VLLM
    ),
    Default(engine="vllm-v1", versions=_LATE, values={TOKENS: 2048, SEQS: 256}, source=_VLLM),
    Default(engine="vllm-v1", versions=_LATE, values={SHARE: 0.92}, source="vLLM 0.32.0, config/cache.py"),
    Default(engine="vllm-v1", from_gib=70, without="a100", values={TOKENS: 8192, SEQS: 1024}, source=_VLLM_OLD),
    Default(engine="vllm-v1", values={TOKENS: 2048, SEQS: 256}, source=_VLLM_OLD),
    Default(engine="vllm-v1", values={SHARE: 0.9}, source="vLLM 0.10.2, config/cache.py"),
    Default(engine="sglang", from_gib=160, values={CHUNK: 16384}, source=_SGLANG),
    Default(engine="sglang", from_gib=60, values={CHUNK: 8192}, source=_SGLANG),
    Default(engine="sglang", from_gib=20, values={CHUNK: 4096}, source=_SGLANG),
    Default(engine="sglang", values={CHUNK: 2048}, source=_SGLANG),
    Default(engine="sglang", values={SHARE: FORMULA}, source=_SGLANG),
    Default(engine="sglang", values={SEQS: FORMULA}, source="SGLang 0.5.23, mem_cache/kv_cache_configurator.py"),
    Default(
        engine="tensorrt-llm",
        values={TOKENS: 8192, SEQS: 2048, SHARE: 0.9},
        source="TensorRT-LLM 1.1, commands/serve.py",
    ),
    Default(
        engine="llm-serving-sim",
        values={TOKENS: 2048, SEQS: 128},
        source="LLMServingSim, serving/__main__.py",
    ),
    Default(engine="nano", values={TOKENS: 16384, SEQS: 512, SHARE: 0.9, LENGTH: 4096}, source=_NANO),
    Default(values={TOKENS: 2048, SEQS: 256, SHARE: 0.9}, source="BLIS, command line"),
)
"""The first row that applies counts; the last row is that of ``blis`` and of batching rules of users."""

_DECODE_GRAPHS: Final = ((20, 8, 8), (35, 48, 160), (60, 32, 160), (160, 256, 512), (inf, 512, 512))
"""SGLang: memory of a GPU below which it holds, and the largest batch of decodes that CUDA graphs hold, with fewer than
four GPUs and with more. Source: as ``chunked_prefill_size``."""


class Server(NamedTuple):
    """What the defaults of an instance depend on."""

    engine: str
    version: str
    hardware: str
    """Name of the GPU."""
    memory_gib: float
    """Memory of one GPU."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    latent_attention: bool = False
    """Whether the model has multi-head latent attention."""
    graphs: bool = True
    """Whether steps are held in CUDA graphs."""


def default_of(key: str, server: Server) -> tuple[float | str, Default] | None:
    """Return the default of a limit (:data:`FORMULA` = worked out) and its row; None = the engine has none."""
    for row in DEFAULTS:
        if (
            key in row.values
            and row.engine in ("", server.engine)
            and (not row.versions or server.version in row.versions)
            and server.memory_gib >= row.from_gib
            and not (row.without and row.without in server.hardware.lower())
        ):
            return row.values[key], row
    return None


def largest_decode_graph(memory_gib: float, tensor_parallel: int) -> int:
    """Return the largest batch of decodes that SGLang's CUDA graphs hold (``cuda_graph_max_bs``)."""
    few, many = next((few, many) for below, few, many in _DECODE_GRAPHS if memory_gib < below)
    return few if tensor_parallel < 4 else many


def static_share(server: Server, prompt_tokens: int, max_num_seqs: int | None, *, split: bool = True) -> float:
    """Return SGLang's ``mem_fraction_static``: the share of memory beside activations and CUDA graphs.

    In MiB, these take 512, 1.5 for each prompt token of a step, 128 for each GPU of an instance, 2 for each request of
    the largest graph of decodes, 8 for each graph of prompts (1,536 for all with latent attention), together at least
    10,240 on GPUs of more than 60 GiB. Source: SGLang 0.5.23, ``arg_groups/memory_hook.py``
    (``handle_gpu_memory_settings``), on NVIDIA's GPUs.

    Args:
        server: the instance.
        prompt_tokens: of one step at most.
        max_num_seqs: ``max_running_requests``, if it is given.
        split: whether prompts are split.
    """
    reserved = 512 + 1.5 * max(prompt_tokens, 2048)
    reserved += server.tensor_parallel * server.pipeline_parallel / 8 * 1024
    if server.graphs:
        largest = largest_decode_graph(server.memory_gib, server.tensor_parallel)
        reserved += 2 * min(largest, max_num_seqs or largest)
        graphs = _prefill_graphs(prompt_tokens if split else 0)
        reserved += 1536 if server.latent_attention else 8 * graphs
    if server.memory_gib > 60:
        reserved = max(reserved, 10 * 1024)
    memory_mib = server.memory_gib * _MIB_PER_GIB
    return round((memory_mib - reserved) / memory_mib, 3)


_PREFILL_GRAPHS: Final = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256))
"""Numbers of prompt tokens with a graph, up to 4,096: first, last and step of each range."""


def _prefill_graphs(longest: int) -> int:
    """Return for how many numbers of prompt tokens, up to the longest, SGLang captures a graph.

    Source: SGLang 0.5.23, ``arg_groups/cuda_graph_hook.py`` (``generate_prefill_cuda_graph_batch_sizes``).
    """
    return whole_sum(
        [len(range(first, min(last, longest) + 1, by)) for first, last, by in (*_PREFILL_GRAPHS, (4608, longest, 512))]
    )


def running_requests(kv_tokens: int, longest: int) -> int:
    """Return SGLang's ``max_running_requests``, between 2,048 and 4,096, and at most one for each two KV slots.

    Source: SGLang 0.5.23, ``mem_cache/kv_cache_configurator.py`` (``resolve_max_num_reqs``).

    Args:
        kv_tokens: tokens that the KV cache holds.
        longest: the longest sequence, in tokens.
    """
    by_length = int(kv_tokens / max(longest, 1) * _RUNNING_PER_CONTEXT)
    return max(1, min(max(min(by_length, MOST_RUNNING), FEWEST_RUNNING), kv_tokens // 2))


def vllm_limits(
    given: tuple[int | None, int | None],
    defaults: tuple[int, int],
    longest: int | None,
    *,
    whole_prompts: bool,
    batched_dp: bool,
) -> tuple[int, int]:
    """Return vLLM's ``max_num_batched_tokens`` and ``max_num_seqs``, of which either may be given.

    A budget that is left out covers the longest sequence if prompts are never split, but no more than all requests
    can use; a number of requests that is left out is no larger than the budget. Ranks that exchange tokens with the
    kernels of low latency of DeepEP have a budget of 256. Source: vLLM 0.32.0, ``engine/arg_utils.py``
    (``_set_default_max_num_seqs_and_batched_tokens_args``).
    """
    tokens, seqs = given
    places = defaults[1] if seqs is None else seqs
    if tokens is None:
        tokens = _BATCHED_DP_TOKENS if batched_dp else defaults[0]
        if longest is not None:
            tokens = min(max(tokens, longest) if whole_prompts else tokens, places * longest)
    return tokens, min(places, tokens) if seqs is None else places


# ---- in words ----

_FORMULAS: Final = {
    SHARE: "what activations and CUDA graphs leave, 0.83 on an H100",
    SEQS: f"{FEWEST_RUNNING:,} to {MOST_RUNNING:,}, by the size of the KV cache",
}


def value_text(key: str, value: float | str) -> str:
    """Return a default as text; a formula as what it works out."""
    if isinstance(value, str):
        return _FORMULAS[key]
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def left_out(key: str) -> str:
    """Return a sentence on what a limit is where it is left out, by engine, with the sources."""
    sources: dict[str, list[str]] = {}
    for row in DEFAULTS:
        if key in row.values:
            texts = sources.setdefault(row.source, [])
            on = row.condition() or ("otherwise" if texts else "")
            texts.append(" ".join(filter(None, (value_text(key, row.values[key]), on))))
    listed = "; ".join(f"{', '.join(texts)} ({source})" for source, texts in sources.items())
    return f"Left out or `auto` = as the engine's server takes it, by GPU memory: {listed}."


_BETWEEN_STEPS_US: Final[Mapping[str, float]] = MappingProxyType({"host_us": 1300.0, "host_request_us": 18.0})
"""What vLLM's host does between steps without asynchronous scheduling: per step and per request in it. In between what
was measured: pairs of servers of a performance lab that differ in nothing else are 0.65 ms a step apart at 4 users and
5 ms at 256; elsewhere it was 2.4 to 2.9 ms with few requests."""
_FLOOR_US: Final = 2300.0
"""What vLLM's host takes for a step while the GPU works on the one before. No server that was measured was faster; one
of Qwen3 0.6B on H100, whose GPU takes 1.2 to 1.5 ms, took 2.4 ms a token."""
_SYNCHRONOUS_FLOOR_US: Final = 4100.0
"""The same without asynchronous scheduling. Qwen3 0.6B on A100 took 4.2 ms a token with one user, 1.7B 4.6 (June 2025;
github.com/tenstorrent/tt-inference-server, issue 340)."""
SORTING_US: Final[Mapping[str, float]] = MappingProxyType({"sort_step_us": 130.0, "sort_logits_us": 0.17})
"""Top-p and top-k by sorting the logits, per step, and per request and 1,000 logits: fitted on servers of vLLM 0.15;
one of 0.19 took the same (docs/lab/operators.md)."""
_FLASHINFER_US: Final[Mapping[str, float]] = MappingProxyType({"sort_step_us": 100.0, "sort_logits_us": 0.006})
"""The same by FlashInfer's kernel, SGLang's, and vLLM's default since pull request 40376, which has the figures: for
64, 128 and 512 rows of 131,072 logits it takes 0.10, 0.13 and 0.37 ms by top-p alone, 0.20 and 0.26 ms (64, 128) by
top-k and top-p; sorting took 1.0, 2.3 and 6.2. What is taken here lies between the two."""
_FLASHINFER_SINCE: Final = (0, 20)
"""The first version of vLLM that is taken to sample with FlashInfer's kernel: 0.19 was measured to sort."""


def _numbers(version: str) -> tuple[int, ...]:
    """Return the parts of a version, such as 0.11.0, as numbers."""
    return tuple(int(part) for part in version.split("."))


def host_us(engine: str, version: str, *, asynchronous: bool) -> Mapping[str, float]:
    """Return what steps take on the host and for sampling, in microseconds, as keys of `operators` step times.

    Args:
        engine: of the step times, `vllm` or `tensorrt-llm`, of which this is not known: as fitted, it sorts.
        version: vLLM's, such as `0.13.0`, or that of its scheduler, `0.32`; empty for others.
        asynchronous: whether the scheduler works while the GPU does.
    """
    if engine != "vllm":
        return {"host_floor_us": 0.0, **SORTING_US}
    sampling = SORTING_US if version and _numbers(version) < _FLASHINFER_SINCE else _FLASHINFER_US
    if asynchronous:
        return {"host_floor_us": _FLOOR_US, **sampling}
    return {"host_floor_us": _SYNCHRONOUS_FLOOR_US, **_BETWEEN_STEPS_US, **sampling}


_NEW_TILES_SINCE: Final = (0, 17)
"""The first version of vLLM whose Triton kernel of experts has other default tiles (pull request 34846)."""


def kernels(engine: str, version: str) -> Mapping[str, bool]:
    """Return what a version's kernels differ in, as keys of `operators` step times.

    Args:
        engine: of the step times.
        version: of vLLM, where it is known; empty = it is not.
    """
    old = engine == "vllm" and version and _numbers(version) < _NEW_TILES_SINCE
    return {"old_expert_tiles": True} if old else {}


COMPLETIONS: Final = "completions"
CHAT: Final = "chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequests:
    """What the process in front of vLLM takes for a chat request, where that is known to differ from a completion."""

    model_type: str = ""
    """Family of the model, as its `config.json` calls it; empty = any."""
    version: str = ""
    """vLLM's version; empty = any."""
    request_us: float
    source: str
    """Why, and where it was measured."""

    def text(self) -> str:
        """Return it in words."""
        where = f"models of `model_type: {self.model_type}`" if self.model_type else f"vLLM {self.version}"
        return f"{self.request_us:,.0f} for {where} ({self.source})"


CHAT_REQUESTS: Final = (
    ChatRequests(
        model_type="gpt_oss",
        request_us=1300.0,
        source="they have no template, but OpenAI's library in Rust; measured on one A100 machine",
    ),
    ChatRequests(
        version="0.11.0",
        request_us=3900.0 + 7000.0,
        source="which parses the chat template anew for each, entrypoints/chat_utils.py, until pull request 26227;"
        " measured on one A100 machine",
    ),
)
"""The first row that applies counts; others take as long as completions. Another place that parsed the template for
each request took 6 to 8 s for 1,000 of them (vLLM pull request 20065)."""


def intake_us(endpoint: str, version: str, model_type: str) -> Mapping[str, float]:
    """Return what vLLM's API server takes for a request in microseconds, as keys of `operators` step times.

    Args:
        endpoint: of the workload, :data:`COMPLETIONS` or :data:`CHAT`.
        version: vLLM's.
        model_type: family of the model.

    Returns:
        Nothing if it is what step times have by default.
    """
    for row in CHAT_REQUESTS if endpoint == CHAT else ():
        if row.model_type in ("", model_type) and row.version in ("", version):
            return {"request_us": row.request_us}
    return {}


def chat_requests() -> str:
    """Return a sentence on what chat requests take, with the sources."""
    return f"With vLLM's scheduler and `operators` step times: {'; '.join(row.text() for row in CHAT_REQUESTS)}."
