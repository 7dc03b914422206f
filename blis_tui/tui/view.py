"""The data for the debugger's panes: one frozen value, created anew after every change."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from textual.message import Message

from blis_tui.base.classes import dataclass
from blis_tui.debugger.summary import WORST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.timer import Timer

    from blis_tui.cluster.snapshot import KvSharing
    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.moments import Moment
    from blis_tui.debugger.state import DebuggerState
    from blis_tui.debugger.summary import Summary
    from blis_tui.debugger.traces import Printout, Trace
    from blis_tui.debugger.why.ranked_group import RankedGroup
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.results.conditions.breakpoints import Breakpoint
    from blis_tui.results.lints.table import Checkup
    from blis_tui.results.report import Latencies

_CHEAP_S: Final = 0.005
"""What took longer is only computed again after the reader pauses."""
_PAUSE_S: Final = 0.2

_Of = TypeVar("_Of")
_T = TypeVar("_T")


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
    ranked: int = 12
    """How many requests the ranking has."""
    marked: tuple[str, ...] = ()
    """The requests that the reader has marked in rankings, whatever they have in common."""
    measure: str = "load"
    """The measure of the fleet map, a key of ``fleet.MEASURES``."""
    metric: str = WORST
    """The figure of the summary, by its path in the report."""


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
    ranking: Callable[[], RankedGroup]
    """Returns the first requests of the chosen ranking as of the position, as far as they are read."""
    kv_sharing: Callable[[str], KvSharing | None] = lambda _name: None
    """Returns with whom a request shares KV blocks at the position; None if it does not run."""
    checked: Checkup | None = None
    """The latest result of the checks, which may be of an earlier position; None before the first."""
    moments: tuple[Moment, ...] = ()
    """The events that the reader has kept."""
    changed: Callable[[Moment], str] = lambda _moment: ""
    """Returns how the run differs from what was kept; empty = it does not, as far as it is recorded."""
    watches: tuple[tuple[str, str], ...] = ()
    """The figures that the reader watches, as written, and their values."""
    traces: tuple[Trace, ...] = ()
    """The values of those of them that are valid, after every event; as far as they are known yet."""
    printout: Printout | None = None
    """An expression at each hit of a breakpoint; None until the reader asks."""
    summary: Summary | None = None
    """The whole run, from its start to its end; None until it is known."""
    document: tuple[str, ...] = ()
    """The resolved experiment, as ``blis-tui spec resolve`` writes it; empty until it is known."""

    @property
    def place(self) -> tuple[int, int]:
        """The position: in the middle of a step, less has happened than after it."""
        return self.moment.event, self.moment.settled

    def same_place(self, other: View | None) -> bool:
        """Return whether another view differs at most in the selected event or request."""
        return (
            other is not None
            and other.moment is self.moment
            and other.playing == self.playing
            and other.breakpoints == self.breakpoints
            and other.moments == self.moments
            and other.document is self.document
            and other.summary is self.summary
            and other.printout is self.printout
            and other.selection.instance == self.selection.instance
        )


@dataclass(kw_only=True)
class Picked(Message):
    """The reader has selected something, by a click or a pane's cursor."""

    event: int | None = None
    request: str | None = None
    instance: int | None = None
    session: str | None = None
    metric: str | None = None
    """A figure of the summary."""
    go: bool = False
    """Whether to go there (a double click, or enter)."""


class InTime(Generic[_Of, _T]):
    """A result for the whole run up to a position: computed at once, or if that takes long, in a pause.

    Args:
        compute: the computation, in time proportional to the run.
        later: calls a function after some seconds.
        show: shows a result that has come late.
        every_s: the interval of computations during a run.
        rest: how many times as long as a computation the time between two is at least.

    Attributes:
        value: the latest result; None before the first.
        done_s: when that was computed, by the clock of ``perf_counter``.
        took_s: how long it took.
        pause: the timer of a computation that waits for a pause, if any.
    """

    def __init__(
        self,
        compute: Callable[[_Of], _T],
        later: Callable[[float, Callable[[], None]], Timer],
        show: Callable[[], None],
        *,
        every_s: float = 0.25,
        rest: int = 9,
    ) -> None:
        self.value: _T | None = None
        self.done_s = self.took_s = 0.0
        self.pause: Timer | None = None
        self._compute, self._later, self._show = compute, later, show
        self._every_s, self._rest = every_s, rest
        self._at: object = None

    def follow(self, of: _Of, at: object, *, running: bool) -> None:
        """Bring the result up to a position, now or a little later."""
        if self.pause is not None:
            self.pause.stop()
            self.pause = None
        if self.value is not None and self._at == at:
            return
        if running:
            if perf_counter() - self.done_s >= max(self._every_s, self._rest * self.took_s):
                self._update(of, at)
        elif self.took_s <= _CHEAP_S:
            self._update(of, at)
        else:
            self.pause = self._later(_PAUSE_S, partial(self._update_late, of, at))

    def _update_late(self, of: _Of, at: object) -> None:
        self.pause = None
        self._update(of, at)
        self._show()

    def _update(self, of: _Of, at: object) -> None:
        began_s = perf_counter()
        self.value, self._at = self._compute(of), at
        self.done_s = perf_counter()
        self.took_s = self.done_s - began_s
