"""Step time as the larger of arithmetic and memory traffic (the roofline model, with BLIS's terms), in two laws.

One forward pass per step: FLOPs of all requests, each phase at its measured utilization, against the bytes of the
weights (read once), of the KV cache and of the activations. There is no communication and no overhead. Each MLP counts
as two matrices, not three, because the utilization figures were measured that way. ``roofline-phases``, the law of
BLIS's documents, has the same terms phase by phase, and overheads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import PolicyError
from blis_tui.engine.latency.creation import coefficients
from blis_tui.engine.latency.model import LATENCY, Overheads, StepLoad
from blis_tui.engine.latency.shape import peak_tflops, shape_of

if TYPE_CHECKING:
    from blis_tui.model import Hardware, Model, Pool

_MLP_MATRICES: Final = 2.0
_LONGEST_MEMO: Final = 4096
_ALL_REDUCES: Final = 2
"""Of a layer: after its attention and after its MLP."""
_ALPHA: Final = (
    "alpha0 (us per request), alpha1 (us per input token), alpha2 (us per output token) added outside the steps."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineSettings:
    """Coefficients."""

    alpha: tuple[float, ...] = coefficients(f"{_ALPHA} Default: `specs/latency/roofline.yaml`, all zero.", *(0, 3))
    beta: tuple[float, ...] = coefficients("The roofline has no beta coefficients.", 0)


@LATENCY.plugin(
    "roofline",
    "Derived from the accelerator's peak figures: the larger of compute time and memory time.",
    RooflineSettings,
)
class RooflineModel(Overheads):
    """``max(compute, memory)`` over the whole step.

    All work divides evenly among the accelerators. Expert traffic of decode batches up to ``max_num_seqs`` is
    tabulated.
    """

    def __init__(self, settings: RooflineSettings, pool: Pool) -> None:
        queue_us, per_token_us, output_us = settings.alpha or (0.0, 0.0, 0.0)
        super().__init__(
            queue_us=queue_us, queue_per_token_us=per_token_us, output_token_us=output_us, post_decode_us=0.0
        )
        self._set_arithmetic(pool.model, pool.hardware, pool.tensor_parallel, pool.engine.verify_width)
        self._set_traffic(pool.model, pool.hardware, pool.tensor_parallel, pool.engine.verify_width)
        self._drafts = pool.engine.verify_width - 1
        memo = min(_LONGEST_MEMO, pool.engine.max_num_seqs)
        self._moe_bytes = (
            tuple(self._moe_weight_bytes(tokens) for tokens in range(memo + 1)) if self._experts > 0.0 else ()
        )

    def _set_arithmetic(self, model: Model, hardware: Hardware, tensor_parallel: int, width: int) -> None:
        """Set the FLOPs of a token, affine in the tokens before it; a decode computes ``width`` tokens."""
        shape = shape_of(model)
        rotary = 2.0 * shape.hidden
        expert_mlp = 2.0 * _MLP_MATRICES * shape.hidden * shape.expert_ffn * model.num_experts_per_tok
        dense_mlp = 2.0 * _MLP_MATRICES * shape.hidden * shape.dense_ffn
        self._flops_per_token = (
            2.0 * shape.projections
            + shape.layers * rotary
            + shape.moe_layers * expert_mlp
            + shape.dense_layers * dense_mlp
        )
        # Scores and weighted values are matrix products (4 per element); softmax and masking take 5 more vector ops.
        self._flops_per_context = shape.attention_layers * (4.0 * shape.heads * shape.head_dim + 5.0 * shape.heads)
        peak = peak_tflops(model, hardware) * 1e12
        self._prefill_us_per_flop = 1e6 / tensor_parallel / (peak * hardware.mfu_prefill)
        decode_us_per_flop = width * 1e6 / tensor_parallel / (peak * hardware.mfu_decode)
        self._decode_us_per_token = self._flops_per_token * decode_us_per_flop
        self._decode_us_per_context = self._flops_per_context * decode_us_per_flop

    def _set_traffic(self, model: Model, hardware: Hardware, tensor_parallel: int, width: int) -> None:
        """Set the bytes of a step: weights once, then affine in new tokens and in the tokens before them."""
        shape = shape_of(model)
        dense_mlp = _MLP_MATRICES * shape.hidden * shape.dense_ffn
        per_weight = model.weight_bytes / tensor_parallel
        self._weight_bytes = (shape.projections + shape.dense_layers * dense_mlp) * per_weight
        self._experts = float(model.num_experts) if shape.moe_layers > 0.0 else 0.0
        expert_mlp = _MLP_MATRICES * shape.hidden * shape.expert_ffn
        self._expert_weight_bytes = shape.moe_layers * expert_mlp * per_weight
        self._idle_share = (
            (model.num_experts - model.num_experts_per_tok) / model.num_experts if self._experts > 0.0 else 0.0
        )
        kv = 2.0 * shape.attention_layers * shape.key_value * model.kv_cache_bytes / tensor_parallel
        activations = shape.layers * shape.hidden * model.activation_bytes / tensor_parallel
        self._bytes_per_token = kv + activations
        self._bytes_per_context = kv
        self._decode_bytes_per_token = width * self._bytes_per_token
        self._decode_bytes_per_context = width * kv
        self._bandwidth = hardware.memory_bandwidth_tb_per_s * 1e12

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        count = load.decode_requests
        context = load.decode_context_tokens
        if load.chunks:
            return self._mixed_us(load)
        compute = count * self._decode_us_per_token + context * self._decode_us_per_context
        traffic = self._weight_bytes + (count * self._decode_bytes_per_token + context * self._decode_bytes_per_context)
        if self._moe_bytes:
            traffic += self._moe_bytes[count] if count < len(self._moe_bytes) else self._moe_weight_bytes(count)
        time_us = traffic / self._bandwidth * 1e6
        if compute > time_us:
            time_us = compute
        return int(time_us) if count and time_us >= 1.0 else 1

    @property
    def rises(self) -> bool:
        """True: with contexts grows what is computed and read."""
        return True

    def least_us(self, load: StepLoad, steps: int) -> int:
        """Lower bound: contexts only grow, and with them what is computed and read."""
        return steps * self.step_time_us(load)

    def _mixed_us(self, load: StepLoad) -> int:
        """Time of a step with prefill."""
        tokens = 0
        context = 0
        attended = 0.0
        for chunk in load.chunks:
            new = chunk.new
            tokens += new
            # As in BLIS, tokens just found in the cache count as context only from the next step on.
            before = chunk.computed - chunk.cached
            context += before
            # A token of the chunk attends to those before the chunk and, on average, to half of the others in it.
            attended += new * (before + (new - 1) / 2.0)
        flops = tokens * self._flops_per_token + attended * self._flops_per_context
        compute = (
            flops * self._prefill_us_per_flop
            + load.decode_requests * self._decode_us_per_token
            + load.decode_context_tokens * self._decode_us_per_context
        )
        tokens += load.decode_requests
        verified = tokens + load.decode_requests * self._drafts
        context += load.decode_context_tokens * (1 + self._drafts)
        traffic = self._weight_bytes + (verified * self._bytes_per_token + context * self._bytes_per_context)
        if self._experts > 0.0:
            traffic += self._moe_weight_bytes(tokens)
        memory = traffic / self._bandwidth * 1e6
        return max(1, int(max(compute, memory)))

    def _moe_weight_bytes(self, tokens: int) -> float:
        """Bytes of the experts that ``tokens`` tokens use, in all layers together.

        When each token picks k of N experts independently, the expected number read is ``N * (1 - ((N - k) / N) **
        tokens)``. The power is computed by squaring, as libm's differs between machines.
        """
        idle = 1.0
        factor = self._idle_share
        exponent = tokens
        while exponent:
            if exponent & 1:
                idle *= factor
            factor *= factor
            exponent >>= 1
        return self._expert_weight_bytes * (self._experts * (1.0 - idle))


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesSettings:
    """Coefficients."""

    alpha: tuple[float, ...] = coefficients(f"{_ALPHA} Default: `specs/latency/roofline-phases.yaml`, all zero.", 3)
    beta: tuple[float, ...] = coefficients(
        "Share of the memory's peak bandwidth that is reached, us per all-reduce (two in each layer, with"
        " `tensor_parallel` above 1), us per layer, us per step. Default: `specs/latency/roofline-phases.yaml`.",
        4,
    )


@LATENCY.plugin(
    "roofline-phases",
    "The older roofline of BLIS's documents: the prefill's and the decodes' times added, and overheads of each layer.",
    PhasesSettings,
    of_blis=True,
)
class PhasedRoofline(RooflineModel):
    """``max(compute, memory)`` of the prefill chunks + that of the decodes + all-reduces + overheads.

    Each phase reads the weights, and its time is rounded down. Source: BLIS's ``docs/concepts/roofline.md``; its
    programs since April 2026 compute ``roofline``.
    """

    def __init__(self, settings: PhasesSettings, pool: Pool) -> None:
        super().__init__(RooflineSettings(alpha=settings.alpha), pool)
        share, all_reduce_us, layer_us, step_us = settings.beta
        if not 0.0 < share <= 1.0:
            raise PolicyError(f"beta[0] of roofline-phases is {share}", help="a share of the bandwidth, up to 1")
        self._bandwidth *= share
        each_us = layer_us + (_ALL_REDUCES * all_reduce_us if pool.tensor_parallel > 1 else 0.0)
        self._overhead_us = int(shape_of(pool.model).layers * each_us + step_us)

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        time_us = 0
        if load.chunks:
            time_us += super().step_time_us(StepLoad(load.chunks))
        if load.decode_requests:
            time_us += super().step_time_us(StepLoad([], load.decode_requests, load.decode_context_tokens))
        return time_us + self._overhead_us if time_us else 1
