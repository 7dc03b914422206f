"""Keys that come faster than windows open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.events import Key, Paste
from textual.widgets import Input

from blis_tui.tui.app import BlisApp
from blis_tui.tui.screens.help import HelpScreen
from blis_tui.tui.screens.home import HomeScreen
from tests.tui.debugging import NARROW, debugging
from tests.tui.screens import press, settle
from tests.tui.stubs import replace_screens

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NAMED = {"\n": "enter", "/": "slash", " ": "space", ">": "greater_than_sign", "\x1b": "escape", "?": "question_mark"}


def at_once(app: BlisApp, text: str) -> None:
    """All these keys, before any of them is dealt with."""
    driver = app._driver
    assert driver is not None
    for character in text:
        event = Key(NAMED.get(character, character), character if character.isprintable() else None)
        event.set_sender(app)
        driver.send_message(event)


async def test_what_a_key_opens_gets_the_keys_that_come_before_it_is_there() -> None:
    async with debugging(at="100", size=NARROW) as here:
        at_once(here.app, "g150\n")
        await here.idle()
        assert (here.event, here.on_top) == (150, True)
        at_once(here.app, "Bwaiting > 5\nnn8Bpreempted\n\x1b\x1bnn")
        await here.idle()
        assert (here.event, here.on_top) == (154, True)
        assert [one.text for one in here.session.breakpoints] == ["waiting > 5", "preempted"]
        assert here.screen.arrangement.active == "breakpoints"


async def test_pasted_text_waits_for_its_field() -> None:
    async with debugging(at="100", size=NARROW) as here:
        at_once(here.app, "g")
        assert here.app._driver is not None
        here.app._driver.send_message(Paste("12" * 5_000))
        await here.idle()
        assert here.app.screen.query_one(Input).value == "12" * 5_000


async def test_a_search_and_what_it_finds(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_screens(monkeypatch)
    app = BlisApp()
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        at_once(app, "/zzz")
        await settle(pilot)
        assert app.screen.query_one(Input).value == "zzz"
        at_once(app, "\x1b?mark\n")
        await settle(pilot)
        home = app.screen
        assert isinstance(home, HomeScreen)
        assert [entry.marked for entry in home._entries if entry.marked] == [True]


async def test_a_key_whose_window_closes_keeps_the_next_one_waiting_for_a_moment_only(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=NARROW) as pilot:
        await settle(pilot)
        for _ in range(3):
            await press(pilot, "h")
            assert len(app.screen_stack) == 3
            await press(pilot, "escape")
            assert len(app.screen_stack) == 2
        app._since_s = 0.0  # as if a widget had gone with its key
        await press(pilot, "h")
        assert isinstance(app.screen, HelpScreen)
