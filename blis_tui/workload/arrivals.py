"""Arrival processes: the gaps between the requests of one client, in whole microseconds.

Gaps are truncated and at least 1 us, as in BLIS, so the realised rate is a hair above the declared one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.engine.portable_math import gamma, power
from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blis_tui.engine.streams import Stream
    from blis_tui.spec.model import Arrivals

_SMALLEST_GAMMA_SHAPE: Final = 0.01
_WEIBULL_SHAPES: Final = (0.1, 100.0)
_BISECTIONS: Final = 60


class Gaps(Protocol):
    """A distribution of gaps between arrivals."""

    def sample(self, stream: Stream) -> int:
        """The next gap in microseconds, at least 1."""
        ...


class PoissonGaps:
    """Independent, exponentially distributed gaps.

    Args:
        mean_us: mean gap.
    """

    __slots__ = ("_mean_us",)

    def __init__(self, mean_us: float) -> None:
        self._mean_us = mean_us

    def sample(self, stream: Stream) -> int:
        """The next gap in microseconds, at least 1."""
        return int(self._mean_us * stream.exponential()) or 1


class ConstantGaps:
    """The same gap for ever.

    Args:
        mean_us: the gap.
    """

    __slots__ = ("_gap_us",)

    def __init__(self, mean_us: float) -> None:
        self._gap_us = int(mean_us) or 1

    def sample(self, stream: Stream) -> int:  # noqa: ARG002  (one signature for all)
        """The next gap in microseconds, at least 1."""
        return self._gap_us


class GammaGaps:
    """Gamma-distributed gaps: burstier than Poisson for a coefficient of variation above 1, calmer below.

    Args:
        mean_us: mean gap.
        cv: standard deviation over mean; positive.
    """

    __slots__ = ("_scale_us", "_shape")

    def __init__(self, mean_us: float, cv: float) -> None:
        self._shape = 1.0 / (cv * cv)
        self._scale_us = mean_us * cv * cv

    def sample(self, stream: Stream) -> int:
        """The next gap in microseconds, at least 1."""
        return int(self._scale_us * stream.gamma(self._shape)) or 1


class WeibullGaps:
    """Weibull-distributed gaps: heavier tails than gamma at the same coefficient of variation.

    Args:
        mean_us: mean gap.
        cv: standard deviation over mean, in about [0.013, 429]: what shapes from 100 down to 0.1 reach.
    """

    __slots__ = ("_inverse_shape", "_scale_us")

    def __init__(self, mean_us: float, cv: float) -> None:
        shape = _weibull_shape(cv)
        self._inverse_shape = 1.0 / shape
        self._scale_us = mean_us / gamma(1.0 + 1.0 / shape)

    def sample(self, stream: Stream) -> int:
        """The next gap in microseconds, at least 1."""
        return int(self._scale_us * power(stream.exponential(), self._inverse_shape)) or 1


def _weibull_shape(cv: float) -> float:
    """The shape whose coefficient of variation is ``cv``: bisection, as it falls steadily with the shape."""
    low, high = _WEIBULL_SHAPES
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        mean = gamma(1.0 + 1.0 / middle)
        if gamma(1.0 + 2.0 / middle) > (1.0 + cv * cv) * mean * mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _poisson(mean_us: float, cv: float) -> Gaps:  # noqa: ARG001  (one signature for all)
    return PoissonGaps(mean_us)


def _constant(mean_us: float, cv: float) -> Gaps:  # noqa: ARG001  (one signature for all)
    return ConstantGaps(mean_us)


def _gamma(mean_us: float, cv: float) -> Gaps:
    # BLIS draws Poisson arrivals below this shape (cv > 10), where gamma samples underflow.
    return GammaGaps(mean_us, cv) if cv * cv * _SMALLEST_GAMMA_SHAPE <= 1.0 else PoissonGaps(mean_us)


_KINDS: Final[Mapping[str, Callable[[float, float], Gaps]]] = {
    "constant": _constant,
    "gamma": _gamma,
    "poisson": _poisson,
    "weibull": WeibullGaps,
}

KINDS: Final = tuple(_KINDS)
"""The names of all arrival processes, sorted."""


def create_gaps(arrivals: Arrivals, rate_per_s: float) -> Gaps:
    """Build the arrival process of a client that sends ``rate_per_s`` requests per second on average.

    Raises:
        PolicyError: no such process, or its rate or coefficient of variation is not positive and finite.
    """
    build = _KINDS.get(arrivals.kind)
    if build is None:
        raise PolicyError(f"no arrival process {arrivals.kind!r}", help=f"the arrival processes are {', '.join(KINDS)}")
    for name, value in (("rate", rate_per_s), ("cv", arrivals.cv)):
        if not 0.0 < value < float("inf"):
            raise PolicyError(f"the {name} of {arrivals.kind} arrivals is {value}", help="it must be positive")
    return build(1e6 / rate_per_s, arrivals.cv)
