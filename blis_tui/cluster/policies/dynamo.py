"""The planner of Dynamo: by thresholds of queues and KV caches, or by predicted arrivals and profiled capacities."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple, dataclass
from blis_tui.base.units import plural
from blis_tui.cluster.policy import SCALING
from blis_tui.model.keys import SMALLEST
from blis_tui.model.plug_ins import setting

if TYPE_CHECKING:
    from blis_tui.cluster.policy import InstanceLoad, ScaledGroup
    from blis_tui.model import Autoscaler

_PREFILL: Final = "prefill"
_DECODE: Final = "decode"


def _settling(group: ScaledGroup) -> str:
    """Return why nothing is changed: the planner's connector changes no deployment that is not ready."""
    if group.serving == group.instances:
        return ""
    return f"{group.serving} of {plural(group.instances, 'instance')} serving"


# ---- load-based scaling, with static thresholds ----


class _Thresholds(NamedTuple):
    """Where one instance of a role is enough to add one, and where all must be below to remove one."""

    up: float
    down: float


_QUEUES: Final = {"throughput": _Thresholds(1.0, 0.1), "latency": _Thresholds(0.1, 0.0)}
"""Of prompt tokens in the queue of a prefill instance, as a share of the context length."""
_CACHES: Final = {"throughput": _Thresholds(1.0, 0.6), "latency": _Thresholds(0.4, 0.1)}
"""Of tokens in the KV cache of the others, and of those that wait for it, as a share of the tokens that it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoLoadSettings:
    """Settings: what it is to optimize, and what prompts are compared with."""

    optimization_target: str = setting(
        "`throughput`: instances may be full; `latency`: they should have nothing in their queues and room in their KV"
        " caches.",
        default="throughput",
        enum=["throughput", "latency"],
    )
    context_length: int | None = setting(
        "Tokens that the queues of prefill instances are compared with. Default: `engine.max_model_len`; without"
        " either, prefill instances stay as many as they are.",
        default=None,
        minimum=1,
        maximum=10**9,
    )


@SCALING.plugin(
    "dynamo-load",
    "As the load-based scaling of Dynamo's planner, by thresholds: one instance more or less.",
    DynamoLoadSettings,
)
class DynamoLoad:
    """One instance more where any is above a threshold, one less where all are below another.

    After ``components/src/dynamo/planner/core/load_scaling.py``, the decisions for an ``optimization_target`` other
    than ``sla``. The metrics of a forward pass are those of the present.
    """

    def __init__(self, settings: DynamoLoadSettings, autoscaler: Autoscaler) -> None:
        del autoscaler  # it has no windows
        self._settings = settings
        caches, queues = _CACHES[settings.optimization_target], _QUEUES[settings.optimization_target]
        self.rule = (
            f"For {settings.optimization_target}: one instance more if the KV cache of any and what waits for it are"
            f" above {100 * caches.up:g} %, one less if all are below {100 * caches.down:g} %. For prefill alone:"
            f" prompts in its queue of {100 * queues.up:g} and {100 * queues.down:g} % of the context length."
        )

    def wanted(self, group: ScaledGroup, now_us: int) -> tuple[int, str]:  # noqa: ARG002  (the present is enough)
        """Return one more, one less, or as many as there are, with the extremes that it rests on."""
        there, target = group.instances, self._settings.optimization_target
        if reason := _settling(group) or ("" if group.loads else "no instance to measure"):
            return there, reason
        shares = [self._share(load, group.role) for load in group.loads]
        known = [share for share in shares if share is not None]
        if len(known) < len(shares):
            return there, "neither `context_length` nor `engine.max_model_len` says what queues are compared with"
        prefill = group.role == _PREFILL
        least, most = min(known), max(known)
        thresholds = (_QUEUES if prefill else _CACHES)[target]
        above = most >= thresholds.up if prefill else most > thresholds.up
        below = most <= 0.0 if prefill and target == "latency" else most < thresholds.down
        number = there + 1 if above else max(there - 1, group.least) if below and there > 1 else there
        what = "prompts in queues, of the context length" if prefill else "KV caches and what waits for them"
        figures = f"{what}: {100 * least:.1f} to {100 * most:.1f} %"
        within = f"thresholds {100 * thresholds.down:g} and {100 * thresholds.up:g} %"
        return number, f"{figures}, {within}: {plural(number, 'instance')}"

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()

    def _share(self, load: InstanceLoad, role: str) -> float | None:
        """Return the figure of an instance that is compared; None = there is nothing to compare it with."""
        if role == _PREFILL:
            length = self._settings.context_length or load.max_model_len
            return load.waiting_prompt_tokens / length if length else None
        tokens = load.decode_tokens + load.waiting_decode_tokens
        return (tokens if role == _DECODE else tokens + load.waiting_prompt_tokens) / load.kv_tokens


# ---- throughput-based scaling, with a prediction ----


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoThroughputSettings:
    """Settings: the capacity of an instance, and how the next interval is predicted."""

    requests_per_s: float = setting(
        "Requests per second that an instance serves within the targets for TTFT and ITL, as profiled; with prefill and"
        " decode apart, one that decodes.",
        minimum=SMALLEST,
        maximum=1e9,
        examples=[2.5],
    )
    prefill_requests_per_s: float | None = setting(
        "Those of an instance that only prefills. Default: `requests_per_s`.",
        default=None,
        minimum=SMALLEST,
        maximum=1e9,
    )
    load_predictor: str = setting(
        "How the arrivals of the next interval are predicted. `constant`: as in the last one; `kalman`: by a filter for"
        " a level with a linear trend.",
        default="constant",
        enum=["constant", "kalman"],
    )
    kalman_q_level: float = setting(
        "Variance by which the level changes from one interval to the next.", default=1.0, minimum=1e-9, maximum=1e9
    )
    kalman_q_trend: float = setting("Variance by which the trend changes.", default=0.1, minimum=1e-9, maximum=1e9)
    kalman_r: float = setting("Variance of what is observed.", default=10.0, minimum=1e-9, maximum=1e9)


_UNCERTAIN: Final = 1000.0
"""Variance of level and trend at the beginning."""


class _Kalman(NamedTuple):
    """A level with a linear trend, as predicted for the next interval, and their covariances."""

    level: float
    trend: float
    level_variance: float = _UNCERTAIN
    covariance: float = 0.0
    trend_variance: float = _UNCERTAIN

    def corrected(self, observed: float, noise: float) -> _Kalman:
        """Return the filter after an observation."""
        gain = self.level_variance / (self.level_variance + noise)
        trend_gain = self.covariance / (self.level_variance + noise)
        error = observed - self.level
        return _Kalman(
            self.level + gain * error,
            self.trend + trend_gain * error,
            (1.0 - gain) * self.level_variance,
            (1.0 - gain) * self.covariance,
            self.trend_variance - trend_gain * self.covariance,
        )

    def ahead(self, level_noise: float, trend_noise: float) -> _Kalman:
        """Return the filter one interval later."""
        return _Kalman(
            self.level + self.trend,
            self.trend,
            self.level_variance + 2.0 * self.covariance + self.trend_variance + level_noise,
            self.covariance + self.trend_variance,
            self.trend_variance + trend_noise,
        )


class _Seen(NamedTuple):
    """What is remembered of a group: when it was last looked at, what had arrived, and the filter."""

    time_us: int = 0
    arrived: int = 0
    filter: _Kalman | None = None
    """None = nothing has arrived yet: an idle beginning is not observed."""


@SCALING.plugin(
    "dynamo-throughput",
    "As the throughput-based scaling of Dynamo's planner: by predicted arrivals and the capacity of an instance.",
    DynamoThroughputSettings,
)
class DynamoThroughput:
    """As many instances as the predicted arrivals need.

    After ``components/src/dynamo/planner/core``: ``throughput_scaling.py`` and ``load/predictors.py``. What an
    instance serves within the targets is a setting, and no model of its performance.
    """

    def __init__(self, settings: DynamoThroughputSettings, autoscaler: Autoscaler) -> None:
        del autoscaler  # it has no windows
        self._settings = settings
        self._seen: dict[str, _Seen] = {}
        prefill = settings.prefill_requests_per_s
        apart = "" if prefill is None else f" ({prefill:g} if it only prefills)"
        self.rule = (
            f"An instance serves {settings.requests_per_s:g} requests/s{apart}; the next interval is predicted by"
            f" `{settings.load_predictor}`."
        )

    def wanted(self, group: ScaledGroup, now_us: int) -> tuple[int, str]:
        """Return what the predicted arrivals need, and the prediction."""
        seen = self._seen.get(group.name, _Seen())
        arrived, seconds = group.arrived - seen.arrived, (now_us - seen.time_us) / 1e6
        predicted, after = self._predicted(seen.filter, arrived)
        self._seen[group.name] = _Seen(now_us, group.arrived, after)
        if reason := _settling(group):
            return group.instances, reason
        settings = self._settings
        each = settings.requests_per_s
        if group.role == _PREFILL and settings.prefill_requests_per_s is not None:
            each = settings.prefill_requests_per_s
        rate = predicted / seconds
        number = max(group.least, ceil(rate / each))
        about = f"{plural(arrived, 'request')} in {seconds:g} s, {predicted:.1f} predicted for the next"
        return number, f"{about}: {rate:.2f}/s, {each:g}/s an instance: {plural(number, 'instance')}"

    def state(self) -> tuple[object, ...]:
        """Return what it remembers of each group."""
        return tuple(
            (name, seen.time_us, seen.arrived, () if seen.filter is None else tuple(seen.filter))
            for name, seen in sorted(self._seen.items())
        )

    def _predicted(self, before: _Kalman | None, arrived: int) -> tuple[float, _Kalman | None]:
        """Return the arrivals predicted for the next interval, and the filter for it."""
        settings = self._settings
        if settings.load_predictor == "constant" or (before is None and not arrived):
            return float(arrived), None
        now = _Kalman(float(arrived), 0.0) if before is None else before.corrected(float(arrived), settings.kalman_r)
        after = now.ahead(settings.kalman_q_level, settings.kalman_q_trend)
        return after.level, after
