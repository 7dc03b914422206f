"""Walks: keys that lead through the screens, and what is seen after each, for what is recorded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from blis_tui.tui.panes.events import EventList
from blis_tui.tui.screens.compare import CompareScreen
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.screens.goldens import GoldensScreen
from tests.tui.debugging import NAMES
from tests.tui.screens import draw, finish, screen_rows, settle
from tests.wheels import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

    from tests.recorded import Digests


class Walk:
    """Presses keys, and takes the screen after each with its colours, and what was said on the way.

    Args:
        pilot: of the app.
        digests: what takes it.
        folder: the test's own, whose name is not taken.
    """

    def __init__(self, pilot: Pilot[None], digests: Digests, folder: Path) -> None:
        self.pilot = pilot
        self._digests = digests
        self._folder = str(folder)

    async def see(self, kind: str, *keys: str) -> None:
        """Press keys and take what each leads to. What begins with a colon is a text: typed, entered, seen once."""
        for key in keys:
            await self.press(key)
            await self.look(kind)

    async def press(self, *keys: str) -> None:
        """Press keys on the way to somewhere."""
        for key in keys:
            await self._press(key)
            await self._come_to_rest()

    async def look(self, kind: str) -> None:
        """Take what is on the screen now."""
        await draw(self.pilot)
        rows = screen_rows(self.pilot.app)
        self._digests.add(kind, *(self._lasting(row.text.rstrip()) for row in rows))
        self._digests.add(f"{kind}, colours", *(str([(len(one.text), str(one.style)) for one in row]) for row in rows))
        said = [note.message for note in self.pilot.app._notifications]
        if said:
            self._digests.add(f"{kind}, said", *map(self._lasting, said))

    async def resize(self, size: tuple[int, int]) -> None:
        """Make the terminal larger or smaller."""
        await self.pilot.resize_terminal(*size)
        await settle(self.pilot)

    async def _press(self, key: str) -> None:
        if not key.startswith(":"):
            await self.pilot.press(key)
            return
        for character in key[1:]:
            await self.pilot.press(NAMES.get(character, character))
        await self.pilot.press("enter")

    async def _come_to_rest(self) -> None:
        await settle(self.pilot)
        screen = self.pilot.app.screen
        while isinstance(screen, DebuggerScreen) and _is_busy(screen):
            await asyncio.sleep(0.005)
            await finish(self.pilot)
        while isinstance(screen, CompareScreen) and (screen.busy or screen._figures.pause is not None):
            screen.tick()
            await asyncio.sleep(0)
            await finish(self.pilot)
        if isinstance(screen, GoldensScreen):  # a difference may come before or after there is a scrollbar
            await draw(self.pilot)
            screen._fit()
            await settle(self.pilot)

    def _lasting(self, text: str) -> str:
        return text.replace(self._folder, "FOLDER").replace(str(ROOT), "ROOT")


def _is_busy(screen: DebuggerScreen) -> bool:
    """Whether a move goes on, or events that match are still looked for."""
    events = screen.query_one(EventList)
    frontier = screen.session.debugger.frontier
    looks = events._matches is not None and events.is_on_screen and events._searched < frontier
    return looks or screen.session.driver.busy
