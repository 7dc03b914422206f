"""Somebody who has never read a page of documentation finds out why the slowest request was slow.

Every key pressed here is one that the screen shows at that moment.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import blis_tui
from blis_tui.tui.app import BlisApp
from blis_tui.tui.screens.debugger import DebuggerScreen
from tests.tui.screens import press, screen_text, settle

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S: Final = 60.0


def shows(app: BlisApp, *hints: str) -> None:
    """The screen must tell what can be pressed next."""
    text = screen_text(app)
    for hint in hints:
        assert hint in text, text


async def test_why_was_the_slowest_request_slow(empty: Path) -> None:
    app = BlisApp(folder=empty)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        shows(app, "/ search", "enter open", "Shipped with blis-tui")
        await press(pilot, "/", *"kv-p")
        shows(app, "kv-pressure", "✓ ok")
        await press(pilot, "enter")
        for _ in range(100):
            if isinstance(app.screen, DebuggerScreen):
                break
            await pilot.pause(0.05)
        screen = app.screen
        assert isinstance(screen, DebuggerScreen)
        async with asyncio.timeout(PATIENCE_S):
            while screen.session.summary is None or screen.session.driver.busy:
                await pilot.pause(0.02)
        await settle(pilot)
        shows(app, "n event", "h help", "c run")
        shows(app, "■ end", "worst", "end to end", "? why")
        await press(pilot, "question_mark")
        slowest = max(blis_tui.run(blis_tui.load("kv-pressure")).rows, key=lambda row: row.e2e_us or 0)
        shows(app, slowest.request_id, "slower than all others", "too few free KV blocks", "preemption")
        assert f"{(slowest.e2e_us or 0) / 1e6:.2f} s end to end" in screen_text(app)
