"""The panes of the debugger: a line for each here, everything else in a module of its name."""

from __future__ import annotations

import sys
from functools import cached_property
from importlib import import_module
from itertools import chain, count, repeat
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.output.plugin_panes import panes_in

if TYPE_CHECKING:
    from blis_tui.model import Experiment
    from blis_tui.output.plugin_panes import PluginPane
    from blis_tui.tui.panes.pane import Pane


@dataclass(frozen=True, kw_only=True)
class PaneInfo:
    """What tabs, keys, help, jump mode and palette say of a pane.

    All of that is known before a run is opened, without the module that draws the pane.
    """

    id: str
    """Its module, and its widget's id; the action ``pane.ID`` goes there."""
    key: str
    """Its key; empty = it is reached by tab, jump mode and palette only."""
    letter: str
    """Its letter in jump mode."""
    name: str
    """Its name on the tab."""
    about: str
    """A sentence for the help."""
    short: str = ""
    """A shorter name for narrow terminals; empty = its name."""
    title: str = ""
    """The title in its border; empty = its name."""
    upper: bool = False
    """Whether it is in the upper row."""
    brought: PluginPane | None = None
    """The plug-in's pane that it shows, if any."""

    @cached_property
    def pane(self) -> Pane:
        """What it shows and does."""
        module = import_module(f"{__name__}.{'plugin' if self.brought else self.id}")
        pane: Pane = module.pane_of(self.brought) if self.brought else module.PANE
        return pane


PANES: Final = (
    PaneInfo(
        id="events", key="1", letter="e", name="Events", about="All events, and your position among them", upper=True
    ),
    PaneInfo(
        id="instances",
        key="2",
        letter="i",
        name="Instances",
        short="Inst",
        about="Queues and batches, and what the last step did",
        upper=True,
    ),
    PaneInfo(
        id="request",
        key="3",
        letter="r",
        name="Request",
        short="Req",
        about="The life of a request, and what it waited for",
        upper=True,
    ),
    PaneInfo(id="metrics", key="4", letter="m", name="Metrics", about="Load and latencies over time"),
    PaneInfo(id="kv", key="5", letter="k", name="KV cache", short="KV", about="Which requests hold KV cache blocks"),
    PaneInfo(id="changes", key="6", letter="c", name="Changes", short="Chg", about="What the last event changed"),
    PaneInfo(id="warnings", key="7", letter="w", name="Warnings", short="Warn", about="What looks wrong with this run"),
    PaneInfo(
        id="breakpoints",
        key="8",
        letter="b",
        name="Breakpoints",
        short="Breaks",
        title="Breakpoints and watches",
        about="Where runs stop, and metrics to watch",
    ),
    PaneInfo(id="spec", key="9", letter="p", name="Spec", about="The experiment, and where each value comes from"),
    PaneInfo(id="fleet", key="0", letter="f", name="Fleet", about="A map of all instances by load, queue or KV cache"),
    PaneInfo(
        id="router",
        key="R",
        letter="o",
        name="Router",
        short="Route",
        about="The router's candidates, their scores and its choice",
    ),
    PaneInfo(
        id="gateway", key="W", letter="g", name="Gateway", short="Gate", about="Requests waiting in the gateway's queue"
    ),
    PaneInfo(
        id="summary",
        key="A",
        letter="a",
        name="Summary",
        short="Sum",
        title="Summary of the whole run",
        about="How the run went, and the event behind each figure",
    ),
    PaneInfo(
        id="values", key="V", letter="v", name="Values", short="Vals", about="An expression at each hit of a breakpoint"
    ),
    PaneInfo(
        id="sessions",
        key="S",
        letter="s",
        name="Sessions",
        short="Sess",
        about="What each session is doing, and its history",
    ),
    PaneInfo(
        id="moments",
        key="K",
        letter="n",
        name="Moments",
        short="Mom",
        about="The events that you have kept, with names and notes",
    ),
)
"""The built-in panes, in the order of their tabs."""


def panes_of(experiment: Experiment) -> tuple[PaneInfo, ...]:
    """Return the panes that apply to an experiment, including those of its plug-ins."""
    brought = panes_in(sys.modules[name] for name in experiment.plugins.modules if name in sys.modules)
    taken = {info.letter for info in PANES}
    letters = chain((letter for letter in ascii_lowercase if letter not in taken), repeat(""))
    own = (info for info in PANES if not info.pane.lacks(experiment))
    return (*own, *map(_of_plugin, count(1), brought, letters))


def _of_plugin(number: int, pane: PluginPane, letter: str) -> PaneInfo:
    return PaneInfo(id=f"brought-{number}", key=pane.key, letter=letter, name=pane.name, about=pane.about, brought=pane)
