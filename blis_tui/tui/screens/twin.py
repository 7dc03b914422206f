"""A recording of a server and its simulation side by side, advanced together by time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from textual.containers import Horizontal
from textual.content import Content

from blis_tui.debugger.places import parse_place
from blis_tui.tui.actions import bindings
from blis_tui.tui.presenters.twin import (
    LETTERS,
    SERIES,
    TwinView,
    curves_text,
    file_text,
    latencies_text,
    parting_text,
    place_text,
    requests_text,
    side_text,
    title_text,
)
from blis_tui.tui.screens.side_by_side import SideBySideScreen
from blis_tui.tui.widgets.bars import KeyBar, TitleBar
from blis_tui.tui.widgets.compare_box import CompareBox, CurvesBox
from blis_tui.twin.course import of_recording, of_simulation
from blis_tui.twin.pace import pace_of
from blis_tui.twin.replay import simulate

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.timer import Timer

    from blis_tui.observe.recording import Recording
    from blis_tui.twin.course import Course
    from blis_tui.twin.twin import Twin

_TICK_S: Final = 1 / 15
_LITTLE_US: Final = 100_000
_FAR_US: Final = 1_000_000


class TwinScreen(SideBySideScreen):
    """The comparison.

    Args:
        twin: the comparison's results.
        recording: the measured side.
        name: the name of the simulated side.
    """

    SCOPE = "twin"
    NAME = "twin"
    AUTO_FOCUS = "#a"
    BINDINGS = bindings(SCOPE)
    BOXES = ("parting", "a", "b", "latencies", "requests", "curves")
    PAIRS = (("latencies", "requests"),)
    TIGHT = 100
    SHORT = 34
    DEFAULT_CSS = """
    TwinScreen {
        #parting { height: auto; min-height: 3; max-height: 9; }
        #sides { height: auto; max-height: 45%; }
        #sides > CompareBox { width: 1fr; height: auto; max-height: 100%; }
        #tables { height: 1fr; min-height: 9; }
        #latencies { width: 52%; height: 100%; }
        #requests { width: 1fr; height: 100%; }
        #curves { height: 1fr; min-height: 9; }
        &.-short #tables { min-height: 0; }
        &.-short #parting { max-height: 7; }
        &.-short #curves { display: none; }
        &.-short.-curves #curves { display: block; }
        &.-short.-curves #tables { display: none; }
        &.-tight #latencies { width: 100%; }
        &.-tight .-behind { display: none; }
    }
    """

    def __init__(self, twin: Twin, recording: Recording, name: str) -> None:
        super().__init__()
        self._twin = twin
        self._called = name
        self._left = of_recording(recording, pace_of(recording))
        self._courses: dict[int, Course] = {}
        self.rung = 0
        self.time_us = 0
        self._clock: Timer | None = None
        self._played_s = 0.0
        self._playing = False

    def compose(self) -> ComposeResult:
        """Create title, divergence, the two sides, two tables, curves, keys."""
        yield TitleBar(Content(""), id="status")
        yield CompareBox("First divergence", parting_text, id="parting")
        with Horizontal(id="sides"):
            for side, (letter, what) in enumerate(zip(LETTERS, ("measured", "simulated"), strict=True)):
                title = Content.assemble((f"{letter} ", "$accent bold"), what)
                yield CompareBox(title, partial(_side, side), id=letter.lower())
        with Horizontal(id="tables"):
            yield CompareBox("Latencies so far", latencies_text, id="latencies")
            yield CompareBox("Requests in different states", requests_text, id="requests")
        yield CurvesBox({name: name for name in SERIES}, curves_text, id="curves")
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the start."""
        self._clock = self.set_interval(_TICK_S, self.tick, pause=True)
        self.bring_to_front("latencies")
        self._show()

    # ---- display ----

    def view(self) -> TwinView:
        """Return the state to display."""
        return TwinView(twin=self._twin, rung=self.rung, sides=(self._left, self._right()), time_us=self.time_us)

    def _right(self) -> Course:
        if self.rung not in self._courses:
            run = simulate(self._twin.rungs[self.rung].experiment, follow=True)
            self._courses[self.rung] = of_simulation(self._called, run)
        return self._courses[self.rung]

    def _show(self) -> None:
        view = self.view()
        with self.app.batch_update():
            for box in self.query(CompareBox):
                box.show(view)
            status = self.query_one("#status", TitleBar)
            status.left, status.right = title_text(view), place_text(view)
        self.refresh_bindings()

    # ---- moves ----

    @property
    def busy(self) -> bool:
        """Whether time runs."""
        return self._playing

    def tick(self) -> None:
        """Advance by the elapsed time."""
        if not self._playing:
            return
        now_s = perf_counter()
        passed_us = round((now_s - self._played_s) * 1e6)
        self._played_s = now_s
        self._go(self.time_us + passed_us)
        if self.time_us >= self.view().end_us:
            self._halt()

    def _halt(self) -> None:
        self._playing = False
        if self._clock is not None:
            self._clock.pause()

    def _go(self, time_us: int) -> None:
        self.time_us = max(0, min(time_us, self.view().end_us))
        self._show()

    def action_twin_step(self) -> None:
        """Go to the start of the next step of either side."""
        self._halt()
        following = [bisect_right(side.begins_us, self.time_us) for side in self.view().sides]
        times = [
            side.begins_us[place]
            for side, place in zip(self.view().sides, following, strict=True)
            if place < len(side.begins_us)
        ]
        self._go(min(times, default=self.view().end_us))

    def action_twin_back(self) -> None:
        """Go to the start of the previous step of either side."""
        self._halt()
        places = [(side, bisect_left(side.begins_us, self.time_us)) for side in self.view().sides]
        self._go(max([side.begins_us[place - 1] for side, place in places if place], default=0))

    def action_twin_toggle(self) -> None:
        """Play, or pause."""
        if self._playing:
            self._halt()
        elif self._clock is not None:
            self._playing, self._played_s = True, perf_counter()
            self._clock.resume()

    def action_twin_times(self) -> None:
        """Simulate with more of the measured times."""
        self._halt()
        self.rung = (self.rung + 1) % len(self._twin.rungs)
        if len(self._twin.rungs) == 1:
            self.notify("The recording has no steps, so there are no measured times to use.", markup=False)
        self._show()

    def action_twin_divergence(self) -> None:
        """Go to the first difference."""
        self._halt()
        parting = self._twin.rungs[self.rung].parting
        if parting is None:
            self.notify("All batches are the same on both sides.", markup=False)
            return
        self.query_one("#parting", CompareBox).scroll_home(animate=False)
        self._go(parting.time_us)

    def action_twin_go_to(self) -> None:
        """Ask for a place to go to."""
        about = "A time (1.5s, 200ms), the number of a step (1234) or a request's name."
        self.ask_where_to(about, self._go_to)

    def _go_to(self, text: str | None) -> None:
        if text is None:
            return
        place = parse_place(text)
        left, right = self.view().sides
        if place.time_us is not None:
            self._go(place.time_us)
        elif place.event is not None:
            begins = left.begins_us or right.begins_us
            self._go(begins[min(place.event, len(begins) - 1)] if begins else 0)
        else:
            life = left.lives.get(place.request or "")
            if life is None:
                self.notify("There is no request with that name.", severity="warning", markup=False)
            else:
                self._go(life.sent_us)

    def action_twin_time_back(self) -> None:
        """Go back a little."""
        self._go(self.time_us - _LITTLE_US)

    def action_twin_time_forward(self) -> None:
        """Go forward a little."""
        self._go(self.time_us + _LITTLE_US)

    def action_twin_time_back_more(self) -> None:
        """Go back more."""
        self._go(self.time_us - _FAR_US)

    def action_twin_time_forward_more(self) -> None:
        """Go forward more."""
        self._go(self.time_us + _FAR_US)

    def action_twin_to_end(self) -> None:
        """Go to the end."""
        self._go(self.view().end_us)

    def action_twin_to_start(self) -> None:
        """Go to the start."""
        self._go(0)

    # ---- other actions ----

    def action_twin_side(self) -> None:
        """Go to the next box."""
        self.focus_next_box()

    def action_twin_open_side(self) -> None:
        """Open the simulation in the debugger, at its position."""
        from blis_tui.tui.screens.debugger import DebuggerScreen  # noqa: PLC0415  (screens are imported on demand)

        self._halt()
        experiment = self._twin.rungs[self.rung].experiment
        self.app.push_screen(DebuggerScreen(experiment, source=self._called, at=f"{self.time_us}us"))

    def action_twin_export(self) -> None:
        """Ask for a file, and write the displayed text to it."""
        self._halt()
        about = "Both sides at this time, the first divergence, latencies and requests, as text."
        self.export("Export the twin", about, "twin", lambda: file_text(self.view()))


def _side(side: int, view: TwinView, width: int) -> Content:
    return side_text(view, side, width)
