"""Step-time laws for ``calibrate``: linear in their coefficients, vectorised over steps."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from math import fsum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import ln
from blis_tui.engine.latency.fitted import FittedSettings, growth_of, work_of
from blis_tui.live.calibration.measured import StepLog
from blis_tui.model import PluginConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from blis_tui.engine.latency.fitted import Work
    from blis_tui.live.calibration.measured import Data
    from blis_tui.model import Pool

    Array: TypeAlias = NDArray[np.float64]
    StepWork: TypeAlias = tuple[int, float, Sequence[tuple[int, int]]]
    """Work of a step: decodes, sum of their contexts, and for each prompt chunk the tokens computed before and in it.
    """
    Slopes = NDArray[np.floating] | NDArray[np.bool_] | float
    Put = Callable[[str, Slopes], None]


@dataclass(frozen=True, slots=True)
class Term:
    """A coefficient, and its prior."""

    name: str
    base: float
    spread: float
    """Prior standard deviation around its base."""
    lowest: float


@dataclass(frozen=True, slots=True)
class Loads:
    """Work of steps; every array has one entry per step."""

    decodes: Array
    context: Array
    """Sum of the decodes' contexts."""
    chunks: Array
    """Number of prompt chunks."""
    new: Array
    """Tokens in the chunks."""
    attended: Array
    """Sum over these tokens of the tokens that they attend to."""
    windowed: Array
    """The same sum for layers with a sliding window."""


def loads_of(steps: Iterable[StepWork], window: int) -> Loads:
    """Sum up the chunks of each step; ``window``: width of the model's sliding window, in tokens."""
    rows: list[tuple[float, ...]] = []
    for decodes, context, chunks in steps:
        new = attended = windowed = 0.0
        for computed, tokens in chunks:
            new += tokens
            before = computed + tokens / 2.0
            attended += tokens * before
            windowed += tokens * min(before, window)
        rows.append((decodes, context, len(chunks), new, attended, windowed))
    return Loads(*np.array(rows, dtype=float).reshape(-1, 6).T)


class Law(Protocol):
    """The coefficients of a step-time model. A step takes the sum of slope x coefficient.

    Slopes depend on coefficients only through which side of a maximum is larger.
    """

    @property
    def kind(self) -> str:
        """The step-time model's name."""
        ...

    @property
    def terms(self) -> tuple[Term, ...]:
        """Its coefficients, in the order of all arrays."""
        ...

    @property
    def kept(self) -> Mapping[str, str]:
        """Settings that are not fitted, and why."""
        ...

    @property
    def constant(self) -> str:
        """The coefficient that is a time per step."""
        ...

    def config(self, values: Array) -> PluginConfig:
        """Return the step-time model with these coefficients."""
        ...

    def steps(self, values: Array, pool: Pool, loads: Loads) -> Array:
        """Return the slopes of steps: one row per step, microseconds per unit of each coefficient."""
        ...

    def logged(self, slopes: Array) -> Array:
        """Return the part of the slopes that engines log."""
        ...

    def queue(self, tokens: Array) -> Array:
        """Return the slopes of the wait before the queue, for prompts of these lengths."""
        ...

    def client_us(self, tokens: Array) -> Array:
        """Return what clients wait after the step of their last token, by answer length; contains no coefficient."""
        ...

    def others(self, values: Array, pool: Pool) -> list[Array]:
        """Return coefficients with another side of a maximum, if the measurements may not determine the side."""
        ...


_LOW: Final = 0.1
"""Quantile of measurements that represents a nearly idle server."""
_QUEUE: Final = (5000.0, 1.5)
"""Expected microseconds per request and prompt token before the queue, and spread; front ends run on CPUs everywhere.
"""
BLACKBOX_TERMS: Final = ("beta0", "beta1", "beta2", "alpha0", "alpha1")
"""Microseconds per step, prompt token and decode; per request and prompt token before the queue."""


class BlackboxLaw:
    """``blackbox``; the expected coefficients are passed in, because nothing is known of the model.

    The time per output token after its step, ``behind_us`` (``alpha2``), is not fitted: whole answers do not
    distinguish it from step time.
    """

    kind: Final = "blackbox"
    kept: Final = MappingProxyType({"alpha2": "whole answers do not tell it from what a step takes"})
    constant: Final = "beta0"

    def __init__(self, base: Sequence[float], spread: Sequence[float], behind_us: float = 0.0) -> None:
        self._behind_us = behind_us
        both = zip(BLACKBOX_TERMS, base, spread, strict=True)
        self.terms = tuple(Term(name, value, wide, 0.0) for name, value, wide in both)

    def config(self, values: Array) -> PluginConfig:
        """Return the step-time model with these coefficients."""
        beta, alpha = values[:3].tolist(), values[3:].tolist()
        return PluginConfig(kind="blackbox", settings={"alpha": (*alpha, self._behind_us), "beta": tuple(beta)})

    def steps(self, values: Array, pool: Pool, loads: Loads) -> Array:  # noqa: ARG002  (it is linear)
        """Return the slopes 1, prompt tokens, decodes."""
        decodes = loads.decodes * pool.engine.verify_width
        nothing = np.zeros_like(decodes)
        return np.stack([np.ones_like(decodes), loads.new, decodes, nothing, nothing], axis=1)

    def logged(self, slopes: Array) -> Array:
        """Return the slopes unchanged."""
        return slopes

    def queue(self, tokens: Array) -> Array:
        """Return the slopes 1 and prompt tokens."""
        nothing = np.zeros_like(tokens)
        return np.stack([nothing, nothing, nothing, np.ones_like(tokens), tokens], axis=1)

    def client_us(self, tokens: Array) -> Array:
        """Return the time for detokenization and streaming of all tokens."""
        return self._behind_us * tokens

    def others(self, values: Array, pool: Pool) -> list[Array]:  # noqa: ARG002  (it has no maximum)
        """Return nothing."""
        return []


def expected_of(data: Sequence[Data]) -> tuple[list[float], list[float]]:
    """Return the base and the spread of coefficients without prior knowledge."""
    answers: list[float] = []
    firsts: list[float] = []
    prompts: list[float] = []
    busy = lasted = 0.0
    for run in data:
        recording = run.recording
        if isinstance(recording, StepLog):
            answers += [step.duration_us for step in recording.steps if not step.chunks]
            firsts += [step.duration_us for step in recording.steps if step.chunks]
            prompts += [float(step.tokens - step.decode_requests) for step in recording.steps if step.chunks]
            busy += fsum(step.decode_requests for step in recording.steps)
            lasted += len(recording.steps)
            continue
        for it in recording.requests:
            firsts.append(it.ttft_us)
            prompts.append(float(it.input_tokens))
            if it.output_tokens > 1 and it.e2e_us > it.ttft_us:
                answers.append((it.e2e_us - it.ttft_us) / (it.output_tokens - 1))
        ends = [it.arrival_us + it.e2e_us for it in recording.requests]
        busy += fsum(it.e2e_us for it in recording.requests)
        lasted += max(ends) - min(it.arrival_us for it in recording.requests)
    step = float(np.quantile(answers or firsts, _LOW))
    first = float(np.quantile(firsts or answers, _LOW))
    prompt = float(np.mean(prompts)) if prompts else 1.0
    decodes = max(1.0, busy / lasted)
    base = [step, 0.5 * first / prompt, 0.2 * step / decodes, *_QUEUE]
    return base, [step, first / prompt, step / decodes, *_QUEUE]


STEP_TERMS: Final = (
    *("weights", "flops", "fp8_flops", "fp8_uneven", "expert_weights", "expert_flops"),
    *("kv_read", "decode_attention", "prefill_attention", "all_reduce", "moved"),
    *("layer_us", "layer_tp_us", "fp8_layer_us", "expert_layer_us", "request_us", "sampler_us", "step_us"),
    "prefill_step_us",
)
"""Coefficients of step time."""
REQUEST_TERMS: Final = ("first_token_us", "prompt_token_us")
"""Coefficients of waits outside of steps."""
FITTED_TERMS: Final = STEP_TERMS + REQUEST_TERMS
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

    def __init__(self, base: FittedSettings) -> None:
        self._base = base
        self._works: dict[int, tuple[Pool, Work]] = {}
        """Cached work of each pool, by identity, because computing it takes as long as many steps."""
        limits = {
            field.name: float(field.metadata["key"].limits.get("minimum", 0.0)) for field in fields(FittedSettings)
        }
        self.terms = tuple(
            Term(
                name,
                float(getattr(base, name)),
                max(_SPREAD * getattr(base, name), _TIMES_US.get(name, 0.0)),
                limits[name],
            )
            for name in FITTED_TERMS
        )

    def settings(self, values: Array) -> FittedSettings:
        """Return the base with these coefficients."""
        coefficients = {name: float(value) for name, value in zip(FITTED_TERMS, values, strict=True)}
        return replace(self._base, **coefficients)  # type: ignore[arg-type]  # all of them are numbers

    def config(self, values: Array) -> PluginConfig:
        """Return the step-time model with these coefficients."""
        return PluginConfig(kind="fitted", settings=asdict(self.settings(values)))

    def steps(self, values: Array, pool: Pool, loads: Loads) -> Array:
        """Return the slopes of steps; the sum of slope x coefficient is ``FittedModel.step_time_us`` unrounded."""
        base, work = self._base, self._work(pool)
        at = dict(zip(FITTED_TERMS, values, strict=True))
        growth = growth_of(pool.hardware, base.flops_growth)
        splits = ln(pool.tensor_parallel) / ln(2.0)
        width = pool.engine.verify_width
        rows, tokens = loads.decodes + loads.chunks, loads.decodes + loads.new
        drafts = loads.decodes * (width - 1)
        rows_of_slopes = np.zeros((len(rows), len(FITTED_TERMS)))

        def put(name: str, slopes: Slopes) -> None:
            rows_of_slopes[:, FITTED_TERMS.index(name)] = slopes

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
        return rows_of_slopes

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
        slopes = np.zeros((len(tokens), len(FITTED_TERMS)))
        slopes[:, FITTED_TERMS.index("first_token_us")] = 1.0
        slopes[:, FITTED_TERMS.index("prompt_token_us")] = tokens
        return slopes

    def client_us(self, tokens: Array) -> Array:
        """Return zeros, because nothing comes after steps."""
        return np.zeros_like(tokens)

    def others(self, values: Array, pool: Pool) -> list[Array]:
        """Return coefficients that swap whether compute or memory limits decode attention; both grow with context."""
        work = self._work(pool)
        reads, multiplies = work.kv_us + work.kv_window_us, work.decode_us + work.decode_window_us
        if not reads or not multiplies:
            return []
        read, multiplied = FITTED_TERMS.index("kv_read"), FITTED_TERMS.index("decode_attention")
        other = values.copy()
        if values[read] * reads >= values[multiplied] * multiplies:
            other[multiplied] = values[read] * reads / multiplies
            other[read] = self.terms[read].lowest
        else:
            other[read] = values[multiplied] * multiplies / reads
            other[multiplied] = self.terms[multiplied].lowest
        return [np.maximum(other, [term.lowest for term in self.terms])]
