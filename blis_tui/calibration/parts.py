"""What each coefficient of ``fitted`` adds to a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.fitted import EXPOSED_READING, REFERENCE_TFLOPS
from blis_tui.engine.latency.fitted_shape import work_of
from blis_tui.engine.portable_math import ln, power

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blis_tui.engine.latency.fitted import Settings
    from blis_tui.spec.model import Pool

STEP_TERMS: Final = (
    *("weights", "flops", "fp8_flops", "fp8_uneven", "expert_weights", "expert_flops"),
    *("kv_read", "decode_attention", "prefill_attention", "all_reduce", "moved"),
    *("layer_us", "layer_tp_us", "fp8_layer_us", "expert_layer_us", "request_us", "sampler_us", "step_us"),
    "prefill_step_us",
)
"""Coefficients of a step, in the order of :meth:`Parts.of`."""
REQUEST_TERMS: Final = ("first_token_us", "prompt_token_us")
"""Coefficients of what a request waits for outside of steps."""
TERMS: Final = STEP_TERMS + REQUEST_TERMS


class Parts:
    """Splits steps of one pool into what each coefficient contributes, in microseconds; they add up to the step."""

    def __init__(self, settings: Settings, pool: Pool) -> None:
        self._settings = settings
        self._work = work_of(pool, settings.expert_spread)
        self._vocabulary = pool.model.vocab_size / 1e3 if settings.sorted_sampling else 0.0
        self._growth = power(max(1.0, pool.hardware.peak_tflops_bf16 / REFERENCE_TFLOPS), settings.flops_growth)
        self._splits = ln(pool.tensor_parallel) / ln(2.0)

    def of(self, decodes: int, context: int, chunks: Iterable[tuple[int, int]]) -> tuple[float, ...]:
        """The parts of a step with so many decodes, their summed contexts, and ``(computed, new)`` prompt chunks."""
        work, settings, window = self._work, self._settings, self._work.window
        tokens = rows = decodes
        attended = windowed = 0.0
        for computed, new in chunks:
            rows += 1
            tokens += new
            before = computed + new / 2.0
            attended += new * before
            windowed += new * min(before, window)
        seen = min(context, decodes * window)
        prefill, uneven = tokens > decodes, tokens > settings.cuda_graph_tokens and tokens > decodes
        listed = work.experts_us
        read, flops = settings.weights * work.weights_us, settings.flops * self._growth * rows * work.row_us
        multiplied = (settings.fp8_flops if work.fp8 else settings.flops) * self._growth * tokens * work.token_us
        if read >= multiplied + flops:
            dense = (read, 0.0, 0.0)
        else:
            dense = (0.0, flops, multiplied) if work.fp8 else (0.0, flops + multiplied, 0.0)
        loaded = settings.expert_weights * listed[min(tokens, len(listed) - 1)]
        products = settings.expert_flops * self._growth * tokens * work.expert_token_us
        exposed = EXPOSED_READING * loaded
        experts = (loaded, 0.0) if loaded >= products + exposed else (exposed, products)
        decoding = _larger(
            settings.kv_read * (context * work.kv_us + seen * work.kv_window_us),
            settings.decode_attention * (context * work.decode_us + seen * work.decode_window_us),
        )
        return (
            *dense,
            settings.fp8_uneven * work.fp8_us if uneven else 0.0,
            *experts,
            *decoding,
            settings.prefill_attention * (attended * work.prefill_us + windowed * work.prefill_window_us),
            settings.all_reduce * tokens * work.all_reduce_us,
            settings.moved * tokens * work.moved_us,
            settings.layer_us * work.layers,
            settings.layer_tp_us * work.layers * self._splits,
            settings.fp8_layer_us * work.layers if work.fp8 else 0.0,
            settings.expert_layer_us * work.expert_layers,
            settings.request_us * rows,
            settings.sampler_us * self._vocabulary * rows,
            settings.step_us,
            settings.prefill_step_us if prefill else 0.0,
        )


def _larger(one: float, other: float) -> tuple[float, float]:
    """The larger of two, in its place."""
    return (one, 0.0) if one >= other else (0.0, other)
