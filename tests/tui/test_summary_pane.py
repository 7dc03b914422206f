"""The debugger opens at the end of the run, with its summary; each figure leads to the event that set it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.debugger.summary import summarize
from blis_tui.debugger.why.explanation import event_ref
from blis_tui.engine.records import Completed, FirstToken, Preempted
from blis_tui.runs.simulation import Simulation
from blis_tui.tui.boxes import Rows
from blis_tui.tui.panes.summary import summary_lines
from tests.tui.debugging import NARROW, NORMAL, debugging, experiment
from tests.tui.pane_harness import text_of
from tests.tui.screens import check_screen, draw, screen_text

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.engine.records import Record
    from tests.tui.debugging import Debugging


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Of the run that these tests open."""
    found: list[Record] = []
    simulation = Simulation(experiment("kv-pressure", 60))
    simulation.subscribe("all", found.append)
    simulation.run()
    return found


@pytest.mark.parametrize("size", [NARROW, NORMAL])
async def test_it_opens_at_the_end(
    size: tuple[int, int], records: list[Record], file_regression: FileRegressionFixture
) -> None:
    async with debugging(size=size, at=None) as open_:
        assert open_.event == records[-1].event
        assert open_.screen.arrangement.active == "summary"
        assert open_.session.summary is not None
        assert open_.session.summary.report.to_dict() == open_.debugger.report().to_dict()
        await check_screen(open_.pilot, file_regression, "summary")


async def test_each_figure_is_one_key_from_its_event(records: list[Record]) -> None:
    worst = max((record for record in records if isinstance(record, Completed)), key=lambda one: one.e2e_us)
    async with debugging(size=NARROW, at=None) as open_:
        await open_.press("enter")
        assert open_.event == worst.event
        assert open_.session.selection.request == worst.request_id
        assert f"✓ {worst.request_id} completed" in _sentence(open_)
        await open_.press("backspace")
        assert open_.event == records[-1].event
        await open_.press("1", "L")
        assert open_.event == worst.event
        await open_.press("exclamation_mark")
        assert open_.session.selection.metric == "warnings.0"
        firsts = {record.request_id: record for record in records if isinstance(record, FirstToken)}
        await open_.press("A")
        for key, wanted in (("down", "latency.ttft_ms."), ("right", "latency.ttft_ms.max")):
            while not open_.session.selection.metric.startswith(wanted):
                await open_.press(key)
        await open_.press("enter")
        assert (
            open_.event == max(firsts.values(), key=lambda first_token: (first_token.ttft_us, -first_token.event)).event
        )


async def test_a_click_on_a_figure_goes_there(records: list[Record]) -> None:
    async with debugging(size=NORMAL, at=None) as open_:
        await open_.press("plus", "plus")
        await draw(open_.pilot)
        rows = open_.screen.query_one("#summary").query_one(Rows)
        at = next(
            at
            for at, line in enumerate(rows.lines)
            if "preemptions" in line.draw().plain and "kv." not in line.draw().plain
        )
        column = rows.lines[at].draw().plain.index("preemptions")
        await open_.pilot.click(rows, offset=(column + rows.before, at - rows.scroll_offset.y))
        await open_.idle()
        assert open_.session.selection.metric == "kv.preemptions"
        assert open_.event == [record.event for record in records if isinstance(record, Preempted)][-1]
        await open_.press("left_parenthesis")  # to where it changed before, and still in this pane
        assert open_.event == [record.event for record in records if isinstance(record, Preempted)][-2]
        assert open_.screen.arrangement.active == "summary"
        await open_.press("b")
        assert [one.text for one in open_.session.breakpoints] == ["preempted"]


async def test_where_a_breakpoint_stops_questions_are_about_its_event(records: list[Record]) -> None:
    first = next(record for record in records if isinstance(record, Preempted))
    async with debugging(size=NARROW, at=None) as open_:
        open_.session.put("preempted")
        await open_.press("home")
        assert open_.screen.arrangement.active == "summary"
        await open_.press("r")
        assert open_.event == first.event
        assert open_.screen.arrangement.active == "events"
        assert open_.screen.at_cursor() == event_ref(first.event)


async def test_ways_to_begin_elsewhere(records: list[Record]) -> None:
    async with debugging(size=NARROW, at="start") as open_:
        assert open_.event == 0
        assert open_.screen.arrangement.active == "events"
        await open_.press("L")
        assert "not known yet" in open_.said()
        await open_.press("end")
        assert open_.session.summary is not None
        await open_.press("home")
        assert open_.event == 0
        assert "Nothing has happened yet" in _sentence(open_)
    async with debugging(size=NARROW, at="end") as open_:
        assert open_.event == records[-1].event
        assert open_.screen.arrangement.active == "events"


async def test_the_last_place_is_kept() -> None:
    async with debugging(at="700") as open_:
        assert open_.event == 700
    async with debugging(at=None) as open_:
        assert "ended at event 700" in open_.said()
        await open_.press("backspace")
        assert open_.event == 700


@pytest.mark.parametrize("name", ["kv-pressure", "service-classes", "autoscaling", "admission-control"])
def test_nothing_is_cut(name: str) -> None:
    summary = summarize(experiment(name, 60), None, lambda _: True)
    for width in (55, 75, 135):
        lines = summary_lines(summary, width, None, playing=False)
        text = text_of(lines)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width
        for line in lines:  # a click on a figure is a click on its text
            at = 0
            for cell in line.cells() if line.cells else ():
                at += cell.width
            assert at <= max(width, 60)


def _sentence(open_: Debugging) -> str:
    return screen_text(open_.app).splitlines()[1]
