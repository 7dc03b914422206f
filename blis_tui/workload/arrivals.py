"""Arrival processes: the gaps between the requests of one client, in whole microseconds.

Gaps are truncated and at least 1 us, as in BLIS, so the actual rate is slightly above the declared one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.classes import dataclass
from blis_tui.engine.portable_math import gamma, power
from blis_tui.errors import PolicyError
from blis_tui.registry import PlugPoint, setting
from blis_tui.workload.sampled import counts

if TYPE_CHECKING:
    from blis_tui.engine.streams import Stream
    from blis_tui.registry import NoSettings, Registry
    from blis_tui.spec.model import PluginConfig

CLOSED_LOOP: Final = "closed-loop"
"""The arrival process without a rate: its users wait for their answers."""

_WEIBULL_SHAPES: Final = (0.1, 100.0)
_BISECTIONS: Final = 60


class Gaps(Protocol):
    """A distribution of interarrival gaps; it is called with their mean in microseconds."""

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1."""
        ...


ARRIVALS: Final = PlugPoint[[float], Gaps]("workload.clients.arrivals", "arrival process", Gaps)

_CV: Final = "Coefficient of variation of the gaps between requests: 1 = as irregular as Poisson, more = burstier."


@ARRIVALS.plugin("poisson", "Independent requests: exponential gaps.")
class PoissonGaps:
    """Independent, exponentially distributed gaps."""

    __slots__ = ("_mean_us",)

    def __init__(self, settings: NoSettings | None, mean_us: float) -> None:
        del settings
        self._mean_us = mean_us

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1."""
        return int(self._mean_us * stream.exponential()) or 1


@ARRIVALS.plugin("constant", "Equal gaps.")
class ConstantGaps:
    """Constant gaps."""

    __slots__ = ("_gap_us",)

    def __init__(self, settings: NoSettings, mean_us: float) -> None:
        del settings
        self._gap_us = int(mean_us) or 1

    def sample(self, stream: Stream) -> int:  # noqa: ARG002  (the protocol's signature)
        """Return the next gap in microseconds, at least 1."""
        return self._gap_us


@dataclass(frozen=True, slots=True, kw_only=True)
class GammaSettings:
    """Settings of gamma arrivals: beyond a cv of 10, most gaps would be rounded to nothing."""

    cv: float = setting(_CV, default=1.0, minimum=1e-6, maximum=10)


@ARRIVALS.plugin("gamma", "Gamma-distributed gaps.", GammaSettings)
class GammaGaps:
    """Gamma-distributed gaps: burstier than Poisson for a coefficient of variation above 1, calmer below."""

    __slots__ = ("_scale_us", "_shape")

    def __init__(self, settings: GammaSettings, mean_us: float) -> None:
        cv = _positive("gamma", "cv", settings.cv)
        self._shape = 1.0 / (cv * cv)
        self._scale_us = mean_us * cv * cv

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1."""
        return int(self._scale_us * stream.gamma(self._shape)) or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WeibullSettings:
    """Settings of Weibull arrivals: shapes from 100 down to 0.1 reach a cv in about [0.013, 429]."""

    cv: float = setting(_CV, default=1.0, minimum=0.01, maximum=10.4)


@ARRIVALS.plugin("weibull", "Weibull-distributed gaps.", WeibullSettings)
class WeibullGaps:
    """Weibull-distributed gaps: heavier tails than gamma at the same coefficient of variation."""

    __slots__ = ("_inverse_shape", "_scale_us")

    def __init__(self, settings: WeibullSettings, mean_us: float) -> None:
        shape = weibull_shape(_positive("weibull", "cv", settings.cv))
        self._inverse_shape = 1.0 / shape
        self._scale_us = mean_us / gamma(1.0 + 1.0 / shape)

    def sample(self, stream: Stream) -> int:
        """Return the next gap in microseconds, at least 1."""
        return int(self._scale_us * power(stream.exponential(), self._inverse_shape)) or 1


def weibull_shape(cv: float) -> float:
    """Find the shape with the coefficient of variation ``cv`` by bisection, as cv decreases with the shape."""
    low, high = _WEIBULL_SHAPES
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        mean = gamma(1.0 + 1.0 / middle)
        if gamma(1.0 + 2.0 / middle) > (1.0 + cv * cv) * mean * mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _positive(kind: str, name: str, value: float) -> float:
    if not 0.0 < value < float("inf"):
        raise PolicyError(f"the {name} of {kind} arrivals is {value}", help="it must be positive")
    return value


def create_gaps(plugins: Registry, arrivals: PluginConfig, rate_per_s: float) -> Gaps:
    """Create the arrival process of a client that sends ``rate_per_s`` requests per second on average.

    Raises:
        PolicyError: no such process, or its rate or coefficient of variation is not positive and finite.
    """
    mean_us = 1e6 / _positive(arrivals.kind, "rate", rate_per_s)
    return counts(plugins.create(ARRIVALS, arrivals.kind, arrivals.settings, mean_us), arrivals.kind)
