"""Moments: kept with a key, listed, gone to, edited, removed, written as a report, and found again elsewhere."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING

from click.testing import CliRunner
from textual.widgets import Input

from blis_tui.cli.main import cli
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.moments import Moment, from_data, what_is
from blis_tui.debugger.places import parse_place
from blis_tui.debugger.saved_sessions import Session
from blis_tui.debugger.saved_sessions import load as load_session
from blis_tui.debugger.saved_sessions import save as save_session
from blis_tui.golden.bundle import unpacked
from blis_tui.tui.app import BlisApp, Start
from blis_tui.tui.debug_session import DebugSession
from blis_tui.tui.drawing.series import KV_USE
from blis_tui.tui.panes.events import event_text
from blis_tui.tui.panes.timeline import KEPT, LABEL, hover_text, scale_of, timeline
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.screens.why import WhyScreen
from blis_tui.tui.screens.windows import ConfirmScreen, MomentScreen
from tests.tui.debugging import NARROW, Debugging, debugging, experiment
from tests.tui.screens import check_screen, draw, screen_text

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pytest_regressions.file_regression import FileRegressionFixture


async def keep(here: Debugging, event: int, name: str = "", note: str = "") -> None:
    """Go to an event and keep it."""
    await here.press("g", f":{event}", "k")
    window = here.app.screen
    assert isinstance(window, MomentScreen)
    if name:
        window.query_one("#name", Input).value = name
    window.query_one("#note", Input).value = note
    await here.press("enter")
    assert here.on_top


def names_in(folder: Path) -> list[str]:
    """The names of a folder's files."""
    return sorted(path.name for path in folder.iterdir())


def reached(command: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Run a command of the shell; return the event at which the debugger opens, and what it did."""
    apps: list[BlisApp] = []
    monkeypatch.setattr("blis_tui.cli.tui.has_terminal", lambda: True)
    monkeypatch.setattr(BlisApp, "show", lambda app: apps.append(app))  # noqa: PLW0108  (a method is bound)
    done = CliRunner().invoke(cli, ["tui", *command.split()])
    assert done.exit_code == 0, done.output
    start = apps[0].start
    assert isinstance(start, Start)
    assert start.at is not None
    session = DebugSession(start.experiment)
    run_to_stop(parse_place(start.at).move(session.debugger))
    return session.debugger.event, event_text(session.debugger.tape, session.debugger.event)


async def test_a_life_of_moments(file_regression: FileRegressionFixture) -> None:
    async with debugging(size=NARROW, at_once=True) as here:
        await here.press("K")
        assert "k keeps the present event" in screen_text(here.app)
        await keep(here, 900, note="the batch is full: what waits here, and for how long?")
        await keep(here, 300, "early on", "fine")
        early, late = here.session.moments
        assert (early.event, early.note) == (300, "fine")
        assert late.what == what_is(here.debugger.tape, 900)
        assert late.name
        assert late.sentence.startswith(late.name.partition(":")[0])
        await here.press("K")
        await check_screen(here.pilot, file_regression, "debugger-moments")
        # The cursor is at the present one; down and enter go to the other.
        await here.press("down", "enter")
        assert here.event == 900
        await here.press("y")
        assert here.app.clipboard == "kv-pressure --at 900"
        # The same key edits what is kept already.
        await here.press("k")
        await here.press("x", "enter")
        assert [moment.name for moment in here.session.moments] == ["early on", "x"]
        # A note is gone on with, where a name is replaced.
        await here.press("e", "tab", *"more", "enter")
        assert [moment.note for moment in here.session.moments] == ["fine", f"{late.note}more"]
        await here.press("e", "tab", *["backspace"] * 70, "enter")
        assert [moment.note for moment in here.session.moments] == ["fine", ""]
        await here.press("delete")
        assert [moment.event for moment in here.session.moments] == [300]
        # One with a note is only removed when that is confirmed.
        await here.press("delete")
        assert isinstance(here.app.screen, ConfirmScreen)
        await here.press("n")
        assert here.session.moments
        await here.press("delete", "y")
        assert not here.session.moments
        assert not load_session("kv-pressure").moments


async def test_the_end_of_a_long_name_is_seen_while_it_is_edited() -> None:
    async with debugging(size=NARROW, requests=20, at="30", at_once=True) as here:
        await here.press("k", *("space" if key == " " else key for key in "and on " * 12 + "the end"))
        await draw(here.pilot)
        assert "and on the end" in screen_text(here.app)


async def test_an_event_that_is_not_recorded_yet_can_be_gone_to_but_not_explained() -> None:
    async with debugging(at_once=True) as here:
        await keep(here, 500, "later")
    async with debugging(at_once=True) as here:
        assert [moment.name for moment in here.session.moments] == ["later"]
        await here.press("n", "K", "down", "?")
        window = here.app.screen
        assert isinstance(window, WhyScreen)
        assert window._explanation.about.value == "1"
        await here.press("escape", "K", "enter")
        assert here.event == 500
        assert "Not what was kept" not in here.said()


async def test_another_experiment_under_the_name_is_told() -> None:
    async with debugging(requests=60, at_once=True) as here:
        await keep(here, 1000, "the spot")
        await keep(here, 2000, "the end")
    async with debugging("kv-pressure", requests=20, at="start", at_once=True) as here:
        spot, end = here.session.moments
        await here.press("g", ":1000")
        assert "Not what was kept: the experiment has changed: event 1,000 is now " in here.said()
        await here.press("K")
        assert "! the experiment has changed: event 1,000 is now" in " ".join(screen_text(here.app).split())
        changed = here.session.view().changed
        assert changed(spot)
        assert not changed(end)
        await here.press("end")
        assert here.session.view().changed(end).startswith("the experiment has changed: it ends after ")


async def test_the_command_of_a_report_leads_to_the_event_and_its_picture_shows_it(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with debugging(at_once=True) as here:
        await keep(here, 300, "early on")
        await keep(here, 900, "the batch is full", "who waits?")
        await here.press("K", "x", *["down"] * 6, "enter")
        assert here.event == 900
        assert here.screen.arrangement.active == "moments"
        assert "kv-pressure.moments.md and 2 pictures" in here.said()
        reported = [(moment.event, moment.sentence) for moment in here.session.moments]
        # Written again, it is another file.
        await here.press("x", *["down"] * 6, "enter")
    assert sum(name.startswith("kv-pressure.moments-2") for name in names_in(empty)) == 3
    text = (empty / "kv-pressure.moments.md").read_text(encoding="utf-8")
    assert text.index("early on") < text.index("who waits?")
    commands = re.findall(r"```sh\nblis-tui tui (.*)\n```", text)
    assert commands == [f"kv-pressure --set workload.requests=60 --at {event}" for event in (300, 900)]
    assert [reached(command, monkeypatch) for command in commands] == reported
    for event, picture in zip((300, 900), re.findall(r"\]\((.*\.svg)\)", text), strict=True):
        drawn = (empty / picture).read_text(encoding="utf-8")
        words = [unescape("".join(one.itertext())) for one in ET.fromstring(drawn).iter() if one.tag.endswith("text")]  # noqa: S314
        assert words[words.index("event") + 1] == f"{event:,}"


async def test_a_second_report_is_refused_while_one_is_drawn(empty: Path) -> None:
    async with debugging(size=NARROW, at_once=True) as here:
        await keep(here, 300, "early on")
        here.screen._write_moments("first")
        here.screen._write_moments("second")
        await here.idle()
        here.screen._write_moments("third")
        await here.idle()
    assert names_in(empty) == sorted(
        f"{name}.moments{end}" for name in ("first", "third") for end in (".md", "-300.svg")
    )


async def test_the_timeline_marks_them() -> None:
    async with debugging(size=NARROW, at_once=True) as here:
        await keep(here, 300, "early on")
        await here.press("end")
        view = here.screen._view()
        scale = scale_of(view, 60)
        cell = scale.cell(here.session.moments[0].time_us)
        assert timeline(view, KV_USE, 60 + LABEL).plain.splitlines()[2][LABEL + cell] == KEPT
        assert hover_text(view, KV_USE, scale, cell).endswith("· ◆ early on")


async def test_pictures_of_another_experiment_show_no_messages_and_views_stay_as_they_were(empty: Path) -> None:
    async with debugging(size=NARROW, at_once=True) as here:
        for event in (300, 900):
            await keep(here, event, "the spot")
            moment = here.session.moments[-1]
            here.session.moments = (*here.session.moments[:-1], replace(moment, time_us=moment.time_us + 1))
        await here.press("5", "K", "5", "z")
        here.screen._write_moments("late")
        await here.idle()
        with here.screen.arrangement_restored():
            await here.press(*"zzzzz")
        assert here.screen.arrangement.active == "moments"
        await here.press("Z")
        assert here.screen.arrangement.active == "kv"
    for event in (300, 900):
        drawn = (empty / f"late.moments-{event}.svg").read_text(encoding="utf-8")
        assert ">kept" not in drawn
        assert ">changed" not in drawn


async def test_a_key_on_the_way_costs_no_picture(empty: Path) -> None:
    async with debugging() as here:
        for event in (2000, 900):
            await keep(here, event)
        await here.press("home")
        here.screen._write_moments("busy")
        await here.pilot.press("n", "n")
        await here.idle()
    assert names_in(empty) == ["busy.moments-2000.svg", "busy.moments-900.svg", "busy.moments.md"]


async def test_a_bundle_has_them_wherever_it_is_opened(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with debugging(requests=20, at_once=True) as here:
        await keep(here, 200, "look here", "why?")
        await here.press("x", *["down"] * 4, "enter")
        kept = here.session.moments
    bundle = next(empty / name for name in names_in(empty) if name.endswith(".blis"))
    monkeypatch.setenv("BLIS_TUI_STATE_DIR", str(tmp_path / "elsewhere"))
    with unpacked(str(bundle)) as found:
        moments = from_data(found.moments)
        start = Start(experiment=found.case.load(), source=str(found.spec), moments=moments, called=bundle.name, at="1")
        app = BlisApp(start)
        async with app.run_test(size=NARROW) as pilot:
            screen = app.screen
            assert isinstance(screen, DebuggerScreen)
            there = Debugging(app, pilot, screen)
            await there.idle()
            await there.press("K", "enter")
            assert there.event == 200
            assert [(moment.name, moment.note) for moment in screen.session.moments] == [("look here", "why?")]
            assert what_is(there.debugger.tape, 200) == kept[0].what
            assert screen.session.view().changed(screen.session.moments[0]) == ""
            assert screen.command("200") == f"blis-tui tui {bundle.name} --at 200"
            await there.press("e", "x", "enter")
            await keep(there, 150, "mine")
        # What a reader adds to a bundle is found again with it, wherever it has been unpacked.
        again = DebuggerScreen(start.experiment, source="elsewhere", moments=moments, called=str(bundle))
        assert [(moment.name, moment.note) for moment in again.session.moments] == [
            ("mine", ""),
            ("x", "why?"),
        ]


async def test_an_overridden_decision_has_no_command() -> None:
    one = experiment("prefix-routing", 20)
    screen = DebuggerScreen(one, source="prefix-routing", routes={"request_3": 1})
    app = BlisApp()
    async with app.run_test(size=NARROW) as pilot:
        await app.push_screen(screen)
        await pilot.pause()
        assert screen.command("3") == ""
        assert any("overridden" in text for text in screen._about())


def test_without_a_terminal(empty: Path) -> None:
    """The report of what was kept, of one place, and of a bundle; nothing of it is remembered."""
    runner = CliRunner()
    small = ["--set", "workload.requests=20"]
    none = runner.invoke(cli, ["bundle", "kv-pressure", "-o", "none.md"])
    assert none.exit_code == 2
    assert "no moments are kept of kv-pressure: k keeps one" in none.stderr
    beyond = runner.invoke(cli, ["bundle", "kv-pressure", "-o", "none.md", *small, "--at", "99999"])
    assert "--at: the run ends after " in beyond.stderr
    result = runner.invoke(cli, ["bundle", "kv-pressure", "-o", "one.md", *small, "--at", "request_7"])
    assert result.exit_code == 0, result.output
    assert "blis-tui tui kv-pressure --set workload.requests=20 --at " in (empty / "one.md").read_text(encoding="utf-8")
    assert load_session("kv-pressure").moments == ()
    spot = Moment(event=50, time_us=0, what="?", sentence="Something.", sha256="", name="the spot", note="why?")
    save_session(Session("kv-pressure", 7, moments=(spot,)))
    assert runner.invoke(cli, ["bundle", "kv-pressure", *small, "-o", "run.blis", "--moments"]).exit_code == 0
    save_session(Session("kv-pressure"))
    two = runner.invoke(cli, ["bundle", "run.blis", "-o", "two.md", "--at", "60"])
    assert two.exit_code == 0, two.output
    text = (empty / "two.md").read_text(encoding="utf-8")
    assert text.index("the spot") < text.index("> The experiment has changed: event 50 is now ")
    assert text.index("run.blis --at 50") < text.index("run.blis --at 60")
    assert load_session("kv-pressure") == Session("kv-pressure")
    assert not list(empty.glob("none*"))
    assert len(list(empty.glob("one-*.svg"))) == 1
