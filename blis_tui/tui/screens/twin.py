"""A recording of a server and its simulation side by side, advanced together by time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial, partialmethod
from time import perf_counter
from typing import TYPE_CHECKING, Final

from textual.containers import Horizontal
from textual.content import Content

from blis_tui.base.classes import dataclass
from blis_tui.base.text import clip
from blis_tui.base.units import count_text, plural, share_change_text, share_text, span_text, time_text
from blis_tui.debugger.places import parse_place
from blis_tui.live.twin.course import Levels, of_recording, of_simulation, sampled
from blis_tui.live.twin.first_difference import alike_text, where, words_of
from blis_tui.live.twin.fitting import pace_of
from blis_tui.live.twin.simulated_requests import simulate
from blis_tui.results.stats import percentile
from blis_tui.tui.actions import bindings
from blis_tui.tui.bars import KeyBar, TitleBar
from blis_tui.tui.drawing.plot import AREA, GUTTER, LINE, SECOND, area_with_line
from blis_tui.tui.drawing.series import PAST
from blis_tui.tui.panes.timeline import Scale, axis, round_end
from blis_tui.tui.screens.side_by_side import CompareBox, CurvesBox, SideBySideScreen, show_in_boxes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.timer import Timer

    from blis_tui.live.observe.recording import Recording
    from blis_tui.live.twin.course import ServedLife, TwinTimeSeries
    from blis_tui.live.twin.simulated_requests import Batch
    from blis_tui.live.twin.twin import LadderStep, Twin


LETTERS: Final = ("A", "B")
_LIT: Final = "$warning"
_MUTED: Final = "$text-muted"
_METRICS: Final = (("ttft", "TTFT"), ("itl", "ITL"), ("e2e", "E2E"))
_CLOSE: Final = 0.1
"""Figures that differ by less than this share count as equal."""
_ALL_FROM: Final = 100
"""Width from which all simulations are listed."""
_LEAST_ROWS: Final = 4
_REQUESTS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinView:
    """The state of the screen."""

    twin: Twin
    rung: int
    """Index of the simulation."""
    sides: tuple[TwinTimeSeries, TwinTimeSeries]
    time_us: int

    @property
    def simulated(self) -> LadderStep:
        """The simulation on the right."""
        return self.twin.rungs[self.rung]

    @property
    def end_us(self) -> int:
        """The end of both sides."""
        return max(side.end_us for side in self.sides)


def title_text(view: TwinView) -> Content:
    """Return the names of both sides."""
    parts = [(f"{letter} ", side.name) for letter, side in zip(LETTERS, view.sides, strict=True)]
    return Content.assemble(
        *(piece for head, name in parts for piece in ((head, "$accent bold"), (f"{name}  ", "bold")))
    )


def place_text(view: TwinView) -> Content:
    """Return the time, and the source of the simulation's step times."""
    return Content.assemble((f"{view.simulated.name} ", _MUTED), ("  t ", _MUTED), time_text(view.time_us))


# ---- first difference ----


def parting_text(view: TwinView, width: int) -> Content:
    """Return the first difference, and how much of the error each measured part explains."""
    cell = 8
    room = max(width - 3 * cell - 10, 10)
    rungs = list(enumerate(view.twin.rungs))
    head = "MAPE"
    if width < _ALL_FROM:  # only the selected one fits
        head = f"MAPE, {view.rung + 1} of {len(rungs)}"
        rungs = [rungs[view.rung]]
    titles = "".join(f"{name:>{cell}}" for _, name in _METRICS)
    lines = [*_parted(view), Content.styled(f"{head:<{room}}{titles}{'alike':>10}", _MUTED)]
    for number, rung in rungs:
        mark = "▸ " if number == view.rung else "  "
        errors = "".join(_share(rung, metric, cell) for metric, _ in _METRICS)
        line = f"{mark}{clip(rung.name, room - 2):<{room - 2}}{errors}{share_text(view.twin.alike(rung)):>10}"
        lines.append(Content.styled(line, "bold" if number == view.rung else ""))
    return Content("\n").join(lines)


def _parted(view: TwinView) -> list[Content]:
    parting = view.simulated.parting
    if parting is None:
        if view.twin.left.batches is None:
            return [Content.styled(f"Divergence: {alike_text(logged=False)}.", _MUTED)]
        return [Content.styled("✓ All batches are the same, from the first step to the last.", "$success")]
    return [
        Content.styled(f"≠ first at {where(parting)}: {parting.text}", _LIT),
        Content.assemble((f"  {parting.cause}: ", "bold"), parting.why),
    ]


def _share(rung: LadderStep, metric: str, width: int) -> str:
    error = rung.errors.get(metric)
    return f"{share_text(None if error is None else error.mape):>{width}}"


# ---- one side ----


def side_text(side: int, view: TwinView, width: int) -> Content:
    """Return the state of a side at this time."""
    own, other = view.sides[side], view.sides[1 - side]
    now = view.time_us
    lines = [_step(own, now, width)]
    figures: tuple[tuple[str, Callable[[TwinTimeSeries], float | None]], ...] = (
        ("in flight", lambda series: series.in_flight(now)),
        ("in the batch", lambda series: _batch(series, now)),
        ("waiting", lambda series: _level(series, "waiting", now)),
        ("KV in use", lambda series: _level(series, "KV in use", now)),
        ("preempted", lambda series: _level(series, "preemptions", now)),
        ("answered", lambda series: len(series.answered(now))),
        ("tokens", lambda series: series.tokens(now)),
    )
    for name, read in figures:
        mine, theirs = read(own), read(other)
        lines.append(_figure(name, mine, theirs, width, share=name == "KV in use"))
    return Content("\n").join(lines)


def _step(side: TwinTimeSeries, now: int, width: int) -> Content:
    number = side.step(now)
    if number is None:
        return Content.styled("no step has begun" if side.begins_us else "its steps were not recorded", _MUTED)
    took = side.step_times.at(now)
    time = "" if took is None else f"  {span_text(round(took))}"
    room = width - len(f"step {count_text(number)}: {time}")
    text = _batch_words(side.batches[number], max(room, 8))
    return Content.assemble(("step ", _MUTED), f"{count_text(number)}: {text}", (time, _MUTED))


def _batch_words(batch: Batch, room: int) -> str:
    """Return the content of a batch in as many words as there is room for."""
    tokens = (f"{count_text(batch.prefill_tokens)} prefill", f"{count_text(batch.decode_tokens)} decode")
    shorter = " + ".join(tokens if batch.prefill_tokens else tokens[1:])
    both = plural(batch.prefill_tokens + batch.decode_tokens, "token")
    return next((words for words in (words_of(batch), shorter) if len(words) <= room), clip(both, room))


def _batch(side: TwinTimeSeries, now: int) -> float | None:
    number = side.step(now)
    if number is not None:
        return side.batches[number].requests
    return _level(side, "running", now)


def _level(side: TwinTimeSeries, name: str, now: int) -> float | None:
    """Return a figure at this time; 0 before its first value."""
    known = side.figures.get(name)
    return None if known is None else known.at(now) or 0.0


def _figure(name: str, mine: float | None, theirs: float | None, width: int, *, share: bool) -> Content:
    if mine is None:
        return Content.assemble((f"{name:<14}", _MUTED), (f"{'-':>{min(width - 14, 12)}}", _MUTED))
    text = share_text(mine) if share else count_text(round(mine))
    apart = theirs is not None and abs(mine - theirs) > max(_CLOSE * max(mine, theirs), 0.0 if share else 1.0)
    cell = f"{'≠ ' if apart else ''}{text}"
    return Content.assemble((f"{name:<14}", _MUTED), (f"{cell:>{min(width - 14, 12)}}", _LIT if apart else ""))


# ---- latencies ----


def latencies_text(view: TwinView, width: int) -> Content:
    """Return latencies of the requests that both sides have answered by now."""
    pairs = _answered(view)
    cell = min(max((width - 16) // 3, 8), 12)
    if not pairs:
        return Content.styled(
            "No request is answered on both sides yet: M advances by 100 ms, D goes to the first divergence.", _MUTED
        )
    lines = [
        Content.styled(f"{f'{len(pairs):,} answered':<14}{'A ms':>{cell}}{'B ms':>{cell}}{'B - A':>{cell}}", _MUTED)
    ]
    for metric, name in _METRICS:
        values = [(_latency(life, metric), _latency(other, metric)) for life, other in pairs]
        known = [(value, other) for value, other in values if value is not None and other is not None]
        for word, pick in (("mean", _mean), ("p99", _p99)):
            if known:
                left, right = pick([value for value, _ in known]), pick([other for _, other in known])
                lines.append(_compared(f"{name} {word}", left, right, cell))
    return Content("\n").join(lines)


def _answered(view: TwinView) -> list[tuple[ServedLife, ServedLife]]:
    left, right = view.sides
    now = view.time_us
    done = {life.name: life for life in right.answered(now)}
    return [(life, done[life.name]) for life in left.answered(now) if life.name in done]


def _latency(life: ServedLife, metric: str) -> float | None:
    ttft_us, e2e_us = life.ttft_us, life.e2e_us
    if ttft_us is None or e2e_us is None:
        return None
    if metric != "itl":
        return float(ttft_us if metric == "ttft" else e2e_us)
    gaps = life.counts[-1] - 1
    return (e2e_us - ttft_us) / gaps if gaps > 0 else None


def _mean(values: Sequence[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


def _p99(values: Sequence[float]) -> float:
    return percentile(sorted(values), 99)


def _compared(name: str, left: float, right: float, cell: int) -> Content:
    share = right / left - 1 if left else 0.0
    change = (f"{share_change_text(share):>{cell}}", _LIT if abs(share) > _CLOSE else _MUTED)
    return Content.assemble(f"{name:<14}{left / 1e3:>{cell},.1f}{right / 1e3:>{cell},.1f}", change)


# ---- requests ----


def requests_text(view: TwinView, width: int) -> Content:
    """Return the requests in different states."""
    left, right = view.sides
    rows = []
    for name in left.lives:
        standing, other = (_standing(side.lives.get(name), view.time_us) for side in (left, right))
        if standing != other and not (standing.startswith("✓") and other.startswith("✓")):
            rows.append((name, standing, other))
    if not rows:
        return Content.styled("Every request is in the same state on both sides.", _MUTED)
    name_room = min(max(len(name) for name, *_ in rows), max(width - 26, 8))
    cell = max((width - name_room - 2) // 2, 8)
    lines = [Content.styled(f"{'':<{name_room}} {'A':<{cell}} {'B':<{cell}}", _MUTED)]
    for name, standing, other in rows[:_REQUESTS]:
        text = f"{clip(name, name_room):<{name_room}} {clip(standing, cell):<{cell}} {clip(other, cell):<{cell}}"
        lines.append(Content(text))
    return Content("\n").join(lines)


def _standing(life: ServedLife | None, now: int) -> str:
    if life is None or now < life.sent_us:
        return "not sent"
    tokens = life.tokens(now)
    if now >= life.end_us:
        return f"✓ {span_text(life.e2e_us)}" if life.e2e_us is not None else "✗ ended"
    return f"decode {count_text(tokens)}" if tokens else "no token yet"


# ---- over time ----

SERIES: Final = ("in flight", "KV in use", "waiting", "running", "preemptions", "step time", "batch")


def curves_text(view: TwinView, series: str, width: int, height: int) -> Content:
    """Return a figure of A as an area and of B as a line over it; dimmed after the position."""
    if height < _LEAST_ROWS or width <= 2 * GUTTER:
        return Content("")
    scale = Scale(max(view.end_us, 1) + 1, width - GUTTER)
    a, b = (_course(side, series, scale) for side in view.sides)
    highest = max((value for value in [*a, *b] if value is not None), default=0.0)
    share, times = series == "KV in use", series == "step time"
    top = 1.0 if share else float(round_end(max(int(highest + 0.999), 1)))
    label = f"{100 * top:.0f} %" if share else span_text(int(top)) if times else count_text(int(top))
    labels = [label, *[""] * (height - 4), "0"]
    rows = area_with_line(a, b, top, labels, scale.cell(min(view.time_us, scale.end_us - 1)))
    title = Content.assemble((f"{AREA} A measured", PAST), (f"  {LINE} B simulated", SECOND))
    return Content("\n").join([title.truncate(width, ellipsis=True), *rows, Content(" " * GUTTER) + axis(scale)])


def _course(side: TwinTimeSeries, series: str, scale: Scale) -> Sequence[float | None]:
    cells = 2 * scale.cells
    if series == "in flight":
        return [float(side.in_flight(cell * scale.end_us // cells)) for cell in range(cells)]
    levels: Levels | None = side.figures.get(series)
    if series == "step time":
        levels = side.step_times
    elif series == "batch":
        levels = Levels(side.begins_us, tuple(float(batch.requests) for batch in side.batches))
    return [None] * cells if levels is None or not levels.times_us else sampled(levels, scale.end_us, cells)


# ---- as text ----


def file_text(view: TwinView) -> str:
    """Return the position as text: both sides, latencies, requests."""
    width = 100
    blocks = [
        title_text(view).plain + place_text(view).plain,
        parting_text(view, width).plain,
        *(f"{letter}\n{side_text(side, view, width).plain}" for side, letter in enumerate(LETTERS)),
        latencies_text(view, width).plain,
        requests_text(view, width).plain,
    ]
    return "\n\n".join("\n".join(line.rstrip() for line in block.splitlines()) for block in blocks) + "\n"


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
        self._courses: dict[int, TwinTimeSeries] = {}
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
                yield CompareBox(title, partial(side_text, side), id=letter.lower())
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

    def _right(self) -> TwinTimeSeries:
        if self.rung not in self._courses:
            run = simulate(self._twin.rungs[self.rung].experiment, follow=True)
            self._courses[self.rung] = of_simulation(self._called, run)
        return self._courses[self.rung]

    def _show(self) -> None:
        view = self.view()
        show_in_boxes(self, view, title_text(view), place_text(view))

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
        elif place.end:
            self._go(self.view().end_us)
        else:
            life = left.lives.get(place.request or "")
            if life is None:
                self.notify("There is no request with that name.", severity="warning", markup=False)
            else:
                self._go(life.sent_us)

    def _go_by(self, us: int) -> None:
        self._go(self.time_us + us)

    action_twin_time_back = partialmethod(_go_by, -_LITTLE_US)
    action_twin_time_forward = partialmethod(_go_by, _LITTLE_US)
    action_twin_time_back_more = partialmethod(_go_by, -_FAR_US)
    action_twin_time_forward_more = partialmethod(_go_by, _FAR_US)

    def action_twin_to_end(self) -> None:
        """Go to the end."""
        self._go(self.view().end_us)

    def action_twin_to_start(self) -> None:
        """Go to the start."""
        self._go(0)

    # ---- other actions ----

    action_twin_side = SideBySideScreen.focus_next_box

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
