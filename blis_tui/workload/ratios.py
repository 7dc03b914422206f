"""Distributions of shares between 0 and 1, such as that of reasoning in an answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping  # noqa: TC003  (schemas are generated from the types of settings)
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.classes import dataclass
from blis_tui.errors import PolicyError
from blis_tui.keys import SMALLEST
from blis_tui.registry import PlugPoint, setting
from blis_tui.workload.sampled import shares

if TYPE_CHECKING:
    from blis_tui.engine.streams import Stream
    from blis_tui.registry import Registry
    from blis_tui.spec.model import Client


class Ratios(Protocol):
    """A distribution of shares."""

    def sample(self, stream: Stream) -> float:
        """Return a share, from 0 to 1."""
        ...


RATIOS: Final = PlugPoint[[], Ratios]("workload.clients.reasoning.ratio", "distribution of ratios", Ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantRatioSettings:
    """Settings of a constant ratio."""

    value: float = setting("Share, 0 to 1.", minimum=0, maximum=1, examples=(0.7,))


@RATIOS.plugin("constant", "Always the same.", ConstantRatioSettings)
class ConstantRatio:
    """The constant ``value``."""

    __slots__ = ("_value",)

    def __init__(self, settings: ConstantRatioSettings) -> None:
        self._value = float(settings.value)

    def sample(self, stream: Stream) -> float:  # noqa: ARG002  (the protocol's signature)
        """Return the share, from 0 to 1."""
        return self._value


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformRatioSettings:
    """Settings of a uniform ratio."""

    min: float = setting("Smallest share.", default=0.0, minimum=0, maximum=1)
    max: float = setting("Largest share.", default=1.0, minimum=0, maximum=1)


@RATIOS.plugin("uniform", "Every share from min to max is as likely as the others.", UniformRatioSettings)
class UniformRatio:
    """Uniform between ``min`` and ``max``."""

    __slots__ = ("_min", "_width")

    def __init__(self, settings: UniformRatioSettings) -> None:
        self._min, self._width = settings.min, settings.max - settings.min

    def sample(self, stream: Stream) -> float:
        """Return a share, from 0 to 1."""
        return self._min + self._width * stream.uniform()


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianRatioSettings:
    """Settings of a Gaussian ratio."""

    mean: float = setting("Mean share.", minimum=0, maximum=1)
    std_dev: float = setting("Standard deviation.", minimum=0, maximum=1)
    min: float = setting("Smallest share.", default=0.0, minimum=0, maximum=1)
    max: float = setting("Largest share.", default=1.0, minimum=0, maximum=1)


@RATIOS.plugin("gaussian", "Normal distribution, clamped to [min, max].", GaussianRatioSettings)
class GaussianRatio:
    """Normal with ``mean`` and ``std_dev``, clamped to [``min``, ``max``]: values beyond accumulate at the bounds."""

    __slots__ = ("_settings",)

    def __init__(self, settings: GaussianRatioSettings) -> None:
        self._settings = settings

    def sample(self, stream: Stream) -> float:
        """Return a share, from 0 to 1."""
        one = self._settings
        return min(one.max, max(one.min, one.mean + one.std_dev * stream.normal()))


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaRatioSettings:
    """Settings of a beta-distributed ratio."""

    alpha: float = setting("First shape; the mean is alpha / (alpha + beta).", minimum=SMALLEST, maximum=1000)
    beta: float = setting("Second shape.", minimum=SMALLEST, maximum=1000)


@RATIOS.plugin("beta", "Beta distribution: any shape between 0 and 1.", BetaRatioSettings)
class BetaRatio:
    """Beta with ``alpha`` and ``beta``, from two gamma variates: X / (X + Y)."""

    __slots__ = ("_alpha", "_beta")

    def __init__(self, settings: BetaRatioSettings) -> None:
        self._alpha, self._beta = settings.alpha, settings.beta

    def sample(self, stream: Stream) -> float:
        """Return a share, from 0 to 1."""
        x, y = stream.gamma(self._alpha), stream.gamma(self._beta)
        if x + y > 0.0:
            return x / (x + y)
        # Both underflow only for shapes so small that the share is 0 or 1.
        return 1.0 if stream.uniform() * (self._alpha + self._beta) < self._alpha else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EmpiricalRatioSettings:
    """Settings of a table."""

    weights: Mapping[str, float] = setting(
        "Weight of each share; the keys are quoted numbers from 0 to 1. Need not add up to 1.",
        minProperties=1,
        propertyNames={"pattern": r"^(0(\.[0-9]{1,9})?|1(\.0{1,9})?)$", "description": "A number from 0 to 1."},
        additionalProperties={"description": "Weight.", "type": "number", "minimum": 0, "maximum": 10**9},
        examples=({"0": 1, "0.6": 3},),
    )


@RATIOS.plugin("empirical", "Drawn from a table of weights.", EmpiricalRatioSettings)
class EmpiricalRatio:
    """Listed shares with weights; entries whose weight is not positive are left out."""

    __slots__ = ("_bounds", "_values")

    def __init__(self, settings: EmpiricalRatioSettings) -> None:
        kept = sorted((float(share), weight) for share, weight in settings.weights.items() if weight > 0.0)
        if not kept:
            raise PolicyError("empirical ratios have no positive weight")
        self._values = [share for share, _ in kept]
        self._bounds = list(accumulate(weight for _, weight in kept))

    def sample(self, stream: Stream) -> float:
        """Return a share, from 0 to 1."""
        place = bisect_left(self._bounds, stream.uniform() * self._bounds[-1])
        return self._values[min(place, len(self._values) - 1)]


def tokens_of(ratio: float, output_tokens: int) -> int:
    """Convert a share to a number of output tokens, rounded to the nearest."""
    return int(ratio * output_tokens + 0.5)


def ratios_of(client: Client, plugins: Registry) -> Ratios | None:
    """Create the distribution of reasoning shares in a client's answers; None = it has none.

    Raises:
        PolicyError: the distribution cannot be built.
    """
    if client.reasoning is None:
        return None
    ratio = client.reasoning.ratio
    return shares(plugins.create(RATIOS, ratio.kind, ratio.settings), ratio.kind)
