"""Questions, breakpoints and copies are about what the cursor is on, whatever was selected before in another pane."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from blis_tui.tui.boxes import RowsBox
from blis_tui.tui.panes.events import EventList
from blis_tui.tui.panes.timeline import Timeline
from blis_tui.tui.screens.why import WhyScreen
from tests.tui.debugging import debugging

if TYPE_CHECKING:
    from tests.tui.debugging import Debugging

STALE = ("3", "l", "enter")
"""Keys that select a request in its pane: it stays selected."""


def pane_of(here: Debugging, name: str) -> RowsBox:
    return here.screen.query_one(f"#{name}", RowsBox)


async def explained(here: Debugging) -> tuple[str, str]:
    """What `?` explains: its kind, and its number or name."""
    await here.press("?")
    screen = here.app.screen
    assert isinstance(screen, WhyScreen)
    about = screen._explanation.about
    await here.press("escape")
    assert here.on_top
    return about.kind, about.value


async def test_the_event_at_the_cursor_not_the_request_selected_before() -> None:
    async with debugging("kv-overload", requests=200, at="1500") as here:
        await here.press(*STALE, "1")
        assert here.session.selection.request is not None
        assert await explained(here) == ("event", "1500")
        await here.press("n")
        assert await explained(here) == ("event", "1501")
        await here.press("up", "up")
        assert await explained(here) == ("event", "1499")
        await here.press("b", "y")
        assert [one.text for one in here.session.breakpoints] == ["event 1499"]
        assert here.app.clipboard == "kv-overload --at 1499"


async def test_the_request_at_the_cursor_of_the_ranking() -> None:
    async with debugging(at="1500") as here:
        await here.press("1", "up", "3", "l", "down")
        name = pane_of(here, "request").copied(path=False)
        assert name
        assert await explained(here) == ("request", name)
        await here.press("b", "y")
        assert [one.text for one in here.session.breakpoints] == [f"request {name}"]
        assert here.app.clipboard == name


async def test_the_request_of_a_change_and_the_event_of_the_others() -> None:
    async with debugging(requests=None, at="640") as here:
        await here.press("2", "down", "6", "down")
        pane = pane_of(here, "changes")
        assert pane.copied(path=True) == "requests.request_24.phase"
        assert await explained(here) == ("request", "request_24")
        await here.press("down")
        assert pane.copied(path=False) == "17 requests decoded one token each"
        assert await explained(here) == ("event", "640")


async def test_the_timeline_is_about_the_present_event() -> None:
    async with debugging(at="1500") as here:
        await here.press(*STALE)
        here.screen.query_one(Timeline).focus()
        await here.press("left")
        assert await explained(here) == ("event", str(here.event))


async def test_the_subject_of_a_warning() -> None:
    async with debugging("vllm-preemption", requests=None) as here:
        await here.press("end", *STALE, "7")
        stale = here.session.selection.request
        view = pane_of(here, "warnings").view
        assert view is not None
        assert view.checked is not None
        about = {}
        for finding in view.checked.findings:
            await here.press("down")
            about[finding.request] = await explained(here)
        del about[None]
        assert about == {name: ("request", name) for name in about}
        assert set(about) - {stale}


async def test_an_instance_is_explained_by_what_last_happened_on_it() -> None:
    async with debugging("prefix-routing", requests=60, at="200") as here:
        await here.press(*STALE, "2", "escape")
        pane = pane_of(here, "instances")
        await here.press("right", "left", "escape", "down")
        pointed = pane.at_cursor()
        assert pointed is not None
        assert pointed.kind == "instance"
        instance = int(pointed.value)
        kind, event = await explained(here)
        assert kind == "event"
        row = here.debugger.tape.row(int(event))
        assert row.instance == instance
        later = (here.debugger.tape.row(one).instance for one in range(int(event) + 1, here.event + 1))
        assert instance not in later
        await here.press("b")
        assert [one.text for one in here.session.breakpoints] == [f"instance {instance}"]


async def test_the_routing_decision_that_is_shown() -> None:
    async with debugging("prefix-routing", requests=60, at="200") as here:
        await here.press("1", "0")
        await here.screen.run_action("pane_show('router')")
        await here.press("down")
        kind, event = await explained(here)
        assert kind == "event"
        assert here.debugger.tape.has(int(event), "routed")


async def test_what_if_is_about_the_request_at_the_cursor() -> None:
    async with debugging("prefix-routing", requests=60, at="1500") as here:
        await here.press("3", "l", "down", "down")
        name = pane_of(here, "request").copied(path=False)
        await here.press("i")
        assert here.app.screen._about.startswith(f"{name} went to ")  # type: ignore[attr-defined]


async def test_a_breakpoint_is_copied_as_it_is_written() -> None:
    async with debugging(at="1500") as here:
        await here.press("B", ":kv.utilization > 0.9", "8", "y")
        assert here.app.clipboard == "kv.utilization > 0.9"


@pytest.mark.parametrize("key", ["4", "9"])
async def test_without_a_cursor_the_selected_request_else_the_present_event(key: str) -> None:
    async with debugging(at="1500") as here:
        await here.press("1", key)
        assert await explained(here) == ("event", "1500")
        await here.press(*STALE, key)
        assert await explained(here) == ("request", cast("str", here.session.selection.request))


async def test_with_a_filter_the_event_of_the_marked_row() -> None:
    async with debugging(at="1500") as here:
        await here.press("/", ":preempted")
        marked = here.screen.query_one(EventList)._rows.index[-1]  # type: ignore[index]
        assert marked < 1500
        assert await explained(here) == ("event", str(marked))
        await here.press("enter")
        assert here.event == marked


async def test_in_a_life_everything_is_about_its_request() -> None:
    async with debugging(at="1500") as here:
        await here.press(*STALE, "down", "down", "y")
        name = here.session.selection.request
        assert name is not None
        assert here.app.clipboard == name
        await here.press("Y")
        assert here.app.clipboard == f"requests.{name}"
        await here.press("b")
        assert [one.text for one in here.session.breakpoints] == [f"request {name}"]
        assert await explained(here) == ("request", name)


async def test_a_candidate_is_copied_and_its_decision_is_explained() -> None:
    async with debugging("prefix-routing", requests=60, at="200") as here:
        await here.press("R", "down", "down", "y")
        instance = here.session.selection.instance
        assert here.app.clipboard == str(instance)
        await here.press("Y")
        assert here.app.clipboard == f"instances[{instance}]"
        kind, event = await explained(here)
        await here.press("b")
        assert [one.text for one in here.session.breakpoints] == [f"{kind} {event}"]
        assert here.debugger.tape.has(int(event), "routed")


async def test_of_a_session_and_its_calls() -> None:
    async with debugging("conversations", requests=30, at="900") as here:
        await here.press("S", "down", "down", "y")
        name = here.app.clipboard
        assert here.debugger.tape.sessions.place(name) is not None
        await here.press("enter", "down", "down", "Y")
        call = here.session.selection.request
        assert here.app.clipboard == call
        assert await explained(here) == ("request", call)
        await here.press("y", "b")
        assert here.app.clipboard == name
        assert [one.text for one in here.session.breakpoints] == [f"session {name}"]
        await here.press("3", "l", "enter", "S")  # another request is selected, perhaps of another session
        await here.press("y")
        assert here.app.clipboard == name


async def test_what_the_autoscaler_decided_is_explained_where_its_line_is() -> None:
    async with debugging("GROWING", at="8400", requests=None, at_once=True) as here:
        await here.press("0", *["right"] * 20)
        event = here.debugger.tape.latest_of("scaling-decided", here.event)
        assert here.session.selection.event == event
        assert await explained(here) == ("event", str(event))


async def test_a_line_of_the_document_is_copied_with_its_path() -> None:
    async with debugging(at="1500") as here:
        await here.press("9", "down", "down", "down", "down", "y")
        value = here.app.clipboard
        await here.press("Y")
        assert (here.app.clipboard, value) == ("metadata.name", "kv-pressure")
        await here.press("?")
        window = here.app.screen
        assert isinstance(window, WhyScreen)
        assert window._explanation.headline.startswith("Name shown in reports and messages")
