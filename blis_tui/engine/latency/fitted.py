"""Step times from the shapes of model and accelerator, with a few named coefficients.

What an accelerator reads and computes in a step per token, request and context, before coefficients apply.

Coefficients are multiples of the datasheet's limits, as measured on servers with NVIDIA's GPUs. If a hardware document
states the share that its kernels reach (``reached``), times are scaled so that the same coefficients give that share.

A step is the sum of the following: dense matrix products (the larger of reading the weights and multiplying), expert
products (the larger of reading, and multiplying while half is read), attention of decodes (the larger of reading the KV
cache and multiplying) and of prompt chunks, data movement between them, all-reduces, and time that depends on the
number of layers, requests and steps. Factors are multiples of the datasheet's limits, so none can be below 1. The same
law holds for all models, sizes and precisions; ``docs/accuracy.md`` says what it was fitted on, and how large its
errors are.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.base.portable_math import ln, power, whole_sum
from blis_tui.engine.kv.states import projections
from blis_tui.engine.latency.model import LATENCY, Overheads
from blis_tui.engine.latency.operator_layers import layers_of
from blis_tui.engine.latency.operator_tables import SPREAD_EXPERTS, chosen_experts
from blis_tui.engine.latency.shape import check_heads_or_copies, expert_layers, shape_of, shared_expert_width
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.model import Hardware, Model, Pool


_HEAD_BYTES: Final = 2.0
"""The output head stays at 16 bits, whatever the weights are."""
_MOST_TOKENS: Final = 1024
"""Longer steps read all experts."""
REACHED_MEMORY: Final = 1 / 1.137
REACHED_16_BITS: Final = 1 / 1.294
REACHED_8_BITS: Final = 1 / 1.425
REACHED_EXPERTS: Final = 1 / 3.389
"""Shares of bandwidth and peak rates that the shipped coefficients correspond to."""
_EXPOSED_READING: Final = 0.5
"""Share of reading experts that products of many tokens do not hide; the same in all tables of ``operators``."""
_REFERENCE_TFLOPS: Final = 989.5
"""16-bit peak of the accelerator on which ``flops`` was fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Microseconds on one accelerator of an instance, at the datasheet's rates or at the hardware document's."""

    weights_us: float
    """Reading all dense weights and the output head, once a step."""
    token_us: float
    """Multiplying these weights with one token."""
    fp8: bool
    """Whether those products use 8-bit units."""
    exposed: float
    """Share of reading dense weights that multiplying does not hide."""
    fp8_us: float
    """Reading the weights whose 8-bit kernels are slowed down by uneven sizes."""
    row_us: float
    """The output head for one request."""
    experts_us: tuple[float, ...]
    """Reading the experts that 0, 1, 2, ... tokens choose; more tokens than listed choose all of them."""
    expert_token_us: float
    """Multiplying experts with one token."""
    experts_exposed: float
    """Share of reading experts that multiplying does not hide."""
    kv_us: float
    """Reading one token of context, on layers that see all of it; the next two fields refer to these layers, too."""
    kv_window_us: float
    decode_us: float
    """Attention of a decode to one token of context."""
    decode_window_us: float
    prefill_us: float
    """Attention of one prompt token to one earlier token."""
    prefill_window_us: float
    window: int
    """Tokens that layers with a sliding window see."""
    all_reduce_us: float
    """All-reduces for one token."""
    moved_us: float
    """Reading and writing activations between products, for one token."""
    layers: int
    expert_layers: int


def growth_of(hardware: Hardware, lost: float) -> float:
    """Factor for the time of products, as a peak above the reference's is not fully reached; 1 if its share is known.

    Args:
        hardware: the accelerator.
        lost: the coefficient ``flops_growth``.
    """
    if hardware.reached_products:
        return 1.0
    return power(max(1.0, hardware.peak_tflops_bf16 / _REFERENCE_TFLOPS), lost)


def work_of(pool: Pool, expert_spread: float = 0.0) -> Work:
    """Return the work of a pool's model on its accelerators.

    Args:
        pool: the model, the accelerator, and how many accelerators share the model.
        expert_spread: how unevenly tokens choose among 128 experts.

    Raises:
        PolicyError: heads do not divide by ``tensor_parallel``.
    """
    check_heads_or_copies("fitted", pool)
    model, hardware, split = pool.model, pool.hardware, pool.tensor_parallel
    bytes_per_us = hardware.memory_bandwidth_tb_per_s * 1e6 * _share(hardware.reached_memory, REACHED_MEMORY)
    flops_16_per_us = hardware.peak_tflops_bf16 * 1e6
    heads_per_us = flops_16_per_us * _share(hardware.reached_products, REACHED_16_BITS)
    fp8 = _uses_8_bit_units(model.weight_bytes, hardware)
    reached = _share(hardware.reached_products, REACHED_8_BITS if fp8 else REACHED_16_BITS)
    flops_per_us = _rate(model.weight_bytes, hardware) * 1e6 * reached
    shape = shape_of(model)
    layers, moe_layers = model.num_hidden_layers, expert_layers(model)
    shared = float(shared_expert_width(model))
    attending, cached, decoded = _attention(model, split)
    matrices = shape.matrices
    dense_ffn = matrices * shape.hidden * shape.dense_ffn * (model.feed_forwards - moe_layers)
    dense = model.attention_layers * attending + dense_ffn + moe_layers * matrices * shape.hidden * shared
    if model.linear is not None:
        own = projections(model.linear, model.hidden_size)
        dense += model.linear.layers * whole_sum([outputs * inputs for outputs, inputs in own])
    head = shape.hidden * model.vocab_size
    expert = matrices * shape.hidden * shape.expert_ffn
    expert_bytes = model.expert_weight_bytes or model.weight_bytes
    known_experts = hardware.reached_experts
    expert_rate = (_rate if known_experts else _expert_rate)(expert_bytes, hardware) * 1e6
    expert_rate *= _share(known_experts, REACHED_EXPERTS)
    dense_us = dense * model.weight_bytes / split / bytes_per_us
    windowed = min(model.sliding_window_layers, layers)
    full = model.attention_layers - windowed
    context_us = cached * model.kv_cache_bytes / bytes_per_us
    # Hopper's tensor cores multiply 64 rows at a time, few of which a group of query heads fills; elsewhere it is 16.
    decode_us = 0.0 if hardware.reached_memory else decoded / flops_16_per_us
    heads_us = 4.0 * shape.query / split / flops_16_per_us
    link_per_us = hardware.interconnect_gb_per_s / 2.0 * 1e3
    ring = 2.0 * (split - 1) / split
    return Work(
        weights_us=dense_us + head * _HEAD_BYTES / split / bytes_per_us,
        token_us=2.0 * dense / split / flops_per_us,
        fp8=fp8,
        exposed=1.0 - hardware.reached_overlap,
        fp8_us=dense_us if fp8 and not hardware.reached_products else 0.0,
        row_us=2.0 * head / split / heads_per_us,
        experts_us=_expert_read_times(model, expert_spread, moe_layers * expert * expert_bytes / split / bytes_per_us),
        expert_token_us=moe_layers * 2.0 * model.num_experts_per_tok * expert / split / expert_rate,
        experts_exposed=1.0 - hardware.reached_overlap if known_experts else _EXPOSED_READING,
        kv_us=full * context_us,
        kv_window_us=windowed * context_us,
        decode_us=full * decode_us,
        decode_window_us=windowed * decode_us,
        prefill_us=full * heads_us,
        prefill_window_us=windowed * heads_us,
        window=model.sliding_window,
        all_reduce_us=2.0 * layers * shape.hidden * model.activation_bytes * ring / link_per_us if split > 1 else 0.0,
        moved_us=layers_of(model, split).moved_bytes / bytes_per_us,
        layers=layers,
        expert_layers=moe_layers,
    )


def _share(reached: float | None, reference: float) -> float:
    """Reached share relative to the one that the coefficients correspond to."""
    return reached / reference if reached else 1.0


def _uses_8_bit_units(weight_bytes: float, hardware: Hardware) -> bool:
    """Whether matrix products with weights of that size use 8-bit units.

    8-bit weights do. Narrower ones are widened to 16 bits first, unless the accelerator has 4-bit units; then they are
    multiplied by 8-bit activations.
    """
    narrow = weight_bytes == 1.0 or (weight_bytes < 1.0 and hardware.peak_tflops_fp4 > 0.0)
    return narrow and hardware.peak_tflops_fp8 > 0.0


def _rate(weight_bytes: float, hardware: Hardware) -> float:
    """TFLOPS of dense matrix products with weights of that size."""
    return hardware.peak_tflops_fp8 if _uses_8_bit_units(weight_bytes, hardware) else hardware.peak_tflops_bf16


def _expert_rate(weight_bytes: float, hardware: Hardware) -> float:
    """TFLOPS of expert products.

    On accelerators without 4-bit units, 8-bit expert kernels are no faster than 16-bit ones, and 4-bit ones, which
    widen weights as they multiply, are half as fast. All tables of ``operators`` show this.
    """
    if hardware.peak_tflops_fp4 > 0.0:
        return _rate(weight_bytes, hardware)
    return hardware.peak_tflops_bf16 * (0.5 if weight_bytes < 1.0 else 1.0)


def _attention(model: Model, split: int) -> tuple[float, float, float]:
    """Return a layer's projection weights and, per context token, cached elements per accelerator and decode FLOPs."""
    hidden, query = float(model.hidden_size), float(model.num_attention_heads * model.head_dim)
    if model.kv_lora_rank > 0:  # the compressed vector is cached, and decodes attend to it directly
        cached = float(model.kv_lora_rank + model.qk_rope_head_dim)
        weights = 2.0 * hidden * query + hidden * cached + 2.0 * model.kv_lora_rank * query
        return weights, cached, 2.0 * model.num_attention_heads / split * (cached + model.kv_lora_rank)
    heads = float(model.num_key_value_heads or model.num_attention_heads)
    weights = (3.0 if model.output_gate else 2.0) * hidden * query + 2.0 * hidden * heads * model.head_dim
    return weights, 2.0 * max(heads / split, 1.0) * model.head_dim, 4.0 * query / split


def _expert_read_times(model: Model, spread: float, expert_us: float) -> tuple[float, ...]:
    """Reading the experts that 0, 1, 2, ... tokens choose in each layer."""
    if not expert_us:
        return (0.0,)
    experts, chosen = model.num_experts, model.num_experts_per_tok
    own = spread * min(1.0, experts / SPREAD_EXPERTS)
    times = [expert_us * chosen_experts(experts, chosen, tokens, own) for tokens in range(_MOST_TOKENS)]
    return (*times, expert_us * experts)


_TIME: Final = {"minimum": 0, "maximum": 1e7}
_FACTOR: Final = {"minimum": 1, "maximum": 1e4}


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedSettings:
    """Coefficients."""

    weights: float = setting(
        "Reading weights of dense layers, as a multiple of bytes / memory bandwidth.",
        default=1.137,
        **_FACTOR,
    )
    flops: float = setting(
        "Dense 16-bit matrix products, as a multiple of FLOPs / peak rate, for a 16-bit peak of 989.5 TFLOPS (H100).",
        default=1.294,
        **_FACTOR,
    )
    fp8_flops: float = setting(
        "The same for weights of 8 bits, where the accelerator has units for them.",
        default=1.425,
        **_FACTOR,
    )
    fp8_uneven: float = setting(
        "More for weights of 8 bits in steps of more tokens than `cuda_graph_tokens`, which are not padded to even"
        " sizes, as a multiple of bytes / memory bandwidth.",
        default=2.715,
        minimum=0,
        maximum=1e3,
    )
    flops_growth: float = setting(
        "How much of a higher peak is lost: `flops`, `fp8_flops` and `expert_flops` grow with (16-bit peak / 989.5"
        " TFLOPS) to this power, and stay the same below.",
        default=0.172,
        minimum=0,
        maximum=1,
    )
    expert_weights: float = setting(
        "Reading the weights of the experts that a step's tokens choose, as a multiple of bytes / memory bandwidth.",
        default=1.154,
        **_FACTOR,
    )
    expert_flops: float = setting(
        "Matrix products of experts, as a multiple of FLOPs / peak rate, beside reading them: their batches are small.",
        default=3.389,
        **_FACTOR,
    )
    expert_spread: float = setting(
        "How unevenly tokens choose: squared coefficient of variation of the popularity of 128 experts. Fewer are as"
        " many times less uneven, each being several finer ones in sum; more are as uneven.",
        default=1.0,
        minimum=0,
        maximum=16,
    )
    kv_read: float = setting(
        "Reading the KV cache in the attention of decodes, as a multiple of bytes / memory bandwidth.",
        default=1.129,
        **_FACTOR,
    )
    decode_attention: float = setting(
        "Multiplying in the attention of decodes, as a multiple of FLOPs / 16-bit peak rate; counts where it takes"
        " longer than reading, as with an 8-bit KV cache.",
        default=27.47,
        **_FACTOR,
    )
    prefill_attention: float = setting(
        "Attention of prompt chunks, as a multiple of FLOPs / 16-bit peak rate.",
        default=1.468,
        **_FACTOR,
    )
    all_reduce: float = setting(
        "All-reduces of tensor parallelism, as a multiple of bytes / bandwidth of the interconnect in one direction.",
        default=1.697,
        **_FACTOR,
    )
    moved: float = setting(
        "Norms, rotations, activations, as a multiple of the bytes they read and write / memory bandwidth.",
        default=1.855,
        **_FACTOR,
    )
    layer_us: float = setting(
        "Per layer: small kernels and gaps between them. Microseconds.",
        default=40.61,
        **_TIME,
    )
    layer_tp_us: float = setting(
        "Per layer and log2 of `tensor_parallel`: the latency of two all-reduces. Microseconds.",
        default=8.296,
        **_TIME,
    )
    fp8_layer_us: float = setting(
        "More per layer with weights of 8 bits: quantizing what they are multiplied with. Microseconds.",
        default=16.05,
        **_TIME,
    )
    expert_layer_us: float = setting(
        "Per layer with experts: routing and sorting tokens. Microseconds.",
        default=30.65,
        **_TIME,
    )
    request_us: float = setting(
        "Per request in the step: sampling and bookkeeping. Microseconds.",
        default=0.3654,
        **_TIME,
    )
    step_us: float = setting(
        "Per step. Microseconds.",
        default=0.0,
        **_TIME,
    )
    prefill_step_us: float = setting(
        "Per step that computes prompt tokens. Microseconds.",
        default=0.0,
        **_TIME,
    )
    cuda_graph_tokens: int = setting(
        "The largest step that is captured as a CUDA graph (`max_cudagraph_capture_size` of vLLM).",
        default=512,
        minimum=0,
        maximum=1_000_000,
    )
    sampler_us: float = setting(
        "Per request and 1,000 entries of the vocabulary, where `sorted_sampling` holds. Microseconds.",
        default=0.2394,
        **_TIME,
    )
    sorted_sampling: bool = setting(
        "Whether clients sample with top-p or top-k, for which the engine sorts the vocabulary (vLLM does where a"
        " model's generation_config.json says so).",
        default=False,
    )
    first_token_us: float = setting(
        "Per request before its first step: HTTP, scheduling, streaming. Microseconds.",
        default=8803.0,
        **_TIME,
    )
    prompt_token_us: float = setting(
        "Per prompt token before the first step: tokenization. Microseconds.",
        default=2.585,
        **_TIME,
    )


@LATENCY.plugin(
    "fitted",
    "The work of a step at the datasheet's rates, with named coefficients fitted to measured servers.",
    FittedSettings,
)
class FittedModel(Overheads):
    """Computes a step's time in a few products and comparisons.

    Heads and KV heads must divide by ``tensor_parallel``, or are replicated.
    """

    def __init__(self, settings: FittedSettings, pool: Pool) -> None:
        super().__init__(
            queue_us=settings.first_token_us,
            queue_per_token_us=settings.prompt_token_us,
            output_token_us=0.0,
            post_decode_us=0.0,
        )
        _check(settings)
        work = work_of(pool, settings.expert_spread)
        growth = growth_of(pool.hardware, settings.flops_growth)
        flops = settings.fp8_flops if work.fp8 else settings.flops
        self._weights_us = settings.weights * work.weights_us
        self._exposed_us = self._weights_us * work.exposed
        self._token_us = flops * growth * work.token_us
        self._row_us = settings.flops * growth * work.row_us
        self._experts_us = tuple(settings.expert_weights * time_us for time_us in work.experts_us)
        self._expert_token_us = settings.expert_flops * growth * work.expert_token_us
        self._experts_exposed = work.experts_exposed
        width = pool.engine.verify_width
        self._drafts = width - 1
        self._kv_us = width * settings.kv_read * work.kv_us
        self._kv_window_us = width * settings.kv_read * work.kv_window_us
        self._decode_us = width * settings.decode_attention * work.decode_us
        self._decode_window_us = width * settings.decode_attention * work.decode_window_us
        self._prefill_us = settings.prefill_attention * work.prefill_us
        self._prefill_window_us = settings.prefill_attention * work.prefill_window_us
        self._window = work.window
        self._moved_us = settings.moved * work.moved_us + settings.all_reduce * work.all_reduce_us
        splits = ln(pool.tensor_parallel) / ln(2.0)
        self._step_us = settings.step_us + work.expert_layers * settings.expert_layer_us
        self._step_us += work.layers * (settings.layer_us + settings.layer_tp_us * splits)
        self._step_us += work.layers * settings.fp8_layer_us if work.fp8 else 0.0
        sampler_us = settings.sampler_us * pool.model.vocab_size / 1e3 if settings.sorted_sampling else 0.0
        self._request_us = settings.request_us + sampler_us
        self._prefill_step_us = settings.prefill_step_us
        self._uneven_from = settings.cuda_graph_tokens
        self._uneven_us = settings.fp8_uneven * work.fp8_us

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        rows = tokens = load.decode_requests
        context = load.decode_context_tokens
        seen = min(context, rows * self._window)
        time_us = self._step_us
        read = context * self._kv_us + seen * self._kv_window_us
        multiplied = context * self._decode_us + seen * self._decode_window_us
        time_us += read if read > multiplied else multiplied
        if load.chunks:
            attended = windowed = 0.0
            for chunk in load.chunks:
                new = chunk.new
                tokens += new
                before = chunk.computed + new / 2.0
                attended += new * before
                windowed += new * min(before, self._window)
            rows += len(load.chunks)
            time_us += self._prefill_step_us + attended * self._prefill_us + windowed * self._prefill_window_us
            if tokens > self._uneven_from:
                time_us += self._uneven_us
        elif not rows:
            return 1
        multiplied = tokens * self._token_us + rows * self._row_us
        drafts = load.decode_requests * self._drafts if self._drafts else 0
        if drafts:
            multiplied += drafts * (self._token_us + self._row_us)
        multiplied += self._exposed_us
        time_us += self._weights_us if self._weights_us > multiplied else multiplied
        if self._expert_token_us:
            listed = self._experts_us
            read = listed[tokens] if tokens < len(listed) else listed[-1]
            multiplied = (tokens + drafts) * self._expert_token_us + self._experts_exposed * read
            time_us += read if read > multiplied else multiplied
        time_us += tokens * self._moved_us + rows * self._request_us
        return int(time_us) if time_us >= 1.0 else 1

    @property
    def rises(self) -> bool:
        """Whether nothing of what grows with contexts has a negative price."""
        return min(self._kv_us, self._kv_window_us, self._decode_us, self._decode_window_us) >= 0.0

    def least_us(self, load: StepLoad, steps: int) -> int:
        """Lower bound: contexts only grow, and with them what is read and multiplied."""
        return steps * self.step_time_us(load) if self.rises else 0


def _check(settings: FittedSettings) -> None:
    """Check settings that were not validated by a schema.

    Raises:
        PolicyError: one is out of its range.
    """
    for field in fields(settings):
        limits, value = field.metadata["key"].limits, getattr(settings, field.name)
        if "minimum" in limits and not limits["minimum"] <= value <= limits["maximum"]:
            message = f"{field.name} of fitted is {value}"
            raise PolicyError(message, help=f"it must lie between {limits['minimum']:g} and {limits['maximum']:g}")
