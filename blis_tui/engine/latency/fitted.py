"""Step times from the shapes of model and accelerator, with a few named coefficients fitted to measured servers.

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

from blis_tui.classes import dataclass
from blis_tui.engine.latency.fitted_shape import growth_of, work_of
from blis_tui.engine.latency.model import LATENCY, Overheads
from blis_tui.engine.portable_math import ln
from blis_tui.errors import PolicyError
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.spec.model import Pool

_TIME: Final = {"minimum": 0, "maximum": 1e7}
_FACTOR: Final = {"minimum": 1, "maximum": 1e4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
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
    Settings,
)
class FittedModel(Overheads):
    """Computes a step's time in a few products and comparisons.

    Heads and KV heads must divide by ``tensor_parallel``, or are replicated.
    """

    __slots__ = (
        "_decode_us",
        "_decode_window_us",
        "_drafts",
        "_expert_token_us",
        "_experts_exposed",
        "_experts_us",
        "_exposed_us",
        "_kv_us",
        "_kv_window_us",
        "_moved_us",
        "_prefill_step_us",
        "_prefill_us",
        "_prefill_window_us",
        "_request_us",
        "_row_us",
        "_step_us",
        "_token_us",
        "_uneven_from",
        "_uneven_us",
        "_weights_us",
        "_window",
    )

    def __init__(self, settings: Settings, pool: Pool) -> None:
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

    def least_us(self, load: StepLoad, steps: int) -> int:
        """Lower bound: contexts only grow, and with them what is read and multiplied."""
        parts = (self._kv_us, self._kv_window_us, self._decode_us, self._decode_window_us)
        return steps * self.step_time_us(load) if min(parts) >= 0.0 else 0


def _check(settings: Settings) -> None:
    """Check settings that were not validated by a schema.

    Raises:
        PolicyError: one is out of its range.
    """
    for one in fields(settings):
        limits, value = one.metadata["key"].limits, getattr(settings, one.name)
        if "minimum" in limits and not limits["minimum"] <= value <= limits["maximum"]:
            message = f"{one.name} of fitted is {value}"
            raise PolicyError(message, help=f"it must lie between {limits['minimum']:g} and {limits['maximum']:g}")
