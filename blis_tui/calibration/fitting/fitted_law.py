"""The law of ``fitted``: the part of each coefficient in a step."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from blis_tui.calibration.fitting.laws import Term
from blis_tui.engine.latency.fitted import Settings
from blis_tui.engine.latency.fitted_shape import growth_of, work_of
from blis_tui.engine.portable_math import ln
from blis_tui.spec.model import PluginConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from blis_tui.calibration.fitting.laws import Array, Loads
    from blis_tui.engine.latency.fitted_shape import Work
    from blis_tui.spec.model import Pool

    Slopes = NDArray[np.floating] | NDArray[np.bool_] | float
    Put = Callable[[str, Slopes], None]

STEP_TERMS: Final = (
    *("weights", "flops", "fp8_flops", "fp8_uneven", "expert_weights", "expert_flops"),
    *("kv_read", "decode_attention", "prefill_attention", "all_reduce", "moved"),
    *("layer_us", "layer_tp_us", "fp8_layer_us", "expert_layer_us", "request_us", "sampler_us", "step_us"),
    "prefill_step_us",
)
"""Coefficients of step time."""
REQUEST_TERMS: Final = ("first_token_us", "prompt_token_us")
"""Coefficients of waits outside of steps."""
TERMS: Final = STEP_TERMS + REQUEST_TERMS
KEPT: Final[Mapping[str, str]] = {
    "flops_growth": "it compares GPUs, and on one of them it cannot be told from `flops`",
    "expert_spread": "no time is in proportion to it: it says how many experts a step loads",
    "cuda_graph_tokens": "it is the engine's, and no time",
    "sorted_sampling": "it is what requests ask for, and no time",
}
"""Settings that are not fitted, and why."""
_SPREAD: Final = 0.5
"""Prior spread of a coefficient, relative to its base."""
_TIMES_US: Final = {"step_us": 500.0, "prefill_step_us": 500.0, "request_us": 5.0}
"""Minimum spread of coefficients whose base may be zero."""


class FittedLaw:
    """``fitted`` with a base, which keeps the settings that are not fitted."""

    kind: Final = "fitted"
    kept: Final = KEPT
    constant: Final = "step_us"

    def __init__(self, base: Settings) -> None:
        self._base = base
        self._works: dict[int, tuple[Pool, Work]] = {}
        """Cached work of each pool, by identity, because computing it takes as long as many steps."""
        limits = {one.name: float(one.metadata["key"].limits.get("minimum", 0.0)) for one in fields(Settings)}
        self.terms = tuple(
            Term(
                name,
                float(getattr(base, name)),
                max(_SPREAD * getattr(base, name), _TIMES_US.get(name, 0.0)),
                limits[name],
            )
            for name in TERMS
        )

    def settings(self, values: Array) -> Settings:
        """Return the base with these coefficients."""
        found = {name: float(value) for name, value in zip(TERMS, values, strict=True)}
        return replace(self._base, **found)  # type: ignore[arg-type]  # all of them are numbers

    def config(self, values: Array) -> PluginConfig:
        """Return the step-time model with these coefficients."""
        return PluginConfig(kind="fitted", settings=asdict(self.settings(values)))

    def steps(self, values: Array, pool: Pool, loads: Loads) -> Array:
        """Return the slopes of steps; the sum of slope x coefficient is ``FittedModel.step_time_us`` unrounded."""
        base, work = self._base, self._work(pool)
        at = dict(zip(TERMS, values, strict=True))
        growth = growth_of(pool.hardware, base.flops_growth)
        splits = ln(pool.tensor_parallel) / ln(2.0)
        width = pool.engine.verify_width
        rows, tokens = loads.decodes + loads.chunks, loads.decodes + loads.new
        drafts = loads.decodes * (width - 1)
        found = np.zeros((len(rows), len(TERMS)))

        def put(name: str, slopes: Slopes) -> None:
            found[:, TERMS.index(name)] = slopes

        products = growth * (tokens + drafts) * work.token_us
        heads = growth * (rows + drafts) * work.row_us
        in_8_bits, in_16_bits = (products, heads) if work.fp8 else (0.0 * products, products + heads)
        hidden_us = (1.0 - work.exposed) * work.weights_us
        reading = at["weights"] * hidden_us >= at["fp8_flops"] * in_8_bits + at["flops"] * in_16_bits
        put("weights", np.where(reading, work.weights_us, work.exposed * work.weights_us))
        put("flops", ~reading * in_16_bits)
        put("fp8_flops", ~reading * in_8_bits)
        put("fp8_uneven", ((loads.chunks > 0) & (tokens > base.cuda_graph_tokens)) * work.fp8_us)
        self._put_experts(put, at, work, tokens, growth * (tokens + drafts))
        seen = np.minimum(loads.context, loads.decodes * work.window)
        read = width * (loads.context * work.kv_us + seen * work.kv_window_us)
        multiplied = width * (loads.context * work.decode_us + seen * work.decode_window_us)
        reading = at["kv_read"] * read >= at["decode_attention"] * multiplied
        put("kv_read", reading * read)
        put("decode_attention", ~reading * multiplied)
        put("prefill_attention", loads.attended * work.prefill_us + loads.windowed * work.prefill_window_us)
        put("all_reduce", tokens * work.all_reduce_us)
        put("moved", tokens * work.moved_us)
        put("layer_us", work.layers)
        put("layer_tp_us", work.layers * splits)
        put("fp8_layer_us", work.layers if work.fp8 else 0.0)
        put("expert_layer_us", work.expert_layers)
        put("request_us", rows)
        put("sampler_us", rows * pool.model.vocab_size / 1e3 if base.sorted_sampling else 0.0)
        put("step_us", 1.0)
        put("prefill_step_us", loads.chunks > 0)
        return found

    def _work(self, pool: Pool) -> Work:
        if id(pool) not in self._works:
            self._works[id(pool)] = pool, work_of(pool, self._base.expert_spread)
        return self._works[id(pool)][1]

    @staticmethod
    def _put_experts(put: Put, at: dict[str, float], work: Work, tokens: Array, multiplied: Array) -> None:
        if not work.expert_token_us:
            return
        listed = np.array(work.experts_us)
        loaded = listed[np.minimum(tokens, len(listed) - 1).astype(int)]
        products = multiplied * work.expert_token_us
        reading = at["expert_weights"] * loaded * (1.0 - work.experts_exposed) >= at["expert_flops"] * products
        put("expert_weights", np.where(reading, loaded, work.experts_exposed * loaded))
        put("expert_flops", ~reading * products)

    def logged(self, slopes: Array) -> Array:
        """Return the slopes unchanged."""
        return slopes

    def queue(self, tokens: Array) -> Array:
        """Return the slopes of HTTP handling, scheduling and tokenization."""
        found = np.zeros((len(tokens), len(TERMS)))
        found[:, TERMS.index("first_token_us")] = 1.0
        found[:, TERMS.index("prompt_token_us")] = tokens
        return found

    def client_us(self, tokens: Array) -> Array:
        """Return zeros, because nothing comes after steps."""
        return np.zeros_like(tokens)

    def others(self, values: Array, pool: Pool) -> list[Array]:
        """Return coefficients that swap whether compute or memory limits decode attention; both grow with context."""
        work = self._work(pool)
        reads, multiplies = work.kv_us + work.kv_window_us, work.decode_us + work.decode_window_us
        if not reads or not multiplies:
            return []
        read, multiplied = TERMS.index("kv_read"), TERMS.index("decode_attention")
        found = values.copy()
        if values[read] * reads >= values[multiplied] * multiplies:
            found[multiplied] = values[read] * reads / multiplies
            found[read] = self.terms[read].lowest
        else:
            found[read] = values[multiplied] * multiplies / reads
            found[multiplied] = self.terms[multiplied].lowest
        return [np.maximum(found, [one.lowest for one in self.terms])]
