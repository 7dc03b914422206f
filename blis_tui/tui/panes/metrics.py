"""Load and latencies over time: a strip for each figure, percentiles, and a plot of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.content import Content
from textual.reactive import reactive

from blis_tui.base.classes import dataclass
from blis_tui.base.units import span_text
from blis_tui.tui.boxes import Box
from blis_tui.tui.drawing.plot import GUTTER, plot, plot_scale, strips
from blis_tui.tui.drawing.series import SERIES, coloured, course, top_of, value_text
from blis_tui.tui.panes.pane import Pane
from blis_tui.tui.panes.timeline import event_at, hover_text, scale_of
from blis_tui.tui.view import InTime, Picked

if TYPE_CHECKING:
    from textual.events import Click, Leave, MouseMove

    from blis_tui.results.report import Latencies
    from blis_tui.results.stats import Distribution
    from blis_tui.tui.drawing.series import Series
    from blis_tui.tui.panes.timeline import Scale
    from blis_tui.tui.view import View


NAME: Final = 14
"""Width of a figure's name, including the mark before it."""
_VALUE: Final = 11
_BESIDE_FROM: Final = 100
"""Width from which the plot is beside the strips."""
_PLOT_ROWS: Final = 9
"""Height of a plot below the strips, including its name and times."""
_HEADED_FROM: Final = 4
"""Height from which the columns have headings."""
_LEAST_PLOT: Final = 6
"""Minimum height of a plot with strips of the instances below it."""
_LEAST_STRIPS: Final = 3
"""Minimum height of these strips, including their name."""


_ALL_PERCENTILES_FROM: Final = 57
"""Width from which all percentiles and their scope fit a line."""
_TWO_PERCENTILES_FROM: Final = 38
"""Width from which two percentiles do."""
_SCOPES: Final = ("of the run so far, as in the report", "of the run so far", "so far")
"""What percentiles are of, from long to short."""


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle within the pane."""

    x: int
    y: int
    width: int
    height: int

    def holds(self, x: int, y: int) -> bool:
        """Return whether a position is inside."""
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The layout of a pane; an empty box is not shown."""

    strips: Area
    first: int
    """The uppermost visible strip."""
    header: bool
    percentiles: bool
    plot: Area

    @property
    def bars(self) -> int:
        """Width of a strip's bars."""
        return max(self.strips.width - NAME - _VALUE * (2 if self.has_top else 1), 1)

    @property
    def has_top(self) -> bool:
        """Whether there is room for the largest value."""
        return self.strips.width >= 48


_NONE: Final = Area(0, 0, 0, 0)


def arrange(width: int, height: int, chosen: int, *, large: bool) -> Arrangement:
    """Return the layout for a size. ``large``: only the plot."""
    if large:
        percentiles = height >= 8
        rows = height - 3 if percentiles else height
        return Arrangement(_NONE, 0, header=False, percentiles=percentiles, plot=Area(0, 0, width, rows))
    beside = width >= _BESIDE_FROM and height >= 6
    below = not beside and height >= len(SERIES) + 5 + _PLOT_ROWS
    left = width * 9 // 20 if beside else width
    header = height >= _HEADED_FROM
    spare = height - len(SERIES) - header
    percentiles = spare >= 2
    rows = min(len(SERIES), height - header)
    first = max(0, min(chosen - rows // 2, len(SERIES) - rows))
    used = rows + header + 3 * percentiles
    plot_box = _NONE
    if beside:
        plot_box = Area(left + 2, 0, width - left - 2, height)
    elif below:
        plot_box = Area(0, used + 1, width, height - used - 1)
    return Arrangement(Area(0, int(header), left, rows), first, header, percentiles, plot_box)


def metrics(
    view: View,
    latencies: Latencies | None,
    chosen: int,
    width: int,
    height: int,
    *,
    large: bool = False,
    focused: bool = False,
) -> Content:
    """Return the pane's lines.

    Args:
        view: the view.
        latencies: those of the view; None = not known yet.
        chosen: index of the plotted figure.
        width: columns.
        height: rows.
        large: whether the plot takes all the room.
        focused: whether the pane has the focus.
    """
    places = arrange(width, height, chosen, large=large)
    left = [_header(places)] if places.header else []
    shown = range(places.first, places.first + places.strips.height)
    left += [strip_line(view, SERIES[index], places, chosen=index == chosen, focused=focused) for index in shown]
    box = places.plot
    drawn = _drawn(view, SERIES[chosen], box) if box.height else []
    if not places.strips.height:
        left = drawn
    if places.percentiles:
        spare = height - len(left) - (0 if box.x else box.height) >= 3
        left += ([Content("")] if spare else []) + percentile_lines(latencies, places.strips.width or width)
    if box.x:
        return Content("\n").join(
            _beside(
                left[row] if row < len(left) else Content(""), drawn[row] if row < len(drawn) else Content(""), box.x
            )
            for row in range(height)
        )
    if box.y:
        left += [Content("")] * (box.y - len(left)) + drawn
    return Content("\n").join(left)


def _drawn(view: View, series: Series, box: Area) -> list[Content]:
    """Return the plot, with a strip for each of several instances below it if there is room."""
    count = view.tape.instances
    room = min(count + 1, box.height - _LEAST_PLOT) if count > 1 else 0
    if room < _LEAST_STRIPS:
        return plot(view, series, box.width, box.height)
    above = plot(view, series, box.width, box.height - room)
    return [*above, *strips(view, series, box.width, room)]


def _beside(left: Content, right: Content, at: int) -> Content:
    return Content.assemble(left, " " * max(at - left.cell_length, 0), right)


def _header(places: Arrangement) -> Content:
    top = f"{'max':>{_VALUE}}" if places.has_top else ""
    return Content.styled(" " * (NAME + places.bars) + f"{'now':>{_VALUE}}" + top, "$text-muted")


def strip_line(view: View, series: Series, places: Arrangement, *, chosen: bool, focused: bool) -> Content:
    """Return a figure in one line: its name, its course, its value at the position, and its maximum so far."""
    scale = scale_of(view, places.bars)
    values = course(series, view, scale.end_us, scale.cells)
    here = scale.cell(view.moment.time_us)
    past = [value for value in values[: here + 1] if value is not None]
    name_style = ("$accent bold" if focused else "bold") if chosen else ""
    now = series.now(view)
    # A maximum rate would depend on the length of the intervals.
    largest = None if now is None or series.rate else max([now, *past])
    parts: list[Content | tuple[str, str]] = [
        (f"{'▸' if chosen else ' '}{series.name:<{NAME - 1}}", name_style),
        coloured(series, values, top_of(series, values, view), here),
        (f"{value_text(series, now, view):>{_VALUE}}", "bold" if chosen else ""),
    ]
    if places.has_top:
        parts.append((f"{'' if series.rate else value_text(series, largest, view):>{_VALUE}}", "$text-muted"))
    return Content.assemble(*parts)


def percentile_lines(latencies: Latencies | None, width: int) -> list[Content]:
    """Return latencies of the whole run up to the position, one per line, as in the report."""
    distributions = {} if latencies is None else {"TTFT": latencies.ttft_ms, "ITL": latencies.itl_ms}
    return [_percentiles(name, distributions.get(name), width) for name in ("TTFT", "ITL")]


def _percentiles(name: str, distribution: Distribution | None, width: int) -> Content:
    """Return a line of percentiles, and if there is room what they are of."""
    if distribution is None or distribution.p50 is None or distribution.p90 is None or distribution.p99 is None:
        return Content.assemble((f" {name:<6}", "bold"), ("none yet", "$text-muted"))
    parts: list[tuple[str, str]] = [(f" {name:<6}", "bold")]
    values = [("p50", distribution.p50), ("p90", distribution.p90), ("p99", distribution.p99)]
    if width < _ALL_PERCENTILES_FROM:
        del values[1]
    if width < _TWO_PERCENTILES_FROM:
        del values[1]
    for label, value in values:
        parts += [(f"{label} ", "$text-muted"), (f"{span_text(int(value * 1000 + 0.5)):<8} ", "")]
    line = Content.assemble(*parts)
    scope = next((scope for scope in _SCOPES if line.cell_length + len(scope) <= width), "")
    return Content.assemble(line, (scope, "$text-muted"))


class MetricsPane(Box):
    """A strip for each figure, percentiles of the latencies, and a plot of the chosen figure."""

    follows_selection = False
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
        self._latencies: InTime[View, Latencies] = InTime(
            lambda view: view.latencies(), self.set_timer, self.refresh_view
        )

    def show(self, view: View) -> None:
        """Redraw the pane."""
        self._latencies.follow(view, view.place, running=view.playing)
        alone = "enter: all figures" if self.large else ""
        self.put_hint(alone if self._places().plot.height else "enter: plot")
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

    def changes(self) -> str:
        """Return what stops where the chosen figure changes."""
        return SERIES[self.chosen].changes

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


PANE: Final = Pane(widget=MetricsPane)
