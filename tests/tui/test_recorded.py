"""What the debugger shows while keys lead through all its panes, as recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from blis_tui.tui.panes import panes_of
from tests.recorded import Digests
from tests.tui.debugging import NARROW, NORMAL, debugging
from tests.tui.screens import draw, screen_text

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

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
