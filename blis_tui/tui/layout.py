"""The panes of the debugger, and which of them fit a terminal."""

from __future__ import annotations

import sys
from itertools import chain, count, repeat
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.output.plugin_panes import panes_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.model import Experiment
    from blis_tui.output.plugin_panes import PluginPane


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneInfo:
    """The definition of a pane, from which tabs, keys, help, jump mode, palette and placement derive."""

    id: str
    """Its widget's id; the action ``pane.ID`` goes there."""
    key: str
    """Its key; empty = it is reached by tab, jump mode and palette only."""
    letter: str
    """Its letter in jump mode."""
    name: str
    """Its name on the tab."""
    short: str = ""
    """A shorter name for narrow terminals; empty = its name."""
    title: str = ""
    """The title in its border; empty = its name."""
    about: str
    """A sentence for the help."""
    widget: str
    """Module and class below ``blis_tui.tui.panes``; imported if an experiment has the pane."""
    upper: bool = False
    """Whether it is in the upper row."""
    needs: str = ""
    """What an experiment must have for it: ``fleet`` (several instances at some time), ``gateway`` or ``sessions``;
    empty = nothing."""
    brought: PluginPane | None = None
    """The plug-in's pane that it shows, if any."""


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
        widget="request.Inspector",
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
        widget="kv.KvMap",
    ),
    PaneInfo(
        id="changes",
        key="6",
        letter="c",
        name="Changes",
        about="What the last event changed",
        widget="changes.DiffPane",
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
        widget="spec.SpecPane",
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
"""The built-in panes, in the order of their tabs."""


def panes_of(experiment: Experiment) -> tuple[PaneInfo, ...]:
    """Return the panes that apply to an experiment, including those of its plug-ins."""
    fleet = experiment.instance_numbers > 1 or experiment.cluster.varies
    sessions = any(client.session is not None for client in experiment.workload.clients)
    has = {"": True, "fleet": fleet, "gateway": experiment.policy.gateway is not None, "sessions": sessions}
    brought = panes_in(sys.modules[name] for name in experiment.plugins.modules if name in sys.modules)
    return (*(pane for pane in PANES if has[pane.needs]), *map(_plugin_pane_info, count(1), brought, _free_letters()))


def _plugin_pane_info(number: int, pane: PluginPane, letter: str) -> PaneInfo:
    return PaneInfo(
        id=f"brought-{number}",
        key=pane.key,
        letter=letter,
        name=pane.name,
        about=pane.about,
        widget="plugin.BroughtPane",
        brought=pane,
    )


def _free_letters() -> Iterator[str]:
    """Yield unused letters for further panes in jump mode, then empty texts."""
    taken = {pane.letter for pane in PANES}
    return chain((letter for letter in ascii_lowercase if letter not in taken), repeat(""))


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
