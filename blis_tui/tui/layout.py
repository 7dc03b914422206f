"""Which panes fit a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.tui.panes import PaneInfo

NARROW: Final = "narrow"
NORMAL: Final = "normal"
WIDE: Final = "wide"
HUGE: Final = "huge"

SIZES: Final = ("shared", "tall", "full")
"""Size of the active pane: its share of the screen, most of the height, or everything."""


def width_class(columns: int) -> str:
    """Return the number of panes that fit side by side into a width."""
    if columns < 100:  # one pane
        return NARROW
    if columns < 140:  # two
        return NORMAL
    return WIDE if columns < 180 else HUGE  # three; the latter with room for whole sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The active pane, and the latest active ones of places that several panes share."""

    active: str = "events"
    right: str = "instances"
    """The pane beside the events in the upper row if only two fit."""
    lower: str = "metrics"
    size: str = "shared"

    def with_active(self, pane: PaneInfo) -> Arrangement:
        """Return the arrangement after going to a pane."""
        right = pane.id if pane.upper and pane.id != "events" else self.right
        lower = self.lower if pane.upper else pane.id
        return Arrangement(active=pane.id, right=right, lower=lower, size=self.size)

    def with_size(self, by: int) -> Arrangement:
        """Return the arrangement with more or less room for the active pane."""
        place = max(0, min(SIZES.index(self.size) + by, len(SIZES) - 1))
        return Arrangement(active=self.active, right=self.right, lower=self.lower, size=SIZES[place])

    def shown(self, columns: int) -> tuple[str, ...]:
        """Return the visible panes, in reading order."""
        fits = width_class(columns)
        if fits == NARROW or self.size == "full":
            return (self.active,)
        if fits == NORMAL:
            return ("events", self.right, self.lower)
        return ("events", "instances", "request", self.lower)
