"""Wrappers around step-time models: validation, warm-up, callbacks, CUDA graphs, host launches, media encoders.

Steps whose operators the host launches one by one, without CUDA graphs (``enforce_eager``, ``cudagraph_mode``).

A graph is a single launch, whatever it contains. Without one, Python goes through the model's layers and launches
operator by operator while the GPU computes earlier ones: a step takes as long as the slower of the two. Small batches
wait for the host, large ones for the GPU.

The time per launch (``hardware.launch_us``) is derived from whole steps that waited for the host, divided by their
number of operators as counted here:

- 39 us: Qwen3-30B-A3B, TP 4, RTX 4090D, 8 users: 33.9 ms a token eagerly, 10.0 ms with graphs (vLLM issue 45709);
  35.2 ms compiled by ``torch.compile``, but without graphs, so that compiling spares no launches.
- 37 us at most: Llama 2 7B: 12.0 ms a token eagerly, 10.5 ms with graphs (vLLM pull request 1440).
- 80 us: two models of Qwen2.5-Omni on A800: 22.5 and 19.5 ms eagerly, 13 and 5.7 ms with graphs (vllm-omni issue 7960);
  the machine was shared, and several engines with it.

So the time depends on the host, and is known within a factor of two.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Final, cast

from blis_tui.base.errors import PolicyError, SimulationError
from blis_tui.base.pickling import is_internal_class
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.latency.model import ModelWrapper, StepLoad, Timed
from blis_tui.engine.latency.shape import expert_layers, shared_expert_width
from blis_tui.engine.options.encoder import items_of
from blis_tui.engine.request import NO_MEDIA
from blis_tui.model.defaults import largest_decode_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.engine.latency.model import Chunk, StepTimeModel
    from blis_tui.engine.request import Request
    from blis_tui.model import Engine, Model, Pool


class ValidatingModel(ModelWrapper):
    """Validates the answers of a plug-in's model.

    Args:
        model: the plug-in's model.
        kind: its name in documents.

    Raises:
        PolicyError: its overheads are not whole numbers of at least 0.
    """

    def __init__(self, model: StepTimeModel, kind: str) -> None:
        for name in ("output_token_overhead_us", "post_decode_overhead_us"):
            if _whole(getattr(model, name)) < 0:
                message = f"`{name}` of the step-time model `{kind}` is {getattr(model, name)!r}"
                raise PolicyError(message, help="it must be whole microseconds, from 0 on")
        super().__init__(model)
        self._kind = kind

    def step_time_us(self, load: StepLoad) -> int:
        """Return the plug-in's answer.

        Raises:
            SimulationError: it is not a whole number of at least 1, or the model has changed the step.
        """
        before = [*load.chunks], load.decode_requests, load.decode_context_tokens
        answer = self.model.step_time_us(load)
        if before != (load.chunks, load.decode_requests, load.decode_context_tokens):
            message = f"`step_time_us` of the step-time model `{self._kind}` changes the step that it is asked about"
            raise SimulationError(message, help="copy what is to be changed: `list(load.chunks)`")
        return answer if type(answer) is int and answer > 0 else self._validated("step_time_us", answer, 1)

    def queueing_time_us(self, request: Request) -> int:
        """Return the plug-in's answer, which must be at least 0."""
        answer = self.model.queueing_time_us(request)
        return answer if type(answer) is int and answer >= 0 else self._validated("queueing_time_us", answer, 0)

    def _validated(self, method: str, answer: object, least: int) -> int:
        if (time := _whole(answer)) >= least:
            return time
        message = f"`{method}` of the step-time model `{self._kind}` answers {answer!r}"
        raise SimulationError(message, help=f"it returns whole microseconds, at least {least}")


def validated(model: StepTimeModel, kind: str) -> StepTimeModel:
    """Wrap a step-time model in validation if it is a plug-in's."""
    return model if is_internal_class(type(model)) else ValidatingModel(model, kind)


def _whole(answer: object) -> int:
    """Convert to a Python integer; -1 = not a whole number."""
    try:
        return index(cast("int", answer))
    except TypeError:
        return -1


class ScaledStepTimes(ModelWrapper):
    """Multiplies the step times of another model by ``factor``, rounded down."""

    def __init__(self, model: StepTimeModel, factor: float) -> None:
        super().__init__(model)
        self._factor = factor

    def step_time_us(self, load: StepLoad) -> int:
        """Return the multiple of the wrapped model's answer."""
        return int(self.model.step_time_us(load) * self._factor)


def scaled_step_times(model: StepTimeModel, factor: float) -> StepTimeModel:
    """Return the model with its warm step times multiplied by ``factor``; 1 = unchanged."""
    outer = model if isinstance(model, HookedModel) else None
    warm = model if outer is None else outer.model
    warm = warm.model if isinstance(warm, ScaledStepTimes) else warm
    slow = warm if factor == 1.0 else ScaledStepTimes(warm, factor)
    if outer is None:
        return slow
    outer.model = slow
    return outer


# A step-time model with a callback just before each step is computed.


class HookedModel(ModelWrapper):
    """Calls ``look`` before asking another model: at that point the batch is formed, but none of it is computed yet."""

    def __init__(self, model: StepTimeModel, look: Callable[[], None]) -> None:
        super().__init__(model)
        self._look = look

    @property
    def pure(self) -> bool:
        """False: the callback must happen in each step."""
        return False

    def step_time_us(self, load: StepLoad) -> int:
        """Return the wrapped model's answer, after the callback."""
        self._look()
        return self.model.step_time_us(load)


# Engines that replay captured CUDA graphs: a batch takes as long as the next larger captured one.

_LAST_POWER_OF_TWO: Final = 8
"""Powers of two are captured up to this size, multiples of ``_CAPTURE_INTERVAL`` above it."""
_CAPTURE_INTERVAL: Final = 16


def captured_size(requests: int, max_num_seqs: int) -> int:
    """The size to which a decode batch is padded: 1, 2, 4, 8, then every multiple of 16, up to ``max_num_seqs``.

    Source: nano-vLLM, ``engine/model_runner.py`` (``capture_cudagraph``).
    """
    size = (
        1 << (requests - 1).bit_length()
        if requests <= _LAST_POWER_OF_TWO
        else -(-requests // _CAPTURE_INTERVAL) * _CAPTURE_INTERVAL
    )
    return max(requests, min(size, max_num_seqs))


class CapturedSizes(ModelWrapper):
    """Pads decode-only steps to the number of requests of the captured graph, then asks another model.

    An empty place has no context.

    Args:
        model: the wrapped model.
        max_num_seqs: size of the largest captured graph.
    """

    def __init__(self, model: StepTimeModel, max_num_seqs: int) -> None:
        super().__init__(model)
        self._max_num_seqs = max_num_seqs
        self._load = StepLoad()

    def step_time_us(self, load: StepLoad) -> int:
        """Return the wrapped model's answer for the padded batch."""
        if load.chunks or not load.decode_requests:
            return self.model.step_time_us(load)
        padded = self._load
        padded.decode_requests = captured_size(load.decode_requests, self._max_num_seqs)
        padded.decode_context_tokens = load.decode_context_tokens
        return self.model.step_time_us(padded)


# Batches with LoRA adapters: each different adapter adds its share.


class AdapterOverhead(ModelWrapper):
    """Multiplies the step times of another model by (1 + ``overhead`` x different adapters), rounded down.

    Source: BLIS (its LoRA factor); vLLM's kernels also process the adapters of a batch one by one.
    """

    def __init__(self, model: StepTimeModel, overhead: float) -> None:
        super().__init__(model)
        self._overhead = overhead

    def step_time_us(self, load: StepLoad) -> int:
        """Return the wrapped model's answer plus what adapters add."""
        duration = self.model.step_time_us(load)
        return int(duration * (1.0 + self._overhead * load.adapters)) if load.adapters else duration


COMPUTED: Final = (
    *("operators", "fitted", "trained-physics", "trained-roofline", "crossmodel", "roofline", "roofline-phases"),
)
"""Step-time models that compute the GPU's time. Measurements behind other models do not tell how steps were
launched."""
_ATTENTION: Final = 6
"""Norm, query-key-value product, rotation, writing the KV cache, attention, output product."""
_LATENT: Final = 5
"""Additional operators of latent attention: products into and out of the compressed space, and the norm between
them."""
_COMPRESSED_QUERY: Final = 2
"""Additional operators for compressed queries: a product and a norm."""
_DENSE: Final = 3
"""Gate-up product, activation, down product."""
_EXPERTS: Final = 7
"""Router, choice, sorting, product, activation, product, sum."""
_NORM: Final = 1
_QK_NORMS: Final = 2
_ALL_REDUCES: Final = 2
_PRODUCTS_FP8: Final = 4
"""Products of a layer with 8-bit weights; activations are quantized before each of them."""
_OUTSIDE: Final = 4
"""Embedding, last norm, head, choosing tokens."""
_STATE_DECODE: Final = 8
"""A layer with a state, in place of attention: norm, two products in, convolution, recurrence with its gates, gated
norm, product out, and choosing the states."""
_STATE_PROMPT: Final = 15
"""The same with a part of a prompt: the recurrence is a scan in pieces, eight kernels in place of one (vLLM,
``fla/ops/chunk.py``)."""
_SGLANG_LAUNCHES: Final = 1.5
"""Operators of SGLang relative to those counted here: choosing and sorting experts are five kernels, each quantizing is
one, and nothing is compiled into one."""


def launches(model: Model, tensor_parallel: int, *, prompts: bool = False) -> int:
    """Number of operators that a step launches on each GPU in vLLM without ``torch.compile``.

    Args:
        model: the model.
        tensor_parallel: over how many GPUs.
        prompts: whether the step has a part of a prompt, which takes more of them in layers with a state.
    """
    experts = expert_layers(model)
    everywhere = _NORM + (_ALL_REDUCES if tensor_parallel > 1 else 0)
    everywhere += _PRODUCTS_FP8 if model.weight_bytes == 1.0 else 0
    attention = _ATTENTION + (_QK_NORMS if model.qk_norm else 0)
    if model.kv_lora_rank:
        attention += _LATENT + (_COMPRESSED_QUERY if model.q_lora_rank else 0)
    states = model.linear.layers if model.linear is not None else 0
    mixing = (model.num_hidden_layers - states) * attention + states * (_STATE_PROMPT if prompts else _STATE_DECODE)
    shared = _DENSE if shared_expert_width(model) else 0
    dense = model.feed_forwards - experts
    return _OUTSIDE + model.num_hidden_layers * everywhere + mixing + dense * _DENSE + experts * (_EXPERTS + shared)


_ALL: Final = 10**9
"""More decodes than any step has."""


class Launched(ModelWrapper):
    """Wraps a step-time model: no step ends before all of its operators have been launched.

    The wrapped model gives times with CUDA graphs, whose batches are padded. Without graphs nothing is padded, but the
    GPU pauses between operators. No measurement compares the two effects, so neither is counted.

    Args:
        model: the step-time model with CUDA graphs.
        decodes_us: time to launch all operators of a step of decodes.
        prompts_us: the same with a part of a prompt; 0 = graphs hold those.
        graphs: the largest batch of decodes that a graph holds; 0 = there are none.
    """

    def __init__(self, model: StepTimeModel, *, decodes_us: int, prompts_us: int, graphs: int) -> None:
        super().__init__(model)
        self.decodes_us = decodes_us
        self.prompts_us = prompts_us
        self.graphs = graphs

    def step_time_us(self, load: StepLoad) -> int:
        """Return the larger of the wrapped model's time and the launch time; a step without work launches nothing."""
        duration = self.model.step_time_us(load)
        if load.chunks and self.prompts_us:
            return max(duration, self.prompts_us)
        return max(duration, self.decodes_us) if load.decode_requests > self.graphs else duration

    def decode_runs(self, load: StepLoad, steps: int) -> list[tuple[int, int]]:
        """Return the wrapped model's times where a graph holds the decodes; they may be known at once."""
        inner = self.model
        if load.decode_requests > self.graphs or not isinstance(inner, Timed):
            return super().decode_runs(load, steps)
        return inner.decode_runs(load, steps)


def without_graphs(engine: Engine) -> str:
    """Return the key that makes an engine launch some or all steps without graphs; empty = there is none."""
    if engine.enforce_eager:
        return "enforce_eager"
    return "cudagraph_mode" if engine.cudagraph_mode == "FULL_DECODE_ONLY" else ""


def launched(model: StepTimeModel, pool: Pool, batching: str) -> StepTimeModel:
    """Wrap a pool's step-time model with launch times, if steps run without CUDA graphs and launch times are known.

    Args:
        model: the model.
        pool: the pool.
        batching: the batching rule. SGLang's graphs hold decodes of up to a batch, and it launches more operators.
    """
    key = without_graphs(pool.engine)
    sglang = batching == "sglang"
    if pool.latency.kind not in COMPUTED or not (key or sglang):
        return model
    each_us = pool.hardware.launch_us * (_SGLANG_LAUNCHES if sglang else 1.0)
    decodes_us, prompts_us = (
        int(launches(pool.model, pool.tensor_parallel, prompts=prompts) * each_us) for prompts in (False, True)
    )
    graphs = largest_decode_graph(pool.hardware.memory_gib, pool.tensor_parallel) if sglang else _ALL
    return Launched(
        model,
        decodes_us=decodes_us,
        prompts_us=prompts_us if key else 0,
        graphs=0 if key == "enforce_eager" else graphs,
    )


def encoded_tokens(chunk: Chunk) -> int:
    """Number of media tokens encoded for a chunk when no earlier encoder output is kept.

    An item is encoded whole, for the first chunk of a prefill that has any of its tokens.
    """
    request = chunk.request
    if request.media == NO_MEDIA:
        return 0
    end, tokens = chunk.computed + chunk.new, 0
    first = chunk.computed == chunk.cached
    for offset, length, _ in items_of(request):
        if offset < end and offset + length > chunk.computed and (first or offset >= chunk.computed):
            tokens += length
    return tokens


class Encoding(ModelWrapper):
    """Lengthens steps by ``token_us`` for each media token encoded in them; the total is rounded down.

    The encoder runs before the model and does not overlap with it, as in vLLM (``v1/worker/gpu_model_runner.py``,
    ``_execute_mm_encoder``). Content found in the prefix cache is not encoded. Recomputed content is encoded again,
    unless steps schedule the encoder and its cache has it.

    Args:
        model: the step-time model for the rest of a step.
        token_us: microseconds per encoded token.
        scheduled: whether steps schedule the encoder (``engine.encoder``).
    """

    def __init__(self, model: StepTimeModel, token_us: float, *, scheduled: bool) -> None:
        super().__init__(model)
        self._token_us = token_us
        self._scheduled = scheduled

    def step_time_us(self, load: StepLoad) -> int:
        """Return the wrapped model's time plus the encoder's."""
        tokens = whole_sum([chunk.encoded if self._scheduled else encoded_tokens(chunk) for chunk in load.chunks])
        return self.model.step_time_us(load) + int(self._token_us * tokens)
