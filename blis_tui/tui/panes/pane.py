"""The common base of the debugger's panes: a box with a title that shows a view."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from textual.reactive import reactive
from textual.widget import Widget

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.timer import Timer

    from blis_tui.debugger.event_store import EventStore
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.tui.view import View

_CHEAP_S: Final = 0.03
"""What took longer is only computed again after the reader pauses."""
_PAUSE_S: Final = 0.2
_PLAYING_S: Final = 0.25
"""Interval of computations during a run; they take at most a tenth of the time."""

_T = TypeVar("_T")


class Pane(Widget, can_focus=True):
    """A box that shows a view. Hidden panes are not drawn; they are updated when they become visible.

    Subclasses implement :meth:`show`. They keep no history: the same view always has the same display.
    """

    HINT: ClassVar[str] = ""
    """Keys worth knowing, shown in the lower border."""

    view: reactive[View | None] = reactive(None, init=False, always_update=True)

    def on_mount(self) -> None:
        """Show the hint in the border."""
        if self.HINT:
            self.border_subtitle = self.HINT

    FOLLOWS_SELECTION: ClassVar[bool] = True
    """Whether its display depends on the selected event or request."""

    def watch_view(self) -> None:
        """Show the new view, if the pane is visible."""
        self.refresh_view()

    def on_show(self) -> None:
        """Update the pane."""
        self.refresh_view()

    def refresh_view(self) -> None:
        """Show the present view."""
        if self.view is not None and self.is_on_screen:
            self.show(self.view)

    @property
    def is_on_screen(self) -> bool:
        """Whether it takes up any room."""
        return self.size.width > 0 and self.size.height > 0

    def on_resize(self) -> None:
        """Adapt to the new size."""
        self.refresh_view()

    def show(self, view: View) -> None:
        """Update the display to the view."""
        raise NotImplementedError

    # ---- the cursor ----

    def at_cursor(self) -> Subject | None:
        """Return what the cursor is on, for keys that are about it; None if it is on nothing that a run consists of."""
        return None

    def selected_path(self) -> str:
        """Return the path at the cursor; empty = that of :meth:`at_cursor`."""
        return ""

    def selected_value(self) -> str:
        """Return the value at the cursor; empty = that of :meth:`at_cursor`."""
        return ""


class InTime(Generic[_T]):
    """What a pane shows of the whole run up to a position: computed at once, or if that takes long, in a pause.

    Args:
        pane: the pane, which is refreshed after a late computation.
        compute: the computation, in time proportional to the run.

    Attributes:
        value: the latest result; None before the first.
        done_s: when that was computed, by the clock of ``perf_counter``.
        took_s: how long it took.
    """

    def __init__(self, pane: Pane, compute: Callable[[View], _T]) -> None:
        self.value: _T | None = None
        self.done_s = self.took_s = 0.0
        self._pane = pane
        self._compute = compute
        self._tape: EventStore | None = None
        self._at = (-1, -1)
        self._pause: Timer | None = None

    def follow(self, view: View) -> None:
        """Bring the result up to a view, now or a little later; that of another run is forgotten."""
        if view.tape is not self._tape:
            self._tape, self.value, self.took_s = view.tape, None, 0.0
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
            self._pause = self._pane.set_timer(_PAUSE_S, self._update_late)

    def _update_late(self) -> None:
        view = self._pane.view
        if view is not None and not view.playing:
            self._update(view)
            self._pane.refresh_view()

    def _update(self, view: View) -> None:
        began_s = perf_counter()
        self.value, self._at = self._compute(view), _place(view)
        self.done_s = perf_counter()
        self.took_s = self.done_s - began_s


def _place(view: View) -> tuple[int, int]:
    """Return a position: in the middle of a step, less has happened than after it."""
    return view.moment.event, view.moment.settled
