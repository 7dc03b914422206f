"""What a fit comes to: coefficients, how well the measurements tell them, and what is to be said about that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.units import share_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.calibration.elsewhere import Elsewhere
    from blis_tui.spec.model import PluginConfig

LEVEL: Final = 0.9
"""Of intervals."""
MEASURED_WITHIN: Final = 0.1
"""A coefficient counts as measured when its interval reaches no farther than this share of it to either side."""
UNTOLD: Final = 0.8
"""Where an interval is still so long, as a share of what was expected before, the measurements hardly tell it."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient that has a part in what was measured."""

    name: str
    value: float
    base: float
    low: float
    """Where its interval begins, whatever the other coefficients are; rounded down."""
    high: float
    """Where it ends; rounded up."""
    told: str
    """``measured``; ``roughly``; ``together``: only together with others; ``hardly``; or ``averaged``: single steps
    could not be followed, and means agree with it."""
    together_with: tuple[str, ...] = ()
    """Coefficients whose effect cannot be told from its own."""
    at_bound: bool = False
    """Whether it is as small as it can be."""
    pressed: bool = False
    """Whether it would be smaller if it could: by more than chance explains."""

    @property
    def words(self) -> str:
        """How well it is told."""
        return {
            "measured": "measured",
            "roughly": f"within {share_text(self.width, 0)}" if self.value else "at its bound",
            "together": f"not told apart from {', '.join(self.together_with)}",
            "hardly": "barely determined",
            "averaged": "for the means alone",
        }[self.told]

    @property
    def interval(self) -> str:
        """As it is printed."""
        return f"{self.low:.4g} to {self.high:.4g}"

    @property
    def width(self) -> float:
        """How far its interval reaches to the farther side, as a share of it."""
        reach = max(self.high - self.value, self.value - self.low)
        return reach / self.value if self.value else float("inf")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A coefficient that keeps its base value, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Fit:
    """What the measurements say."""

    latency: PluginConfig
    """The step-time model with its coefficients."""
    found: tuple[Coefficient, ...]
    left_out: tuple[LeftOut, ...]
    statements: tuple[str, ...]
    """What is to be said: sentences."""
    followed: float = 1.0
    """Share of the first and last tokens that came in the steps in which they were expected."""
    gap_us: float = 0.0
    """What of each step lies between those that the server logs."""
    draws: tuple[PluginConfig, ...] = ()
    """Step-time models as likely as the measurements leave them; none where that is not known."""
    elsewhere: tuple[Elsewhere, ...] = ()
    """What to expect under other loads."""
    kept: bool = False
    """Whether the experiment's own coefficients were kept, as nothing better was found."""

    @property
    def values(self) -> Mapping[str, float]:
        """Coefficient -> value."""
        return {one.name: one.value for one in self.found}
