"""The table of plug points: every place where a document names an implementation.

A row has the plug point itself (its key, noun and protocol), the place in the schemas that names its plug-ins, and how
``check`` makes an experiment name one. All code that handles every plug point uses this table. A field of an
experiment's records that holds a plug-in's name is marked as such (``plug_in`` of ``blis_tui.model``);
``blis_tui.spec.shipped`` lists the built-in plug-ins of each plug point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.cluster.policy import ADMISSION, DECIDER, ROUTING, SATURATION, SCORING
from blis_tui.engine.latency.model import LATENCY
from blis_tui.engine.orders import PRIORITY
from blis_tui.engine.queue import SCHEDULING
from blis_tui.engine.restore import RESTORE
from blis_tui.engine.rules.rule import BATCHING
from blis_tui.engine.victims import VICTIM
from blis_tui.workload.arrivals import ARRIVALS
from blis_tui.workload.distributions import LENGTHS, RATIOS
from blis_tui.workload.traces.read import TRACES

if TYPE_CHECKING:
    from blis_tui.model.plug_ins import Point

_NAME: Final = "NAME"
"""Placeholder for a plug-in's name in :attr:`PlugPointRow.changes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlugPointRow:
    """The properties of a plug point."""

    point: Point
    schema: str
    """The schema that names its plug-ins."""
    below: tuple[str, ...]
    """Its path below ``$defs`` in that schema."""
    experiment: str = "quickstart"
    """A shipped experiment in which its plug-ins take effect."""
    changes: tuple[str, ...] = ()
    """Overrides that make an experiment name the plug-in ``NAME``; empty = this takes a file for that plug-in."""

    def naming(self, name: str) -> tuple[str, ...]:
        """Return overrides that make an experiment name a plug-in."""
        return tuple(change.replace(_NAME, name) for change in self.changes)


def _policy(point: Point, *, below: tuple[str, ...] = (), experiment: str = "quickstart") -> PlugPointRow:
    """Create the row of a policy key."""
    key = point.path.rpartition(".")[2]
    place = ("document", "properties", *below, key)
    return PlugPointRow(
        point=point, schema="policy", below=place, experiment=experiment, changes=(f"{point.path}={_NAME}",)
    )


def _client(point: Point, below: tuple[str, ...], *keys: str, experiment: str = "quickstart") -> PlugPointRow:
    """Create the row of keys of a workload's clients."""
    changes = tuple(f"workload.clients.0.{key}={{kind: {_NAME}}}" for key in keys)
    return PlugPointRow(point=point, schema="workload", below=below, experiment=experiment, changes=changes)


POINTS: Final = (
    _policy(ADMISSION),
    _policy(ROUTING),
    PlugPointRow(
        point=SCORING,
        schema="policy",
        below=("scorer",),
        changes=(f"policy.routing={{kind: weighted, scorers: [{{kind: {_NAME}}}]}}",),
    ),
    _policy(SATURATION, below=("gateway", "properties")),
    PlugPointRow(
        point=DECIDER,
        schema="experiment",
        below=("cluster", "properties", "disaggregation", "properties", "decider"),
        experiment="disaggregation",
        changes=(f"{DECIDER.path}={_NAME}",),
    ),
    _policy(SCHEDULING),
    _policy(PRIORITY),
    _policy(BATCHING),
    _policy(VICTIM, below=("preemption", "properties"), experiment="kv-pressure"),
    _policy(RESTORE, below=("preemption", "properties"), experiment="kv-pressure"),
    PlugPointRow(
        point=LATENCY, schema="experiment", below=("document", "properties", "latency"), changes=(f"latency={_NAME}",)
    ),
    _client(ARRIVALS, ("client", "properties", "arrivals"), "arrivals"),
    _client(LENGTHS, ("lengths",), "input_tokens", "output_tokens"),
    _client(RATIOS, ("ratio",), "reasoning.ratio", experiment="thinking"),
    PlugPointRow(point=TRACES, schema="workload", below=("document", "properties", "trace", "properties", "format")),
)

BY_PATH: Final = {row.point.path: row for row in POINTS}
"""Key of a plug point -> its row."""
