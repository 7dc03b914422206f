"""Step times as sums of terms: linear in tokens, and the common form of the trained models with its two phases."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.engine.latency.model import Overheads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.engine.latency.model import StepLoad


class Phase(NamedTuple):
    """One phase (prefill or decode): the larger of arithmetic and KV traffic, or their weighted sum.

    ``attended`` below means, for decode, the summed contexts; for prefill, the sum over chunks of
    ``new * (prompt + new / 2)``.
    """

    compute_per_token_us: float
    compute_per_attended_us: float
    traffic_per_token_us: float
    traffic_per_attended_us: float

    def larger_of(self, weight: float) -> Phase:
        """Return the phase ``weight * max(compute, traffic)``."""
        return Phase(
            compute_per_token_us=weight * self.compute_per_token_us,
            compute_per_attended_us=weight * self.compute_per_attended_us,
            traffic_per_token_us=weight * self.traffic_per_token_us,
            traffic_per_attended_us=weight * self.traffic_per_attended_us,
        )

    def sum_of(self, compute_weight: float, traffic_weight: float) -> Phase:
        """Return ``compute_weight * compute + traffic_weight * traffic``.

        The sum is affine, so it uses only one side of the max.
        """
        return Phase(
            compute_per_token_us=compute_weight * self.compute_per_token_us
            + traffic_weight * self.traffic_per_token_us,
            compute_per_attended_us=compute_weight * self.compute_per_attended_us
            + traffic_weight * self.traffic_per_attended_us,
            traffic_per_token_us=0.0,
            traffic_per_attended_us=0.0,
        )


def phases(token_us: float, attended_us: float, kv_us: float) -> tuple[Phase, Phase]:
    """Return prefill and decode phases.

    Decodes read the KV of all tokens they attend to; prefills write the KV of their new tokens.
    """
    return Phase(token_us, attended_us, kv_us, 0.0), Phase(token_us, attended_us, kv_us, kv_us)


class ExpertTraffic(NamedTuple):
    """Traffic of reading experts: ``per_expert_us * min(experts, max(per_token, tokens * per_token))``."""

    per_expert_us: float
    experts: float
    per_token: float


@mypyc_attr(allow_interpreted_subclasses=True)
class LinearModel(Overheads):
    """``base + prefill tokens + decodes``, each in microseconds; up to ``listed`` decodes are looked up in a table.

    Args:
        alpha: microseconds: until queued, additionally per prompt token until queued, per output token.
        base_us: per step.
        prefill_us: per prefill token.
        decode_us: per decode.
        listed: largest number of decodes in the table.
    """

    __slots__ = ("_base_us", "_decode_only_us", "_decode_us", "_prefill_us")

    flat: ClassVar[bool] = True

    def __init__(
        self, alpha: Sequence[float], *, base_us: float, prefill_us: float, decode_us: float, listed: int
    ) -> None:
        super().__init__(queue_us=alpha[0], queue_per_token_us=alpha[1], output_token_us=alpha[2], post_decode_us=0.0)
        self._base_us = base_us
        self._prefill_us = prefill_us
        self._decode_us = decode_us
        self._decode_only_us = [max(1, int(base_us + decode_us * count)) for count in range(listed + 1)]

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        decodes = load.decode_requests
        if not load.chunks and decodes < len(self._decode_only_us):
            return self._decode_only_us[decodes]
        prefill = 0
        for chunk in load.chunks:
            prefill += chunk.new
        return int(self._base_us + self._prefill_us * prefill + self._decode_us * decodes) or 1


@mypyc_attr(allow_interpreted_subclasses=True)
class TwoPhaseModel(Overheads):
    """``prefill + decode + tokens + requests + experts + constant``, each in microseconds.

    Args:
        alpha: microseconds: until queued, after the last token, per output token.
        prefill: the weighted prefill phase.
        decode: the weighted decode phase.
        step_us: per step.
        request_us: per request in the step.
        token_us: per new token of either phase.
        experts: expert traffic that depends on the batch; ``None`` = there is none.
        verify_width: tokens that a decode computes; multiplies the decode phase alone.
    """

    __slots__ = (
        "_decode_attended_us",
        "_decode_extra_us",
        "_decode_kv_attended_us",
        "_decode_kv_us",
        "_decode_us",
        "_experts",
        "_prefill",
        "_request_us",
        "_step_us",
        "_token_us",
    )

    def __init__(
        self,
        alpha: Sequence[float],
        *,
        prefill: Phase,
        decode: Phase,
        step_us: float,
        request_us: float,
        token_us: float = 0.0,
        experts: ExpertTraffic | None = None,
        verify_width: int = 1,
    ) -> None:
        super().__init__(queue_us=alpha[0], queue_per_token_us=0.0, output_token_us=alpha[2], post_decode_us=alpha[1])
        self._prefill = prefill
        self._step_us = step_us
        self._request_us = request_us
        self._token_us = token_us
        self._experts = experts
        self._decode_us = verify_width * decode.compute_per_token_us
        self._decode_attended_us = verify_width * decode.compute_per_attended_us
        self._decode_kv_us = verify_width * decode.traffic_per_token_us
        self._decode_kv_attended_us = verify_width * decode.traffic_per_attended_us
        self._decode_extra_us = request_us + token_us

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1 us."""
        count = load.decode_requests
        context = load.decode_context_tokens
        chunks = load.chunks
        time_us = count * self._decode_us + context * self._decode_attended_us
        traffic = count * self._decode_kv_us + context * self._decode_kv_attended_us
        if traffic > time_us:
            time_us = traffic
        if chunks:
            time_us += self._prefill_us(load)
        elif not count:
            return 1
        if self._experts is not None:
            time_us += self._experts_us(load)
        time_us += self._step_us + count * self._decode_extra_us
        return int(time_us) if time_us >= 1.0 else 1

    def by_context(self, load: StepLoad) -> Callable[[int], int]:
        """Return how long a step of these decodes only takes, as ``step_time_us`` has it: the same sums."""
        if self._experts is not None:
            return super().by_context(load)
        count = load.decode_requests
        decode_us, attended_us = count * self._decode_us, self._decode_attended_us
        kv_us, kv_attended_us = count * self._decode_kv_us, self._decode_kv_attended_us
        rest_us = self._step_us + count * self._decode_extra_us

        def time_us(context: int) -> int:
            time_us = decode_us + context * attended_us
            traffic = kv_us + context * kv_attended_us
            time_us = (traffic if traffic > time_us else time_us) + rest_us
            return int(time_us) if time_us >= 1.0 else 1

        return time_us

    @property
    def rises(self) -> bool:
        """Whether no step takes less time with longer contexts: custom coefficients may say so."""
        return self._decode_attended_us >= 0.0 and self._decode_kv_attended_us >= 0.0

    def least_us(self, load: StepLoad, steps: int) -> int:
        """Lower bound, as contexts only grow; 0 if custom coefficients make times shrink with contexts."""
        return steps * self.step_time_us(load) if self.rises else 0

    def _prefill_us(self, load: StepLoad) -> float:
        """Time that the prefill chunks add, apart from shared terms."""
        tokens = 0
        attended = 0.0
        for chunk in load.chunks:
            new = chunk.new
            tokens += new
            # The whole prompt counts even if a chunk sees only part of it, as in the fit.
            attended += new * (chunk.prompt + new / 2.0)
        phase = self._prefill
        time_us = tokens * phase.compute_per_token_us + attended * phase.compute_per_attended_us
        traffic = tokens * phase.traffic_per_token_us
        time_us = max(time_us, traffic)
        return time_us + len(load.chunks) * self._request_us + tokens * self._token_us

    def _experts_us(self, load: StepLoad) -> float:
        """Time to read the experts that this many tokens use."""
        experts = self._experts
        if experts is None:
            return 0.0
        tokens = load.decode_requests
        for chunk in load.chunks:
            tokens += chunk.new
        used = min(experts.experts, max(experts.per_token, tokens * experts.per_token))
        return experts.per_expert_us * used
