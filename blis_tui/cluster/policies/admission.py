"""Admission policies: may a request enter the cluster?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.cluster.policies.saturation import utilization
from blis_tui.cluster.policy import ADMISSION
from blis_tui.keys import SMALLEST
from blis_tui.registry import setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest
    from blis_tui.registry import NoSettings


@ADMISSION.plugin("always-admit", "Every request is admitted.")
class AlwaysAdmit:
    """Admits every request."""

    reads_signals = False

    rule = ""

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:  # noqa: ARG002
        """Return no reason."""
        return ""

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GaieLegacySettings:
    """Settings: what counts as saturated."""

    queue_depth_threshold: float = setting(
        "Queue length at which an instance counts as saturated.", default=5.0, minimum=SMALLEST, maximum=1e9
    )
    kv_utilization_threshold: float = setting(
        "Share of KV blocks in use at which an instance counts as saturated.",
        default=0.8,
        minimum=SMALLEST,
        maximum=1,
    )


@ADMISSION.plugin(
    "gaie-legacy",
    "While the instances are saturated, classes of a priority below 0 are rejected.",
    GaieLegacySettings,
    of_blis=True,
)
class GaieLegacy:
    """Admits as the Gateway API inference extension did: by the mean over instances of the larger of two ratios."""

    def __init__(self, settings: GaieLegacySettings) -> None:
        self._settings = settings
        self.rule = (
            "Classes of priority below 0 are rejected while, in the mean over instances, the larger of queue /"
            f" {settings.queue_depth_threshold:g} and KV utilization / {settings.kv_utilization_threshold:g} is at"
            " least 1."
        )

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:
        """Return ``saturated`` for a sheddable class while the fleet is saturated."""
        if context.priority(request) >= 0:
            return ""
        settings = self._settings
        level = utilization(fleet, settings.queue_depth_threshold, settings.kv_utilization_threshold)
        return "saturated" if level >= 1.0 else ""

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()


@ADMISSION.plugin("reject-all", "Every request is rejected.")
class RejectAll:
    """Rejects every request."""

    reads_signals = False

    rule = ""

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:  # noqa: ARG002
        """Return ``reject-all``."""
        return "reject-all"

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TierShedSettings:
    """Settings: which classes are shed, and when."""

    overload_threshold: int = setting(
        "Load (queue + batch + in flight) of the busiest instance above which requests are shed.",
        default=0,
        minimum=0,
        maximum=10**9,
    )
    min_priority: int = setting(
        "Minimum priority (see `slo_priorities`) of classes that are never shed.", default=3, minimum=-100, maximum=101
    )


@ADMISSION.plugin(
    "tier-shed", "While an instance is overloaded, less urgent SLO classes are rejected.", TierShedSettings
)
class TierShed:
    """Rejects classes below a priority while the busiest instance is above a load."""

    def __init__(self, settings: TierShedSettings) -> None:
        self._settings = settings
        self.rule = (
            f"While the busiest instance has a load above {settings.overload_threshold}, classes of priority below "
            f"{settings.min_priority} are rejected."
        )

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:
        """Return ``tier shed`` for a less urgent class under load."""
        if context.priority(request) >= self._settings.min_priority:
            return ""
        return "tier shed" if max(fleet.loads(), default=0) > self._settings.overload_threshold else ""

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBucketSettings:
    """Settings of a token bucket."""

    capacity_tokens: float = setting(
        "Maximum number of tokens in the bucket; it starts full.", default=10000.0, minimum=SMALLEST, maximum=10**12
    )
    refill_tokens_per_s: float = setting("Tokens added per second.", default=1000.0, minimum=SMALLEST, maximum=10**12)


@ADMISSION.plugin("token-bucket", "A request is admitted when the bucket holds its input tokens.", TokenBucketSettings)
class TokenBucket:
    """A bucket of prompt tokens that starts full and refills at a constant rate; each request costs its prompt."""

    reads_signals = False

    def __init__(self, settings: TokenBucketSettings) -> None:
        self._settings = settings
        self.rule = (
            f"The bucket holds at most {settings.capacity_tokens:,.0f} tokens and refills at"
            f" {settings.refill_tokens_per_s:,.0f} per second; each request takes as many as its prompt has."
        )
        self._tokens = settings.capacity_tokens
        self._filled_us = 0

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:  # noqa: ARG002
        """Return ``insufficient tokens`` if the bucket holds less than the prompt."""
        refill = (context.now_us - self._filled_us) * self._settings.refill_tokens_per_s / 1e6
        self._filled_us = context.now_us
        self._tokens = min(self._settings.capacity_tokens, self._tokens + refill)
        if request.input_tokens > self._tokens:
            return "insufficient tokens"
        self._tokens -= request.input_tokens
        return ""

    def state(self) -> tuple[object, ...]:
        """Return the bucket's content and when it was last refilled."""
        return (self._tokens, self._filled_us)
