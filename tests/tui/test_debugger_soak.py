"""Hundreds of random keys must not break anything, and must not change what the simulation does."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from textual.command import CommandPalette

import blis_tui
from blis_tui.debugger.history import run_to_stop
from blis_tui.tui.actions import ACTIONS
from tests.tui.debugging import NARROW, NORMAL, debugging, experiment
from tests.tui.screens import idle

if TYPE_CHECKING:
    from pathlib import Path

LEAVING = ("app.quit", "app.back")
"""Actions that may end the program, which would end the test as well."""
KEYS = sorted({key for action in ACTIONS if action.name not in LEAVING for key in action.keys} - {"q"})
OTHERS = ["up", "down", "left", "right", "pageup", "pagedown", "enter", "tab", "escape", "delete", "1", "a", "space"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "name", "size"),
    [(1, "kv-pressure", NARROW), (2, "quickstart", NORMAL), (3, "admission-control", NARROW)],
)
async def test_soak(
    seed: int, name: str, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random = Random(seed)  # noqa: S311  (which keys are pressed is no secret)
    async with debugging(name, requests=40, size=size) as here:
        for number in range(140):  # hundreds in all three
            # Windows are left often enough for the debugger to get most of the keys.
            if not here.on_top and random.random() < 0.3:
                key = "escape" if random.random() < 0.7 else "q"
            else:
                key = random.choice(KEYS if random.random() < 0.75 else OTHERS)
            if key == "q" and len(here.app.screen_stack) < 2:
                continue
            if key == "enter" and isinstance(here.app.screen, CommandPalette):
                continue  # one of its commands quits
            here.app.simulate_key(key)
            if number % 4 == 0:
                await idle()
            if number % 12 == 0:
                await here.pilot.pause()
        for attempt in range(30):
            if here.on_top:
                break
            here.app.simulate_key("q" if attempt % 3 == 2 else "escape")  # the second leaves a search, where q is text
            await here.pilot.pause()
        assert here.on_top
        here.screen.halt()
        here.session.breakpoints = ()
        run_to_stop(here.debugger.run())
        plain = blis_tui.Simulation(experiment(name, 40))
        plain.run()
        assert here.debugger.report().to_json() == plain.report().to_json()
        assert here.debugger.digest() == plain.digest()
