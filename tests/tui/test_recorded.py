"""What all screens show while keys lead through them, as recorded."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.live.twin.twin import compare_with_simulation
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.store import MemoryStore
from blis_tui.tui import debug_session
from blis_tui.tui.app import BlisApp, StudyStart, TwinStart
from blis_tui.tui.catalog import find_documents
from blis_tui.tui.driver import Driver
from blis_tui.tui.panes import panes_of
from blis_tui.tui.screens import compare as compare_screen
from blis_tui.tui.screens import home as home_screen
from blis_tui.tui.screens.study_work import StudyWork
from tests.live.twin.servers import experiment as server
from tests.live.twin.servers import recorded
from tests.recorded import Digests
from tests.tui.debugging import NARROW, NORMAL, debugging
from tests.tui.screens import draw, screen_text, settle
from tests.tui.studies import STUDY, load_study, run_study, write_study
from tests.tui.test_goldens import CASES, changed, store, write
from tests.tui.test_observing import app_of, looks, until
from tests.tui.walks import Walk

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.tui.catalog import Catalog

_IN_A_PANE: Final = ("down", "down", "question_mark", "escape", "n", "enter")
_MOVES: Final = ("greater_than_sign", "N", "p", "left_square_bracket", "f", "F", "slash", ":preempted", "escape", "m")


@pytest.mark.parametrize(
    ("name", "size", "requests"),
    [
        ("kv-pressure", NARROW, 60),
        ("disaggregation", NORMAL, 40),
        ("gateway-queue", NARROW, 80),
        ("autoscaling", NORMAL, 60),
        ("conversations", NORMAL, 6),
    ],
)
async def test_walks(name: str, size: tuple[int, int], requests: int, file_regression: FileRegressionFixture) -> None:
    digests = Digests()
    async with debugging(name, requests=requests, size=size, at="60", at_once=True) as here:

        async def see(kind: str, *keys: str) -> None:
            await here.press(*keys)
            await draw(here.pilot)
            digests.add(kind, screen_text(here.app))

        for pane in panes_of(here.debugger.experiment):
            await see(pane.id, pane.key)
            for key in _IN_A_PANE:
                await see(pane.id, key)
        for key in _MOVES:
            await see("moves", key)
    digests.check(file_regression)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, shown as ``~/here``; nothing waits for the clock, and nobody says that this runs on CI."""
    folder = tmp_path / "home" / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("CI", raising=False)
    for name in ("_AT_ONCE_S", "_SLICE_S"):
        monkeypatch.setattr(compare_screen, name, 1e9)
    monkeypatch.setattr(StudyWork, "runner", lambda _self: InProcessRunner())
    monkeypatch.setattr(debug_session, "Driver", partial(Driver, clock=lambda: 0.0))
    monkeypatch.setattr(home_screen, "find_documents", _few_documents)
    return folder


def _few_documents(folder: Path) -> Catalog:
    """The folder's own, and two of those that ship, whose number grows."""
    catalog = find_documents(folder)
    kept = tuple(one for one in catalog.found if not one.shipped or one.source in ("quickstart", "token-budget"))
    return replace(catalog, found=kept)


async def test_home(lab: Path, here: Path, file_regression: FileRegressionFixture) -> None:
    """Lists what there is, tells what is wrong with it, opens, marks, compares and begins new ones."""
    shutil.copytree(lab, here, dirs_exist_ok=True)
    write_study(here)
    digests = Digests()
    app = BlisApp()
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        walk = Walk(pilot, digests, here)
        await walk.look("home")
        await walk.see("changed", "down", "v", ":seed", ":=9", "q", "v", ":sede=1", "q")
        await walk.see("home", "space", "down", "space", "up", "e", "end", "e", "home")
        await walk.see("compare", "v", "D", "q")
        await walk.see("error", "enter", "r", "e", "q")
        await walk.see("help", "h", "down", ":pane", "escape", "escape")
        await walk.see("palette", "ctrl+p", ":goldens", "q")
        await walk.see("new", "n", ":taken!", "escape", "n", ":fresh")
        await walk.resize(NORMAL)
        await walk.see("wide", "slash", ":size", "escape", "r", "down", "down")
        await walk.see("search", "slash", "q", "u", "enter", "n", "q", "escape", "end")
    digests.check(file_regression)


async def test_tools(here: Path, file_regression: FileRegressionFixture) -> None:
    """What the debugger opens above itself, and what its rarer keys do."""
    digests = Digests()
    async with debugging("kv-pressure", requests=30, size=NARROW, at="700", at_once=True) as open_:
        walk = Walk(open_.pilot, digests, here)
        await walk.see("why", "question_mark", "tab", "right", "enter", "shift+tab", "backspace", "y", "escape")
        await walk.see("export", "x", "down", "enter", "x", "enter", "x", "escape")
        await walk.see(
            "breaks", "b", "B", ":", ":nonsense", "escape", "B", ":preempted", "w", ":running", "w", ":waiting"
        )
        await walk.see("listed", "ctrl+b", "down", "space", "r", "space", "r", "ctrl+r", "enter", "escape")
        await walk.see("removed", "down", "enter", "escape", "down", "delete", "up", "up", "delete", "delete", "delete")
        await walk.see("filter", "1", "slash", ":-step queued i0", "full_stop", "comma", "comma", "escape", "escape")
        await walk.see("ranks", *"lllll", *"uuu", "a", "a", "right", "left", "d")
        await walk.see("moves", *"soOmM", "t", "left_curly_bracket", "right_curly_bracket", "backspace", "ctrl+r")
        await walk.see("places", "g", ":nowhere", "escape", "g", ":1s", "g", ":request_7", "ctrl+o", "escape")
        await walk.see("rooms", "plus", "underscore", "y", "Y", "i", "e")
        await walk.see("compare", "v", ":engine.kv_blocks=900", "n", "s", "D", "tab", "tab", "g", ":1s", "x", ":a")
        await walk.see(
            "curves", *["tab"] * 3, "down", "c", "left_square_bracket", "home", "D", "question_mark", "escape"
        )
        await walk.resize(NORMAL)
        await walk.see("compare, wide", "end", "tab", "down", "q")
        await walk.see("wide", "question_mark", "escape", *"lu", "ctrl+b", "escape", "ctrl+o", "escape", "x", "escape")
    digests.check(file_regression)


async def test_whatif(here: Path, file_regression: FileRegressionFixture) -> None:
    """A request sent elsewhere, with both runs side by side."""
    digests = Digests()
    async with debugging("WEIGHTED", requests=40, size=NARROW, at="500", at_once=True) as open_:
        walk = Walk(open_.pilot, digests, here)
        await walk.see("what if", "R", "down", "down", "i", "y", "enter", "n", "tab", "enter", "i", "q", "q", "escape")
        await walk.see("fleet", "a", "a", "right", "left", *"uuu", "down", "enter", "escape")
        await walk.see("named", "E", "i", ":x", "backspace", ":99", "backspace", "backspace", ":11", "escape")
    digests.check(file_regression)


async def test_twin(here: Path, file_regression: FileRegressionFixture) -> None:
    """A recording beside its simulation."""
    digests = Digests()
    recording = recorded(server(), here / "monday", gap_us=2000)
    twin = compare_with_simulation(recording, server(latency__beta=[6000, 20, 300], engine__kv_blocks=90), "smaller")
    app = BlisApp(TwinStart(twin=twin, recording=recording, source="smaller"))
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        walk = Walk(pilot, digests, here)
        await walk.see("twin", *"nnD", "left_square_bracket", *"ttOMmo", "end", "n", "home", "left_square_bracket")
        await walk.see("boxes", "D", *["tab", "down"] * 6, "down", "up")
        await walk.see("places", "g", ":nobody", "g", ":7", "g", ":1.5s", "x", ":", "h", "escape", "enter", "q")
        await walk.resize(NORMAL)
        await walk.see("wide", "D", "tab", "tab", "down", "tab", "down", "t", "O")
    digests.check(file_regression)


async def test_study(here: Path, file_regression: FileRegressionFixture) -> None:
    """Points that are known, sorted, filtered, marked, compared and written."""
    digests = Digests()
    study = load_study(write_study(here, STUDY.replace("objectives:", "seeds: 2\nobjectives:")))
    app = BlisApp(StudyStart(study=study, store=run_study(study)))
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        walk = Walk(pilot, digests, here)
        await walk.see("study", "down", "pagedown", "space", "up", "space", "home", "end", "pageup", *"sssss", "r")
        await walk.see("points", "v", "q", "o", ":7", "backspace", ":43", "q", "x", "down", "enter", "space", "v")
        await walk.see(
            "filter", "slash", ":kv_blocks >= 60", "slash", ": ok", "slash", ": x=1", "escape", "h", "escape"
        )
        await walk.resize(NORMAL)
        await walk.see("wide", "home", "r", "s", "down", "down", "space", "slash", ":instances=2", "down")
    digests.check(file_regression)


async def test_sweep(here: Path, file_regression: FileRegressionFixture) -> None:
    """Runs that are made now."""
    digests = Digests()
    app = BlisApp(StudyStart(study=load_study(write_study(here)), store=MemoryStore()))
    async with app.run_test(size=NORMAL) as pilot:
        await settle(pilot)
        await Walk(pilot, digests, here).see("sweep", "down", "c", "s", "s")
    digests.check(file_regression)


async def test_goldens(here: Path, file_regression: FileRegressionFixture) -> None:
    """Results that wait, are new, hold, and whose test is gone: looked at, decided, checked."""
    digests = Digests()
    changed(here, "alpha")
    write(here, "beta", CASES)
    store(here, "beta", pending=True)
    for name in ("gamma", "gone"):
        write(here, name)
        store(here, name)
    (here / "gone.blis.yaml").unlink()
    app = BlisApp()
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        walk = Walk(pilot, digests, here)
        await walk.see("goldens", "G", "v", "q", *["down"] * 5, "up", "c", "home")
        await walk.resize(NORMAL)
        await walk.see("wide", "down", "up", "pagedown")
        await walk.see("found", "slash", *"beta", "enter", "A", "escape", "R", "enter", "escape", "u")
        await walk.see("decided", *"aarc", "slash", *"xx", "escape")
    digests.check(file_regression)


async def test_observing(tmp_path: Path, file_regression: FileRegressionFixture) -> None:
    """A server that is being observed, and the end of that."""
    digests = Digests()
    statuses = looks()
    app = app_of(statuses)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, lambda screen: len(screen.view().statuses) == len(statuses))
        walk = Walk(pilot, digests, tmp_path)
        await walk.look("observing")
        await walk.resize(NORMAL)
        await walk.look("observing")
        await walk.press("escape")
        await until(pilot, lambda screen: screen.start.code is not None)
        await walk.look("over")
    digests.check(file_regression)
