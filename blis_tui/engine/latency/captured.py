"""Steps of an engine that replays captured CUDA graphs: a batch takes as long as the next larger captured one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.model import Around, StepLoad

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepTimeModel

_SMALL: Final = 8
"""Up to here powers of two are captured, above it multiples of ``_EVERY``."""
_EVERY: Final = 16


def captured_size(requests: int, max_num_seqs: int) -> int:
    """The size to which a decode batch is padded: 1, 2, 4, 8, then every multiple of 16, up to ``max_num_seqs``.

    Source: nano-vLLM, ``engine/model_runner.py`` (``capture_cudagraph``).
    """
    size = 1 << (requests - 1).bit_length() if requests <= _SMALL else -(-requests // _EVERY) * _EVERY
    return max(requests, min(size, max_num_seqs))


class CapturedSizes(Around):
    """Asks another model; steps that only decode count as many requests as the captured graph has places.

    An empty place has no context.

    Args:
        model: the other model.
        max_num_seqs: the largest batch there is a graph for.
    """

    __slots__ = ("_load", "_max_num_seqs")

    def __init__(self, model: StepTimeModel, max_num_seqs: int) -> None:
        super().__init__(model)
        self._max_num_seqs = max_num_seqs
        self._load = StepLoad()

    def step_time_us(self, load: StepLoad) -> int:
        """What the other model says of the padded batch."""
        if load.chunks or not load.decode_requests:
            return self.model.step_time_us(load)
        padded = self._load
        padded.decode_requests = captured_size(load.decode_requests, self._max_num_seqs)
        padded.decode_context_tokens = load.decode_context_tokens
        return self.model.step_time_us(padded)
