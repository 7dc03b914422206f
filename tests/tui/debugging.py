"""A debugger on a screen, for tests: opened, driven by keys, waited for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import blis_tui
from blis_tui.tui import debug_session
from blis_tui.tui.app import BlisApp, Start
from blis_tui.tui.driver import Driver
from blis_tui.tui.panes.events import EventList
from blis_tui.tui.screens.debugger import DebuggerScreen
from tests.cluster.fleets import fleet
from tests.tui.screens import finish, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

NORMAL = (140, 40)
NARROW = (80, 24)


SPECIAL: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "kv-tiers offload": (
        "kv-tiers",
        {
            "engine.kv_tiers": {
                "kind": "offload",
                "tiers": [
                    {"name": "cpu", "blocks": 800, "bandwidth_tokens_per_us": 0.4},
                    {"name": "disk", "blocks": 4000, "bandwidth_tokens_per_us": 0.05, "base_latency_us": 80},
                ],
            }
        },
    ),
    "quickstart drafts": (
        "quickstart",
        {
            "policy.batching": {"kind": "vllm-v1", "async_scheduling": False},
            "engine.speculative": {"draft_tokens": 3, "acceptance": 0.7},
        },
    ),
}
"""Shipped experiments with something else set."""


@cache
def experiment(name: str, requests: int | None = None) -> blis_tui.Experiment:
    """A shipped experiment, perhaps with fewer requests; or one of the clusters in ``tests.cluster.fleets``."""
    if name.isupper():
        return fleet(name, requests or 200)
    shipped, settings = SPECIAL.get(name, (name, {}))
    return blis_tui.load(shipped, set=settings if requests is None else {**settings, "workload.requests": requests})


class Debugging:
    """The screen with its pilot."""

    def __init__(self, app: BlisApp, pilot: Pilot[None], screen: DebuggerScreen) -> None:
        self.app = app
        self.pilot = pilot
        self.screen = screen
        self.session = screen.session
        self.debugger = screen.session.debugger

    @property
    def event(self) -> int:
        return self.debugger.event

    @property
    def on_top(self) -> bool:
        """Whether no window is above the debugger."""
        return self.app.screen is self.screen

    async def press(self, *keys: str) -> None:
        """Press keys, and wait after each until nothing is under way any more; drawn is what the last one leads to.

        What begins with a colon is a text, typed and entered at once.
        """
        for key in keys:
            await self._press(key)
            await self._come_to_rest()
        await settle(self.pilot)

    async def type(self, text: str) -> None:
        """Type a text into what has the focus, and press enter."""
        await self.press(f":{text}")

    async def _press(self, key: str) -> None:
        if not key.startswith(":"):
            await self.pilot.press(key)
            return
        for character in key[1:]:
            await self.pilot.press(NAMES.get(character, character))
        await self.pilot.press("enter")

    async def idle(self) -> None:
        """Wait for the move, the filter and the workers; what is shown on the way is not drawn."""
        await self._come_to_rest()
        await settle(self.pilot)

    async def _come_to_rest(self) -> None:
        await finish(self.pilot)
        while self.session.driver.busy or self._searching():  # noqa: ASYNC110  (the product has no event to tell)
            await asyncio.sleep(0.005)
        await finish(self.pilot)

    def _searching(self) -> bool:
        events = self.screen.query_one(EventList)
        return events._matches is not None and events.is_on_screen and events._searched < self.debugger.frontier

    def said(self) -> str:
        """All notifications so far."""
        return "\n".join(notification.message for notification in self.app._notifications)

    def forget(self) -> None:
        """Forget the notifications so far."""
        self.app.clear_notifications()


NAMES = {
    " ": "space",
    ">": "greater_than_sign",
    "<": "less_than_sign",
    ".": "full_stop",
    "_": "underscore",
    "=": "equals_sign",
    "[": "left_square_bracket",
    "]": "right_square_bracket",
}


@asynccontextmanager
async def debugging(
    name: str = "kv-pressure",
    *,
    size: tuple[int, int] = NORMAL,
    requests: int | None = 60,
    at: str | None = "start",
    breaks: tuple[str, ...] = (),
    at_once: bool = False,
) -> AsyncIterator[Debugging]:
    """An experiment open in the debugger.

    The move that it begins with is over at once, however slow the machine is, with nothing shown on the way; all others
    may be, too, but then nothing can be played at a pace.
    """
    overrides = () if requests is None else (f"workload.requests={requests}",)
    app = BlisApp(Start(experiment=experiment(name, requests), source=name, at=at, breaks=breaks, overrides=overrides))
    with patch.object(debug_session, "Driver", partial(Driver, clock=_no_time_passes)):
        async with app.run_test(size=size) as pilot:
            screen = app.screen
            assert isinstance(screen, DebuggerScreen)
            open_ = Debugging(app, pilot, screen)
            await open_.idle()
            if not at_once:
                open_.session.driver._clock = perf_counter
            yield open_


def _no_time_passes() -> float:
    return 0.0
