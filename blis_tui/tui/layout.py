"""Which panes the debugger has, and which of them a terminal has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True)
class PaneInfo:
    """A pane: its widget's id, the key that goes there, its names, and whether it stands in the upper row."""

    id: str
    key: str
    letter: str
    """What jump mode shows on it."""
    name: str
    short: str
    about: str
    """What it shows, as a sentence for the help."""
    upper: bool = False
    needs: str = ""
    """What an experiment must have for it: ``fleet`` (several instances, in time), ``gateway`` or ``sessions``;
    empty = nothing."""


PANES: Final = (
    PaneInfo("events", "1", "e", "Events", "Events", "Every event, and where you are among them", upper=True),
    PaneInfo("instances", "2", "i", "Instances", "Inst", "Queues and batches, and what the last step did", upper=True),
    PaneInfo("request", "3", "r", "Request", "Request", "The life of a request, and what it waited for", upper=True),
    PaneInfo("metrics", "4", "m", "Metrics", "Metrics", "How load and latencies develop"),
    PaneInfo("kv", "5", "k", "KV cache", "KV", "Who holds the blocks of the KV cache"),
    PaneInfo("changes", "6", "c", "Changes", "Changes", "What the last event changed"),
    PaneInfo("warnings", "7", "w", "Warnings", "Warn", "What looks wrong with this run"),
    PaneInfo("breakpoints", "8", "b", "Breakpoints", "Breaks", "Where runs stop, and figures to watch"),
    PaneInfo("spec", "9", "p", "Spec", "Spec", "The experiment, with where each value comes from"),
    PaneInfo("fleet", "0", "f", "Fleet", "Fleet", "A map of all instances by load, queue or KV cache", needs="fleet"),
    PaneInfo("router", "R", "o", "Router", "Router", "What the router weighed, and what it chose", needs="fleet"),
    PaneInfo("gateway", "W", "g", "Gateway", "Gateway", "Who waits in the gateway's queue", needs="gateway"),
    PaneInfo(
        "sessions", "S", "s", "Sessions", "Sessions", "What each session is doing, and its course", needs="sessions"
    ),
)


def panes_of(experiment: Experiment) -> tuple[PaneInfo, ...]:
    """The panes that have something to show of an experiment."""
    fleet = experiment.instance_numbers > 1 or experiment.cluster.varies
    sessions = any(client.session is not None for client in experiment.workload.clients)
    has = {"": True, "fleet": fleet, "gateway": experiment.policy.gateway is not None, "sessions": sessions}
    return tuple(pane for pane in PANES if has[pane.needs])


BY_ID: Final = {pane.id: pane for pane in PANES}

NARROW: Final = "narrow"
NORMAL: Final = "normal"
WIDE: Final = "wide"
HUGE: Final = "huge"

SIZES: Final = ("shared", "tall", "full")
"""How much of the screen the pane in use gets: its share, most of the height, or everything."""


def width_class(columns: int) -> str:
    """What fits side by side into so many columns."""
    if columns < 100:  # one pane
        return NARROW
    if columns < 140:  # two
        return NORMAL
    return WIDE if columns < 180 else HUGE  # three; with room for whole sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The pane in use, and the latest ones used in places that several panes share."""

    active: str = "events"
    right: str = "instances"
    """Of the upper row, what stands beside the events where only two fit."""
    lower: str = "metrics"
    size: str = "shared"

    def with_active(self, pane: str) -> Arrangement:
        """The arrangement after going to a pane."""
        info = BY_ID[pane]
        right = pane if info.upper and pane != "events" else self.right
        return Arrangement(active=pane, right=right, lower=self.lower if info.upper else pane, size=self.size)

    def with_size(self, by: int) -> Arrangement:
        """More or less room for the pane in use."""
        place = max(0, min(SIZES.index(self.size) + by, len(SIZES) - 1))
        return Arrangement(active=self.active, right=self.right, lower=self.lower, size=SIZES[place])

    def shown(self, columns: int) -> tuple[str, ...]:
        """The panes on the screen, in reading order."""
        fits = width_class(columns)
        if fits == NARROW or self.size == "full":
            return (self.active,)
        if fits == NORMAL:
            return ("events", self.right, self.lower)
        return ("events", "instances", "request", self.lower)
