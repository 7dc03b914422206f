"""Two runs side by side on the screen."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from textual.app import App
from textual.widgets import Input

import blis_tui
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.lockstep import NOT_ARRIVED, FigurePair, Lockstep, RequestStatus
from blis_tui.debugger.why.explain import explain_event
from blis_tui.debugger.why.explanation import event_ref, request_ref
from blis_tui.engine.records import Admitted, Dropped, Queued, Routed
from blis_tui.results.record_lines import record_dict
from blis_tui.runs.comparison import ComparedFigure, RequestChanges
from blis_tui.runs.divergence import Divergence, run_to_end
from blis_tui.tui import view as view_module
from blis_tui.tui.app import BlisApp
from blis_tui.tui.drawing.plot import curves_text
from blis_tui.tui.drawing.series import KV_USE, SERIES
from blis_tui.tui.driver import Pump
from blis_tui.tui.screens import compare as compare_screen
from blis_tui.tui.screens.compare import CompareScreen
from blis_tui.tui.screens.compare_lines import (
    differences_text,
    file_stem,
    metrics_text,
    names_text,
    requests_text,
    short_names,
    side_text,
    standing_text,
)
from blis_tui.tui.screens.help import HelpScreen
from blis_tui.tui.screens.why import WhyScreen
from tests.tui.screens import check_screen, idle, press, screen_text, settle

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture
    from textual.pilot import Pilot

    from blis_tui.debugger.history import Progress
    from blis_tui.engine.records import Record
    from blis_tui.tui.screens.compare_lines import CompareView

NAMES = ("kv-pressure", "kv-pressure engine.kv_blocks=900")


@cache
def pair() -> tuple[blis_tui.Experiment, blis_tui.Experiment]:
    changes = {"workload.requests": 60}
    return (
        blis_tui.load("kv-pressure", set=changes),
        blis_tui.load("kv-pressure", set={**changes, "engine.kv_blocks": 900}),
    )


class Alone(App[None]):
    """Nothing but the comparison."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (140, "-wide")]  # noqa: RUF012  (Textual's way)

    def __init__(self, screen: CompareScreen) -> None:
        super().__init__()
        self.compare = screen

    def on_mount(self) -> None:
        self.push_screen(self.compare)


def comparison(event: int | None = None) -> CompareScreen:
    return CompareScreen(*pair(), NAMES, event=event)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both runs are where they are sent at once, and so are the figures, however slow the machine is."""
    for name in ("_AT_ONCE_S", "_SLICE_S"):
        monkeypatch.setattr(compare_screen, name, 1e9)


async def finish(pilot: Pilot[None], screen: CompareScreen) -> None:
    """Let what was begun come to its end; what is shown on the way is not drawn."""
    await settle(pilot)
    while screen.busy or screen._figures.pause is not None:
        screen.tick()
        await asyncio.sleep(0.001)
        await idle()
    await settle(pilot)


def is_busy(what: CompareScreen | Pump) -> bool:
    return what.busy


def events(screen: CompareScreen) -> tuple[int, int]:
    return screen.lockstep.left.event, screen.lockstep.right.event


def plain(view: CompareView, width: int = 60) -> dict[str, list[str]]:
    return {
        "differences": differences_text(view, width).plain.splitlines(),
        "a": side_text(0, view, width).plain.splitlines(),
        "b": side_text(1, view, width).plain.splitlines(),
        "metrics": metrics_text(view, width).plain.splitlines(),
        "requests": requests_text(view, width).plain.splitlines(),
    }


@pytest.mark.parametrize("size", [(80, 24), (140, 40), (200, 60)])
async def test_how_it_looks(size: tuple[int, int], file_regression: FileRegressionFixture) -> None:
    app = Alone(comparison())
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await check_screen(pilot, file_regression, "compare-start")
        await press(pilot, "D")
        await finish(pilot, app.compare)
        await check_screen(pilot, file_regression, "compare-divergence")
        await press(pilot, "end")
        await finish(pilot, app.compare)
        await check_screen(pilot, file_regression, "compare-end")


async def test_a_terminal_that_shrinks_and_grows_again_shows_the_same() -> None:
    screen = comparison(60)
    async with Alone(screen).run_test(size=(80, 24)) as pilot:
        await finish(pilot, screen)
        before = screen_text(pilot.app)
        for size in ((40, 10), (20, 5), (60, 15), (9, 3), (80, 24)):
            await pilot.resize_terminal(*size)
            await finish(pilot, screen)
        assert screen_text(pilot.app) == before


async def test_keys_move_both_sides_by_the_clock() -> None:
    app = Alone(comparison())
    by_hand = Lockstep(*pair())
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(3):
            await press(pilot, "n")
            by_hand.step()
        assert events(app.compare) == (by_hand.left.event, by_hand.right.event)
        await press(pilot, "s")
        await finish(pilot, app.compare)
        run_to_stop(by_hand.step_batch())
        assert events(app.compare) == (by_hand.left.event, by_hand.right.event)
        await press(pilot, "left_square_bracket")
        await finish(pilot, app.compare)
        run_to_stop(by_hand.back())
        assert events(app.compare) == (by_hand.left.event, by_hand.right.event)
        await press(pilot, "home")
        await finish(pilot, app.compare)
        assert events(app.compare) == (0, 0)
        assert "at the start" in screen_text(app)


async def test_running_pauses_and_comes_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_screen, "_SLICE_S", 0.01)
    one = blis_tui.load("kv-pressure", set={"workload.requests": 120})
    app = Alone(CompareScreen(one, one, NAMES))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("c")
        screen = app.compare
        assert is_busy(screen)
        screen.tick()
        await pilot.press("space")
        assert not is_busy(screen)
        paused = events(screen)
        screen.tick()
        assert events(screen) == paused
        await pilot.press("c")
        await finish(pilot, screen)
        assert screen.lockstep.at_end
        assert "end of both" in screen_text(app)


async def test_figures_that_take_long_follow_when_the_reader_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Alone(comparison())
    async with app.run_test(size=(80, 24)) as pilot:
        screen = app.compare
        await settle(pilot)
        monkeypatch.setattr(view_module, "_CHEAP_S", 0)
        before = screen._figures.value
        await press(pilot, "end")
        assert screen.lockstep.at_end
        assert screen._figures.value == before
        await finish(pilot, screen)
        assert screen._figures.value != before


async def test_the_search_for_the_divergence_can_be_stopped_and_goes_there() -> None:
    app = Alone(comparison())
    screen = app.compare
    async with app.run_test(size=(80, 24)) as pilot:
        screen.pump.start(screen.lockstep.first_divergence(), "comparing events", lambda _found: None)
        await pilot.press("escape")
        assert not screen.busy
        assert events(screen) == (0, 0)
        await press(pilot, "D")
        await finish(pilot, screen)
        divergence = screen.view().divergence
        assert divergence is not None
        assert events(screen) == (divergence.event, divergence.event)
        assert f"first at event {divergence.event:,}" in screen_text(app)
        await press(pilot, "home", "D")  # known by now
        await finish(pilot, screen)
        assert events(screen) == (divergence.event, divergence.event)


async def test_it_begins_where_it_is_told_to() -> None:
    app = Alone(comparison(event=500))
    async with app.run_test(size=(80, 24)) as pilot:
        await finish(pilot, app.compare)
        assert events(app.compare) == (500, 500)
        view = app.compare.view()
        assert view.searched
        assert view.divergence is not None
        assert f"first at event {view.divergence.event}" in screen_text(app)


async def test_going_to_a_place_takes_both_sides_there() -> None:
    app = Alone(comparison())
    screen = app.compare

    async def go(place: str) -> None:
        await press(pilot, "g")
        app.screen.query_one(Input).value = place
        await press(pilot, "enter")
        await finish(pilot, screen)

    async with app.run_test(size=(80, 24)) as pilot:
        await go("request_7")
        assert all(side.request("request_7") is not None for side in screen.lockstep.sides)
        for before in ("home", "end"):  # what follows is not known yet, and then it is
            await press(pilot, before)
            await go("900ms")
            for side in screen.lockstep.sides:
                following = side.upcoming()
                assert following is not None
                assert side.time_us <= 900_000 < following.time_us
        await go("321")
        assert events(screen) == (321, 321)
        await go("99999999")
        assert screen.lockstep.at_end
        assert "Both runs end before that." in [note.message for note in app._notifications]


async def test_a_place_that_is_nowhere_changes_nothing() -> None:
    app = Alone(comparison(event=50))
    screen = app.compare
    async with app.run_test(size=(80, 24)) as pilot:
        await finish(pilot, screen)
        await press(pilot, "g")
        app.screen.query_one(Input).value = "nobody"
        await press(pilot, "enter")
        await finish(pilot, screen)
        assert events(screen) == (50, 50)
        assert "Neither run has a request with that name." in [note.message for note in app._notifications]


async def test_a_question_mark_asks_for_the_keys_where_there_is_no_event_to_explain() -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        home = app.screen
        await press(pilot, "?")
        assert isinstance(app.screen, HelpScreen)
        await press(pilot, "escape")
        assert app.screen is home


async def test_a_question_mark_explains_the_event_of_the_selected_side() -> None:
    screen = comparison(1500)
    app = BlisApp()
    async with app.run_test(size=(140, 40)) as pilot:
        app.push_screen(screen)
        await finish(pilot, screen)
        await press(pilot, "n", "n")
        for side in (0, 1):
            wanted = screen.lockstep.sides[side]
            await press(pilot, "?")
            assert isinstance(app.screen, WhyScreen)
            assert app.screen._explanation == explain_event(wanted, wanted.event)
            await press(pilot, "escape", "tab")
        # In the table of requests, the first one there.
        pair = screen.view().requests[0]
        screen.query_one("#requests").focus()
        await press(pilot, "?")
        assert isinstance(app.screen, WhyScreen)
        assert app.screen._explanation.about in (request_ref(pair.name), request_ref(pair.right_name))
        await press(pilot, "escape")
        screen.query_one("#b").focus()
        await press(pilot, "?")
        app.screen.dismiss(event_ref(700))
        await finish(pilot, screen)
        assert events(screen) == (700, 700)


@pytest.mark.parametrize("width", [136, 74, 68, 60, 59, 38])
@pytest.mark.parametrize("size", [1, 50, 5_000, 50_000])
def test_columns_of_figures_do_not_touch(width: int, size: int) -> None:
    names = ("running", "waiting", "kv", "preemptions")
    pairs = [
        FigurePair(instance=one, name=name, left=some * (1 + one + at), right=some * (7 + at))
        for one in range(3)
        for at, name in enumerate(names)
        for some in [size if name == "kv" else min(size, 400)]
    ]
    view = replace(comparison().view(), figures=tuple(pairs))
    for side in (0, 1):
        rows = side_text(side, view, width).plain.splitlines()[-4:]
        assert max(map(len, rows)) <= width
        assert rows[0].split()[-1] in ("pre", "preempt", "preemptions")
        for one, row in enumerate(rows[1:]):
            figures = [f"{(pair.left, pair.right)[side]:,}" for pair in pairs if pair.instance == one]
            words = [word for word in row.split() if word != "≠" and word[0] != "("]
            assert words == [f"i{one}", *figures]


@pytest.mark.parametrize("width", [72, 46, 38])
def test_a_change_does_not_touch_the_figure_before_it(width: int) -> None:
    row = ComparedFigure(metric="requests.completed", a=12, b=1_190)
    line = metrics_text(replace(comparison().view(), metrics=(row,)), width).plain.splitlines()[1]
    assert line.split()[:5] == ["completed", "12", "1,190", "+9,817", "%"]


async def test_tab_visits_every_box_and_the_last_side_is_marked() -> None:
    app = Alone(comparison())
    async with app.run_test(size=(80, 24)) as pilot:
        visited = []
        for _ in range(6):
            await press(pilot, "tab")
            assert app.focused is not None
            visited.append(app.focused.id)
        assert visited == ["b", "metrics", "requests", "curves", "differences", "a"]
        await press(pilot, "tab", "tab")
        assert "▶ B" in screen_text(app)
        assert "▶ A" not in screen_text(app)


async def test_curves_of_both_runs_lie_over_each_other(file_regression: FileRegressionFixture) -> None:
    app = Alone(CompareScreen(*pair(), NAMES, time_us=4_000_000))
    async with app.run_test(size=(80, 24)) as pilot:
        await finish(pilot, app.compare)
        assert not app.compare.query_one("#curves").display
        await press(pilot, "tab", "tab", "tab", "tab", "down", "down")
        assert app.compare.query_one("#curves").display
        assert not app.compare.query_one("#tables").display
        await check_screen(pilot, file_regression, "compare-curves")
        await press(pilot, "up")
        assert "Over time: running" in screen_text(app)
        await press(pilot, "tab")
        assert app.compare.query_one("#tables").display


def test_the_curves_fit_their_room_and_share_one_scale() -> None:
    lockstep = Lockstep(*pair())
    run_to_stop(lockstep.to_end())
    screen = comparison()
    screen.lockstep = lockstep
    view = screen.view()
    for series in SERIES:
        for width, height in ((60, 6), (138, 20)):
            lines = curves_text(view, series, width, height).plain.splitlines()
            assert len(lines) == height
            assert all(len(line) <= width for line in lines)
    assert curves_text(view, KV_USE, 60, 6).plain.splitlines()[1].strip().startswith("100 %")
    assert curves_text(view, KV_USE, 60, 3).plain == ""


async def test_the_comparison_begins_at_the_time_it_was_asked_for_at() -> None:
    app = Alone(CompareScreen(*pair(), NAMES, time_us=1_500_000))
    async with app.run_test(size=(80, 24)) as pilot:
        await finish(pilot, app.compare)
        for side in app.compare.lockstep.sides:
            assert side.event == side.tape.at_time(1_500_000) > 0


def test_what_hardly_changed_is_neither_better_nor_worse() -> None:
    lockstep = Lockstep(*pair())
    run_to_stop(lockstep.seek_time(1_000_000))
    screen = comparison()
    screen.lockstep = lockstep
    made = (
        ComparedFigure(metric="latency.ttft_ms.p50", a=100.0, b=100.5),
        ComparedFigure(metric="latency.ttft_ms.p99", a=100.0, b=101.5),
    )
    text = metrics_text(replace(screen.view(), metrics=made), 60)
    noise, slower = text.plain.splitlines()[1:]
    assert noise.endswith("+0.5 %")
    assert slower.endswith("+1.5 % worse")


async def test_where_there_is_little_room_one_of_two_boxes_is_shown() -> None:
    app = Alone(comparison())
    async with app.run_test(size=(60, 16)) as pilot:
        await settle(pilot)
        assert app.compare.query_one("#a").display
        assert not app.compare.query_one("#b").display
        await press(pilot, "tab")
        assert app.compare.query_one("#b").display
        assert not app.compare.query_one("#a").display


async def test_the_comparison_is_written_as_text(tmp_path: Path) -> None:
    app = Alone(comparison())
    target = tmp_path / "out.txt"
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "D")
        await finish(pilot, app.compare)
        await press(pilot, "x")
        app.screen.query_one(Input).value = str(tmp_path / "no" / "where.txt")
        await press(pilot, "enter")
        assert "There is no folder" in screen_text(app)
        app.screen.query_one(Input).value = str(target)
        await press(pilot, "enter")
        assert target.is_file()
        divergence = app.compare.view().divergence
        assert divergence is not None
        text = target.read_text(encoding="utf-8")
    assert f"first divergence: event {divergence.event}" in text
    assert "engine.kv_blocks" in text
    assert "specification: 1 difference" in text or "specification: 2 differences" in text


async def test_equal_runs_are_said_to_be_equal() -> None:
    one = pair()[0]
    app = Alone(CompareScreen(one, one, ("one", "two")))
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "D")
        await finish(pilot, app.compare)
        text = screen_text(app)
        assert "The two experiments are identical." in text
        assert "are identical" in text
        assert events(app.compare) == (0, 0)


async def test_figures_that_differ_are_marked_on_both_sides() -> None:
    app = Alone(comparison())
    async with app.run_test(size=(140, 40)) as pilot:
        run_to_stop(app.compare.lockstep.to_end())
        app.compare._show()
        await settle(pilot)
        view = app.compare.view()
        preempted = next(figure for figure in view.figures if figure.name == "preemptions")
        assert preempted.differs
        shown = plain(view)
        assert f"≠ {preempted.left}" in shown["a"][-1]
        assert f"≠ {preempted.right} ({preempted.delta:+,})" in shown["b"][-1]
        running = next(figure for figure in view.figures if figure.name == "running")
        assert not running.differs  # nobody is left
        assert shown["a"][-1].count("≠") == sum(figure.differs for figure in view.figures)


async def test_no_line_is_wider_than_its_box() -> None:
    app = Alone(comparison(event=700))
    async with app.run_test(size=(80, 24)) as pilot:
        await finish(pilot, app.compare)
        for width in (33, 36, 40, 58, 70, 100, 138):
            for name, lines in plain(app.compare.view(), width).items():
                sentences = name == "metrics" and width < 36
                assert sentences or max(map(len, lines)) <= width, (width, name, max(lines, key=len))


async def test_requests_are_told_apart_where_there_is_little_room() -> None:
    app = Alone(comparison(event=900))
    async with app.run_test(size=(80, 24)) as pilot:
        await finish(pilot, app.compare)
        view = app.compare.view()
        long = tuple(replace(pair, name=f"a_long_name_of_{pair.name}") for pair in view.requests)
        assert len(long) > 2
        lines = requests_text(replace(view, requests=long, changes=None), 33).plain.splitlines()[1:]
        assert len({line.split()[0] for line in lines}) == len(long)


def test_standings_are_short_words() -> None:
    assert standing_text(NOT_ARRIVED) == "not arrived"
    assert standing_text(RequestStatus("completed", 1_234_000)) == "✓ 1.23 s"
    assert standing_text(RequestStatus("prefill", 30, 120)) == "prefill 25 %"
    assert standing_text(RequestStatus("decode", 1234)) == "decode 1,234"
    assert standing_text(RequestStatus("waiting")) == "waiting"


def test_a_divergence_is_told_in_one_line() -> None:
    def told(left: Record | None, right: Record | None) -> str:
        old, new = (None if record is None else record_dict(record) for record in (left, right))
        divergence = Divergence(event=9, left=old, right=new, before=())
        view = replace(comparison().view(), searched=True, divergence=divergence)
        return differences_text(view, 80).plain.splitlines()[0]

    queued = Queued(9, 100, "r1", 0, 3)
    assert told(Routed(9, 100, "r1", 0, "x", "y"), queued) == "≠ first at event 9: A routed r1 · B queued r1"
    assert told(queued, None) == "≠ first at event 9: A queued r1 · B the run has ended"
    later = Queued(9, 1105, "r1", 0, 5)
    assert told(queued, later) == "≠ first at event 9: queued r1, time_us 100 → 1,105; place 4th → 6th"
    assert "request_id r1 → r2" in told(Admitted(9, 100, "r1", "x"), Admitted(9, 100, "r2", "x"))
    assert len(told(Dropped(9, 100, "r1", 0, "x" * 90), Dropped(9, 100, "r1", 0, "y"))) == 80


@pytest.mark.parametrize("width", [68, 38])
@pytest.mark.parametrize("change", [{"engine.kv_blocks": 900}, {"engine.max_num_seqs": 8}])
def test_where_plans_diverge_the_two_lines_do(width: int, change: dict[str, object]) -> None:
    """Steps are planned an event ahead: at the first divergence both sides still run the same step."""
    few = {"workload.requests": 60}
    lockstep = Lockstep(blis_tui.load("kv-overload", set=few), blis_tui.load("kv-overload", set={**few, **change}))
    divergence = run_to_end(lockstep.first_divergence())
    assert divergence is not None
    run_to_stop(lockstep.seek(divergence.event))
    screen = CompareScreen(lockstep.left.experiment, lockstep.right.experiment, NAMES)
    screen.lockstep = lockstep
    view = replace(screen.view(), figures=())
    here, other = (side_text(side, view, width).plain.splitlines() for side in (0, 1))
    (line,) = [row for row in here if row.startswith("▶")]
    assert line not in other


def test_titles_name_files_by_their_stems_where_that_tells_them_apart() -> None:
    long = "/home/somebody/a long/way/down/kv-pressure.blis.yaml"
    assert short_names((long, "policy=a/b")) == ("kv-pressure", "policy=a/b")
    assert short_names(("burst", f"{long} policy=a/b.yaml")) == ("burst", "kv-pressure policy=a/b.yaml")
    assert short_names(("a/x.yaml", "b/x.yaml")) == ("a/x.yaml", "b/x.yaml")
    title = names_text(("a-very-long-name-of-an-experiment", "other")).plain
    assert title == "A a-very-long…n-experiment  B other"


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (60, "200 requests done on both: 0 slower, 124 faster in B"),
        (38, "done in both 200: 0 slower, 124 faster"),
        (37, "200 done: 0 slower, 124 faster"),
        (28, "0 slower, 124 faster"),
    ],
)
def test_the_summary_of_requests_fits(width: int, said: str) -> None:
    changes = RequestChanges(
        common=200,
        other=0,
        only_a=0,
        only_b=0,
        compared=200,
        slower=0,
        faster=124,
        different_ends=(),
        most_affected=(),
    )
    view = replace(comparison().view(), changes=changes)
    assert requests_text(view, width).plain.splitlines()[0] == said


def test_names_of_files_are_plain() -> None:
    assert file_stem(("a/b c", "d engine.kv_blocks=900")) == "a-b-c-vs-d-engine.kv-blocks=900"
    assert file_stem(("", "///")) == "run-vs-run"


def test_a_pump_gives_up_the_journey_before() -> None:
    closed: list[str] = []
    ended: list[int] = []

    def move(name: str) -> Generator[Progress, None, int]:
        try:
            while True:
                yield progress
        finally:
            closed.append(name)

    def short() -> Generator[Progress, None, int]:
        yield progress
        return 7

    progress = next(Lockstep(*pair()).run())
    pump = Pump(clock=iter(range(100)).__next__)
    pump.start(move("one"), "first", ended.append)
    pump.drive(5)
    assert is_busy(pump)
    assert pump.progress is progress
    pump.start(short(), "second", ended.append)
    assert closed == ["one"]
    assert pump.label == "second"
    pump.drive(50)
    assert ended == [7]
    assert not is_busy(pump)
    assert not pump.stop()
