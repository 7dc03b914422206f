"""`(` and `)`: back to the last change of what the cursor is on, and on to the next. Watches beside the events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.debugger.why.explanation import Subject
from blis_tui.runs.simulation import Simulation
from blis_tui.tui.panes.events import columns_of, watch_lines
from blis_tui.tui.panes.pane import changes_of
from tests.tui.debugging import NARROW, debugging, experiment
from tests.tui.screens import check_screen, draw, screen_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_regressions.file_regression import FileRegressionFixture

    from tests.tui.debugging import Debugging

FIGURES: dict[str, Callable[[Simulation], object]] = {
    "waiting": lambda run: run.figure("waiting"),
    "kv.used": lambda run: run.figure("kv.used"),
    "blocks": lambda run: held(run, "request_30"),
    "phase": lambda run: phase(run, "request_30"),
}


def held(run: Simulation, name: str) -> int:
    live = run.request(name)
    return 0 if live is None else live.held_blocks


def phase(run: Simulation, name: str) -> str:
    live = run.request(name)
    return "none" if live is None else live.phase


@pytest.fixture(scope="module")
def courses() -> dict[str, list[object]]:
    """The value of each figure after each event."""
    simulation = Simulation(experiment("kv-pressure", 60))
    found: dict[str, list[object]] = {name: [read(simulation)] for name, read in FIGURES.items()}
    while not simulation.done:
        simulation.run(max_events=1)
        for name, read in FIGURES.items():
            found[name].append(read(simulation))
    return found


def changes(course: list[object]) -> list[int]:
    return [event for event in range(1, len(course)) if course[event] != course[event - 1]]


async def there_and_back(open_: Debugging, course: list[object]) -> None:
    """Press both keys, and compare with the course."""
    here, events = open_.event, changes(course)
    before = [event for event in events if event < here]
    await open_.press("left_parenthesis")
    assert open_.event == before[-1]
    await open_.press("left_parenthesis")
    assert open_.event == before[-2]
    await open_.press("right_parenthesis", "right_parenthesis")
    assert open_.event == next(event for event in events if event > before[-1])


async def test_figures_blocks_and_phases(courses: dict[str, list[object]]) -> None:
    at = next(event for event in range(900, 3000) if courses["phase"][event] == "decode" and event % 7 == 0)
    async with debugging(size=NARROW, at=str(at), at_once=True) as open_:
        await open_.press("4")
        await there_and_back(open_, courses["waiting"])
        await open_.press("down", "down")
        await there_and_back(open_, courses["kv.used"])
        open_.session.select(request="request_30")
        await open_.press("5")
        await there_and_back(open_, courses["blocks"])
        assert "held_blocks is" in open_.said()
        await open_.press("w", ":request_30.phase", "8")
        await there_and_back(open_, courses["phase"])
        await open_.press("home", "left_parenthesis")
        assert open_.event == 0
        assert "does not change before" in open_.said()


async def test_a_request_changes_where_its_life_goes_on() -> None:
    async with debugging(size=NARROW, at="1500", at_once=True) as open_:
        open_.session.select(request="request_30")
        await open_.press("3")
        life = [event.event for event in open_.debugger.tape.life("request_30")]
        await open_.press("left_parenthesis")
        assert open_.event == max(event for event in life if event < 1500)


STOPS = (
    (Subject("figure", "instances[0].kv.used_blocks"), "change instance[0].kv.used"),
    (Subject("figure", "instances[0].waiting.count"), "change instance[0].waiting"),
    (Subject("figure", "requests.request_7.held_blocks"), 'change request["request_7"].held_blocks'),
    (Subject("figure", "requests.a.b.queued_us"), "request a.b"),
    (Subject("figure", "requests.*.generated_tokens"), "step"),
    (Subject("figure", "arrived"), "change arrived"),
    (Subject("instance", "0"), "change instance[0].waiting"),
    (Subject("metric", "kv.preemptions"), "preempted"),
    (Subject("metric", "worst"), "step"),
)


async def test_what_stops_where_something_changes() -> None:
    async with debugging(size=NARROW, at="20", at_once=True) as open_:
        for subject, text in STOPS:
            assert changes_of(open_.session.view(), subject) == text
            open_.session.read_breakpoint(text)


async def test_watches_are_columns_beside_the_events(
    courses: dict[str, list[object]], file_regression: FileRegressionFixture
) -> None:
    async with debugging(size=NARROW, at="1500", at_once=True) as open_:
        await open_.press("w", ":kv.used", "w", ":request_30.phase", "1")
        for _ in open_.session.trace():
            pass
        used, phases = open_.session.view().traces
        known = open_.debugger.frontier + 1
        assert [used.at(event) for event in range(known)] == courses["kv.used"][:known]
        assert [phases.figure.text_of(phases.at(event)) for event in range(known)] == courses["phase"][:known]
        assert used.largest(100, 900) == max(int(str(one).partition(".")[0]) for one in courses["kv.used"][100:901])
        view = open_.session.view()
        assert [len(columns_of(view, width)) for width in (38, 39, 76, 200)] == [0, 1, 2, 2]
        assert all(line.cell_length == 76 for line in watch_lines(view, 76))
        open_.screen.show_view()
        await check_screen(open_.pilot, file_regression, "watched")
        rows = [line for line in screen_text(open_.app).splitlines() if "step" in line and " tok" in line]
        assert all("request" in line or "none" in line or "decode" in line or "prefill" in line for line in rows[1:])
        await open_.press("8", "delete", "delete")
        assert open_.session.view().traces == ()
        await open_.press("1")
        await draw(open_.pilot)
        assert "kv.used" not in screen_text(open_.app)
