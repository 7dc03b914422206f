"""What the panes of the debugger show: one frozen value, made anew whenever anything changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.conditions.breakpoints import Breakpoint
    from blis_tui.debugger.moment import Moment
    from blis_tui.debugger.tape import Tape
    from blis_tui.engine.records import Record
    from blis_tui.metrics.lints.lints import Checkup
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the reader has pointed at; it stays while the position moves."""

    event: int | None = None
    """An event of the list; None = the present one."""
    request: str | None = None
    """A request's name."""
    instance: int | None = None
    """An instance; None = all."""
    session: str | None = None
    """The session whose course is shown; None = all are listed."""
    ranking: bool = False
    """The reader asked for the requests in order, whatever the present event is about."""
    order: str = "e2e"
    """What requests are ranked by, a key of ``ranking.ORDERS``."""
    measure: str = "load"
    """What the map of the fleet shows, a key of ``fleet.MEASURES``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything the panes need; they hold nothing else and look nothing up."""

    moment: Moment
    tape: Tape
    """What every known event did; ask it about ``moment.event`` and earlier, or about the known future."""
    experiment: Experiment
    selection: Selection
    playing: bool
    """The simulation is running: panes may show less."""
    checkpoints: Sequence[int]
    """Events with a checkpoint."""
    breakpoints: tuple[Breakpoint, ...]
    records_of: Callable[[int], tuple[Record, ...]]
    """What a known event did, as far as the experiment tells on demand; it may be simulated again for that."""
    checkup: Callable[[], Checkup]
    """Makes the checks behind the warnings, as of the present position; it may take a while in a long run."""

    def same_place(self, other: View | None) -> bool:
        """Whether another view differs at most in the event or the request that the reader points at."""
        return (
            other is not None
            and other.moment is self.moment
            and other.playing == self.playing
            and other.breakpoints == self.breakpoints
            and other.selection.instance == self.selection.instance
        )


@dataclass(kw_only=True)
class Picked(Message):
    """The reader points at an event, a request, an instance or a session: by a click, or by moving a pane's cursor."""

    event: int | None = None
    request: str | None = None
    instance: int | None = None
    session: str | None = None
    go: bool = False
    """Also go there (a double click, or enter)."""
