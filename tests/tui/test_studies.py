"""The screen of a study: what is known, a sweep that is watched, filters, points that are opened and compared."""

from __future__ import annotations

import asyncio
import multiprocessing
from io import BytesIO
from typing import TYPE_CHECKING, Literal

import pytest
from textual.widgets import Input

from blis_tui.runs.divergence import record_stream
from blis_tui.spec.study.document import experiment_of
from blis_tui.study.parquet import write_rows
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.store import FolderStore, MemoryStore
from blis_tui.study.study_rows import Row, rows_csv, rows_jsonl
from blis_tui.study.sweep import Sweep
from blis_tui.tui.app import BlisApp, StudyStart
from blis_tui.tui.screens.compare import CompareScreen
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.screens.error import ErrorScreen
from blis_tui.tui.screens.studies import PointTable, StudyScreen
from blis_tui.tui.screens.study_work import StudyWork
from blis_tui.tui.screens.why import WhyScreen
from tests.tui.screens import check_screen, draw, press, screen_text, settle
from tests.tui.studies import ODD, STUDY, Unwritable, fail, load_study, run_study, write_study

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture
    from textual.content import Content

    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.store import Store
    from blis_tui.study.task import Outcome
    from blis_tui.tui.drawing.lines import Line

SIZES = [(80, 24), (140, 40)]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return load_study(write_study(tmp_path_factory.mktemp("study")))


@pytest.fixture(scope="module")
def known(study: Study) -> MemoryStore:
    return run_study(study)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return load_study(write_study(tmp_path_factory.mktemp("study"), ODD))


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs are made in this process; a folder of our own to write to."""
    monkeypatch.setattr(StudyWork, "runner", lambda _self: InProcessRunner())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def opened(study: Study, store: Store) -> BlisApp:
    return BlisApp(StudyStart(study=study, store=store))


def on_top(app: BlisApp) -> StudyScreen:
    assert isinstance(app.screen, StudyScreen)
    return app.screen


def cursor(app: BlisApp) -> str:
    return on_top(app).query_one(PointTable).key


# ---- how it looks ----


@pytest.mark.parametrize("size", SIZES)
async def test_everything_is_known(
    study: Study, known: MemoryStore, file_regression: FileRegressionFixture, size: tuple[int, int]
) -> None:
    app = opened(study, known)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "study")
        await press(pilot, "end", "space", "up", "up", "space", *"sss", "r")
        await check_screen(pilot, file_regression, "study-sorted")
        await press(pilot, "slash", *"kv_blocks >= 60 broken")
        await check_screen(pilot, file_regression, "study-filter")
        await press(pilot, *" nonsens=1")
        await check_screen(pilot, file_regression, "study-filter-wrong")


@pytest.mark.parametrize("size", SIZES)
async def test_nothing_is_known(study: Study, file_regression: FileRegressionFixture, size: tuple[int, int]) -> None:
    app = opened(study, MemoryStore())
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await check_screen(pilot, file_regression, "study-pending")


@pytest.mark.parametrize("size", SIZES)
async def test_points_without_results(
    odd: Study, file_regression: FileRegressionFixture, size: tuple[int, int]
) -> None:
    store = MemoryStore()
    fail(store, odd, 1)
    app = opened(odd, store)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await press(pilot, "down", "down")
        await check_screen(pilot, file_regression, "study-odd")
        await press(pilot, "enter")  # no experiment: nothing to open
        assert isinstance(app.screen, StudyScreen)


async def test_help_and_commands_name_what_there_is(study: Study, known: MemoryStore) -> None:
    app = opened(study, known)
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "h")
        assert "Compare two points where their runs diverge." in screen_text(app)
        await press(pilot, "escape")
        assert on_top(app)


# ---- a sweep ----


async def test_a_sweep_is_started_here_and_its_rows_are_those_of_the_command(
    study: Study, known: MemoryStore, tmp_path: Path
) -> None:
    expected = Sweep(study, store=known)
    list(expected.look_up())
    store = FolderStore(tmp_path / "runs")
    app = opened(study, store)
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        assert "0 of 9 runs" in screen_text(app)
        await press(pilot, "c")
        assert "9 runs, " in screen_text(app)
        assert on_top(app).board.result() == expected.result()
        assert on_top(app).check_action("study_run", ()) is None
    again = Sweep(study, store=store)
    assert len(list(again.look_up())) == 9


async def test_a_sweep_goes_on_behind_a_point_that_is_opened(study: Study) -> None:
    app = opened(study, MemoryStore())
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await pilot.press("c")
        await press(pilot, "enter")
        assert isinstance(app.screen, DebuggerScreen)
        await press(pilot, "q")
        assert "9 runs, " in screen_text(app)


async def test_results_that_cannot_be_kept_are_shown_and_that_is_said(study: Study) -> None:
    app = opened(study, Unwritable())
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        await settle(pilot)
        await press(pilot, "c")
        assert on_top(app).board.result().complete
        text = " ".join(screen_text(app).split())
        assert "Results are not kept" in text
        assert "cannot keep results below /cache/runs" in text
        assert "9 runs, " in screen_text(app)


async def test_processes_end_when_it_is_stopped_and_when_its_screen_goes(
    study: Study, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    store = FolderStore(tmp_path / "runs")
    work = StudyWork(study, store, jobs=1)
    work.begin("running")
    thread = asyncio.get_running_loop().run_in_executor(None, work.work)
    rows: list[Row] = []
    while not rows:
        await asyncio.sleep(0.01)
        rows = work.take()
    assert "runs" in work.words()
    work.stop()
    await asyncio.wait_for(thread, 60)
    assert work.words() == ""
    assert multiprocessing.active_children() == []
    assert len(list((tmp_path / "runs").rglob("*"))) > len(rows)


async def test_what_is_stopped_before_it_has_begun_does_not_begin(study: Study) -> None:
    work = StudyWork(study, MemoryStore())
    doings: tuple[Literal["looking", "running"], ...] = ("looking", "running")
    for what in doings:
        work.begin(what)
        work.stop()
        work.work()
        assert (work.doing, work.take()) == ("", [])


async def test_a_sweep_that_begins_while_results_are_looked_for_makes_all_runs(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    work = StudyWork(study, store)
    calls: list[str] = []
    find = MemoryStore.find

    def stopping(self: MemoryStore, *about: object) -> Outcome | None:
        calls.append("")
        if len(calls) == 6:
            work.stop()
        return find(self, *about)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryStore, "find", stopping)
    work.begin("looking")
    work.work()
    assert 6 <= len(calls) < 2 * study.runs
    work.begin("running")
    work.work()
    assert len(work.take()) == study.runs


async def test_leaving_stops_what_is_under_way(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[StudyWork] = []
    monkeypatch.setattr(StudyWork, "stop", lambda self: stopped.append(self))  # noqa: PLW0108  (a function becomes a method)
    app = opened(study, MemoryStore())
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert stopped == []
        await pilot.press("q")
        await pilot.pause()
    assert len(stopped) == 1


# ---- opening ----


async def test_a_point_is_opened_and_what_was_seen_stays(study: Study, known: MemoryStore) -> None:
    app = opened(study, known)
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "slash", *"instances=2", "enter", "down", "space", "s")
        before = screen_text(app)
        number = int(cursor(app))
        await press(pilot, "enter")
        assert isinstance(app.screen, DebuggerScreen)
        experiment = experiment_of(study, study.points[number], study.seeds[0])
        assert app.screen.session.experiment.sha256 == experiment.sha256
        await press(pilot, "q")
        assert screen_text(app) == before


async def test_a_question_mark_explains_where_a_point_stands(study: Study, known: MemoryStore) -> None:
    """Counted another way: who is better, from the rows themselves."""
    app = opened(study, known)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        able = [one for one in on_top(app).board.entries if one.ok and one.summary is not None]
        for entry in on_top(app).board.entries:
            await press(pilot, "question_mark")
            window = app.screen
            assert isinstance(window, WhyScreen)
            text = window._explanation.to_text()
            mine = [entry.mean(wish.metric) or 0.0 for wish in study.objectives]
            others = [[one.mean(wish.metric) or 0.0 for wish in study.objectives] for one in able]
            better = [one for one in others if one != mine and all(a <= b for a, b in zip(one, mine, strict=True))]
            assert ("breaks a bound" in text) == (entry.ok is False)
            assert ("is on the front" in text) == entry.on_front
            if entry.ok and better:
                assert f"It is not on the front: {len(better)} point" in text
            await press(pilot, "escape", "down")
        await press(pilot, "home", "question_mark", "g")
        assert isinstance(app.screen, DebuggerScreen)


async def test_another_seed_can_be_chosen(odd: Study) -> None:
    app = opened(odd, MemoryStore())
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "o")
        assert "runs with the seeds 42, 43" in screen_text(app)
        app.screen.query_one(Input).value = "7"
        await press(pilot, "enter")
        assert "The seeds of this study are 42, 43." in screen_text(app)
        app.screen.query_one(Input).value = "43"
        await press(pilot, "enter")
        assert isinstance(app.screen, DebuggerScreen)
        assert app.screen.session.experiment.seed == 43


async def test_two_points_are_compared_where_their_runs_part(study: Study, known: MemoryStore) -> None:
    app = opened(study, known)
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        await settle(pilot)
        await press(pilot, "v")
        assert "Mark a point with space" in screen_text(app)
        await press(pilot, "space", "down", "down", "v")
        assert isinstance(app.screen, CompareScreen)
        sides = app.screen.lockstep.sides
        streams = [record_stream(experiment_of(study, study.points[at], study.seeds[0])) for at in (0, 2)]
        event = next(a.event for a, b in zip(*streams, strict=False) if a != b)
        assert {side.event for side in sides} == {event}
        assert "kv_blocks=40" in screen_text(app)
        await press(pilot, "q")
        assert [entry.point.number for entry in on_top(app).board.marked] == [0]


# ---- files, list ----


async def test_rows_are_exported_as_the_command_writes_them(study: Study, known: MemoryStore, tmp_path: Path) -> None:
    sweep = Sweep(study, store=known)
    list(sweep.look_up())
    app = opened(study, known)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "slash", *"ok", "enter", "x", "enter")
        await press(pilot, "x", "down", "enter")
        await press(pilot, "x", "down", "down", "enter")
        await press(pilot, "x", "down", "down", "down", "enter")
    here = tmp_path / "here"
    assert (here / "sizing.csv").read_text(encoding="utf-8") == "".join(rows_csv(sweep.result()))
    assert (here / "sizing.jsonl").read_text(encoding="utf-8") == "".join(rows_jsonl(sweep.result()))
    table = BytesIO()
    write_rows(table, sweep.result())
    assert (here / "sizing.parquet").read_bytes() == table.getvalue()
    assert (here / "sizing.svg").read_text(encoding="utf-8").startswith("<svg")


async def test_two_thousand_points_are_drawn_as_far_as_they_can_be_seen(
    study: Study, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = STUDY.replace("[40, 60, 90]", "{from: 40, to: 705, step: 1}")
    many = load_study(write_study(tmp_path / "here", text))
    monkeypatch.setattr(StudyWork, "work", lambda self: setattr(self, "doing", ""))
    app = opened(many, MemoryStore())
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        screen = on_top(app)
        rows = [
            Row(
                point=point,
                seed=42,
                status="done",
                ok=True,
                figures={"cost.gpus": 1 + point.number % 7, "latency.ttft_ms.p99": 1000 / (1 + point.number % 7)},
            )
            for point in many.points
        ]
        assert len(rows) == 1998
        screen.board.add(rows)
        screen.show()
        await press(pilot, "end")
        assert cursor(app) == "1997"
        assert "1997" in screen_text(app)
        table = screen.query_one(PointTable)
        drawn: list[str] = []

        def counted(line: Line) -> Line:
            def draw() -> Content:
                drawn.append(str(line.subject))
                return line.draw()

            return line._replace(draw=draw)

        table.lines = [counted(line) for line in table.lines]
        await press(pilot, "pageup")
        await draw(pilot)
        assert 0 < len(drawn) < 100
        screen.query_one("#search", Input).value = "cost.gpus > 6"
        await settle(pilot)
        assert (
            f"{len([point for point in many.points if point.number % 7 == 6]):,} of 1,998 points shown"
            in screen_text(app)
        )


async def test_home_lists_studies_and_opens_them(lab: Path, file_regression: FileRegressionFixture) -> None:
    write_study(lab)
    write_study(lab, STUDY.replace("cluster.instances", "cluster.instance"), "wrong")
    app = BlisApp()
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "slash", *"sizing")
        text = screen_text(app)
        assert "bounds latency.ttft_ms.p99 <= 20" in " ".join(text.split())
        await press(pilot, "enter")
        assert on_top(app).study.name == "sizing"
        await press(pilot, "q", "escape")
        await check_screen(pilot, file_regression, "home-studies")
        await press(pilot, "slash", *"wrong", "enter")
        assert isinstance(app.screen, ErrorScreen)
        assert "unknown key `instance`" in screen_text(app)
