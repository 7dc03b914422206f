"""The result of a fit: coefficients, how well the measurements determine them, and remarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.units import share_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.live.calibration.other_loads import OtherLoadErrors
    from blis_tui.model import PluginConfig

LEVEL: Final = 0.9
"""Probability of the intervals."""
MEASURED_WITHIN: Final = 0.1
"""A coefficient counts as measured if its interval reaches at most this share of it to either side."""
UNDETERMINED_SHARE: Final = 0.8
"""If an interval is longer than this share of the prior one, the measurements hardly determine the coefficient."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient that the measurements contain."""

    name: str
    value: float
    base: float
    low: float
    """Lower end of its interval with the other coefficients free; rounded down."""
    high: float
    """Upper end of its interval; rounded up."""
    told: str
    """``measured``; ``roughly``; ``together``: only together with others; ``hardly``; or ``averaged``: single steps
    could not be followed, but means agree with it."""
    together_with: tuple[str, ...] = ()
    """Coefficients whose effect cannot be distinguished from its own."""
    at_bound: bool = False
    """Whether it is at its lower bound."""
    pressed: bool = False
    """Whether the measurements favour a value below its bound by more than chance explains."""

    @property
    def words(self) -> str:
        """Its rating in words, which are those of docs/accuracy.md."""
        return {
            "measured": "measured",
            "roughly": f"within {share_text(self.width, 0)}" if self.value else "at its bound",
            "together": f"confounded with {', '.join(self.together_with)}",
            "hardly": "barely constrained",
            "averaged": "for the means alone",
        }[self.told]

    @property
    def interval(self) -> str:
        """Its interval as text."""
        return f"{self.low:.4g} to {self.high:.4g}"

    @property
    def width(self) -> float:
        """Distance to the farther end of its interval, relative to its value."""
        reach = max(self.high - self.value, self.value - self.low)
        return reach / self.value if self.value else float("inf")


@dataclass(frozen=True, slots=True)
class Combined:
    """The combination of coefficients that the measurements tell, where they do not tell the coefficients apart."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    """What each coefficient is multiplied with; the first has 1."""
    value: float
    base: float
    low: float
    """Lower end of its interval; rounded down."""
    high: float
    """Upper end of its interval; rounded up."""

    @property
    def text(self) -> str:
        """The combination as a sum, such as ``step_us + 32 layer_us``."""
        first, *others = self.names
        rest = zip(others, self.weights[1:], strict=True)
        return first + "".join(f" {'-' if weight < 0 else '+'} {abs(weight):g} {name}" for name, weight in rest)

    @property
    def interval(self) -> str:
        """Its interval as text."""
        return f"{self.low:.4g} to {self.high:.4g}"

    @property
    def words(self) -> str:
        """How exactly it is known, in the words for coefficients."""
        return "measured" if self.width <= MEASURED_WITHIN else f"within {share_text(self.width, 0)}"

    @property
    def width(self) -> float:
        """Distance to the farther end of its interval, relative to its size."""
        reach = max(self.high - self.value, self.value - self.low)
        return reach / abs(self.value) if self.value else float("inf")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A coefficient that keeps its base value, and the reason."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit."""

    latency: PluginConfig
    """The step-time model with the fitted coefficients."""
    found: tuple[Coefficient, ...]
    left_out: tuple[LeftOut, ...]
    statements: tuple[str, ...]
    """Remarks, as sentences."""
    sums: tuple[Combined, ...] = ()
    """What is known of the coefficients that cannot be told apart."""
    followed: float = 1.0
    """Share of the first and last tokens that came in their expected steps."""
    gap_us: float = 0.0
    """Part of each step that the server's log does not contain."""
    draws: tuple[PluginConfig, ...] = ()
    """Step-time models drawn from the posterior; empty if it is unknown."""
    elsewhere: tuple[OtherLoadErrors, ...] = ()
    """Expected errors under other loads."""
    kept: bool = False
    """Whether the experiment's own coefficients were kept, because no better ones were found."""

    @property
    def values(self) -> Mapping[str, float]:
        """The values of the coefficients, by name."""
        return {one.name: one.value for one in self.found}
