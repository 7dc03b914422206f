"""Which panes the debugger has, and which of them a terminal has room for."""

from __future__ import annotations

import sys
from itertools import chain, count, repeat
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.panes import panes_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.panes import PluginPane
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneInfo:
    """A pane, stated once: tabs, keys, help, jump mode, the palette and what stands where follow from it."""

    id: str
    """Its widget's id; the action ``pane.ID`` goes there."""
    key: str
    """What goes there; empty = only its tab, jump mode and the palette."""
    letter: str
    """What jump mode shows on it."""
    name: str
    """On its tab."""
    short: str = ""
    """The same where there is little room; empty = its name."""
    title: str = ""
    """In its border; empty = its name."""
    about: str
    """What it shows, as a sentence for the help."""
    widget: str
    """Module and class below ``blis_tui.tui.widgets``; imported where an experiment has the pane."""
    upper: bool = False
    """Whether it stands in the upper row."""
    needs: str = ""
    """What an experiment must have for it: ``fleet`` (several instances, in time), ``gateway`` or ``sessions``;
    empty = nothing."""
    brought: PluginPane | None = None
    """What it shows, where a plug-in brings it."""


PANES: Final = (
    PaneInfo(
        id="events",
        key="1",
        letter="e",
        name="Events",
        about="All events, and your position among them",
        widget="event_list.EventList",
        upper=True,
    ),
    PaneInfo(
        id="instances",
        key="2",
        letter="i",
        name="Instances",
        short="Inst",
        about="Queues and batches, and what the last step did",
        widget="instances.InstancesPane",
        upper=True,
    ),
    PaneInfo(
        id="request",
        key="3",
        letter="r",
        name="Request",
        about="The life of a request, and what it waited for",
        widget="inspector.Inspector",
        upper=True,
    ),
    PaneInfo(
        id="metrics",
        key="4",
        letter="m",
        name="Metrics",
        about="Load and latencies over time",
        widget="metrics.MetricsPane",
    ),
    PaneInfo(
        id="kv",
        key="5",
        letter="k",
        name="KV cache",
        short="KV",
        about="Which requests hold KV cache blocks",
        widget="kv_map.KvMap",
    ),
    PaneInfo(
        id="changes",
        key="6",
        letter="c",
        name="Changes",
        about="What the last event changed",
        widget="diff.DiffPane",
    ),
    PaneInfo(
        id="warnings",
        key="7",
        letter="w",
        name="Warnings",
        short="Warn",
        about="What looks wrong with this run",
        widget="warnings.WarningsPane",
    ),
    PaneInfo(
        id="breakpoints",
        key="8",
        letter="b",
        name="Breakpoints",
        short="Breaks",
        title="Breakpoints and watches",
        about="Where runs stop, and metrics to watch",
        widget="breakpoints.BreakpointsPane",
    ),
    PaneInfo(
        id="spec",
        key="9",
        letter="p",
        name="Spec",
        about="The experiment, and where each value comes from",
        widget="spec_view.SpecPane",
    ),
    PaneInfo(
        id="fleet",
        key="0",
        letter="f",
        name="Fleet",
        about="A map of all instances by load, queue or KV cache",
        widget="cluster.FleetPane",
        needs="fleet",
    ),
    PaneInfo(
        id="router",
        key="R",
        letter="o",
        name="Router",
        about="The router's candidates, their scores and its choice",
        widget="cluster.RouterPane",
        needs="fleet",
    ),
    PaneInfo(
        id="gateway",
        key="W",
        letter="g",
        name="Gateway",
        about="Requests waiting in the gateway's queue",
        widget="cluster.GatewayPane",
        needs="gateway",
    ),
    PaneInfo(
        id="sessions",
        key="S",
        letter="s",
        name="Sessions",
        about="What each session is doing, and its history",
        widget="sessions.SessionsPane",
        needs="sessions",
    ),
)
"""The panes of this package, in the order of their tabs."""


def panes_of(experiment: Experiment) -> tuple[PaneInfo, ...]:
    """The panes that have something to show of an experiment, and those that its plug-ins bring."""
    fleet = experiment.instance_numbers > 1 or experiment.cluster.varies
    sessions = any(client.session is not None for client in experiment.workload.clients)
    has = {"": True, "fleet": fleet, "gateway": experiment.policy.gateway is not None, "sessions": sessions}
    brought = panes_in(sys.modules[name] for name in experiment.plugins.modules if name in sys.modules)
    return (*(pane for pane in PANES if has[pane.needs]), *map(_brought, count(1), brought, _free_letters()))


def _brought(number: int, pane: PluginPane, letter: str) -> PaneInfo:
    return PaneInfo(
        id=f"brought-{number}",
        key=pane.key,
        letter=letter,
        name=pane.name,
        about=pane.about,
        widget="brought.BroughtPane",
        brought=pane,
    )


def _free_letters() -> Iterator[str]:
    """What jump mode shows on further panes; nothing where letters are used up."""
    taken = {pane.letter for pane in PANES}
    return chain((letter for letter in ascii_lowercase if letter not in taken), repeat(""))


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

    def with_active(self, pane: PaneInfo) -> Arrangement:
        """The arrangement after going to a pane."""
        right = pane.id if pane.upper and pane.id != "events" else self.right
        lower = self.lower if pane.upper else pane.id
        return Arrangement(active=pane.id, right=right, lower=lower, size=self.size)

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
