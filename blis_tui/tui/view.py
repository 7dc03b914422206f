"""The data for the debugger's panes: one frozen value, created anew after every change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.state import DebuggerState
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.results.conditions.breakpoints import Breakpoint
    from blis_tui.results.lints.table import Checkup
    from blis_tui.results.report import Latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the reader has selected; it stays while the position changes."""

    event: int | None = None
    """An event of the list; None = the present one."""
    request: str | None = None
    """A request's name."""
    instance: int | None = None
    """An instance; None = all."""
    session: str | None = None
    """The session whose course is shown; None = the list of all."""
    ranking: bool = False
    """Whether the reader asked for the ranking, whatever the present event is about."""
    order: str = "e2e"
    """The figure of the ranking, a key of ``ranking.ORDERS``."""
    measure: str = "load"
    """The measure of the fleet map, a key of ``fleet.MEASURES``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything the panes need; they have no other state or source."""

    moment: DebuggerState
    tape: EventStore
    """The recorded events; use it up to ``moment.event``, or for the known future."""
    experiment: Experiment
    selection: Selection
    playing: bool
    """Whether the simulation is running, so that panes may show less."""
    checkpoints: Sequence[int]
    """Events with a checkpoint."""
    breakpoints: tuple[Breakpoint, ...]
    records_of: Callable[[int], tuple[Record, ...]]
    """Returns the records of a recorded event, including on-demand ones; may replay it."""
    checkup: Callable[[], Checkup]
    """Runs the checks behind the warnings at the present position, which may be slow in a long run."""
    latencies: Callable[[], Latencies]
    """Returns the latencies of a report of the present position, which may be slow, too."""

    def same_place(self, other: View | None) -> bool:
        """Return whether another view differs at most in the selected event or request."""
        return (
            other is not None
            and other.moment is self.moment
            and other.playing == self.playing
            and other.breakpoints == self.breakpoints
            and other.selection.instance == self.selection.instance
        )


@dataclass(kw_only=True)
class Picked(Message):
    """The reader has selected an event, a request, an instance or a session, by a click or a pane's cursor."""

    event: int | None = None
    request: str | None = None
    instance: int | None = None
    session: str | None = None
    go: bool = False
    """Whether to go there (a double click, or enter)."""
