"""The interface of step-time models.

A model is a pure function of the step's load: prefill chunks one by one (there are few), but decoding requests only as
their number and the sum of their contexts. All published formulas implemented here are affine in those two, which lets
the engine advance a whole batch in constant time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.model import Pool
from blis_tui.model.plug_ins import PlugPoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class Chunk(Picklable):
    """A piece of one request's prefill, scheduled in a step.

    Attributes:
        request: the request.
        computed: tokens already in the KV cache before the step.
        new: tokens this step computes, at least 1.
        prompt: tokens this prefill must reach.
        cached: of ``computed``, the tokens that were found in the cache when this step admitted the request.
        encoded: media tokens that the encoder computes for it, if steps schedule the encoder.
        found: media tokens that it needs and that are in the encoder's cache.
    """

    __slots__ = ("cached", "computed", "encoded", "found", "new", "prompt", "request")

    def __init__(self, request: Request, computed: int, new: int, prompt: int, cached: int = 0) -> None:
        self.request = request
        self.computed = computed
        self.new = new
        self.prompt = prompt
        self.cached = cached
        self.encoded = self.found = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class StepLoad(Picklable):
    """The work of one step: a mutable record per instance, reused for every step.

    Attributes:
        chunks: prefill chunks.
        decode_requests: requests that generate one token each.
        decode_context_tokens: the sum of their computed tokens before the step.
        adapters: number of different LoRA adapters among the running requests.
        other_tokens: tokens of the same step on the other ranks that share its experts.
        other_chunks: prefill chunks among these.
    """

    __slots__ = ("adapters", "chunks", "decode_context_tokens", "decode_requests", "other_chunks", "other_tokens")

    def __init__(
        self,
        chunks: list[Chunk] | None = None,
        decode_requests: int = 0,
        decode_context_tokens: int = 0,
        adapters: int = 0,
    ) -> None:
        self.chunks: list[Chunk] = [] if chunks is None else chunks
        self.decode_requests = decode_requests
        self.decode_context_tokens = decode_context_tokens
        self.adapters = adapters
        self.other_tokens = self.other_chunks = 0


class StepTimeModel(Protocol):
    """How long a step takes, and how long a request waits outside steps. All times are in microseconds."""

    output_token_overhead_us: int
    """Added to TTFT and to every inter-token latency, but not to the step."""
    post_decode_overhead_us: int
    """Added once to the E2E latency of every request that generates tokens."""

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1.

        It must depend on nothing else: estimates and reports call it too, and not every step does.
        """
        ...

    def queueing_time_us(self, request: Request) -> int:
        """Return the time from the arrival of ``request`` at the instance until it is in the waiting queue."""
        ...


def is_pure(model: StepTimeModel) -> bool:
    """Whether a model states that its step times depend on the load alone."""
    return isinstance(model, Timed) and model.pure


LATENCY: Final = PlugPoint[[Pool], StepTimeModel]("latency", "step-time model", StepTimeModel)


LOOKED_AHEAD: Final = 16
"""So far is looked ahead to see whether durations repeat."""
MOST_RISE_US: Final = 2
"""If they grow by more meanwhile, runs are too short to be looked for."""


def runs_of(time_us: Callable[[int], int], contexts: range, *, rises: bool) -> list[tuple[int, int]]:
    """Return the times of consecutive steps by their contexts, each with the number of times in a row.

    ``rises``: no time falls with longer contexts. Then the end of a run is looked for where the length of the one
    before it suggests it: two looks find it there. Where times hardly repeat, all of them are computed, and equal ones
    may come in several parts.
    """
    count = len(contexts)
    if count <= LOOKED_AHEAD or not rises or time_us(contexts[LOOKED_AHEAD]) > time_us(contexts[0]) + MOST_RISE_US:
        return [(time_us(context), 1) for context in contexts]
    runs, at, length = list[tuple[int, int]](), 0, 1
    value = following = time_us(contexts[0])
    while at < count:
        low, high, place, step = at + 1, count, at + length, 1  # the run ends at one of `low` to `high`
        while low < high:
            if not low <= place < high:
                place = (low + high) // 2
            if (time := time_us(contexts[place])) == value:
                low, place = place + 1, place + step
            else:
                high, place, following = place, place - step, time
            step *= 2
        length = low - at
        runs.append((value, length))
        at, value = low, following
    return runs


@mypyc_attr(allow_interpreted_subclasses=True)
class Timed(Picklable):
    """Base of the built-in models, with properties that the engine exploits."""

    __slots__ = ()

    flat: ClassVar[bool] = False
    """Whether a step of decodes only takes the same time for any contexts, given the number of decodes."""

    @property
    def pure(self) -> bool:
        """Whether step times depend on the load alone: it does not matter when or how often the model is asked."""
        return True

    @property
    def rises(self) -> bool:
        """Whether a step of decodes only never takes less time, in whole microseconds, with longer contexts."""
        return self.flat

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1."""
        raise NotImplementedError

    def least_us(self, load: StepLoad, steps: int) -> int:
        """Lower bound on the time of ``steps`` consecutive steps of these decodes only; 0 = unknown."""
        return steps * self.step_time_us(load) if self.flat else 0

    def decode_runs(self, load: StepLoad, steps: int) -> list[tuple[int, int]]:
        """Durations of ``steps`` consecutive steps of these decodes only, each with the number of times in a row.

        Each step adds one token to every context.
        """
        context, decodes = load.decode_context_tokens, load.decode_requests
        runs = runs_of(self.by_context(load), range(context, context + steps * decodes, decodes), rises=self.rises)
        load.decode_context_tokens = context
        return runs

    def by_context(self, load: StepLoad) -> Callable[[int], int]:
        """Return how long a step of these decodes only takes, by the sum of their contexts; it may change the load."""

        def time_us(context: int) -> int:
            load.decode_context_tokens = context
            return self.step_time_us(load)

        return time_us


@mypyc_attr(allow_interpreted_subclasses=True)
class Overheads(Timed):
    """The part that all models share: times a request spends outside steps.

    Each is truncated to whole microseconds separately, as in BLIS.
    """

    __slots__ = ("_queue_per_token_us", "_queue_us", "output_token_overhead_us", "post_decode_overhead_us")

    def __init__(
        self,
        *,
        queue_us: float,
        queue_per_token_us: float,
        output_token_us: float,
        post_decode_us: float,
    ) -> None:
        self._queue_us = queue_us
        self._queue_per_token_us = queue_per_token_us
        self.output_token_overhead_us = int(output_token_us)
        self.post_decode_overhead_us = int(post_decode_us)

    def queueing_time_us(self, request: Request) -> int:
        """From arrival to the waiting queue: tokenization and hand-over, affine in the prompt's length."""
        return int(self._queue_us + self._queue_per_token_us * request.input_tokens)


@mypyc_attr(allow_interpreted_subclasses=True)
class ModelWrapper(Timed):
    """Base of models that wrap another one and share its overheads.

    Attributes:
        model: the wrapped model.
    """

    paces: ClassVar[bool] = False
    """Whether it only makes steps last as long as those of other instances."""

    def __init__(self, model: StepTimeModel) -> None:
        self.model = model
        self.output_token_overhead_us = model.output_token_overhead_us
        self.post_decode_overhead_us = model.post_decode_overhead_us

    @property
    def pure(self) -> bool:
        """Whether the wrapped model is pure."""
        return is_pure(self.model)

    @property
    def rises(self) -> bool:
        """Whether those of the wrapped model do, given that no wrapper shortens a step when that model's time grows."""
        inner = self.model
        return isinstance(inner, Timed) and inner.rises

    def least_us(self, load: StepLoad, steps: int) -> int:
        """Lower bound, given that no wrapper shortens a step when the wrapped model's time grows."""
        inner = self.model
        known = isinstance(inner, Timed) and inner.least_us(load, steps)
        return steps * self.step_time_us(load) if known else 0

    def queueing_time_us(self, request: Request) -> int:
        """Return the wrapped model's answer."""
        return self.model.queueing_time_us(request)
