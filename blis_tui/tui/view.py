"""The data for the debugger's panes: one frozen value, created anew after every change."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from textual.message import Message

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.timer import Timer

    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.state import DebuggerState
    from blis_tui.debugger.why.ranking import Ranked
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.results.conditions.breakpoints import Breakpoint
    from blis_tui.results.lints.table import Checkup
    from blis_tui.results.report import Latencies

_CHEAP_S: Final = 0.03
"""What took longer is only computed again after the reader pauses."""
_PAUSE_S: Final = 0.2
_PLAYING_S: Final = 0.25
"""Interval of computations during a run; they take at most a tenth of the time."""

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
    ranked: Callable[[], Sequence[Ranked]] = tuple
    """Returns the first requests of the chosen ranking as of the position; the same as long as that is the same."""
    checked: Checkup | None = None
    """The latest result of the checks, which may be of an earlier position; None before the first."""
    watches: tuple[tuple[str, str], ...] = ()
    """The figures that the reader watches, as written, and their values."""
    document: tuple[str, ...] = ()
    """The resolved experiment, as ``blis-tui spec resolve`` writes it; empty until it is known."""

    def same_place(self, other: View | None) -> bool:
        """Return whether another view differs at most in the selected event or request."""
        return (
            other is not None
            and other.moment is self.moment
            and other.playing == self.playing
            and other.breakpoints == self.breakpoints
            and other.document is self.document
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


class InTime(Generic[_T]):
    """A result for the whole run up to a position: computed at once, or if that takes long, in a pause.

    Args:
        compute: the computation, in time proportional to the run.
        later: calls a function after some seconds.
        show: shows a result that has come late.

    Attributes:
        value: the latest result; None before the first.
        done_s: when that was computed, by the clock of ``perf_counter``.
        took_s: how long it took.
    """

    def __init__(
        self,
        compute: Callable[[View], _T],
        later: Callable[[float, Callable[[], None]], Timer],
        show: Callable[[], None],
    ) -> None:
        self.value: _T | None = None
        self.done_s = self.took_s = 0.0
        self._compute, self._later, self._show = compute, later, show
        self._view: View | None = None
        self._at = (-1, -1)
        self._pause: Timer | None = None

    def follow(self, view: View) -> None:
        """Bring the result up to a view, now or a little later; that of another run is forgotten."""
        before, self._view = self._view, view
        if before is None or view.tape is not before.tape:
            self.value, self.took_s = None, 0.0
        elif self.value is not None and self._at == _place(view):
            return
        if self._pause is not None:
            self._pause.stop()
        if view.playing:
            if perf_counter() - self.done_s >= max(_PLAYING_S, 9 * self.took_s):
                self._update(view)
        elif self.took_s <= _CHEAP_S:
            self._update(view)
        else:
            self._pause = self._later(_PAUSE_S, self._update_late)

    def _update_late(self) -> None:
        if self._view is not None and not self._view.playing:
            self._update(self._view)
            self._show()

    def _update(self, view: View) -> None:
        began_s = perf_counter()
        self.value, self._at = self._compute(view), _place(view)
        self.done_s = perf_counter()
        self.took_s = self.done_s - began_s


def _place(view: View) -> tuple[int, int]:
    """Return a position: in the middle of a step, less has happened than after it."""
    return view.moment.event, view.moment.settled
