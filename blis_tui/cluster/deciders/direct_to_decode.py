"""``direct-to-decode``: short prompts go straight to an instance that decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.deciders.decider import DECIDER
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """From which length on."""

    threshold_tokens: int = setting(
        "Prompts of so many tokens and more are split.", default=256, minimum=0, maximum=10**9
    )


@DECIDER.plugin("direct-to-decode", "Short prompts go straight to an instance that decodes.", Settings)
class DirectToDecode:
    """Short prompts go straight to an instance that decodes."""

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.threshold_tokens
        self.rule = f"Prompts of {settings.threshold_tokens} tokens and more are split."

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:  # noqa: ARG002
        """Yes, from the threshold on."""
        return request.input_tokens >= self._threshold, f"{request.input_tokens} prompt tokens"

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Nothing to remember."""

    def state(self) -> tuple[object, ...]:
        """Nothing."""
        return ()
