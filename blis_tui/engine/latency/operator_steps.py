"""The step times of ``operators``, precomputed as tables over tokens and over batch and context."""

from __future__ import annotations

from bisect import bisect_right
from copy import copy
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.errors import PolicyError
from blis_tui.base.pickling import Picklable
from blis_tui.engine.client_times import ServiceTimes
from blis_tui.engine.latency.model import LOOKED_AHEAD, MOST_RISE_US, Overheads, Timed, runs_of
from blis_tui.engine.latency.operator_costs import OperatorCosts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.latency.expert_parallelism import ExpertParallelism
    from blis_tui.engine.latency.model import Chunk, StepLoad
    from blis_tui.engine.latency.operator_settings import OperatorSettings
    from blis_tui.engine.latency.operator_tables import Curve
    from blis_tui.model import Pool

_LISTED: Final = 65536
"""Steps of up to this many tokens are tabulated one by one; longer ones are computed on demand."""


@mypyc_attr(allow_interpreted_subclasses=True)
class _Decodes(Picklable):
    """Steps of a number of decodes only: straight lines over their summed contexts.

    ``other_us`` is the part of ``base_us`` other than attention; ``grow`` tells whether no line falls.
    """

    __slots__ = ("base_us", "contexts", "grow", "other_us", "slope_us")

    def __init__(self, contexts: Sequence[float], base_us: list[float], slope_us: list[float], other_us: float) -> None:
        self.contexts = contexts
        self.base_us = base_us
        self.slope_us = slope_us
        self.grow = min(slope_us) >= 0.0
        self.other_us = other_us


@mypyc_attr(allow_interpreted_subclasses=True)
class _Line(Picklable):
    """A curve with precomputed slopes, for use in every step."""

    __slots__ = ("_last", "_sizes", "_slopes", "_times_us")

    def __init__(self, curve: Curve) -> None:
        sizes, times = curve.sizes, curve.times_us
        self._sizes = sizes
        self._times_us = times
        self._slopes = [(times[at] - times[at - 1]) / (sizes[at] - sizes[at - 1]) for at in range(1, len(sizes))]
        self._last = len(sizes) - 1

    def at(self, size: float) -> float:
        """Return the time at a size, never less than that of the smallest."""
        sizes = self._sizes
        if size <= sizes[0] or not self._last:
            return self._times_us[0]
        at = bisect_right(sizes, size) - 1
        if at == self._last:
            at -= 1
        return self._times_us[at] + (size - sizes[at]) * self._slopes[at]


@mypyc_attr(allow_interpreted_subclasses=True)
class _PromptAttention(Picklable):
    """Attention of the chunks of a step.

    A chunk takes the time of the whole prompt that computes as many pairs of tokens. It also reads the cache of the
    tokens before it, which takes as long as for one decode. Several chunks fill the GPU together.
    """

    __slots__ = ("_alone", "_layers", "_one_decode", "_shared", "_start_us", "_window", "_window_layers")

    def __init__(self, costs: OperatorCosts) -> None:
        self._alone = _Line(costs.alone)
        self._shared = _Line(costs.shared)
        self._one_decode = _Line(costs.one_decode)
        self._start_us = costs.start_us
        self._layers = costs.layers.attention_layers
        self._window_layers = costs.layers.window_layers
        self._window = costs.layers.window

    def time_us(self, chunks: Sequence[Chunk], *, beside_decodes: bool) -> float:
        """Time in all layers; beside decodes, chunks are part of the same kernels, whose launch is counted there."""
        longest = shared = 0.0
        several = len(chunks) > 1
        for chunk in chunks:
            before, new = chunk.computed, chunk.new
            pairs = new * (before + (new + 1) / 2.0)
            own, read = self._layers * self._alone.at(pairs), self._one_decode.at(before + new)
            if own < read:
                own = read
            part = self._layers * self._shared.at(pairs) if several else 0.0
            if self._window_layers:
                pairs = min(pairs, float(new * self._window))
                own += self._window_layers * self._alone.at(pairs)
                part += self._window_layers * self._shared.at(pairs) if several else 0.0
            if longest < own:
                longest = own
            shared += part
        time_us = longest if longest > shared else shared
        if not beside_decodes:
            return time_us
        return time_us - self._start_us if time_us > self._start_us else 0.0


@mypyc_attr(allow_interpreted_subclasses=True)
class OperatorModel(Overheads):
    """Looks up step times in tables; the table of a batch size is created when the size first occurs."""

    def __init__(self, settings: OperatorSettings, pool: Pool) -> None:
        if pool.operators is None:
            raise PolicyError(f"no operators were measured on {pool.hardware.name!r}", help="use another kind")
        wide = _wide_of(pool) if pool.engine.expert_parallel else None
        self.costs = costs = OperatorCosts(pool.operators, pool.model, pool.tensor_parallel, settings, wide)
        rest = costs.rest
        super().__init__(
            queue_us=rest.queue_us,
            queue_per_token_us=settings.queue_per_token_us,
            output_token_us=settings.output_token_us,
            post_decode_us=0.0,
        )
        work = ServiceTimes(rest.request_us, rest.prompt_token_us, rest.stream_us, first_pass=rest.first_pass)
        self.front_end = work if max(work.request_us, work.prompt_token_us) > 0.0 else None
        doublings = (pool.tensor_parallel - 1).bit_length()
        self._step_us = pool.model.num_hidden_layers * rest.layer_tp_us * doublings + (settings.host_us or 0.0)
        self._step_us += costs.sparse_step_us
        self._request_us = costs.logits_us + (settings.host_request_us or 0.0)
        if settings.sampling in ("top-p", "penalties"):
            self._step_us += settings.sort_step_us or 0.0
            self._request_us += (settings.sort_logits_us or 0.0) * pool.model.vocab_size / 1000.0
        if settings.sampling == "penalties":
            self._step_us += settings.penalties_step_us
        self._least_us = max(1, int(settings.host_floor_us or 0.0))
        self._moved_us = rest.moved * costs.moved_us_per_token + costs.sparse_token_us
        self._longest = min(pool.engine.max_num_batched_tokens, _LISTED)
        self._tokens_us = [
            self._step_us + time + tokens * self._moved_us for tokens, time in enumerate(costs.listed(self._longest))
        ]
        self._prompts = _PromptAttention(costs)
        self._head = _Line(costs.head)
        self._linear = costs.linear
        self._read_again_us = costs.read_again_us
        self._width = pool.engine.verify_width
        self._decodes: dict[int, _Decodes] = {}

    def anew(self) -> OperatorModel:
        """Return an equal model, as created: its tables, which never change, are shared."""
        other = copy(self)
        other._decodes = {}  # noqa: SLF001  (an object of this class)
        return other

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        if load.chunks:
            return self._mixed_us(load)
        count = load.decode_requests
        if not count:
            return 1
        line = self._decodes[count] if count in self._decodes else self._decoding(count)
        context = load.decode_context_tokens
        at = bisect_right(line.contexts, context)
        time_us = int(line.base_us[at] + context * line.slope_us[at])
        return time_us if time_us > self._least_us else self._least_us

    def least_us(self, load: StepLoad, steps: int) -> int:
        """Lower bound, as contexts only grow; at the end of each line, rounding may cost a microsecond."""
        count = load.decode_requests
        line = self._decodes[count] if count in self._decodes else self._decoding(count)
        return max(0, steps * self.step_time_us(load) - len(line.contexts)) if line.grow else 0

    def decode_runs(self, load: StepLoad, steps: int) -> list[tuple[int, int]]:
        """Compute durations line by line: the same result as one by one, in a fraction of the time."""
        count, context, runs = load.decode_requests, load.decode_context_tokens, list[tuple[int, int]]()
        least_us = self._least_us
        line = self._decodes[count] if count in self._decodes else self._decoding(count)
        end = context + steps * count
        while context < end:
            at = bisect_right(line.contexts, context)
            base, slope, bound = line.base_us[at], line.slope_us[at], end
            if at < len(line.contexts) and line.contexts[at] < end:
                bound = context - int((context - line.contexts[at]) // count) * count  # the first context beyond it
            contexts = range(context, bound, count)
            if len(contexts) > LOOKED_AHEAD and 0.0 <= slope * count * LOOKED_AHEAD <= MOST_RISE_US:
                runs += runs_of(_on_line(base, slope, least_us), contexts, rises=True)
            elif least_us > base + context * slope:
                runs += runs_of(_on_line(base, slope, least_us), contexts, rises=slope >= 0.0)
            else:
                runs += [(int(base + total * slope), 1) for total in contexts]
            context = bound
        return runs

    def _mixed_us(self, load: StepLoad) -> int:
        """Time of a step with prefill."""
        count, chunks = load.decode_requests, load.chunks
        tokens = count * self._width
        rows, heads = count + len(chunks), tokens + len(chunks)
        for chunk in chunks:
            tokens += chunk.new
        time_us = self._prompts.time_us(chunks, beside_decodes=count > 0)
        time_us += self._of_tokens(tokens) + self._head.at(heads) + rows * self._request_us
        if self._linear is not None:
            time_us += self._linear.prompts_us(chunks) + self._linear.decodes_us(count)
        if count:
            line = self._decodes[count] if count in self._decodes else self._decoding(count)
            context = load.decode_context_tokens
            at = bisect_right(line.contexts, context)
            time_us += line.base_us[at] - line.other_us + context * line.slope_us[at]
            if self._read_again_us:
                layers = self.costs.layers
                read = layers.attention_layers * context + layers.window_layers * min(context, count * layers.window)
                time_us += self._read_again_us * read
        return max(self._least_us, int(time_us))

    def _of_tokens(self, tokens: int) -> float:
        """Time of everything computed token by token, plus the constant time of a step."""
        if tokens <= self._longest:
            return self._tokens_us[tokens]
        return self._step_us + self.costs.tokens_us(tokens) + tokens * self._moved_us

    def _decoding(self, count: int) -> _Decodes:
        """Create and keep the lines of steps of ``count`` decodes."""
        width = self._width
        other = self._of_tokens(count * width) + self._head.at(count * width) + count * self._request_us
        if self._linear is not None:
            other += self._linear.decodes_us(count)
        curve = self.costs.decode_attention(count)
        sizes, times = curve.sizes, [width * time for time in curve.times_us]
        contexts = tuple(count * size for size in sizes)
        slopes = [(times[at] - times[at - 1]) / (contexts[at] - contexts[at - 1]) for at in range(1, len(sizes))]
        bases = [time + other - context * slope for time, context, slope in zip(times, contexts, slopes, strict=False)]
        # Contexts shorter than measured take no less; longer ones follow the last line.
        line = _Decodes(contexts[:-1], [times[0] + other, *bases], [0.0, *slopes], other)
        self._decodes[count] = line
        return line


def _on_line(base: float, slope: float, least_us: int) -> Callable[[int], int]:
    """Return how long a step on one line takes, by the sum of contexts."""

    def time_us(context: int) -> int:
        step_us = int(base + context * slope)
        return step_us if step_us > least_us else least_us

    return time_us


def _wide_of(pool: Pool) -> ExpertParallelism:
    from blis_tui.engine.latency.expert_parallelism import wide_of  # noqa: PLC0415  (few runs use it)

    return wide_of(pool.engine, pool.model, pool.tensor_parallel)


@mypyc_attr(allow_interpreted_subclasses=True)
class ScaledOperatorModel(OperatorModel):
    """An ``OperatorModel`` with all step times scaled by a factor."""

    def __init__(self, settings: OperatorSettings, pool: Pool, times: float) -> None:
        super().__init__(settings, pool)
        self._times = times

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        return max(1, int(self._times * super().step_time_us(load)))

    def decode_runs(self, load: StepLoad, steps: int) -> list[tuple[int, int]]:
        """Return the scaled durations."""
        return [(max(1, int(self._times * duration)), times) for duration, times in super().decode_runs(load, steps)]


@mypyc_attr(allow_interpreted_subclasses=True)
class WideOperatorModel(OperatorModel):
    """A rank of a replica whose experts all ranks share; all step times are scaled by ``times``."""

    def __init__(self, settings: OperatorSettings, pool: Pool, times: float) -> None:
        super().__init__(settings, pool)
        self._times = times

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us; experts also process the tokens of the other ranks."""
        tokens = load.decode_requests
        for chunk in load.chunks:
            tokens += chunk.new
        if not tokens:
            return 1
        prompts = bool(load.chunks or load.other_chunks)
        shared = self.costs.shared_us(tokens, tokens + load.other_tokens, prompts=prompts)
        return max(1, int(self._times * (super().step_time_us(load) + shared)))

    def decode_runs(self, load: StepLoad, steps: int) -> list[tuple[int, int]]:
        """Compute durations one by one, as each depends on what the other ranks compute."""
        return Timed.decode_runs(self, load, steps)
