"""The part of a step that no table covers: a few coefficients, one fit for all models, GPUs and tensor parallelism.

Fitted on 146 measured decode steps of vLLM 0.15 on H100 (Llama 2 7B and 70B, Code Llama 34B, Mixtral 8x7B; TP 1, 2, 4)
and on 138 measured servers of Llama 3.3 70B in FP8 (H100, H200, B200; TP 1 and 4; vLLM 0.10 and TensorRT-LLM 1.1);
sampling on vLLM servers of Llama 3.1 70B and Qwen2.5 7B; MXFP4 experts and their spread on measured servers of
gpt-oss-120b (H100, H200, B200; TP 1 and 4). ``docs/lab/operators.md`` shows the remaining errors.
"""

from __future__ import annotations

from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.engine.latency.operator_tables import FP8_UNITS
from blis_tui.model.keys import SMALLEST
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

ENGINES: Final = ("vllm", "tensorrt-llm")
SAMPLING: Final = ("plain", "top-p", "penalties")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The fitted coefficients of an engine."""

    products: float = 1.0
    products_fp8: float = 1.0
    products_fp8_long: float = 1.2
    layer_tp_us: float = 8.0
    quantize_us: float = 0.75
    moved: float = 1.8
    experts_fp8_channel: float = 0.95
    experts_spread: float = 1.0
    experts_layer_us: float = 0.0
    experts_mxfp4: float = 1.0
    experts_token_us: float = 0.1
    queue_us: float = 3600.0
    request_us: float = 3900.0
    prompt_token_us: float = 0.5
    stream_us: float = 20.0
    first_pass: float = 0.5
    attention_16_bit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Which tables to use, and the fitted rest."""

    tables: str | None = setting(
        "Name of the tables in `specs/latency/operators/`. Default: those that were measured on the hardware.",
        default=None,
    )
    tables_sha256: str | None = setting("SHA-256 of the file of tables; filled in automatically.", default=None)
    engine: str = setting(
        "The engine whose coefficients apply unless they are given.", default=ENGINES[0], enum=list(ENGINES)
    )
    peer_to_peer: bool = setting(
        "Whether GPUs without NVLink read each other's memory over PCIe, which many machines, above all virtual ones,"
        " do not allow: sums then go through the host's memory, where that was measured (two RTX PRO 6000).",
        default=False,
    )
    expert_parallel: int = setting(
        "Over how many of an instance's GPUs experts are spread, each whole (vLLM's `--enable-expert-parallel`: all of"
        " them; TensorRT-LLM's `--ep_size`); 1 = each expert is split over all. The busiest GPU counts.",
        default=1,
        minimum=1,
        maximum=1024,
    )
    sampling: str | None = setting(
        "How tokens are chosen: `plain` (greedy, or from all logits), `top-p` (or top-k: logits sorted), `penalties`"
        " (and sorted, and earlier tokens counted). Default: as the model's `generation_config` says, or, where its"
        " document has none, that of its family. For loads with temperature 0, such as those of `vllm bench serve`:"
        " `plain`.",
        default=None,
        enum=list(SAMPLING),
    )
    products: float | None = setting(
        "Dense products of 16 bits relative to their tables. Default: 1, as TensorRT-LLM's own tables are, within 5 %.",
        default=None,
        minimum=SMALLEST,
        maximum=1000,
    )
    products_fp8: float | None = setting(
        "The same of FP8 products of up to 512 tokens. Default: 1.",
        default=None,
        minimum=SMALLEST,
        maximum=1000,
    )
    products_fp8_long: float | None = setting(
        "The same of longer ones, relative to the engine's own tables, which are of kernels alone, one after the other."
        " Default: 1.2 for vLLM, as five servers took on three GPUs; 1 for TensorRT-LLM.",
        default=None,
        minimum=SMALLEST,
        maximum=1000,
    )
    layer_tp_us: float | None = setting(
        "Per layer and doubling of `tensor_parallel`: norms beside the all-reduces, waiting for the slowest GPU (us)."
        " Default: 8 for vLLM, 6.5 with FP8 products; 0 for TensorRT-LLM, and on Blackwell, where all-reduce and norm"
        " are one kernel; there 6 for vLLM where a model has experts, whose sums are none.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    quantize_us: float | None = setting(
        "Quantizing what an FP8 product multiplies, per product (us). Default: 3 for vLLM on Blackwell, where it is a"
        " kernel of its own; 0.75 elsewhere, as most are part of the kernel before; 0 for TensorRT-LLM, which always"
        " does so, and on GPUs without FP8 units.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    moved: float | None = setting(
        "Norms, rotations, activations: time relative to moving their bytes at full memory bandwidth. Default: 1.8.",
        default=None,
        minimum=1,
        maximum=1000,
    )
    experts_fp8_channel: float | None = setting(
        "FP8 experts with a scale per channel, relative to block-wise scales, which were measured. Default: 0.95.",
        default=None,
        minimum=SMALLEST,
        maximum=1000,
    )
    experts_spread: float | None = setting(
        "How unevenly tokens choose: squared coefficient of variation of the popularity of 128 experts. Fewer are as"
        " many times less uneven, each being several finer ones in sum; more are as uneven. Default: 1.",
        default=None,
        minimum=0,
        maximum=16,
    )
    experts_layer_us: float | None = setting(
        "Around MXFP4 experts with 8-bit activations: routing and quantizing, per layer (us). Default: 6 on Blackwell;"
        " 0 elsewhere, where activations keep their 16 bits.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    experts_mxfp4: float | None = setting(
        "MXFP4 experts in steps outside of CUDA graphs, relative to the engine's own tables. Default: 2 for vLLM on"
        " Hopper, where servers took that much longer than the newer kernels of the tables; 1 elsewhere.",
        default=None,
        minimum=SMALLEST,
        maximum=1000,
    )
    experts_token_us: float | None = setting(
        "Around MXFP4 experts in such steps: routing and quantizing, per token and layer, on every GPU alike (us)."
        " Default: 0.1 for vLLM, 0.05 for TensorRT-LLM.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    old_expert_tiles: bool | None = setting(
        "Whether experts in 16 bits that vLLM has no tuned tiles for, on H100 and H200, have its default tiles up to"
        " 0.16, with which many tokens take up to twice as long. Default: as `engine.version` says, otherwise false.",
        default=None,
    )
    queue_us: float | None = setting(
        "From a request's arrival until it waits, whatever else goes on (us): what passes while a process in front of"
        " the engine does something else. Default: 3600 for vLLM, 9000 for TensorRT-LLM.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    attention_16_bit: bool | None = setting(
        "Whether decodes attend to an 8-bit KV cache no faster than to one of 16 bits. Default: true for vLLM on"
        " Hopper, whose kernel (FlashAttention 3) gained nothing by it.",
        default=None,
    )
    request_us: float | None = setting(
        "The process in front of the engine: a request (us). Those that come while it is busy wait, and are taken in"
        " together. Half of the time varies from request to request. Default: 3900 for vLLM (chat requests:"
        " `workload.endpoint`), 9000 for TensorRT-LLM.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    prompt_token_us: float | None = setting(
        "The same: tokenizing, per token of a prompt (us). Default: 0.5.", default=None, minimum=0, maximum=10**9
    )
    stream_us: float | None = setting(
        "The same: a token for a client (us). While it streams, requests take longer, up to five times. Default: 20 for"
        " vLLM, 15 for TensorRT-LLM, which sends ten tokens at a time.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    first_pass: float | None = setting(
        "The same: share of a request's time that it waits for others that came with it, too, as the process parses all"
        " of them before it hands on the first. Default: 0.5 for vLLM, 0 for TensorRT-LLM (not known).",
        default=None,
        minimum=0,
        maximum=1,
    )
    queue_per_token_us: float = setting("The same, more per input token (us).", default=0.0, minimum=0, maximum=10**9)
    output_token_us: float = setting(
        "Extra time until the client sees a token (us).", default=0.0, minimum=0, maximum=10**9
    )
    host_us: float | None = setting(
        "What the host does between steps while the GPU waits: per step (us). Default: 1,300 for vLLM without"
        " asynchronous scheduling, otherwise 0. It depends on the CPU; recorded on a slow one: 2,400 to 2,900.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    host_request_us: float | None = setting(
        "The same, per request in the step (us). Default: 18 for vLLM without asynchronous scheduling, otherwise 0."
        " With both, 256 requests take 5.9 ms; measured were 5 to 6 (Llama 2 7B, vLLM issue 10634).",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    host_floor_us: float | None = setting(
        "No step takes less (us): what the host takes for a step of a model so small that the GPU waits for it. It"
        " depends on the CPU. Default: 2,300 for vLLM, 4,100 without asynchronous scheduling; 0 for TensorRT-LLM.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    sort_step_us: float | None = setting(
        "Top-p or top-k: per step (us). Default: 100, as FlashInfer's kernel takes; 130 where logits are sorted, in"
        " vLLM up to 0.19 (`engine.version`), and for TensorRT-LLM.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    sort_logits_us: float | None = setting(
        "The same, per request and 1000 entries of the vocabulary (us), whatever the memory's bandwidth, as it works in"
        " the GPU's caches. Default: 0.006; 0.17 where logits are sorted.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    penalties_step_us: float = setting(
        "Penalties: per step (us); the CPU gathers the tokens so far while the GPU waits.",
        default=650.0,
        minimum=0,
        maximum=10**9,
    )
    steps: float | None = setting(
        "Whole steps relative to all of that: 1.12 for a server whose steps take 12 % longer. Default: 1.",
        default=None,
        minimum=SMALLEST,
        maximum=1000,
    )


_PRESETS: Final[Mapping[str, Rest]] = MappingProxyType(
    {
        "vllm": Rest(),
        "tensorrt-llm": Rest(
            products_fp8_long=1.0,
            layer_tp_us=0.0,
            quantize_us=0.0,
            experts_token_us=0.05,
            queue_us=9000.0,
            request_us=9000.0,
            stream_us=15.0,
            first_pass=0.0,
        ),
    }
)


_ON_BLACKWELL: Final[Mapping[str, float]] = MappingProxyType({"layer_tp_us": 0.0, "experts_layer_us": 6.0})
"""On Blackwell, all-reduces include the adjacent norms."""
_VLLM_ON_BLACKWELL: Final[Mapping[str, float]] = MappingProxyType({"quantize_us": 3.0})
"""The kernel alone was measured to take 2.2 to 2.6 us (PyPI ``aiconfigurator-core``, ``quantize/vllm``)."""
_SPARSE_VLLM_ON_BLACKWELL: Final[Mapping[str, float]] = MappingProxyType({"layer_tp_us": 6.0})
"""The sum over experts is one of a layer's two all-reduces, and is not fused that way."""
_VLLM_ON_HOPPER: Final[Mapping[str, float]] = MappingProxyType({"experts_mxfp4": 2.0, "attention_16_bit": True})
_NARROW: Final[Mapping[str, float]] = MappingProxyType({"layer_tp_us": 6.5})
"""vLLM with FP8 products, whose quantizing counts apart."""


def rest_of(settings: OperatorSettings, capability: float, *, sparse: bool = False, narrow: bool = False) -> Rest:
    """Return the coefficients in force: those set explicitly, otherwise those of the engine on that GPU.

    Args:
        settings: the settings.
        capability: the GPU's compute capability.
        sparse: whether the model has experts.
        narrow: whether its dense products are of FP8.
    """
    preset = asdict(_PRESETS[settings.engine])
    vllm = settings.engine == "vllm"
    if vllm and narrow:
        preset |= _NARROW
    if 10 <= capability < 12:
        preset |= _ON_BLACKWELL
        if vllm:
            preset |= {**_VLLM_ON_BLACKWELL, **(_SPARSE_VLLM_ON_BLACKWELL if sparse else {})}
    elif 9 <= capability < 10 and vllm:
        preset |= _VLLM_ON_HOPPER
    elif capability < FP8_UNITS:
        preset["quantize_us"] = 0.0
    given = {name: getattr(settings, name) for name in preset}
    return Rest(**{name: preset[name] if value is None else value for name, value in given.items()})
