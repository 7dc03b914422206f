"""What can be typed behind a colon: verbs, panes, actions, requests, events; and how it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import yaml
from textual.command import CommandInput, CommandList, CommandPalette

from blis_tui.tui.actions import ACTIONS
from blis_tui.tui.app import BlisApp
from blis_tui.tui.panes.timeline import Timeline
from blis_tui.tui.screens.compare import CompareScreen
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.screens.why import WhyScreen
from blis_tui.tui.screens.windows import MomentScreen, PromptScreen
from blis_tui.tui.shell import CommandLine
from tests.tui.debugging import NARROW, Debugging, debugging
from tests.tui.screens import press, settle

if TYPE_CHECKING:
    from pathlib import Path

    from textual.app import App
    from textual.screen import Screen


async def type_command(here: Debugging, text: str) -> None:
    """Type a command and enter at once, without waiting for the list."""
    await here.press("colon", f":{text}")


def line_of(here: Debugging) -> CommandLine:
    return CommandLine(cast("App[None]", here.app), cast("Screen[object]", here.screen))


def _is_on_top(here: Debugging, kind: type) -> bool:
    return isinstance(here.app.screen, kind)


async def test_whatever_can_be_named_is_a_command() -> None:
    async with debugging(size=NARROW, at="100", at_once=True) as here:
        await type_command(here, "at 900")
        assert (here.event, here.on_top) == (900, True)
        await type_command(here, "300")
        assert here.event == 300
        await type_command(here, "event_900")
        assert here.event == 900
        await type_command(here, "1.5s")
        assert here.debugger.time_us <= 1_500_000 < here.debugger.tape.time_us(here.event + 1)
        await type_command(here, "instances")
        assert here.screen.arrangement.active == "instances"
        await type_command(here, "request_12")
        assert (here.screen.arrangement.active, here.session.selection.request) == ("request", "request_12")
        await type_command(here, "instance_0")
        assert (here.screen.arrangement.active, here.session.selection.instance) == ("instances", 0)
        await type_command(here, "KV cache")
        assert here.screen.arrangement.active == "kv"
        await type_command(here, "step.event")
        await type_command(here, "next event")
        assert here.debugger.event > 2


async def test_verbs_do_what_their_windows_do() -> None:
    async with debugging(size=NARROW, at="900", at_once=True) as here:
        await type_command(here, "break preemptions > 0")
        assert [one.text for one in here.session.breakpoints] == ["preemptions > 0"]
        await type_command(here, "watch kv.used")
        assert here.session.watches == ("kv.used",)
        await type_command(here, "print kv.used at preempted")
        assert here.session.printout is not None
        assert here.session.printout.rows
        await type_command(here, "filter preempted")
        assert here.screen._filter == "preempted"
        await type_command(here, "keep the spot")
        assert [(moment.event, moment.name) for moment in here.session.moments] == [(here.event, "the spot")]
        await here.press("k", "tab", *"why", "enter")
        await type_command(here, "keep a spot")
        await type_command(here, "keep the spot")
        assert [(moment.name, moment.note) for moment in here.session.moments] == [("the spot", "why")]
        await type_command(here, "at 20")
        await type_command(here, "the spot")
        assert here.event == here.session.moments[0].event
        await type_command(here, "why request_3")
        assert _is_on_top(here, WhyScreen)
        await here.press("escape")
        # A verb alone opens its window.
        for verb, window in (("break", PromptScreen), ("at", PromptScreen), ("keep", MomentScreen)):
            await type_command(here, verb)
            assert _is_on_top(here, window)
            await here.press("escape")
        await type_command(here, "compare engine.kv_blocks=900")
        assert _is_on_top(here, CompareScreen)


WRONG = (
    *("break kv.usd > 3", "watch nothing.at.all", "at 9999999999999999s", "why nobody"),
    *("compare policy=vlm-v1", "compare engine.kv_blocks"),
)


async def test_what_is_wrong_is_said_and_stays_to_be_corrected() -> None:
    async with debugging(size=NARROW, at="100", requests=20, at_once=True) as here:
        for text in WRONG:
            here.forget()
            await type_command(here, text)
            assert here.said(), text
            assert isinstance(here.app.screen, CommandPalette), text
            assert here.app.screen.query_one(CommandInput).value == text
            await here.press("escape")
            assert here.on_top, text


async def test_what_means_nothing_runs_nothing_whatever_an_earlier_list_had() -> None:
    async with debugging(size=NARROW, at="100", requests=20, at_once=True) as here:
        before = here.screen.arrangement
        for text in ("xyzzy", "[red]", "-5", "-5:"):
            here.forget()
            await type_command(here, text)
            assert f"Nothing is named '{text}'" in here.said()
            assert isinstance(here.app.screen, CommandPalette), text
            assert (here.event, here.screen.arrangement, here.app.clipboard) == (100, before, ""), text
            await here.press("escape")
            assert here.on_top, text


async def test_brackets_are_no_markup_in_the_list() -> None:
    odd = "[red] [/ [/] [b"
    async with debugging(size=NARROW, at="100", requests=20, at_once=True) as here:
        await type_command(here, f"keep {odd}")
        assert [moment.name for moment in here.session.moments] == [odd]
        for text, shown in (
            (f"watch {odd}", f"Command: watch {odd}"),
            ("Moment: [/", f"Moment: {odd}"),
            (odd, f"Moment: {odd}"),
        ):
            await here.press("colon")
            here.app.screen.query_one(CommandInput).value = text
            await here.idle()
            options = here.app.screen.query_one(CommandList)
            titles = [str(options.get_option_at_index(place).prompt) for place in range(options.option_count)]
            assert any(title.startswith(shown) for title in titles)
            await here.press("escape")


async def test_a_colon_lists_and_tab_completes() -> None:
    async with debugging(size=NARROW, at="900", at_once=True) as here:
        await here.press("colon", *"break kv.u", "tab")
        field = here.app.screen.query_one(CommandInput)
        assert field.value == "break kv.used"
        await here.press(":_nothing")
        assert not here.session.breakpoints
        field.value = "request_1"
        await here.press("enter")
        assert here.session.selection.request == "request_1"


async def test_completions_lead_to_commands_and_every_action_can_be_typed() -> None:
    async with debugging(size=NARROW, at="900", at_once=True) as here:
        line = line_of(here)
        for begun, whole in (
            ("br", "break "),
            ("inst", "instance_0"),
            ("request_1", "request_10"),
            ("at sta", None),
            ("watch instance[0].ru", "watch instance[0].running"),
            ("print kv.used at pree", "print kv.used at preempted"),
            ("theme blis", None),
            ("why request_1", "why request_10"),
            ("step.ev", "step.event"),
            ("zzz", None),
        ):
            suggestion = line.complete(begun)
            if whole is not None:
                assert suggestion is not None
                assert suggestion.text == whole
                assert suggestion.text.startswith(begun)
        for action in ACTIONS:
            if action.scope == "debugger" and here.app.is_usable(action, cast("Screen[object]", here.screen)):
                entry = line.typed(action.name)
                assert entry is not None
                assert entry.text == action.title
        assert line.typed("") is None
        assert line.typed("nothing of that kind") is None


async def test_other_screens_have_their_actions_and_documents(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await press(pilot, "colon", *"theme nord", "enter")
        assert app.theme == "nord"
        await press(pilot, "colon", *"home.search", "enter")
        assert app.screen.has_class("-searching")
        await press(pilot, "escape", "colon", *"open mine.blis.yaml", "enter")
        await settle(pilot)
        assert isinstance(app.screen, DebuggerScreen)


async def test_views_are_undone_and_done_again() -> None:
    async with debugging(size=NARROW, at="900", at_once=True) as here:
        first = here.screen.arrangement
        await here.press("2", "5", "+")
        last = here.screen.arrangement
        assert last.size == "tall"
        await here.press("z")
        assert (here.screen.arrangement.active, here.screen.arrangement.size) == ("kv", "shared")
        assert here.screen.query_one("#kv").has_focus_within
        await here.press("z", "z", "z")
        assert here.screen.arrangement == first
        assert "not been changed before" in here.said()
        await here.press("Z", "Z", "Z", "Z")
        assert here.screen.arrangement == last
        await here.press("z", "3", "Z")
        assert here.screen.arrangement.active == "request"


async def test_letters_are_on_tabs_and_the_timeline_too() -> None:
    async with debugging(size=NARROW, at="900", at_once=True) as here:
        await here.press("1", "ctrl+o", "k")
        assert here.screen.arrangement.active == "kv"
        await here.press("ctrl+o", "t")
        assert here.screen.query_one(Timeline).has_focus_within
        await here.press("ctrl+o", "n")
        assert here.screen.arrangement.active == "moments"


async def test_the_selection_is_copied_as_a_command_and_as_yaml() -> None:
    async with debugging(size=NARROW, at="900", at_once=True) as here:
        await here.press("1", "C")
        assert here.app.clipboard == "blis-tui tui kv-pressure --set workload.requests=60 --at 900"
        await here.press("ctrl+y")
        told = yaml.safe_load(here.app.clipboard)
        records = here.debugger.records_of(900)
        assert (told["event"], told["time_us"]) == (900, here.debugger.time_us)
        assert [one["kind"] for one in told["records"]] == [record.kind for record in records]
        await here.press("3", "l", "enter", "C")
        name = here.session.selection.request
        assert here.app.clipboard == f"blis-tui tui kv-pressure --set workload.requests=60 --at {name}"
        await here.press("ctrl+y")
        told = yaml.safe_load(here.app.clipboard)
        assert name in (told.get("request"), told.get("request_id"))
        assert [one["event"] for one in told["life"]] == [
            event.event for event in here.debugger.tape.life(str(name), here.event, here.debugger.settled)
        ]
