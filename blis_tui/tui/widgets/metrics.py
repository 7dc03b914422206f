"""The pane of load and latencies over time, as of the current position."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.reactive import reactive

from blis_tui.tui.presenters.metrics import NAME, Arrangement, arrange, metrics
from blis_tui.tui.presenters.plot import GUTTER, plot_scale
from blis_tui.tui.presenters.series import SERIES
from blis_tui.tui.presenters.timeline import event_at, hover_text, scale_of
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.pane import InTime, Pane

if TYPE_CHECKING:
    from textual.content import Content
    from textual.events import Click, Leave, MouseMove

    from blis_tui.tui.presenters.timeline import Scale
    from blis_tui.tui.view import View


class MetricsPane(Pane):
    """A strip for each figure, percentiles of the latencies, and a plot of the chosen figure."""

    FOLLOWS_SELECTION = False
    ALLOW_SELECT = False
    DEFAULT_CSS = """
    MetricsPane { text-wrap: nowrap; }
    """
    BINDINGS: ClassVar = [
        Binding("up", "choose(-1)", "previous figure", show=False),
        Binding("down", "choose(1)", "next figure", show=False),
        Binding("enter", "enlarge", "large plot", show=False),
    ]

    chosen: reactive[int] = reactive(0)
    """Index of the plotted figure."""
    large: reactive[bool] = reactive(False)
    """Whether the plot takes all the room."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self._latencies = InTime(self, lambda view: view.latencies())

    def show(self, view: View) -> None:
        """Redraw the pane."""
        self._latencies.follow(view)
        if self._places().plot.height:
            self.border_subtitle = "enter: all figures" if self.large else ""
        else:
            self.border_subtitle = "enter: plot"
        self.refresh()

    def render(self) -> Content | str:
        """Return the pane's content."""
        if self.view is None:
            return ""
        width, height = self.content_size
        look = {"large": self.large, "focused": self.has_focus}
        return metrics(self.view, self._latencies.value, self.chosen, width, height, **look)

    def _places(self) -> Arrangement:
        return arrange(*self.content_size, self.chosen, large=self.large)

    # ---- keys ----

    def action_choose(self, by: int) -> None:
        """Plot another figure."""
        self.chosen = (self.chosen + by) % len(SERIES)

    def action_enlarge(self) -> None:
        """Toggle between the plot alone and everything."""
        self.large = not self.large
        self.refresh_view()

    # ---- mouse ----

    def _under(self, x: int, y: int) -> tuple[int | None, Scale | None, int]:
        """Return the figure at a position in the pane, and the scale and column of its course."""
        places = self._places()
        view = self.view
        x, y = x - self.gutter.left, y - self.gutter.top
        if view is None:
            return None, None, 0
        if places.strips.holds(x, y):
            scale = scale_of(view, places.bars)
            column = x - NAME
            return places.first + y - places.strips.y, scale if 0 <= column < scale.cells else None, column
        if places.plot.holds(x, y):
            scale = plot_scale(view, places.plot.width)
            column = x - places.plot.x - GUTTER
            return self.chosen, scale if 0 <= column < scale.cells else None, column
        return None, None, 0

    def on_click(self, event: Click) -> None:
        """Plot the figure of a clicked strip; go to the clicked time of the plot."""
        figure, scale, column = self._under(event.x, event.y)
        if figure is None or self.view is None:
            return
        places = self._places()
        if places.plot.holds(event.x - self.gutter.left, event.y - self.gutter.top):
            if scale is not None:
                self.post_message(Picked(event=event_at(self.view, scale, column), go=True))
        else:
            self.chosen = figure

    def on_mouse_move(self, event: MouseMove) -> None:
        """Show what is under the mouse."""
        figure, scale, column = self._under(event.x, event.y)
        if figure is None or self.view is None:
            self.tooltip = None
        elif scale is None:
            self.tooltip = f"{SERIES[figure].name}: {SERIES[figure].about}"
        else:
            self.tooltip = hover_text(self.view, SERIES[figure], scale, column)

    def on_leave(self, _event: Leave) -> None:
        """Remove the tooltip."""
        self.tooltip = None
