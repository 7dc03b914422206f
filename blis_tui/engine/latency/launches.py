"""Steps whose operators the host launches one by one, without CUDA graphs (``enforce_eager``, ``cudagraph_mode``).

A graph is one launch, whatever is in it. Without one, Python goes through the model's layers and launches operator by
operator, while the GPU computes those before: a step takes as long as the slower of the two. Small batches wait for the
host, large ones for the GPU.

What a launch takes (``hardware.launch_us``) is taken from whole steps that waited for the host, divided by their
operators as counted here:

- 39 us: Qwen3-30B-A3B, TP 4, RTX 4090D, 8 users: 33.9 ms a token eagerly, 10.0 ms with graphs (vLLM issue 45709);
  35.2 ms compiled by ``torch.compile``, but without graphs, so that compiling spares no launches.
- 37 us at most: Llama 2 7B: 12.0 ms a token eagerly, 10.5 ms with graphs (vLLM pull request 1440).
- 80 us: two models of Qwen2.5-Omni on A800: 22.5 and 19.5 ms eagerly, 13 and 5.7 ms with graphs (vllm-omni issue 7960);
  the machine was shared, and several engines with it.

So it is a matter of the host, and known within a factor of two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.model import Around
from blis_tui.engine.latency.shape import expert_layers, shared_expert_width

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepLoad, StepTimeModel
    from blis_tui.spec.model import Engine, Model, Pool

COMPUTED: Final = ("operators", "fitted", "trained-physics", "trained-roofline", "crossmodel", "roofline")
"""Step-time models that work out what the GPU does. In the others' measurements nothing tells what was launched how."""
_ATTENTION: Final = 6
"""Norm, query-key-value product, rotation, writing the KV cache, attention, output product."""
_LATENT: Final = 5
"""More of latent attention: its products into and out of the compressed space, and the norm between them."""
_COMPRESSED_QUERY: Final = 2
"""More where queries are compressed: a product and a norm."""
_DENSE: Final = 3
"""Gate-up product, activation, down product."""
_EXPERTS: Final = 7
"""Router, choice, sorting, product, activation, product, sum."""
_NORM: Final = 1
_QK_NORMS: Final = 2
_ALL_REDUCES: Final = 2
_PRODUCTS_FP8: Final = 4
"""Of a layer, with weights of 8 bits: what they are multiplied with is quantized before each product."""
_OUTSIDE: Final = 4
"""Embedding, last norm, head, choosing tokens."""


def launches(model: Model, tensor_parallel: int) -> int:
    """Operators that a step launches on each GPU, as vLLM without ``torch.compile`` launches them."""
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


class Launched(Around):
    """Asks another model; no step is over before all of its operators have been launched.

    What the other model says is of steps in CUDA graphs, with the padding of their batches. Without graphs nothing is
    padded, but the GPU pauses between operators; no measurement tells how these compare, so that neither is counted.
    """

    __slots__ = ("decodes", "launching_us")

    def __init__(self, model: StepTimeModel, launching_us: int, *, decodes: bool = True) -> None:
        super().__init__(model)
        self.launching_us = launching_us
        """What launching all operators of a step takes."""
        self.decodes = decodes
        """Whether steps of decodes alone are launched like that, too."""

    def step_time_us(self, load: StepLoad) -> int:
        """The longer of what the other model says and the launches; a step without work has none."""
        duration = self.model.step_time_us(load)
        return max(duration, self.launching_us) if load.chunks or (self.decodes and load.decode_requests) else duration


def without_graphs(engine: Engine) -> str:
    """The key for which steps of an engine are launched one by one, all or some of them; empty = none are."""
    if engine.enforce_eager:
        return "enforce_eager"
    return "cudagraph_mode" if engine.cudagraph_mode == "FULL_DECODE_ONLY" else ""


def launched(model: StepTimeModel, pool: Pool) -> StepTimeModel:
    """A pool's step times, with the launches of its steps where they are no CUDA graphs and these are known."""
    if not without_graphs(pool.engine) or pool.latency.kind not in COMPUTED:
        return model
    launching_us = int(launches(pool.model, pool.tensor_parallel) * pool.hardware.launch_us)
    return Launched(model, launching_us, decodes=pool.engine.enforce_eager)
