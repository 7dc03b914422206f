"""Operator times of a pool's model: the operators of its layers, the busiest GPU, the rest of a step.

How many tokens the busiest GPU has under expert parallelism, for which the other GPUs wait.

Each of ``T`` tokens chooses ``k`` of ``E`` experts; each of ``N`` GPUs has ``E / N`` of them. If all experts are
equally likely, the tokens of a GPU are a sum of ``T`` hypergeometric draws, with relative variance ``(N - 1) (E - k) /
((E - 1) T k)``. If experts differ in popularity, with the squared coefficient of variation ``s``, that difference lasts
from step to step; the total popularity of a GPU's experts has the variance ``(1 - 1 / N) s N / E``.

The largest of ``N`` independent normal values is on average ``e(N)`` standard deviations above the mean (L. H. C.
Tippett, Biometrika 17, 1925); if the sum of the values is fixed, as here, ``sqrt(N / (N - 1))`` times that. Each layer
has its own busiest GPU, so over a step's layers the expectation counts.

Experts spread over all accelerators of a model replica, and the time to send tokens there and back.

In each layer with experts, every token goes to the accelerators that hold its experts (dispatch), and the results come
back (combine). Low-latency kernels send it to each of its experts separately: within the node over NVLink and, at the
same time, to others over the network. For ``tokens * experts per token`` vectors

    time = latency + max(bytes * (near - 1) / all / NVLink, bytes * (all - near) / all / network)

High-throughput kernels send it once to each other node, from where NVLink forwards it once to each accelerator. When
experts are chosen evenly, a token has some on ``n (1 - (1 - 1/n) ** k)`` of n nodes (or accelerators), and

    time = latency + max(tokens * accelerators / NVLink, tokens * nodes * (n - 1) / n / network)

The accelerator with the most tokens receives ``expert_imbalance`` times the mean, and the others wait for it. Its
random excess (above) is part of the constants, because DeepEP measures with tokens that go to random
experts. ``docs/lab/comparisons.md`` compares the results with measurements of its kernels.

The part of a step that no table covers: a few coefficients, one fit for all models, GPUs and tensor parallelism.

Fitted on 146 measured decode steps of vLLM 0.15 on H100 (Llama 2 7B and 70B, Code Llama 34B, Mixtral 8x7B; TP 1, 2, 4)
and on 138 measured servers of Llama 3.3 70B in FP8 (H100, H200, B200; TP 1 and 4; vLLM 0.10 and TensorRT-LLM 1.1);
sampling on vLLM servers of Llama 3.1 70B and Qwen2.5 7B; MXFP4 experts and their spread on measured servers of
gpt-oss-120b (H100, H200, B200; TP 1 and 4). ``docs/lab/operators.md`` shows the remaining errors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import asdict, replace
from math import sqrt
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import ln
from blis_tui.engine.latency.operator_layers import layers_of
from blis_tui.engine.latency.operator_tables import (
    EXPERTS_LAUNCH_US,
    FP8_UNITS,
    SPREAD_EXPERTS,
    WEIGHT_BYTES,
    Curve,
    chosen_experts,
    rising,
    tables_in,
    touched_experts,
    worst,
)
from blis_tui.engine.latency.shape import check_expert_parallel
from blis_tui.model import AllToAll
from blis_tui.model.keys import SMALLEST
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.engine.latency.operator_layers import Layers
    from blis_tui.engine.latency.operator_tables import Known, OperatorTables
    from blis_tui.model import Engine, Model


_LARGEST: Final = (0.0, 0.5642, 1.0294, 1.4236, 1.7660, 2.0697, 2.3437, 2.5946, 2.8269, 3.0439, 3.2482)
"""Expected maximum of 1, 2, 4, ... 1024 standard normal values."""


def expected_largest(number: int) -> float:
    """Expected maximum of ``number`` independent standard normal values, within 1.5 %; constant from 1,024 on."""
    sizes = [1 << power for power in range(len(_LARGEST))]
    at = bisect_right(sizes, number) - 1
    if at == len(sizes) - 1:
        return _LARGEST[-1]
    return _LARGEST[at] + (_LARGEST[at + 1] - _LARGEST[at]) * ln(number / sizes[at]) / ln(2.0)


def popularity_excess(gpus: int, experts: int, spread: float) -> float:
    """Long-run excess of the busiest GPU's load over the mean, as a share of the mean.

    Args:
        gpus: number of GPUs that the experts are spread over.
        experts: of the model.
        spread: squared coefficient of variation of an expert's popularity.
    """
    return expected_largest(gpus) * sqrt(spread * gpus / experts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Busiest:
    """The GPU with the most tokens."""

    gpus: int
    experts: int
    top_k: int
    lasting: float
    """Excess over the mean at any number of tokens: ``popularity_excess``, or what is known of a balancer."""

    def share(self, tokens: float) -> float:
        """Load of the busiest GPU relative to the mean; it approaches ``1 + lasting`` as ``tokens`` grows.

        ``tokens``: at least 1. ``tokens * share`` never falls.
        """
        if self.gpus == 1:
            return 1.0
        varies = self.gpus * (self.experts - self.top_k) / ((self.experts - 1) * self.top_k * tokens)
        largest = expected_largest(self.gpus)
        return 1.0 + sqrt(self.lasting * self.lasting + largest * largest * varies)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertParallelism:
    """How experts are spread."""

    gpus: int
    """Number of accelerators that experts are spread over: all of a replica."""
    ranks: int
    """Attention ranks of the replica; 1 = its accelerators all-reduce results, as without experts."""
    imbalance: float
    """Load of the accelerator with the most tokens, relative to the mean, when there are many tokens."""
    exchange_us: float = 0.0
    """Constant time of dispatch and combine in a layer."""
    each_us_per_token: float = 0.0
    """Additional time for each token of an accelerator that is sent to each of its experts separately."""
    once_us_per_token: float = 0.0
    """Additional time for each token that is sent once to each node and accelerator."""
    backend: str = "auto"
    """Which of the two kernels is used: see ``AllToAll``."""

    def exchange_of(self, tokens: float, *, prompts: bool) -> float:
        """Time of a layer's dispatch and combine for ``tokens`` per accelerator; ``prompts``: some are of prompts."""
        once = prompts if self.backend == "auto" else self.backend == "deepep_high_throughput"
        return self.exchange_us + tokens * (self.once_us_per_token if once else self.each_us_per_token)


def wide_of(engine: Engine, model: Model, tensor_parallel: int) -> ExpertParallelism:
    """Return how the experts of a rank's model are spread with ``expert_parallel``."""
    ranks, gpus, imbalance = engine.data_parallel, engine.data_parallel * tensor_parallel, engine.expert_imbalance
    if ranks == 1:
        return ExpertParallelism(gpus=gpus, ranks=1, imbalance=imbalance)
    links = engine.all_to_all or AllToAll()
    near, chosen = min(links.gpus_per_node, gpus), model.num_experts_per_tok
    nodes = -(-gpus // links.gpus_per_node)
    nvlink, network = links.intra_node_gb_per_s * 1e3, links.inter_node_gb_per_s * 1e3
    each = chosen * max((near - 1) / gpus / nvlink, (gpus - near) / gpus / network)
    once = max(
        touched_experts(gpus, 1.0, chosen) / nvlink, touched_experts(nodes, 1.0, chosen) * (nodes - 1) / nodes / network
    )
    bytes_ = imbalance * model.hidden_size * (links.dispatch_bytes + model.activation_bytes)
    return ExpertParallelism(
        gpus=gpus,
        ranks=ranks,
        imbalance=imbalance,
        exchange_us=2.0 * links.latency_us,
        each_us_per_token=bytes_ * each,
        once_us_per_token=bytes_ * once,
        backend=links.backend,
    )


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
        " together. Half of the time varies from request to request. Default: 3900 for vLLM, 9000 for TensorRT-LLM.",
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
        " vLLM 0.10, and for TensorRT-LLM. For a server of vLLM 0.11 to 0.19, whose scheduler is simulated as 0.32's,"
        " give 130.",
        default=None,
        minimum=0,
        maximum=10**9,
    )
    sort_logits_us: float | None = setting(
        "The same, per request and 1000 entries of the vocabulary (us), whatever the memory's bandwidth, as it works in"
        " the GPU's caches. Default: 0.006; 0.17 where logits are sorted, and to give for vLLM 0.11 to 0.19.",
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
    said = {name: getattr(settings, name) for name in preset}
    return Rest(**{name: preset[name] if value is None else value for name, value in said.items()})


_GRAPHS: Final = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
"""Batch sizes in tokens for which vLLM captures CUDA graphs; a batch is padded to the next size."""
_LOGIT_BYTES: Final = 4.0
_SQUARES_BYTES: Final = 4.0
"""Bytes of a sum of squares in 32 bits."""
_WIDEST_BYTES: Final = 2.0
_GATHER: Final = 0.5
"""What a ring moves in an all-gather, relative to an all-reduce, which also reduces."""
_AS_FITTED: Final = OperatorSettings()


class OperatorCosts:
    """Times of a step's operators, in all layers together and in microseconds.

    Args:
        document: the tables of the GPU.
        model: the model that runs on it.
        split: number of GPUs of an instance.
        settings: the configured coefficients of the fitted rest.
        wide: how experts are spread over a replica of which this is a rank; None = as the settings say.

    Raises:
        PolicyError: the tables lack what the model needs, or its experts cannot be spread that way.
    """

    def __init__(
        self,
        document: Mapping[str, object],
        model: Model,
        split: int,
        settings: OperatorSettings = _AS_FITTED,
        wide: ExpertParallelism | None = None,
    ) -> None:
        tables = tables_in(document, settings.engine)
        if max(model.weight_bytes, model.activation_bytes) > _WIDEST_BYTES:
            raise PolicyError(
                f"no operators of {max(model.weight_bytes, model.activation_bytes):g}-byte numbers were measured"
            )
        apart = settings.expert_parallel if wide is None else wide.gpus
        check_expert_parallel(model, split if wide is None else wide.gpus, apart)
        self._wide = wide
        self.gpu_figures = tables.figures
        """Figures of the GPU on which the operators were measured, by their path in Hardware documents."""
        self.layers = layers = layers_of(model, split)
        narrow = any(product.weights == "fp8" for product in layers.products)
        self.rest = rest = rest_of(settings, tables.capability, sparse=layers.expert_layers > 0, narrow=narrow)
        self._hidden_bytes = model.hidden_size * model.activation_bytes
        parts = {"products": self._products(tables)}
        if layers.expert_layers:
            parts["experts"] = [(layers.expert_layers, self._experts(tables, model, split, apart, settings.engine))]
        if layers.sums:
            curve = tables.all_reduce(split, settings.engine, peer_to_peer=settings.peer_to_peer)
            parts["all-reduce"] = self._sums(curve, spread=wide is not None and wide.ranks > 1)
        self._parts = parts
        self._scale(rest)
        self._shared = self._parts.pop("experts", []) if wide is not None and wide.ranks > 1 else []
        self.head = tables.gemm(layers.head.weights, layers.head.n, layers.head.k)
        read = "bfloat16" if rest.attention_16_bit else layers.kv_cache
        self._decodes = tables.decode_attention(read, layers.cache_dim, layers.kv_heads)
        prompts = tables.prefill_attention(layers.kv_cache, layers.head_dim, layers.heads)
        if model.kv_lora_rank:
            cached = model.kv_lora_rank + model.qk_rope_head_dim
            self._decodes = tables.latent_decodes(layers.kv_cache, layers.heads, cached) or self._decodes
            prompts = tables.latent_prefill(layers.kv_cache, layers.head_dim, layers.heads) or prompts
        slower = sinks_factor(layers, tables, settings.engine)
        self.alone, self.shared = _beyond_launch(prompts.alone, slower), _beyond_launch(prompts.shared, slower)
        self.one_decode = self.decode_attention(1)
        self.start_us = min(self.one_decode.times_us[0], self.alone.times_us[0] * model.num_hidden_layers)
        self.read_again_us = read_again_us(layers, tables, settings.engine)
        """Per token of decodes' context and layer, in steps that also have prompts."""
        self.sparse_step_us, self.sparse_token_us = sparse_us(model, layers, tables)
        self.moved_us_per_token = layers.moved_bytes / tables.bytes_per_us
        self.logits_us = _LOGIT_BYTES * model.vocab_size / tables.bytes_per_us

    def _products(self, tables: OperatorTables) -> list[tuple[float, Curve]]:
        """Return the dense products of a step, with their number."""
        rest, found = self.rest, list[tuple[float, Curve]]()
        for product in self.layers.products:
            own = tables.gemm(product.weights, product.n, product.k)
            if product.weights == "fp8":
                scaled = _in_and_beyond_graphs(own, rest.products_fp8, rest.products_fp8_long, rest.quantize_us)
                found.append((product.times, scaled))
            else:
                found.append((product.times * rest.products, own))
        return found

    def _experts(self, tables: OperatorTables, model: Model, split: int, apart: int, engine: str) -> Curve:
        """Return the time of a layer's experts, which are spread over ``apart`` GPUs; the busiest counts.

        Raises:
            PolicyError: the tables have none.
        """
        kind, wide, parts = self.layers.expert_weights, self._wide, max(1, split // apart)
        width = model.moe_intermediate_size or model.intermediate_size
        experts, top_k = model.num_experts // apart, model.num_experts_per_tok / apart
        spread = self.rest.experts_spread * min(1.0, model.num_experts / SPREAD_EXPERTS)
        found: Curve | None
        if runs_marlin(kind, tables, engine):
            found = marlin_experts(tables, kind, model.hidden_size, width / parts, experts, top_k, spread)
        else:
            found = tables.experts(kind, model.hidden_size, width, experts, top_k, parts, spread)
        if found is None:
            raise PolicyError(f"no mixture of experts was measured on {tables.name}")
        busiest = Busiest(
            gpus=apart,
            experts=model.num_experts,
            top_k=model.num_experts_per_tok,
            lasting=popularity_excess(apart, model.num_experts, spread) if wide is None else wide.imbalance - 1.0,
        )
        return _of_the_busiest(found, busiest)

    def _sums(self, curve: Curve, *, spread: bool) -> list[tuple[float, Curve]]:
        """Return the all-reduces of a step; ``spread``: experts are shared by several ranks."""
        layers = self.layers
        # After experts shared by all ranks, the GPUs of a rank only gather what each has for a part of the tokens.
        gathered = layers.expert_layers if spread else 0
        found: list[tuple[float, Curve]] = [(layers.sums - gathered * _GATHER, _over_tokens(curve, self._hidden_bytes))]
        if layers.norm_sums:
            found.append((layers.norm_sums, _over_tokens(curve, _SQUARES_BYTES)))
        return found

    def _scale(self, rest: Rest) -> None:
        """Apply the fitted factors that concern operators."""
        if self.layers.expert_scales == "channel" and "experts" in self._parts:
            [(times, curve)] = self._parts["experts"]
            self._parts["experts"] = [(times * rest.experts_fp8_channel, curve)]
        if self.layers.expert_weights == "mxfp4" and "experts" in self._parts:
            [(times, curve)] = self._parts["experts"]
            around = tuple(
                time * rest.experts_mxfp4 + size * rest.experts_token_us if size > _GRAPHS[-1] else time
                for size, time in zip(curve.sizes, curve.times_us, strict=True)
            )
            slower = replace(curve, times_us=tuple(time + rest.experts_layer_us for time in around))
            self._parts["experts"] = [(times, slower)]

    def known(self) -> dict[str, Known]:
        """Return for each operator how well its times are known within the measured sizes."""
        parts = {**self._parts, **({"experts": self._shared} if self._shared else {})}
        found = {name: worst(*(curve.known for _, curve in curves)) for name, curves in parts.items()}
        return {**found, "head": self.head.known, "attention": worst(self._decodes.known, self.alone.known)}

    def parts_us(self, batch: int, context: int) -> dict[str, tuple[float, float]]:
        """Return each operator's time in a step of decodes with that mean context, and its extrapolated part."""
        padded = _padded(batch)
        parts = {name: [(times, curve, padded) for times, curve in curves] for name, curves in self._parts.items()}
        if self._wide is not None and self._shared:
            parts["experts"] = [(times, curve, batch * self._wide.ranks) for times, curve in self._shared]
        parts["head"] = [(1.0, self.head, batch)]
        parts["attention"] = [(1.0, self.decode_attention(batch), context)]
        found = {}
        for name, curves in parts.items():
            whole = guessed = 0.0
            for times, curve, size in curves:
                time = times * curve.at(size)
                whole += time
                guessed += time if curve.known_at(size) == "extrapolated" else 0.0
            found[name] = (whole, guessed)
        if self._shared:
            exchange = self._exchange_us(batch, prompts=False)
            found["all-to-all"] = (exchange, exchange)
        return found

    def shared_us(self, own: int, everywhere: int, *, prompts: bool) -> float:
        """Time of the experts that all ranks share, including dispatch and combine.

        Args:
            own: tokens of this rank.
            everywhere: tokens of all ranks.
            prompts: whether any of these computes a prompt.
        """
        total = self._exchange_us(own, prompts=prompts)
        for times, curve in self._shared:
            total += times * curve.at(everywhere)
        return total

    def _exchange_us(self, tokens: int, *, prompts: bool) -> float:
        """Time of dispatch and combine in all layers; each accelerator of a rank sends a part of the rank's tokens."""
        wide = self._wide
        if wide is None or not self._shared:
            return 0.0
        return self.layers.expert_layers * wide.exchange_of(tokens * wide.ranks / wide.gpus, prompts=prompts)

    def tokens_us(self, tokens: int) -> float:
        """Time of everything computed token by token, in a step of ``tokens`` tokens."""
        padded = _padded(tokens)
        total = 0.0
        for curves in self._parts.values():
            for times, curve in curves:
                total += times * curve.at(padded)
        return total

    def listed(self, most: int) -> list[float]:
        """Return ``tokens_us`` for 0 to ``most`` tokens, with 0 for no tokens."""
        knots = sorted({*(size for one in self._parts.values() for _, curve in one for size in curve.sizes), *_GRAPHS})
        sizes = [1, *(int(knot) for knot in knots if 1 < knot < most and knot == int(knot)), most]
        found = [0.0]
        before, low = 0, 0.0
        for size in sizes:
            if size <= before:
                continue
            high = self.tokens_us(size)
            graph = size <= _GRAPHS[-1]
            found += [
                high if graph else low + (high - low) * (tokens - before) / (size - before)
                for tokens in range(before + 1, size + 1)
            ]
            before, low = size, high
        return found

    def decode_attention(self, batch: int) -> Curve:
        """Return the attention time of a batch of decodes over their mean context."""
        layers = self.layers
        curve = self._decodes.over_context(batch)
        if not layers.window_layers:
            return Curve(
                curve.sizes,
                tuple(layers.attention_layers * time for time in curve.times_us),
                curve.known,
                curve.measured_up_to,
            )
        window = float(layers.window)
        contexts = tuple(sorted({*curve.sizes, window}))
        return Curve(
            contexts,
            tuple(
                layers.attention_layers * curve.at(context) + layers.window_layers * curve.at(min(context, window))
                for context in contexts
            ),
            curve.known,
            curve.measured_up_to,
        )


def _of_the_busiest(curve: Curve, busiest: Busiest) -> Curve:
    """Return the curve for the GPU with the most tokens."""
    if busiest.gpus == 1:
        return curve
    times = tuple(curve.at(size * busiest.share(size)) for size in curve.sizes)
    return replace(curve, times_us=times, measured_up_to=curve.measured_up_to / busiest.share(curve.measured_up_to))


def _in_and_beyond_graphs(curve: Curve, inside: float, beyond: float, more_us: float) -> Curve:
    """Scale a curve by one factor within CUDA graph sizes and another beyond, never falling, and add a constant."""
    times, most = list[float](), 0.0
    for size, time in zip(curve.sizes, curve.times_us, strict=True):
        most = max(most, time * (inside if size <= _GRAPHS[-1] else beyond))
        times.append(most + more_us)
    return replace(curve, times_us=tuple(times))


def _beyond_launch(curve: Curve, factor: float) -> Curve:
    """Scale a curve, but not its smallest time, which is that of a launch."""
    least = curve.times_us[0]
    return replace(curve, times_us=tuple(least + factor * (time - least) for time in curve.times_us))


def _over_tokens(curve: Curve, bytes_: float) -> Curve:
    """Convert a curve over message sizes to one over tokens of ``bytes_`` bytes."""
    sizes = tuple(size / bytes_ for size in curve.sizes)
    return replace(curve, sizes=sizes, measured_up_to=curve.measured_up_to / bytes_)


def _padded(tokens: int) -> int:
    """Pad a number of tokens to the size of the CUDA graph that takes them."""
    return tokens if tokens > _GRAPHS[-1] else _GRAPHS[bisect_left(_GRAPHS, tokens)]


# ---- kernels that no table has ----
#
# Formulas whose constants were found on measured servers, each with its reason. They were chosen with servers of a
# performance lab in view (GPUStack's: gpt-oss, Qwen3 235B, DeepSeek V3.2); docs/lab/measured-servers.md says how far
# off each group of them is with and without these laws.


_UNPACKED_READ: Final = 0.83
"""Share of the memory's bandwidth at which FlashAttention 2 reads the KV cache once for each query head."""
_AMPERE: Final = (8.0, 8.9)
"""Compute capabilities, from and below, on which that was seen: A100. An RTX PRO 6000 (12.0) shows none of it; its L2
cache of 128 MB holds what the A100's of 40 MB does not."""
_SINKS: Final = 4.5
"""Found on two models on one machine (gpt-oss 20B and 120B, A100)."""
_SPARSE_HEADS: Final = 64
"""FlashMLA's kernel of sparse attention computes at least so many heads."""
_SPARSE_REACHED: Final = 0.5
"""Share of the peak of 16-bit units that it reaches."""
_SPARSE_LAYER_US: Final = 165.0
"""What the indexer of a layer costs a step: its products, scores, choice and conversions. Found on one row of DeepSeek
V3.2 (8 x H200); with it six rows of that model are 15 % off in TPOT at the median, one of GLM-5.2 28 % in ITL."""
_MARLIN_BELOW: Final = {"fp8": 8.9, "mxfp4": 9.0}
"""Least compute capability on which vLLM has other kernels than Marlin's for experts of a type."""
_MARLIN_ROWS: Final = (8, 16, 32, 48, 64)
_MARLIN_FULL: Final = 0.9
"""Marlin's blocks of rows, and how full the mean number of an expert's tokens may make one before vLLM takes the next
(``fused_marlin_moe``)."""
_MARLIN_TOKENS: Final = (*(1 << at for at in range(8)), *range(192, 1025, 64), *range(1280, 4097, 256), 8192, 16384)
_MARLIN_REACHED: Final = 0.55
"""Share of the peak of 16-bit units that it reaches."""
_MARLIN_READ: Final = 0.8
"""Share of the memory's bandwidth at which it reads weights."""


def sinks_factor(layers: Layers, tables: OperatorTables, engine: str) -> float:
    """Return how many times longer attention of prompts takes because it has sinks (gpt-oss).

    Where FlashAttention 3 is missing, vLLM computes it with Triton's kernel, whose blocks of 16 rows hold two tokens of
    eight query heads.
    """
    triton = engine == "vllm" and layers.expert_weights == "mxfp4" and not 9.0 <= tables.capability < 12.0
    return _SINKS if triton else 1.0


def read_again_us(layers: Layers, tables: OperatorTables, engine: str) -> float:
    """Return the time per token of decodes' context and layer that a step takes longer because it also has prompts.

    FlashAttention 2 packs the query heads that share a KV head into one block of work only if no request of the step
    has several tokens. Otherwise each query head reads the cache by itself. FlashAttention 3 (Hopper) and Triton's
    kernel (attention with sinks: gpt-oss) always pack.
    """
    unpacked = engine == "vllm" and _AMPERE[0] <= tables.capability < _AMPERE[1]
    if not unpacked or layers.latent or layers.expert_weights == "mxfp4":
        return 0.0
    bytes_ = 2.0 * layers.cache_dim * layers.kv_heads * (1.0 if layers.kv_cache == "fp8" else 2.0)
    return bytes_ * max(0.0, layers.heads / layers.kv_heads - 1.0) / (_UNPACKED_READ * tables.bytes_per_us)


def sparse_us(model: Model, layers: Layers, tables: OperatorTables) -> tuple[float, float]:
    """Return what sparse attention takes beside full attention: per step, and per token.

    Each token attends to as many others, whatever its context: the kernel masks those that are missing.
    """
    if not (model.index_topk and model.kv_lora_rank):
        return 0.0, 0.0
    wide = 2.0 * model.kv_lora_rank + model.qk_rope_head_dim
    flops = 2.0 * max(_SPARSE_HEADS, layers.heads) * model.index_topk * wide
    token_us = flops / (_SPARSE_REACHED * tables.peak_per_us("bfloat16"))
    return model.num_hidden_layers * _SPARSE_LAYER_US, model.num_hidden_layers * token_us


def runs_marlin(kind: str, tables: OperatorTables, engine: str) -> bool:
    """Return whether the engine multiplies experts of a weight type with Marlin's kernel on that GPU."""
    return engine == "vllm" and tables.capability < _MARLIN_BELOW.get(kind, 0.0)


def marlin_experts(
    tables: OperatorTables, kind: str, hidden: int, width: float, experts: int, top_k: float, spread: float
) -> Curve:
    """Return the time of a layer's experts in Marlin's kernel, which widens weights for 16-bit units.

    It reads the weights of the experts in use, and multiplies each expert's tokens in blocks of rows, the last of which
    is padded; one does not hide the other. Of the sizes of blocks, vLLM chooses the smallest that most experts' tokens
    fit into.

    Args:
        tables: of the GPU.
        kind: type of the experts' weights.
        hidden: hidden size of the model.
        width: intermediate size of an expert on a GPU.
        experts: on the GPU.
        top_k: mean number of experts that a token chooses there.
        spread: of the experts' popularity; see :func:`chosen_experts`.
    """
    peak_per_us = _MARLIN_REACHED * tables.peak_per_us("bfloat16")
    times = []
    for tokens in _MARLIN_TOKENS:
        each = tokens * top_k / experts
        block = next((rows for rows in _MARLIN_ROWS if each < _MARLIN_FULL * rows), _MARLIN_ROWS[-1])
        used = chosen_experts(experts, top_k, tokens, spread)
        rows = used * max(float(block), tokens * top_k / used + block / 2.0)
        read_us = 3.0 * used * hidden * width * WEIGHT_BYTES[kind] / (_MARLIN_READ * tables.bytes_per_us)
        times.append(EXPERTS_LAUNCH_US + read_us + 6.0 * rows * hidden * width / peak_per_us)
    return Curve(tuple(map(float, _MARLIN_TOKENS)), rising(times), "extrapolated", float(_MARLIN_TOKENS[-1]))
