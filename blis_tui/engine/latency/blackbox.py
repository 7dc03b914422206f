"""Step time as a linear regression over token counts (BLIS's ``blackbox``).

``beta0 + beta1 * prefill tokens + beta2 * decode tokens``, fitted per model, accelerator and parallelism
against measurements. Nothing is known about the model, so nothing is extrapolated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.model import Overheads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.latency.model import StepLoad

_LONGEST_MEMO: Final = 4096
_DEFAULT_MEMO: Final = 256


class BlackboxModel(Overheads):
    """Linear in the step's tokens.

    Args:
        alpha: microseconds to the queue: constant, per prompt token; then per output token.
        beta: microseconds per step: constant, per prefill token, per decode token.
        max_num_seqs: decode counts up to this are looked up instead of computed.
    """

    __slots__ = ("_base_us", "_decode_only_us", "_decode_us", "_prefill_us")

    def __init__(self, alpha: Sequence[float], beta: Sequence[float], max_num_seqs: int | None = None) -> None:
        super().__init__(queue_us=alpha[0], queue_per_token_us=alpha[1], output_token_us=alpha[2], post_decode_us=0.0)
        self._base_us = beta[0]
        self._prefill_us = beta[1]
        self._decode_us = beta[2]
        memo = min(_LONGEST_MEMO, _DEFAULT_MEMO if max_num_seqs is None else max_num_seqs)
        self._decode_only_us = tuple(self._step_us(0, count) for count in range(memo + 1))

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        if not load.chunks:
            try:
                return self._decode_only_us[load.decode_requests]
            except IndexError:
                return self._step_us(0, load.decode_requests)
        prefill = 0
        for chunk in load.chunks:
            prefill += chunk.new
        return self._step_us(prefill, load.decode_requests)

    def _step_us(self, prefill_tokens: int, decode_tokens: int) -> int:
        return max(1, int(self._base_us + self._prefill_us * prefill_tokens + self._decode_us * decode_tokens))
