"""Policies at the entry: may a request enter, are the instances saturated, is it split into prefill and decode?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.cluster.policies.scoring import BlockLru
from blis_tui.cluster.policy import ADMISSION, DECIDER, SATURATION
from blis_tui.model.keys import SMALLEST
from blis_tui.model.plug_ins import Stateless, setting

if TYPE_CHECKING:
    from blis_tui.cluster.signals import Context, Fleet, IncomingRequest
    from blis_tui.model.plug_ins import NoSettings


def utilization(fleet: Fleet, queue_depth: float, kv_utilization: float) -> float:
    """Mean over instances of the larger of queue / ``queue_depth`` and KV utilization / ``kv_utilization``.

    1 and more means saturated; so does a fleet without instances.
    """
    if not len(fleet):
        return 1.0
    total = 0.0
    for waiting, share in zip(fleet.column("waiting"), fleet.column("kv_utilization"), strict=True):
        total += max(waiting / queue_depth, share / kv_utilization)
    return total / len(fleet)


def concurrency(fleet: Fleet, per_instance: int) -> float:
    """Requests in flight relative to the maximum for all instances; 1 for a fleet without instances."""
    if not len(fleet):
        return 1.0
    in_flight = 0.0
    for count in fleet.column("in_flight"):
        in_flight += count
    return in_flight / (len(fleet) * per_instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencySettings:
    """Settings: what counts as saturated."""

    max_concurrency: int = setting(
        "Maximum number of requests in flight that an instance should have.", default=100, minimum=1, maximum=10**9
    )


@SATURATION.plugin("concurrency", "By requests in flight, of all instances together.", ConcurrencySettings)
class Concurrency:
    """In-flight requests / (instances x maximum per instance)."""

    def __init__(self, settings: ConcurrencySettings) -> None:
        self._most = settings.max_concurrency
        self.rule = f"Saturation is requests in flight / (instances x {self._most})."

    def level(self, fleet: Fleet) -> float:
        """Return the share of the maximum that is in flight."""
        return concurrency(fleet, self._most)


@SATURATION.plugin("never", "The instances never count as saturated.")
class NeverSaturated:
    """Never reports saturation."""

    rule = "The instances never count as saturated."

    def __init__(self, settings: NoSettings) -> None:
        """Take the settings, of which there are none."""

    def level(self, fleet: Fleet) -> float:  # noqa: ARG002
        """Return 0."""
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationSettings:
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


@SATURATION.plugin("utilization", "By queues and KV caches, in the mean over instances.", UtilizationSettings)
class Utilization:
    """The mean over instances of the larger of two ratios."""

    def __init__(self, settings: UtilizationSettings) -> None:
        self._queue, self._kv = settings.queue_depth_threshold, settings.kv_utilization_threshold
        self.rule = (
            f"Saturation is the mean of the larger of queue / {self._queue:g} and KV utilization / {self._kv:g}."
        )

    def level(self, fleet: Fleet) -> float:
        """The mean of max(queue / threshold, KV utilization / threshold)."""
        return utilization(fleet, self._queue, self._kv)


@ADMISSION.plugin("always-admit", "Every request is admitted.")
class AlwaysAdmit(Stateless):
    """Admits every request."""

    reads_signals = False

    rule = ""

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:  # noqa: ARG002
        """Return no reason."""
        return ""


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
class GaieLegacy(Stateless):
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


@ADMISSION.plugin("reject-all", "Every request is rejected.")
class RejectAll(Stateless):
    """Rejects every request."""

    reads_signals = False

    rule = ""

    def refusal(self, request: IncomingRequest, fleet: Fleet, context: Context) -> str:  # noqa: ARG002
        """Return ``reject-all``."""
        return "reject-all"


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
class TierShed(Stateless):
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


@DECIDER.plugin("always", "Every request is split.")
class Always(Stateless):
    """Splits every request."""

    rule = "Every request is split."

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:  # noqa: ARG002
        """Return yes."""
        return True, "always"

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Do nothing, as it has no memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectToDecodeSettings:
    """Settings: the length from which prompts are split."""

    threshold_tokens: int = setting(
        "Prompts of at least this many tokens are split.", default=256, minimum=0, maximum=10**9
    )


@DECIDER.plugin("direct-to-decode", "Short prompts go straight to a decode instance.", DirectToDecodeSettings)
class DirectToDecode(Stateless):
    """Sends short prompts straight to a decode instance."""

    def __init__(self, settings: DirectToDecodeSettings) -> None:
        self._threshold = settings.threshold_tokens
        self.rule = f"Prompts of {settings.threshold_tokens} tokens and more are split."

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:  # noqa: ARG002
        """Split from the threshold on."""
        return request.input_tokens >= self._threshold, f"{request.input_tokens} prompt tokens"

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Do nothing, as it has no memory."""


@DECIDER.plugin("never", "No request is split.")
class NeverSplit(Stateless):
    """Splits no request."""

    rule = "No request is split."

    def split(self, request: IncomingRequest, fleet: Fleet, place: int | None) -> tuple[bool, str]:  # noqa: ARG002
        """Return no."""
        return False, "never"

    def sent(self, request: IncomingRequest, fleet: Fleet) -> None:
        """Do nothing, as it has no memory."""


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
