"""Deciders: is a request split into prefill and decode?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.policies.scoring import BlockLru
from blis_tui.cluster.policy import DECIDER
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Fleet, IncomingRequest
    from blis_tui.registry import NoSettings


@DECIDER.plugin("always", "Every request is split.")
class Always:
    """Splits every request."""

    rule = "Every request is split."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:  # noqa: ARG002
        """Return yes."""
        return True, "always"

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Do nothing, as it has no memory."""

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectToDecodeSettings:
    """Settings: the length from which prompts are split."""

    threshold_tokens: int = setting(
        "Prompts of at least this many tokens are split.", default=256, minimum=0, maximum=10**9
    )


@DECIDER.plugin("direct-to-decode", "Short prompts go straight to an instance that decodes.", DirectToDecodeSettings)
class DirectToDecode:
    """Sends short prompts straight to a decode instance."""

    def __init__(self, settings: DirectToDecodeSettings) -> None:
        self._threshold = settings.threshold_tokens
        self.rule = f"Prompts of {settings.threshold_tokens} tokens and more are split."

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:  # noqa: ARG002
        """Split from the threshold on."""
        return request.input_tokens >= self._threshold, f"{request.input_tokens} prompt tokens"

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Do nothing, as it has no memory."""

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()


@DECIDER.plugin("never", "No request is split.")
class Never:
    """Splits no request."""

    rule = "No request is split."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:  # noqa: ARG002
        """Return no."""
        return False, "never"

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Do nothing, as it has no memory."""

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()


_CAPACITY_BLOCKS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixThresholdSettings:
    """Settings: the number of uncached tokens above which prompts are split."""

    threshold_tokens: int = setting(
        "Requests with more prompt tokens than this that are not cached are split.",
        default=512,
        minimum=0,
        maximum=10**9,
    )


@DECIDER.plugin(
    "prefix-threshold", "Requests with many prompt tokens that are not cached are split.", PrefixThresholdSettings
)
class PrefixThreshold:
    """Decides by the tokens that are not in the cache of the decode instance.

    If that instance is not known yet, what was recently sent to the cluster counts as cached: one memory of 10,000
    blocks for the whole cluster, as in BLIS.
    """

    def __init__(self, settings: PrefixThresholdSettings) -> None:
        self._threshold = settings.threshold_tokens
        self._memory = BlockLru(_CAPACITY_BLOCKS)
        self.rule = f"Requests with more than {settings.threshold_tokens} uncached prompt tokens are split."

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:
        """Split above the threshold."""
        if place is None:
            cached = self._memory.leading(fleet.prompt_keys(request)) * fleet.block_size_tokens
        else:
            cached = fleet[place].cache.cached_tokens(request.segments)
        new = request.input_tokens - cached
        return new > self._threshold, f"{new} uncached prompt tokens"

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Remember the request's blocks."""
        keys = fleet.prompt_keys(request)
        self._memory.record(keys, request.input_tokens // fleet.block_size_tokens - len(keys))

    def state(self) -> tuple[object, ...]:
        """Return what it remembers, oldest first."""
        return self._memory.state()
