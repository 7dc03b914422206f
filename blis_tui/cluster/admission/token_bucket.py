"""``token-bucket``: so many prompt tokens a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.policy import ADMISSION
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of a token bucket."""

    capacity_tokens: float = setting(
        "Tokens the bucket holds at most; it starts full.", default=10000.0, exclusiveMinimum=0, maximum=10**12
    )
    refill_tokens_per_s: float = setting("Tokens added per second.", default=1000.0, exclusiveMinimum=0, maximum=10**12)


@ADMISSION.plugin("token-bucket", "A request is admitted when the bucket holds its input tokens.", Settings)
class TokenBucket:
    """A bucket of prompt tokens that refills at a constant rate and starts full; each request costs its prompt."""

    reads_signals = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.rule = (
            f"The bucket holds at most {settings.capacity_tokens:,.0f} tokens and refills at"
            f" {settings.refill_tokens_per_s:,.0f} per second; each request takes as many as its prompt has."
        )
        self._tokens = settings.capacity_tokens
        self._filled_us = 0

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:  # noqa: ARG002
        """``insufficient tokens`` when the bucket holds less than the prompt."""
        refill = (context.now_us - self._filled_us) * self._settings.refill_tokens_per_s / 1e6
        self._filled_us = context.now_us
        self._tokens = min(self._settings.capacity_tokens, self._tokens + refill)
        if request.input_tokens > self._tokens:
            return "insufficient tokens"
        self._tokens -= request.input_tokens
        return ""

    def state(self) -> tuple[object, ...]:
        """The bucket's content and when it was last filled."""
        return (self._tokens, self._filled_us)
