"""Step times of layers with a state: Gated DeltaNet, Kimi Delta Attention and Mamba-2, beside their projections.

A decode reads and writes its state, whatever its context. A prompt goes through its state piece by piece: alone it
leaves most of the GPU idle, many together fill it. Times come from measured kernels where there are tables, else from
a law whose constants were taken from these tables, on H100.

``operators`` and ``fitted`` count projections as dense products. The laws of BLIS count all layers' projections as they
count attention's; with a state, both they and ``fitted`` add :class:`States`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass, mypyc_attr
from blis_tui.base.portable_math import ln
from blis_tui.engine.kv.states import state_bytes
from blis_tui.engine.latency.model import ModelWrapper
from blis_tui.engine.latency.operator_tables import Curve, Part, row_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.latency.model import Chunk, StepLoad, StepTimeModel
    from blis_tui.engine.latency.operator_tables import Known
    from blis_tui.model import LinearLayers, Pool

FROM_SHAPE: Final = frozenset(
    ("crossmodel", "fitted", "roofline", "roofline-phases", "trained-physics", "trained-roofline")
)
"""Step-time models that know a model by its shape alone; others were measured with it, or look it up."""
_LAUNCH_US: Final = 4.0
"""The convolution and the recurrence of a decode, however few there are."""
_SCAN_LAUNCH_US: Final = 14.0
"""Those of a prompt."""
_READ: Final = 0.85
"""Share of the memory's bandwidth at which states are read and written: 0.80 to 0.89 of 32 to 1,024 decodes on H100."""
_CONVOLUTION_READ: Final = 0.64
"""Share at which the convolution of a prompt reads and writes its inputs."""
_SCAN_REACHED: Final = {"gdn": 0.4, "kda": 0.07, "mamba2": 0.4}
"""Share of the 16-bit peak that the scans of many prompts together reach; KDA's decay differs by channel. No table has
Mamba-2's scan: it is taken to be as good as Gated DeltaNet's."""
_PIECE: Final = 64
"""Tokens of a prompt that are processed together; between pieces the state is passed on."""
_PIECE_US: Final = 3.0
"""What a piece of a prompt takes at least, as pieces follow each other. Mamba-2's kernel passes states on apart, so its
pieces run side by side."""
_SIZES: Final = (1.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0)
_MEASURED_STATE_BYTES: Final = 4.0
"""Bytes per element of the states in the tables."""
_ELEMENT_BYTES: Final = 2.0


@dataclass(frozen=True, slots=True)
class LinearCosts:
    """Microseconds in all of a model's layers with a state, on one of the GPUs that share them."""

    layers: int
    decode: Curve
    """One layer, over the number of decodes."""
    alone: Curve
    """One layer, over the tokens of a prompt that has the GPU for itself."""
    shared: Curve
    """One layer, a prompt's share where many fill the GPU."""

    @property
    def known(self) -> Known:
        """How well these times are known."""
        return self.decode.known if self.decode.known != "measured" else self.alone.known

    def decodes_us(self, count: int) -> float:
        """Time of so many decodes."""
        return self.layers * self.decode.at(count) if count else 0.0

    def prompts_us(self, chunks: Sequence[Chunk]) -> float:
        """Time of the chunks of a step: that of the longest, or what all of them need together."""
        longest = together = 0.0
        for chunk in chunks:
            own = self.alone.at(chunk.new)
            longest = max(longest, own)
            together += self.shared.at(chunk.new)
        return self.layers * max(longest, together)


def linear_costs(
    linear: LinearLayers, split: int, bytes_per_us: float, flops_per_us: float, document: object = None
) -> LinearCosts:
    """Return the times of a model's layers with a state.

    Args:
        linear: the layers.
        split: GPUs that share each of them.
        bytes_per_us: the memory's bandwidth.
        flops_per_us: the 16-bit peak rate.
        document: the GPU's tables of such layers; None = there are none.
    """
    law = _law(linear, split, bytes_per_us, flops_per_us)
    rows = [*Part(document).parts(linear.kind)] if isinstance(document, dict) and linear.kind in document else []
    if not rows:
        return law
    heads, keys = linear.value_heads / split, max(1.0, linear.key_heads / split)

    def distance(row: Part) -> float:
        return abs(ln(row.integer("value_heads") / heads)) + 0.1 * abs(ln(row.integer("key_heads") / keys))

    nearest = min(rows, key=distance)
    width = (nearest.integer("key_dim"), nearest.integer("value_dim"))
    exact = distance(nearest) == 0.0 and width == (linear.key_dim, linear.value_dim)
    theirs = _law(_measured(linear, nearest), 1, bytes_per_us, flops_per_us)
    same = exact and linear.state_bytes == _MEASURED_STATE_BYTES
    decode = _scaled(nearest, "batch", "decode_us", law.decode, theirs.decode, "measured" if same else "extrapolated")
    if "prefill_us" not in nearest.data:
        return LinearCosts(linear.layers, decode, law.alone, law.shared)
    known: Known = "measured" if exact else "extrapolated"
    alone = _scaled(nearest, "length", "prefill_us", law.alone, theirs.alone, known)
    shared = _scaled(nearest, "length", "saturated_us", law.shared, theirs.shared, known)
    return LinearCosts(linear.layers, decode, alone, shared)


def _measured(linear: LinearLayers, row: Part) -> LinearLayers:
    """Return layers as they were measured."""
    return replace(
        linear,
        key_heads=row.integer("key_heads"),
        key_dim=row.integer("key_dim"),
        value_heads=row.integer("value_heads"),
        value_dim=row.integer("value_dim"),
        state_bytes=_MEASURED_STATE_BYTES,
    )


def _scaled(row: Part, sizes: str, times: str, ours: Curve, theirs: Curve, known: Known) -> Curve:
    """Return measured times, scaled by the ratio of the law's."""
    at, highest, scaled = row.numbers(sizes), 0.0, list[float]()
    for size, time in zip(at, row_of(row.text(times)), strict=True):
        highest = max(highest, (time or 0.0) * ours.at(size) / theirs.at(size))
        scaled.append(highest)
    return Curve(tuple(map(float, at)), tuple(scaled), known, float(at[-1]))


def _law(linear: LinearLayers, split: int, bytes_per_us: float, flops_per_us: float) -> LinearCosts:
    """Return the times as the memory's bandwidth and the peak rate give them."""
    request_us = 2.0 * state_bytes(linear, split) / (_READ * bytes_per_us)
    channels = (linear.values + 2.0 * linear.keys) / split
    convolution_us = 2.0 * channels * _ELEMENT_BYTES / (_CONVOLUTION_READ * bytes_per_us)
    width = linear.key_dim + linear.value_dim
    flops = linear.value_heads / split * (2.0 * _PIECE * width + 6.0 * linear.key_dim * linear.value_dim)
    token_us = convolution_us + flops / (_SCAN_REACHED[linear.kind] * flops_per_us)
    waiting_us = 0.0 if linear.kind == "mamba2" else _PIECE_US / _PIECE

    def line(start: float, each: float) -> Curve:
        return Curve(_SIZES, tuple(start + each * size for size in _SIZES), "extrapolated", _SIZES[-1])

    shared = line(request_us, token_us)
    alone = line(_SCAN_LAUNCH_US + request_us, max(token_us, waiting_us + convolution_us))
    return LinearCosts(linear.layers, line(_LAUNCH_US, request_us), alone, shared)


@mypyc_attr(allow_interpreted_subclasses=True)
class States(ModelWrapper):
    """Wraps a step-time model that knows only attention: adds what layers with a state take beside projections."""

    def __init__(self, model: StepTimeModel, pool: Pool, linear: LinearLayers) -> None:
        super().__init__(model)
        hardware = pool.hardware
        self._costs = linear_costs(
            linear, pool.tensor_parallel, hardware.memory_bandwidth_tb_per_s * 1e6, hardware.peak_tflops_bf16 * 1e6
        )

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load."""
        time_us = self._costs.decodes_us(load.decode_requests) + self._costs.prompts_us(load.chunks)
        return self.model.step_time_us(load) + int(time_us)
