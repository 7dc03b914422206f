"""What the debugger's other keys do: breakpoints, watches, panes, why, copy, export, compare, remember."""

from __future__ import annotations

import asyncio
import json
import re
from io import BytesIO
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner
from textual.command import CommandList
from textual.widgets import Input

import blis_tui
from blis_tui.base.errors import BlisError
from blis_tui.cli.main import cli
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.saved_sessions import Session
from blis_tui.debugger.saved_sessions import load as load_session
from blis_tui.debugger.saved_sessions import save as save_session
from blis_tui.debugger.state import PHASES
from blis_tui.golden.bundle import unpacked, verified
from blis_tui.tui.app import BlisApp, Start
from blis_tui.tui.bars import TabBar, place_tabs
from blis_tui.tui.boxes import RowsBox
from blis_tui.tui.debug_session import DebugSession
from blis_tui.tui.editor import read_only
from blis_tui.tui.panes import PANES as DECLARED
from blis_tui.tui.panes.events import EventList, EventRows
from blis_tui.tui.screens.compare import CompareScreen
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.screens.export import KINDS, ExportScreen
from blis_tui.tui.screens.why import WhyScreen
from blis_tui.tui.screens.windows import ConfirmScreen, PromptScreen
from tests.tui.debugging import NAMES, NARROW, Debugging, debugging, experiment
from tests.tui.screens import press, screen_text, settle

if TYPE_CHECKING:
    from pathlib import Path


PANES = ("events", "instances", "request", "metrics", "kv", "changes", "warnings", "breakpoints", "spec")


async def test_a_breakpoint_at_the_cursor_and_away_again() -> None:
    async with debugging(at="100") as here:
        await here.press("1", "up", "b")
        assert [one.text for one in here.session.breakpoints] == ["event 99"]
        await here.press("home", "r")
        assert here.event == 99
        await here.press("b")
        assert not here.session.breakpoints


async def test_a_breakpoint_at_a_request() -> None:
    async with debugging(at="1500") as here:
        await here.press("2", "down", "b")
        request = here.session.selection.request
        assert request is not None
        assert [one.text for one in here.session.breakpoints] == [f"request {request}"]


async def test_breakpoints_are_edited_switched_and_removed() -> None:
    async with debugging() as here:
        await here.press("B")
        await here.type("kv.utilization > 0.9")
        await here.press("B")
        await here.type("nonsense > 3")
        assert len(here.session.breakpoints) == 1
        await here.press("escape", "ctrl+b")
        assert here.screen.arrangement.active == "breakpoints"
        assert "kv.utilization > 0.9" in screen_text(here.app)
        await here.press("space")
        assert not here.session.breakpoints[0].enabled
        await here.press("r", "ctrl+r")
        assert "Every breakpoint is off: ^b lists them, space turns one on." in here.said()
        assert "There is no breakpoint" not in here.said()
        await here.press("space", "enter")
        await here.press(*["backspace"] * 3)
        await here.type("0.5")
        assert [one.text for one in here.session.breakpoints] == ["kv.utilization > 0.5"]
        await here.press("delete")
        assert not here.session.breakpoints


async def test_a_click_on_a_breakpoint_moves_there_and_one_on_its_glyph_switches_it() -> None:
    async with debugging() as here:
        await here.press("ctrl+b")
        assert "B writes one: preempted" in screen_text(here.app)
        for text in ("preempted", "dropped"):
            here.session.put(text)
        here.screen.show_view()
        await here.idle()
        lines = here.screen.query_one("#breakpoints Rows")
        await here.pilot.click(lines, offset=(8, 1))
        assert "▸ ● dropped" in screen_text(here.app)
        assert all(one.enabled for one in here.session.breakpoints)
        await here.pilot.click(lines, offset=(2, 0))
        await here.idle()
        assert "▸ ○ preempted  off" in screen_text(here.app)
        assert [one.enabled for one in here.session.breakpoints] == [False, True]
        await here.press("down", "delete")
        assert [one.text for one in here.session.breakpoints] == ["preempted"]


async def test_a_breakpoint_that_stops_once() -> None:
    async with debugging(breaks=("first preemption",)) as here:
        await here.press("r")
        first = here.event
        assert not here.session.breakpoints[0].enabled
        await here.press("r")
        assert here.event == first


async def test_watches_follow_the_position() -> None:
    async with debugging(at="1500") as here:
        await here.press("w")
        await here.type("instance[0].running")
        running = here.debugger.moment().after.instances[0].running_count
        assert f"{running} requests" in screen_text(here.app)
        await here.press("home")
        assert "0 requests" in screen_text(here.app)


async def test_wrong_breakpoints_on_the_command_line_are_errors() -> None:
    with pytest.raises(BlisError, match="used"):
        DebuggerScreen(experiment("kv-pressure", 60), source="kv-pressure", breaks=("kv.usd > 3",))


@pytest.mark.parametrize("size", [NARROW, (110, 30), (140, 40)])
async def test_panes_by_number_name_and_tab(size: tuple[int, int]) -> None:
    async with debugging(at="1500", size=size) as here:
        for key, pane in zip("123456789", PANES, strict=True):
            await here.press(key)
            assert here.screen.arrangement.active == pane
            assert here.screen.query_one(f"#{pane}").region.area > 0
            assert here.screen.query_one(f"#{pane}").has_focus_within
        shown = here.screen.arrangement.shown(size[0])
        for _ in range(10):
            await here.press("tab")
        assert here.screen.arrangement.shown(size[0]) == shown or size == NARROW


async def test_more_and_less_room() -> None:
    async with debugging(at="1500") as here:
        await here.press("2")
        pane = here.screen.query_one("#instances")
        shared = pane.size
        await here.press("+")
        assert pane.size.height > shared.height
        await here.press("+")
        assert pane.size.width > shared.width
        await here.press("underscore", "underscore")
        assert pane.size == shared
        await here.press("+", "+", "escape")
        assert pane.size == shared


async def test_jump_mode() -> None:
    async with debugging(at="1500") as here:
        await here.press("1", "ctrl+o")
        letter = next(pane.letter for pane in DECLARED if pane.id == "instances")
        await here.press(letter)
        assert here.screen.arrangement.active == "instances"
        await here.press("ctrl+o", "escape")
        assert here.screen.arrangement.active == "instances"


async def test_clicks() -> None:
    async with debugging(at="1500") as here:
        tabs = here.screen.query_one(TabBar)
        column = next(tab.column for tab in place_tabs(tabs.tabs, tabs.size.width) if tab.tab.pane.key == "6")
        await here.pilot.click("#tabs", offset=(column + 1, 0))
        await here.idle()
        assert here.screen.arrangement.lower == "changes"
        await here.pilot.click("#timeline", offset=(40, 1))
        await here.idle()
        assert 0 < here.event < 1500
        await here.pilot.click("#instances")
        await here.idle()
        assert here.screen.arrangement.active == "instances"


async def test_why_of_events_and_requests() -> None:
    async with debugging(at="1500") as here:
        await here.press("1", "?")
        assert isinstance(here.app.screen, WhyScreen)
        assert "1,500" in screen_text(here.app)
        await here.press("escape", "2", "down", "?")
        request = here.session.selection.request
        assert request is not None
        assert request in screen_text(here.app)
        await here.press("escape")
        assert here.on_top
        assert here.event == 1500


async def test_filter_and_its_end() -> None:
    async with debugging(at="1500") as here:
        await here.press("/")
        await here.type("preempted")
        events = here.screen.query_one(EventList)
        assert events.query_one(EventRows).index is not None
        assert events.query_one(EventRows).count > 1
        await here.press("escape")
        assert events.query_one(EventRows).index is None


async def test_a_side_of_a_comparison_knows_what_it_was_loaded_by(monkeypatch: pytest.MonkeyPatch) -> None:
    reopened: list[tuple[object, ...]] = []
    async with debugging(at="100", at_once=True) as here:
        monkeypatch.setattr(here.app, "open_experiment", lambda *args, **_: reopened.append(args))
        monkeypatch.setattr("blis_tui.tui.editor.edit", lambda *_: "")
        await here.press("v")
        await here.type("engine.kv_blocks=900 'policy=vllm-v1'")
        await here.press("tab", "enter")
        side = here.app.screen
        assert isinstance(side, DebuggerScreen)
        assert blocks_of(side.session.experiment) == "900"
        changes = ("workload.requests=60", "engine.kv_blocks=900", "policy=vllm-v1")
        assert side.loaded_by == ("kv-pressure", changes, None)
        await press(here.pilot, "Y")
        assert here.app.clipboard == f"kv-pressure --at {side.session.debugger.event}"
        await press(here.pilot, "e")
        assert reopened == [("kv-pressure", changes, None, str(side.session.debugger.event))]
        await press(here.pilot, "v")
        await here.type("engine.max_num_seqs=4")
        assert isinstance(here.app.screen, CompareScreen)
        assert [blocks_of(debugger.experiment) for debugger in here.app.screen.lockstep.sides] == ["900", "900"]


async def test_a_shipped_experiment_is_copied_not_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own file is no user's to edit; the command that the message names makes a file that is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDITOR", "false")  # would complain
    async with debugging(at="100") as here:
        told: list[str] = []
        monkeypatch.setattr(here.screen, "notify", lambda text, **_: told.append(text))
        await here.press("e")
        assert here.on_top
        assert here.event == 100
    (said,) = told
    before, command = said.split(" For a copy of your own: ")
    assert before == "kv-pressure is shipped with blis-tui: read-only."
    program, *words = command.split()
    assert (program, words[-2:]) == ("blis-tui", [">", "my-kv-pressure.blis.yaml"])
    copy = tmp_path / words[-1]
    copy.write_text(CliRunner().invoke(cli, words[:-2]).stdout)
    assert blis_tui.load(copy).sha256 == blis_tui.load("kv-pressure").sha256
    assert not read_only(copy, tmp_path)


def blocks_of(experiment: blis_tui.Experiment) -> str:
    match = re.search(r'"kv_blocks": (\d+)', json.dumps(dict(experiment.document), default=dict))
    return match[1] if match else ""


NOWHERE: Final = (
    (("g", ":nobody"), "No request of this run is named 'nobody'"),
    (("g", ":nobody" + "y" * 400), "No request of this run is named '…yyyyy"),
    (("g", ":99999999"), "The run ends before that"),
    (("home", "["), "This is the start"),
    (("home", "{"), "This is the start"),
    (("home", "F"), "This is the start"),
    (("home", "m"), "This is the start"),
    (("home", "ctrl+r"), "No breakpoint is hit before that"),
    (("end", "O"), "This is the end"),
    (("end", "r"), "No breakpoint is hit from there on"),
)


async def test_a_way_that_leads_nowhere_says_so() -> None:
    async with debugging(at="100", breaks=("waiting > 1000000",), at_once=True) as here:
        for keys, said in NOWHERE:
            here.forget()
            await here.press(*keys)
            assert said in here.said(), keys
            if not here.on_top:
                await here.press("escape")


async def test_a_key_of_what_the_run_has_not_says_so() -> None:
    async with debugging(at="100") as here:
        for key, said in (
            ("i", "no router: it has one instance"),
            ("u", "no fleet: it has one instance"),
            ("R", "no router: it has one instance"),
            ("W", "no gateway"),
            ("S", "no sessions"),
        ):
            here.forget()
            await here.press(key)
            assert here.said() == f"This run has {said}.", key


async def test_a_filter_emptied_is_no_filter() -> None:
    async with debugging(at="1500") as here:
        await here.press("/")
        assert "enter shows all events" in screen_text(here.app)
        await here.type("preempted")
        await here.press("/")
        assert "enter shows what matches" in screen_text(here.app)
        here.app.screen.query_one(Input).value = ""
        await here.press("enter")
        assert here.on_top
        assert here.screen.query_one(EventList).query_one(EventRows).index is None


async def test_where_nothing_is_written_it_is_said_what_to_write() -> None:
    async with debugging(at="1500") as here:
        for key, example in (("g", "1234"), ("B", "preempted"), ("w", "kv.utilization"), ("v", "policy")):
            await here.press(key, "enter")
            assert not here.on_top
            assert f"✗ Nothing is entered: try {example}" in screen_text(here.app)
            await here.type("1")
            assert "Nothing is entered" not in screen_text(here.app)
            if not here.on_top:
                await here.press("escape")


async def test_copies() -> None:
    async with debugging(at="1500") as here:
        await here.press("6", "down", "y")
        assert here.app.clipboard
        value = here.app.clipboard
        await here.press("Y")
        assert here.app.clipboard != value
        await here.press("9", "y")
        assert here.app.clipboard


async def test_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with debugging(at="1490", breaks=("preempted",)) as here:
        for number in range(len(KINDS)):
            await here.press("x")
            assert isinstance(here.app.screen, ExportScreen)
            await here.press(*["down"] * number, "enter")
            assert "Written" in here.said()
        plain = blis_tui.Simulation(here.session.experiment)
        records: list[object] = []
        plain.subscribe("all", records.append)
        plain.run(max_events=1490)
    report = (tmp_path / "kv-pressure-1490.report.json").read_text()
    assert report == plain.report(by_clock=True).to_json() != plain.report().to_json()  # a step is under way
    assert json.loads(report)["meta"]["complete"] is False
    assert len((tmp_path / "kv-pressure-1490.records.jsonl").read_text().splitlines()) == len(records)
    rows = (tmp_path / "kv-pressure-1490.requests.csv").read_text().splitlines()
    assert len(rows) == plain.arrived + 1
    assert (tmp_path / "kv-pressure-1490.svg").read_text().startswith("<svg")
    assert b"instance 0" in (tmp_path / "kv-pressure-1490.pftrace").read_bytes()
    with unpacked(str(tmp_path / "kv-pressure-1490.blis")) as bundle:
        assert (bundle.at, bundle.breaks) == ("1490", ("preempted",))
        assert bundle.case.load().sha256 == plain.experiment.sha256
        assert verified(bundle) == ""


async def test_an_export_keeps_the_files_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "kv-pressure-1500.report.json"
    mine.write_text("mine")
    async with debugging(at="1500") as here:
        for other in ("kv-pressure-1500-2.report.json", "kv-pressure-1500-3.report.json"):
            await here.press("x")
            assert other in screen_text(here.app)
            await here.press("enter")
            assert (tmp_path / other).read_text().startswith("{")
    assert mine.read_text() == "mine"
    assert f"Written: {tmp_path / 'kv-pressure-1500-3.report.json'}" in here.said()
    assert "kv-pressure-1500.report.json existed already" in here.said()


async def test_an_export_into_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    async with debugging(at="100") as here:
        await here.press("x")
        (folder).rmdir()
        await here.press("enter")
        assert not here.on_top or "cannot" in here.said() or "No such" in here.said()
        monkeypatch.chdir(tmp_path)


async def test_compare_with_a_changed_value() -> None:
    async with debugging(at="100") as here:
        await here.press("v")
        await here.type("engine.kv_blocks=900")
        compare = here.app.screen
        assert isinstance(compare, CompareScreen)
        assert compare.lockstep.left.event == here.debugger.tape.at_time(here.debugger.time_us) >= 100
        await here.press("q")
        assert here.on_top


async def test_editing_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with debugging(at="100") as here:
        await here.press("e")
        assert "EDITOR" in here.said()


async def test_a_session_is_remembered() -> None:
    async with debugging(at="100") as here:
        await here.press("B")
        await here.type("preempted")
        await here.press("w")
        await here.type("waiting")
        await here.press("5", "+", ">")
    session = load_session("kv-pressure")
    assert session.position_event == 100
    assert session.breakpoints == (("preempted", True),)
    async with debugging(at=None) as again:
        assert [one.text for one in again.session.breakpoints] == ["preempted"]
        assert again.session.watches == ("waiting",)
        assert again.screen.arrangement.active == "summary"
        assert again.screen.arrangement.size == "tall"
        assert again.session.driver.speed.text() == "2,000 events/s"
        assert again.debugger.at_end
        assert "event 100" in again.said()
        await again.press("backspace")
        assert again.event == 100


async def test_what_was_remembered_may_make_no_sense_any_more() -> None:
    async with debugging("quickstart", requests=20) as here:
        here.session.put("instance 1 preempted")
    app = BlisApp(
        Start(experiment=blis_tui.load("quickstart", set={"cluster.instances": 1}), source="quickstart", at="start")
    )
    async with app.run_test(size=NARROW) as pilot:
        await pilot.pause()
        assert isinstance(app.screen, DebuggerScreen)
        assert not app.screen.session.breakpoints
        assert any("instance 1" in note.message for note in app._notifications)


async def choose(here: Debugging, text: str) -> None:
    """Type into the palette, and choose what it has found by then for the whole text."""
    await here.press("ctrl+p")
    await here.pilot.press(*[NAMES.get(character, character) for character in text])
    commands = here.app.screen.query_one(CommandList)
    async with asyncio.timeout(30):
        while commands.option_count != 1 or not str(commands.get_option_at_index(0).prompt).startswith(text):
            await here.pilot.pause(0.01)
    await here.press("enter")


async def test_the_palette_knows_requests_and_events() -> None:
    async with debugging(at="1500") as here:
        await choose(here, "Request: request_12")
        await here.idle()
        assert here.session.selection.request == "request_12"
        await choose(here, "Event: 77")
        async with asyncio.timeout(30):  # the command runs when the palette has closed
            while here.event != 77:
                await here.pilot.pause(0.01)


async def test_panes_follow_the_size_of_the_terminal() -> None:
    async with debugging(at="1500", size=NARROW) as here:
        assert here.screen.arrangement.shown(80) == ("events",)
        await here.pilot.resize_terminal(140, 40)
        await here.idle()
        assert here.screen.query_one("#instances").region.area > 0
        await here.pilot.resize_terminal(50, 12)
        await here.idle()
        assert "too small" in screen_text(here.app)
        await here.pilot.resize_terminal(80, 24)
        await here.idle()
        assert here.on_top
        assert here.screen.query_one("#events").region.area > 0
        assert here.screen.query_one("#instances").region.area == 0


async def test_a_breakpoint_remembered_twice_is_set_once_and_stays_off() -> None:
    save_session(Session("kv-pressure", breakpoints=(("preempted", False), ("event 9", True), ("preempted", False))))
    async with debugging() as here:
        found = [(one.text, one.enabled) for one in here.session.breakpoints]
        assert found == [("preempted", False), ("event 9", True)]
        here.session.put("preempted", 1)
        assert [(one.text, one.enabled) for one in here.session.breakpoints] == [("preempted", True)]


async def test_the_document_is_that_of_the_run() -> None:
    async with debugging(requests=77) as here:
        lines = here.session.document_lines("kv-pressure", ("workload.requests=77",))
        assert [line.split() for line in lines if line.startswith("  requests:")] == [["requests:", "77", "#", "--set"]]
        await here.press("9")
        shown = here.session.document
        assert any(line.startswith("  requests: 77 ") and line.endswith("--set") for line in shown)
        # A side of a comparison, a file that has changed since: nobody knows where its values come from.
        for source in ("kv-pressure", "policy=vllm-v1"):
            lines = here.session.document_lines(source)
            assert "  requests: 77" in lines
            assert "no file has exactly this content" in lines[0]


async def test_a_comparison_keeps_what_was_overridden() -> None:
    async with debugging(requests=77) as here:
        await here.press("v")
        await here.type("engine.kv_blocks=900")
        other = here.app.screen
        assert isinstance(other, CompareScreen)
        assert [side.experiment.workload.requests for side in other.lockstep.sides] == [77, 77]


async def test_a_request_that_never_comes_is_not_selected() -> None:
    async with debugging(at="100") as here:
        await here.press("g")
        await here.type("nobody")
        assert "No request of this run is named" in here.said()
        assert here.session.selection.request is None
        assert here.event == 100


async def test_a_past_that_changed_is_told_once_and_survived() -> None:
    async with debugging(at="100") as here:
        await here.press("n")
        here.debugger.history._digests[100] = "another state"
        await here.press("[")
        assert here.event == 100
        assert here.said().count("the replay diverged at event 100") == 1
        await here.pilot.resize_terminal(100, 30)
        await here.press("2")
        assert here.said().count("the replay diverged at event 100") == 1
        await here.press("n")
        assert here.event == 101


async def test_a_past_that_changed_while_running() -> None:
    async with debugging(requests=20) as here:
        await here.press("end")
        end = here.event
        await here.press("home")
        here.debugger.history._digests[end] = "another state"
        here.session.driver.speed.change(20)
        await here.press("c")
        assert here.event == end
        assert f"the replay diverged at event {end}" in here.said()


async def test_an_export_tells_of_the_place_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with debugging(at="1500") as here:
        screen = ExportScreen(here.debugger, str)
        for kind in KINDS:
            name, write = screen.file_name(kind), screen.writer(kind)
            here.debugger.step()
            out = BytesIO()
            write(out)
            assert name.startswith(f"kv-pressure-{here.event - 1}.")
            if kind.id == "report":
                assert json.loads(out.getvalue()) == json.loads(_report(here.session.experiment, here.event - 1))
            if kind.id == "records":
                assert json.loads(out.getvalue().splitlines()[-1])["event"] == here.event - 1


async def test_a_change_that_cannot_be_loaded_stays_to_be_corrected() -> None:
    async with debugging(size=NARROW) as here:
        await here.press("v")
        await here.type("engine.kv_block=5")
        window = here.app.screen
        assert isinstance(window, PromptScreen)
        assert window.query_one(Input).value == "engine.kv_block=5"
        text = screen_text(here.app)
        assert "unknown key `kv_block`" in text
        assert "= help: did you mean `kv_blocks`?" in text
        await here.press("home", *["right"] * len("engine.kv_block"), "s", "enter")
        assert isinstance(here.app.screen, CompareScreen)


def _report(experiment: blis_tui.Experiment, event: int) -> str:
    simulation = blis_tui.Simulation(experiment)
    simulation.run(max_events=event)
    return simulation.report().to_json()


async def test_what_is_set_up_is_written_down_at_once() -> None:
    async with debugging() as here:
        await here.press("B")
        await here.type("preempted")
        assert load_session("kv-pressure").breakpoints == (("preempted", True),)
        await here.press("8", "space")
        assert load_session("kv-pressure").breakpoints == (("preempted", False),)


async def test_the_same_is_not_said_twice_and_not_after_a_move() -> None:
    async with debugging() as here:
        await here.press("r", "r", "r")
        assert here.said().count("no breakpoint") == 1
        await here.press("n")
        assert not here.said()


async def test_a_place_behind_the_end_is_told() -> None:
    async with debugging(requests=20, at="99s") as here:
        assert here.debugger.at_end
        assert "ends before that" in here.said()


async def test_the_list_follows_a_run_through_a_new_size() -> None:
    async with debugging(at="1500") as here:
        events = here.screen.query_one(EventList)
        await here.pilot.resize_terminal(110, 30)
        await here.idle()
        assert "down" not in str(events.border_subtitle)
        here.screen.go(here.debugger.seek(1700), "")
        await here.idle()
        assert "down" not in str(events.border_subtitle)


async def test_breakpoints_are_completed() -> None:
    async with debugging() as here:
        await here.press("B", *"kv.ut")
        assert "→ kv.utilization: used share of the KV blocks, 0 to 1" in screen_text(here.app)
        await here.press("right")
        await here.type(" > 90%")
        assert [one.text for one in here.session.breakpoints] == ["kv.utilization > 90%"]


async def test_at_the_end_the_question_is_who_was_slow() -> None:
    async with debugging() as here:
        await here.press("g")
        await here.type("request_5")
        await here.press("end", "3")
        slowest = here.debugger.tape.slowest(here.event, 2)
        assert "By end-to-end latency" in screen_text(here.app)
        await here.press("question_mark")
        assert slowest[0][0] in screen_text(here.app)
        assert "slower than all others" in screen_text(here.app)
        await here.press("escape", "down", "question_mark")
        assert f"{slowest[1][0]}: prompt of" in screen_text(here.app)


async def test_requests_are_ranked_by_one_figure_after_the_other() -> None:
    async with debugging() as here:
        await here.press("end", "l")
        for order in ("end-to-end latency", "time to first token", "time per output token", "longest gap"):
            assert f"By {order}" in screen_text(here.app)
            await here.press("l")
        await here.press("l", "l")
        assert "By end-to-end latency" in screen_text(here.app)
        await here.press("enter")
        assert here.session.selection.request == here.debugger.tape.slowest(here.event, 1)[0][0]
        assert "end to end" in screen_text(here.app)
        await here.press("l")
        assert "By end-to-end latency" in screen_text(here.app)


async def test_more_requests_are_ranked_and_what_they_have_in_common_is_counted_anew() -> None:
    async with debugging(requests=200, size=(200, 60), at_once=True) as here:
        await here.press("end", "l")
        for count in (12, 30, 100, 12):
            view = here.screen._view()
            assert len(view.ranking().ranked) == count
            shared = view.ranking().common
            assert count == 100 or shared
            assert all(f"{each.text}: {each.having}" in screen_text(here.app) for each in shared)
            await here.press("m")


def test_watches_know_no_more_than_the_phase() -> None:
    session = DebugSession(experiment("kv-pressure"))
    debugger = session.debugger
    run_to_stop(debugger.seek(2760))
    debugger.step_phase()
    step = debugger.moment().step
    assert step is not None
    assert step.completed
    seen = []
    for _ in PHASES:
        moment = debugger.moment()
        seen.append(tuple(session.value(text, moment) for text in ("running", "kv.used", "step.completed")))
        instance = debugger.moment().instance(0)
        assert seen[-1][0] == f"{instance.running_count} requests"
        assert seen[-1][1] == f"{instance.kv.used_blocks:,} blocks"
        debugger.step_phase()
    assert seen[0] == seen[1] != seen[2] == seen[3]
    completed = f"{len(step.completed)} requests"
    assert [told for *_, told in seen] == ["0 requests", "0 requests", completed, completed]


async def test_a_run_under_way_waits_while_somebody_asks_why() -> None:
    async with debugging() as here:
        await here.press("1", "n", "n", "n")
        await here.press(*["<"] * 4)  # slow enough that the run cannot end while this one looks
        await here.pilot.press("c")
        assert here.session.driver.playing
        await here.pilot.press("question_mark")
        await settle(here.pilot)
        event = here.event
        assert f"Event {event:,}:" in screen_text(here.app)
        assert "the run is paused until you close this" in screen_text(here.app)
        await here.pilot.pause(0.1)
        assert here.event == event
        await here.pilot.press("escape")
        while here.event == event:
            await here.pilot.pause(0.01)
        assert here.session.driver.playing
        await here.press("c")


async def test_windows_without_a_field_are_left_by_the_key_that_leaves_screens() -> None:
    async with debugging(at="1490") as here:
        for key in ("x", "?", "p"):
            await here.press(key)
            assert not here.on_top
            await here.press("q")
            assert here.on_top
        here.app.push_screen(ConfirmScreen("Sure?", "It is gone then.", doing="does it"))
        await here.press("q")
        assert here.on_top


async def test_what_was_said_of_a_screen_is_gone_with_it() -> None:
    async with debugging(at="100") as here:
        side = DebuggerScreen(experiment("kv-pressure", 60), source="kv-pressure", at="start")
        await here.app.push_screen(side)
        here.app.notify("backspace goes there")
        await settle(here.pilot)
        assert "backspace goes there" in here.said()
        await here.press("q")
        assert (here.on_top, here.said()) == (True, "")


async def test_enter_shows_the_cursor_where_there_is_none_yet() -> None:
    async with debugging("conversations", requests=None, at="2s") as here:
        await here.press("S", "enter")
        session = here.screen.query_one("#sessions", RowsBox).copied(path=False)
        assert session
        assert here.session.selection.session is None
        await here.press("enter")
        assert here.session.selection.session == session
