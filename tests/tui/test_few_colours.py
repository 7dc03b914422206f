"""On terminals with sixteen colours all text can be read: nothing is written in the colour it is written on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.tui.settings import FEW_COLOURS
from tests.tui.debugging import debugging
from tests.tui.screens import draw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blis_tui.tui.app import BlisApp


def unreadable(app: BlisApp) -> Iterator[str]:
    """Text on a background of its own that has the same colour, or that of the terminal, which may be the same."""
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            style = segment.style
            if style is None or style.bgcolor is None or style.bgcolor.is_default or not segment.text.strip():
                continue
            if style.color is None or style.color.is_default or style.color == style.bgcolor:
                yield f"{segment.text!r} in {style}"


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_every_pane_can_be_read(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "linux")
    monkeypatch.delenv("COLORTERM", raising=False)
    async with debugging("kv-pressure", at="600", size=size) as here:
        assert here.app.theme == FEW_COLOURS
        for key in (
            "1",
            "down",
            "2",
            "down",
            "l",
            "down",
            "4",
            "5",
            "7",
            "8",
            "9",
            "A",
            "h",
            "escape",
            "question_mark",
        ):
            await here.press(key)
            await draw(here.pilot)
            assert not list(unreadable(here.app)), key
