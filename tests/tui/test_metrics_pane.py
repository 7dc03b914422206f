"""The metrics pane: figures as of the position, percentiles, plots, and what fits where."""

from __future__ import annotations

import pytest

from blis_tui.base.text import draw
from blis_tui.base.units import span_text
from blis_tui.tui.drawing.plot import GUTTER, SECOND, plot, strips, top_value
from blis_tui.tui.drawing.series import (
    BY_NAME,
    FULL,
    FUTURE,
    KV_USE,
    PAST,
    RUNNING,
    SERIES,
    WAITING,
    coloured,
    value_text,
)
from blis_tui.tui.panes.metrics import MetricsPane, arrange, metrics, percentile_lines
from tests.tui.driven_pane import driven, knowing, view_with
from tests.tui.screens import press, settle

SIZES = [(34, 4), (36, 10), (60, 12), (76, 13), (76, 22), (98, 30), (100, 6), (136, 12), (200, 50)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("event", [0, 1000])
def test_the_text_fits_its_room(width: int, height: int, large: bool, event: int) -> None:
    view = view_with(knowing(event, at=event))
    latencies = view.latencies()
    for chosen in range(len(SERIES)):
        lines = metrics(view, latencies, chosen, width, height, large=large).plain.split("\n")
        assert len(lines) <= height
        assert all(len(line) <= width for line in lines)
        assert any(SERIES[chosen].name in line for line in lines)


def test_all_figures_are_shown_where_there_is_room_and_percentiles_first_of_the_rest() -> None:
    places = arrange(76, 12, 0, large=False)
    assert (places.strips.height, places.percentiles, places.header) == (10, False, True)
    assert arrange(76, 13, 0, large=False).percentiles
    assert not arrange(76, 23, 0, large=False).plot.height
    assert arrange(76, 24, 0, large=False).plot.height == 9
    assert arrange(136, 12, 0, large=False).plot.height == 12


def test_values_are_those_of_the_position_not_of_the_known_end() -> None:
    made = knowing(at=800)
    view = view_with(made)
    instance = view.moment.instance(0)
    assert WAITING.now(view) == instance.waiting_count
    assert value_text(KV_USE, KV_USE.now(view), view).endswith(" %")
    assert KV_USE.now(view) == instance.kv.used_blocks
    step = next(e for e in range(800, 0, -1) if made.tape.is_step(e))
    assert BY_NAME["step time"].now(view) == made.tape.step(made.tape.row(step).step).duration_us
    lives = [made.tape.life(name, 800) for name in made.tape.names()]
    # Of those that a preemption took back, only the next one counts.
    lasting = [[h for h in life if h.what in ("first-token", "preempted")][-1:] for life in lives]
    known = [h.second for last in lasting for h in last if h.what == "first-token"]
    assert BY_NAME["TTFT"].now(view) in known
    assert len(made.tape.latencies.ttfts_us(800, 1000)) == len(known)


def test_at_the_start_nothing_has_a_value_yet() -> None:
    view = view_with(knowing(at=0))
    values = {series.name: value_text(series, series.now(view), view) for series in SERIES}
    assert values == {
        "waiting": "0",
        "running": "0",
        "KV in use": "0 %",
        "batch tokens": "-",
        "step time": "-",
        "TTFT": "-",
        "preemptions": "-",
        "arrivals": "-",
        "completions": "-",
        "tokens": "-",
    }
    assert [line.plain.split() for line in percentile_lines(view.latencies(), 70)] == [
        ["TTFT", "none", "yet"],
        ["ITL", "none", "yet"],
    ]


@pytest.mark.parametrize("event", [1500, 1801])
def test_percentiles_are_those_of_the_report_at_the_position(event: int) -> None:
    made = knowing(at=event)
    wanted = made.report().latency
    for line, distribution in zip(
        percentile_lines(made.latencies(), 100), (wanted.ttft_ms, wanted.itl_ms), strict=True
    ):
        values = [
            span_text(int((value or 0.0) * 1000 + 0.5))
            for value in (distribution.p50, distribution.p90, distribution.p99)
        ]
        said = " ".join(line.plain.split())
        assert said.split(" ", 1)[1] == "p50 {} p90 {} p99 {} of the run so far, as in the report".format(*values)


@pytest.mark.parametrize(
    ("width", "scope"),
    [
        (34, "so far"),
        (44, "so far"),
        (56, "of the run so far"),
        (57, "so far"),
        (76, "of the run so far"),
        (136, "of the run so far, as in the report"),
    ],
)
def test_percentiles_of_gaps_say_what_they_are_of_at_every_width(width: int, scope: str) -> None:
    line = percentile_lines(knowing(at=1800).latencies(), width)[1].plain
    assert len(line) <= width
    assert line.split(" ms ")[-1].strip() == scope
    assert "p50 " in line
    assert ("p90 " in line) == (width >= 57)
    assert ("p99 " in line) == (width >= 38)


# ---- plot ----


def test_a_line_climbs_from_the_lower_left_to_the_upper_right() -> None:
    rows = draw([0, 1, 2, 3, 4, 5, 6, 7], 2, 7)
    assert rows[0][:2] == "  "
    assert rows[1][2:] != "    "
    assert rows[0][-1] != " "


def test_a_gap_is_not_bridged_and_zero_is_on_the_ground() -> None:
    assert draw([0, 0, None, None, 9, 9], 1, 9) == ["⣀ ⠉"]


def test_a_jump_is_an_upright_line() -> None:
    assert draw([0, 3], 1, 3) == ["⣸"]
    assert draw([0, 7], 2, 7) == ["⢸", "⣸"]


def test_a_plot_has_its_edges_and_the_position() -> None:
    made = knowing(at=1000)
    view = view_with(made)
    rows = [row.plain for row in plot(view, KV_USE, 80, 11)]
    assert len(rows) == 11
    assert rows[1].startswith("   100 %".rjust(9))
    assert rows[5].startswith("50 %".rjust(9))
    assert rows[9].startswith("0 %".rjust(9))
    assert "▏" in rows[10]
    assert any("│" in row for row in rows[1:10])


def test_a_nearly_full_cache_stands_out_and_the_future_is_dimmed() -> None:
    values = [0.0, 89.0, 90.0, 100.0, 95.0, None]
    drawn = coloured(KV_USE, values, 100, 3)
    assert [(drawn.plain[span.start : span.end], span.style) for span in drawn.spans] == [
        ("▁▇", PAST),
        ("▇█", FULL),
        ("█ ", FUTURE),
    ]
    assert {span.style for span in coloured(WAITING, values, 100, 5).spans} == {PAST}


def test_what_is_plotted_is_told_in_whole_words() -> None:
    view = view_with(knowing(at=500))
    for width in range(30, 90):
        told = plot(view, BY_NAME["step time"], width, 8)[0].plain
        assert len(told) <= width
        assert told.removeprefix("step time").strip() in (
            BY_NAME["step time"].about,
            BY_NAME["step time"].about.rpartition(", ")[0],
            "",
        )


def test_two_figures_of_one_unit_are_an_area_and_a_line() -> None:
    view = view_with(knowing(at=1000))
    rows = plot(view, WAITING, 80, 11)
    assert rows[0].plain == "⣿ waiting  ⠤⠤ running"
    styles = {span.style for row in rows[1:-1] for span in row.spans}
    assert {PAST, SECOND} <= styles
    alone = plot(view, KV_USE, 80, 11)
    assert SECOND not in {span.style for row in alone for span in row.spans}
    assert plot(view, WAITING, 15, 8)[0].plain == "waiting"


def test_an_area_has_every_second_dot_below_its_line() -> None:
    assert draw([7, 7], 2, 7, filled=True) == ["⡫", "⡪"]
    assert draw([0, 0, None], 1, 7, filled=True) == ["⣀ "]


def test_each_instance_has_a_strip_on_the_axis_of_the_plot() -> None:
    made = knowing(at=1000, experiment="quickstart", requests=20)
    view = view_with(made)
    rows = [row.plain for row in strips(view, RUNNING, 90, 3)]
    assert rows[0].startswith("requests of each instance")
    assert [row[:GUTTER].strip() for row in rows[1:]] == ["i0", "i1"]
    assert [row.plain.strip() for row in strips(view, KV_USE, 90, 2)] == ["KV in use by instance", "… 2 more instances"]
    assert len(metrics(view, view.latencies(), 0, 140, 16).plain.splitlines()) == 16
    assert "i1 " in metrics(view, view.latencies(), 0, 140, 16).plain
    assert "i1 " not in metrics(view_with(knowing(at=1000)), None, 0, 140, 16).plain


@pytest.mark.parametrize("height", [4, 6, 11, 12, 13, 20])
@pytest.mark.parametrize("width", [60, 78, 138])
def test_the_columns_have_headings_at_every_size(width: int, height: int) -> None:
    assert "now" in metrics(view_with(knowing(at=1000)), None, 0, width, height).plain.splitlines()[0]


def test_the_upper_edge_is_round_and_not_below_the_largest_value() -> None:
    view = view_with(knowing(at=10))
    assert top_value(WAITING, [3, 17, None], view) == 20
    assert top_value(WAITING, [3, None], view) == 3
    assert top_value(BY_NAME["step time"], [26_912], view) == 30_000
    assert top_value(WAITING, [0, 0], view) == 1


# ---- the pane ----


async def test_arrows_choose_what_is_plotted_and_enter_makes_it_large() -> None:
    async with driven(MetricsPane(), knowing(at=1000), (80, 17)) as (app, pilot):
        assert app.lines()[1].startswith("▸waiting")
        await press(pilot, "down", "down")
        assert any(line.startswith("▸KV in use") for line in app.lines())
        await press(pilot, "enter")
        assert app.lines()[0].startswith("KV in use")
        assert app.pane.border_subtitle == "enter: all figures"
        await press(pilot, "up", "enter")
        assert any(line.startswith("▸running") for line in app.lines())


async def test_in_little_room_the_chosen_figure_stays_in_sight() -> None:
    async with driven(MetricsPane(), knowing(at=1000), (40, 6)) as (app, pilot):
        for series in SERIES[1:]:
            await press(pilot, "down")
            assert any(line.startswith(f"▸{series.name}") for line in app.lines())


async def test_a_click_on_a_figure_plots_it_and_one_into_the_plot_goes_there() -> None:
    async with driven(MetricsPane(), knowing(at=1000), (140, 15)) as (app, pilot):
        pane = app.pane
        row = next(y for y, line in enumerate(app.lines()) if line.strip().startswith("TTFT"))
        await pilot.click(pane, offset=(10, row + 1))
        await settle(pilot)
        assert app.lines()[row].startswith("▸TTFT")
        assert not app.went
        await pilot.hover(pane, offset=(10, row + 1))
        assert str(pane.tooltip) == "TTFT: time to first token as clients measure it, maximum"
        await pilot.click(pane, offset=(130, 6))
        await settle(pilot)
        assert app.debugger.event > 1000
