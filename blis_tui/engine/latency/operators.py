"""The step as the sum of its operators, each as measured on the GPU, and a small fitted rest.

``products + decode attention + prefill attention + experts + all-reduces + head`` come from the tables in
``specs/latency/operators/``; what no operator shows (norms and activations, gaps between kernels, preparing a batch and
sampling) is the rest. All is worked out once, into tables over tokens and over batch and context: a step looks it up.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.engine.front_end import FrontEndTimes
from blis_tui.engine.latency.model import LATENCY, Overheads
from blis_tui.engine.latency.operator_costs import OperatorCosts
from blis_tui.engine.latency.operator_rest import Settings
from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.spec.model import Pool

_LISTED: Final = 65536
"""Steps of up to so many tokens are listed one by one; longer ones are worked out when they come."""


@LATENCY.plugin(
    "operators", "The sum of operators measured on the GPU and a small fitted rest; for GPUs with tables.", Settings
)
def operators(settings: Settings, pool: Pool) -> OperatorModel:
    """Build the model from the tables of the pool's GPU.

    Raises:
        PolicyError: there are none, or they lack what the model needs.
    """
    return OperatorModel(settings, pool) if settings.steps is None else _Scaled(settings, pool, settings.steps)


@dataclass(frozen=True, slots=True)
class _Decodes:
    """Steps of a number of decodes and nothing else: straight lines over their summed contexts."""

    contexts: tuple[float, ...]
    base_us: tuple[float, ...]
    slope_us: tuple[float, ...]
    other_us: float
    """What of ``base_us`` is no attention."""


class OperatorModel(Overheads):
    """Looks steps up in tables; each batch size gets its own when it first comes."""

    __slots__ = (
        "_decodes",
        "_longest",
        "_moved_us",
        "_request_us",
        "_step_us",
        "_tokens_us",
        "_width",
        "costs",
        "front_end",
    )

    def __init__(self, settings: Settings, pool: Pool) -> None:
        if pool.operators is None:
            raise PolicyError(f"no operators were measured on {pool.hardware.name!r}", help="take another kind")
        self.costs = costs = OperatorCosts(pool.operators, pool.model, pool.tensor_parallel, settings)
        rest = costs.rest
        super().__init__(
            queue_us=rest.queue_us,
            queue_per_token_us=settings.queue_per_token_us,
            output_token_us=settings.output_token_us,
            post_decode_us=0.0,
        )
        work = FrontEndTimes(rest.request_us, rest.prompt_token_us, rest.stream_us)
        self.front_end = work if max(work.request_us, work.prompt_token_us) > 0.0 else None
        doublings = (pool.tensor_parallel - 1).bit_length()
        self._step_us = pool.model.num_hidden_layers * rest.layer_tp_us * doublings
        self._request_us = costs.logits_us
        if settings.sampling in ("top-p", "penalties"):
            self._step_us += settings.sort_step_us
            self._request_us += settings.sort_logits_us * pool.model.vocab_size / 1000.0
        if settings.sampling == "penalties":
            self._step_us += settings.penalties_step_us
        self._moved_us = rest.moved * costs.moved_us_per_token
        self._longest = min(pool.engine.max_num_batched_tokens, _LISTED)
        self._tokens_us = [
            self._step_us + time + tokens * self._moved_us for tokens, time in enumerate(costs.listed(self._longest))
        ]
        self._width = pool.engine.verify_width
        self._decodes: dict[int, _Decodes] = {}

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        if load.chunks:
            return self._mixed_us(load)
        count = load.decode_requests
        if not count:
            return 1
        line = self._decodes.get(count) or self._decoding(count)
        context = load.decode_context_tokens
        at = bisect_right(line.contexts, context)
        return int(line.base_us[at] + context * line.slope_us[at])

    def _mixed_us(self, load: StepLoad) -> int:
        """A step with prefill in it."""
        count, costs = load.decode_requests, self.costs
        tokens = count * self._width
        heads = tokens + len(load.chunks)
        chunks = []
        for chunk in load.chunks:
            tokens += chunk.new
            chunks.append((chunk.computed, chunk.new))
        rows = count + len(chunks)
        time_us = costs.prefill_attention_us(chunks, beside_decodes=count > 0)
        time_us += self._of_tokens(tokens) + costs.head.at(heads) + rows * self._request_us
        if count:
            line = self._decodes.get(count) or self._decoding(count)
            context = load.decode_context_tokens
            at = bisect_right(line.contexts, context)
            time_us += line.base_us[at] - line.other_us + context * line.slope_us[at]
        return max(1, int(time_us))

    def _of_tokens(self, tokens: int) -> float:
        """Everything that is computed token by token, and what every step takes."""
        if tokens <= self._longest:
            return self._tokens_us[tokens]
        return self._step_us + self.costs.tokens_us(tokens) + tokens * self._moved_us

    def _decoding(self, count: int) -> _Decodes:
        """The lines of steps of so many decodes, kept for the next one."""
        width = self._width
        other = self._of_tokens(count * width) + self.costs.head.at(count * width) + count * self._request_us
        curve = self.costs.decode_attention(count)
        sizes, times = curve.sizes, [width * time for time in curve.times_us]
        contexts = tuple(count * size for size in sizes)
        slopes = [(times[at] - times[at - 1]) / (contexts[at] - contexts[at - 1]) for at in range(1, len(sizes))]
        bases = [time + other - context * slope for time, context, slope in zip(times, contexts, slopes, strict=False)]
        # Shorter contexts than measured take no less; longer ones follow the last line.
        line = _Decodes(contexts[:-1], (times[0] + other, *bases), (0.0, *slopes), other)
        self._decodes[count] = line
        return line


class _Scaled(OperatorModel):
    """One whose steps all take as many times as long."""

    __slots__ = ("_times",)

    def __init__(self, settings: Settings, pool: Pool, times: float) -> None:
        super().__init__(settings, pool)
        self._times = times

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        return max(1, int(self._times * super().step_time_us(load)))
