"""The timeline: a stable axis, what is drawn where, and clicks that go to a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.lifespans import AGAIN
from blis_tui.tui.drawing.series import KV_USE, SERIES, WAITING, rate_text, sample, strip
from blis_tui.tui.panes.timeline import (
    CHOICES,
    LABEL,
    Scale,
    Timeline,
    axis,
    event_at,
    event_beside,
    hover_text,
    known_until,
    round_end,
    scale_of,
    tick_text,
    timeline,
)
from tests.tui.driven_pane import driven, knowing, view_with
from tests.tui.screens import press, settle

if TYPE_CHECKING:
    from blis_tui.debugger.debugger import Debugger

WIDTH = 80
CELLS = WIDTH - LABEL


def drawn(made: Debugger, *breaks: str) -> list[str]:
    return [line[LABEL:] for line in timeline(view_with(made, *breaks), KV_USE, WIDTH).plain.split("\n")]


# ---- the axis ----


@pytest.mark.parametrize(
    ("us", "end"), [(1, 1), (7, 7), (11, 12), (101, 120), (8_000_001, 10_000_000), (1_000_001, 1_200_000)]
)
def test_the_end_of_the_axis_is_a_round_time_not_before_what_is_known(us: int, end: int) -> None:
    assert round_end(us) == end


def test_the_axis_stays_while_the_run_grows_except_now_and_then() -> None:
    made = knowing(0, at=0, requests=200)
    ends: list[int] = []
    for event in range(0, 4000, 50):
        run_to_stop(made.seek(event))
        ends.append(scale_of(view_with(made), CELLS).end_us)
        assert ends[-1] > known_until(view_with(made))
    assert ends == sorted(ends)
    assert len(set(ends)) < 16


def test_a_complete_run_fills_the_axis() -> None:
    made = knowing(at=5)
    view = view_with(made)
    assert scale_of(view, CELLS).cell(known_until(view)) == CELLS - 1


def test_times_stand_where_they_are_and_none_is_cut() -> None:
    for end_us in (999, 48_000, 1_000_001, 66_546_685, 7_200_000_000):
        for cells in (24, 66, 126):
            scale = Scale(end_us, cells)
            line = axis(scale).plain
            assert len(line) <= cells
            labels = [part.strip() for part in line.split("▏")[1:]]
            assert len(labels) >= 2 or cells == 24
            assert labels[0] in ("0 s", "0.0 s", "0.00 s", "0 ms", "0.0 ms", "0.00 ms", "0 us")
            assert all(label.endswith("s") for label in labels)


@pytest.mark.parametrize(
    ("time", "step", "text"),
    [
        (2_500_000, 500_000, "2.5 s"),
        (20_000_000, 20_000_000, "20 s"),
        (1_250_000, 50_000, "1.25 s"),
        (3_000, 1_000, "3 ms"),
        (40, 20, "0.04 ms"),
        (3_600_000_000, 600_000_000, "3,600 s"),
    ],
)
def test_a_time_has_the_digits_that_its_distance_needs(time: int, step: int, text: str) -> None:
    assert tick_text(time, step) == text


def test_columns_and_times_fit_each_other() -> None:
    for end_us in (7, 1000, 123_457):
        scale = Scale(end_us, 66)
        for time_us in range(0, end_us, max(end_us // 500, 1)):
            cell = scale.cell(time_us)
            assert scale.start_us(cell) <= time_us <= scale.last_us(cell)


# ---- what is drawn ----


def test_every_line_fits_and_the_position_is_marked_once() -> None:
    made = knowing(at=1000)
    for width in (40, 80, 140, 300):
        for choice in CHOICES:
            lines = timeline(view_with(made), choice, width).plain.split("\n")
            assert len(lines) == 3
            assert all(len(line) <= width for line in lines)
            assert lines[2].count("▲") == 1


def test_marks_stand_at_their_times() -> None:
    made = knowing(at=1)
    view = view_with(made)
    scale = scale_of(view, CELLS)
    marks = drawn(made, "time 2s")[2]
    preempting = next(
        e
        for e in range(1, made.frontier + 1)
        if made.tape.is_step(e) and made.tape.step(made.tape.row(e).step).preempted
    )
    assert AGAIN.sign in marks[scale.cell(made.tape.time_us(preempting)) - 1 :][:3]
    assert marks[scale.cell(2_000_000)] == "●"
    assert marks.rstrip()[-1] == "┤"
    assert marks[0] == "▲"


def test_a_lost_request_is_marked() -> None:
    made = knowing(at=0, experiment="admission-control", requests=200)
    lost = next(e for e in range(1, made.frontier + 1) if made.tape.kind(e) == "rejected")
    scale = scale_of(view_with(made), CELLS)
    assert "!" in drawn(made)[2][scale.cell(made.tape.time_us(lost)) - 1 :][:3]


def test_a_strip_is_blank_where_nothing_is_known() -> None:
    made = knowing(500, at=500)
    view = view_with(made)
    scale = scale_of(view, CELLS)
    bars = drawn(made)[1]
    edge = scale.cell(known_until(view))
    assert " " not in bars[: edge + 1]
    assert not bars[edge + 1 :].strip()


def test_what_is_known_of_the_future_is_drawn_in_another_style() -> None:
    made = knowing(at=1000)
    content = timeline(view_with(made), KV_USE, WIDTH)
    start = content.plain.index("\n") + 1 + LABEL
    here = scale_of(view_with(made), CELLS).cell(made.time_us)
    styles = {str(span.style) for span in content.spans if span.start == start + here + 1}
    assert any("dim" in style for style in styles)


# ---- reading the overview ----


def test_the_largest_value_of_a_cell_is_never_lost() -> None:
    made = knowing(at=0)
    overview, end = made.tape.overview, known_until(view_with(made)) + 1
    largest = max(bucket.waiting_max for bucket in overview.buckets)
    for cells in (5, 66, 900):
        values = sample(WAITING, overview, end, cells, end - 1)
        assert max(value for value in values if value is not None) == largest


def test_rates_add_up_to_what_happened() -> None:
    made = knowing(at=0)
    end = known_until(view_with(made)) + 1
    arrivals = next(series for series in SERIES if series.name == "arrivals")
    for cells in (7, 66, 700):
        values = sample(arrivals, made.tape.overview, end, cells, end - 1)
        total = 0.0
        for cell, value in enumerate(values):
            total += (value or 0) * ((cell + 1) * end // cells - cell * end // cells) / 1e6
        assert total == pytest.approx(60, rel=0.01)


def test_something_is_never_drawn_as_nothing() -> None:
    assert strip([0, 1, 500, 1000, None], 1000) == "▁▂▅█ "
    assert strip([0, 0], 0) == "▁▁"


@pytest.mark.parametrize(("rate", "text"), [(0, "0/s"), (1.25, "1.25/s"), (13.64, "13.6/s"), (13647.2, "13,647/s")])
def test_a_rate_has_three_digits_that_count(rate: float, text: str) -> None:
    assert rate_text(rate) == text


# ---- going ----


def test_a_column_means_the_last_event_in_it_and_the_first_one_the_start() -> None:
    view = view_with(knowing(at=1000))
    scale = scale_of(view, CELLS)
    assert event_at(view, scale, 0) == 0
    assert event_at(view, scale, CELLS - 1) == view.moment.frontier
    assert event_at(view, scale, CELLS + 50) == view.moment.frontier
    for cell in range(1, CELLS):
        event = event_at(view, scale, cell)
        assert view.tape.time_us(event) <= scale.last_us(cell)
        assert event == view.moment.frontier or view.tape.time_us(event + 1) > scale.last_us(cell)


def test_one_column_to_the_side_is_always_a_move() -> None:
    made = knowing(at=0)
    for event in (0, 1, 500, made.frontier - 1, made.frontier):
        run_to_stop(made.seek(event))
        view = view_with(made)
        scale = scale_of(view, CELLS)
        left, right = event_beside(view, scale, -1), event_beside(view, scale, 1)
        assert left < event or event == left == 0
        assert right > event or event == right == made.frontier


def test_the_unknown_says_so() -> None:
    view = view_with(knowing(500, at=500))
    scale = scale_of(view, CELLS)
    assert hover_text(view, KV_USE, scale, CELLS - 1).endswith("not simulated yet")
    assert "event 5" in hover_text(view, KV_USE, scale, scale.cell(known_until(view)))


async def test_a_click_goes_to_the_time_and_a_drag_goes_along() -> None:
    async with driven(Timeline(), knowing(at=10), (80, 6)) as (app, pilot):
        pane = app.pane
        left = pane.gutter.left + LABEL
        view = view_with(app.debugger)
        scale = scale_of(view, pane.content_size.width - LABEL)
        await pilot.mouse_down(pane, offset=(left + 20, 1))
        await settle(pilot)
        assert app.went == [event_at(view, scale, 20)]
        await pilot.hover(pane, offset=(left + 25, 1))
        await settle(pilot)
        assert app.went[-1] == event_at(view, scale, 25)
        await pilot.mouse_up(pane, offset=(left + 25, 1))
        await pilot.hover(pane, offset=(left + 40, 1))
        await settle(pilot)
        assert app.went[-1] == event_at(view, scale, 25)
        assert "event" in str(pane.tooltip)


async def test_arrows_choose_the_figure_and_move() -> None:
    async with driven(Timeline(), knowing(at=1000), (80, 6)) as (app, pilot):
        assert "KV in use" in app.lines()[0]
        await press(pilot, "down")
        assert "waiting" in app.lines()[0]
        await press(pilot, "up", "up")
        assert CHOICES[-1].name in app.lines()[0]
        await press(pilot, "right")
        assert app.debugger.event > 1000
        await press(pilot, "left", "left")
        assert app.debugger.event < 1000
        await pilot.click(app.pane, offset=(3, 1))
        await settle(pilot)
        assert "KV in use" in app.lines()[0]
