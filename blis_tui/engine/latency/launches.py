"""Steps whose operators the host launches one by one, without CUDA graphs (``enforce_eager``, ``cudagraph_mode``).

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

from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.model import ModelWrapper
from blis_tui.engine.latency.shape import expert_layers, shared_expert_width

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.spec.model import Engine, Model, Pool

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


def launches(model: Model, tensor_parallel: int) -> int:
    """Number of operators that a step launches on each GPU in vLLM without ``torch.compile``."""
    experts = expert_layers(model)
    each = _ATTENTION + _NORM
    if model.kv_lora_rank:
        each += _LATENT + (_COMPRESSED_QUERY if model.q_lora_rank else 0)
    if model.qk_norm:
        each += _QK_NORMS
    if tensor_parallel > 1:
        each += _ALL_REDUCES
    if model.weight_bytes == 1.0:
        each += _PRODUCTS_FP8
    shared = _DENSE if shared_expert_width(model) else 0
    dense = model.num_hidden_layers - experts
    return _OUTSIDE + model.num_hidden_layers * each + dense * _DENSE + experts * (_EXPERTS + shared)


class Launched(ModelWrapper):
    """Wraps a step-time model: no step ends before all of its operators have been launched.

    The wrapped model gives times with CUDA graphs, whose batches are padded. Without graphs nothing is padded, but the
    GPU pauses between operators. No measurement compares the two effects, so neither is counted.
    """

    __slots__ = ("decodes", "launching_us")

    def __init__(self, model: StepTimeModel, launching_us: int, *, decodes: bool = True) -> None:
        super().__init__(model)
        self.launching_us = launching_us
        """Time to launch all operators of a step."""
        self.decodes = decodes
        """Whether steps of decodes alone are launched that way, too."""

    def step_time_us(self, load: StepLoad) -> int:
        """Return the larger of the wrapped model's time and the launch time; a step without work launches nothing."""
        duration = self.model.step_time_us(load)
        return max(duration, self.launching_us) if load.chunks or (self.decodes and load.decode_requests) else duration


def without_graphs(engine: Engine) -> str:
    """Return the key that makes an engine launch some or all steps without graphs; empty = there is none."""
    if engine.enforce_eager:
        return "enforce_eager"
    return "cudagraph_mode" if engine.cudagraph_mode == "FULL_DECODE_ONLY" else ""


def launched(model: StepTimeModel, pool: Pool) -> StepTimeModel:
    """Wrap a pool's step-time model with launch times, if steps run without CUDA graphs and launch times are known."""
    if not without_graphs(pool.engine) or pool.latency.kind not in COMPUTED:
        return model
    launching_us = int(launches(pool.model, pool.tensor_parallel) * pool.hardware.launch_us)
    return Launched(model, launching_us, decodes=pool.engine.enforce_eager)
