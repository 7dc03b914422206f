"""A pane more, as CONTRIBUTING.md says: a file with its lines, and a `PaneInfo`. Run as a program.

It prints what the debugger then knows of it.
"""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from blis_tui.tui import panes
from blis_tui.tui.drawing.lines import line
from blis_tui.tui.panes import PaneInfo
from blis_tui.tui.panes.pane import Pane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.tui.drawing.lines import Line
    from blis_tui.tui.panes.pane import Room
    from blis_tui.tui.view import View

ECHO = PaneInfo(id="echo", key="E", letter="x", name="Echo", about="The present event, again")


def echo_lines(view: View, room: Room) -> Sequence[Line]:
    """Its lines."""
    return [line(f"this was event {view.moment.event}"[: room.width])]


def main() -> None:
    """Put the pane there before anything derives from the table, then open the debugger and press the key."""
    setattr(panes, "PANES", (*panes.PANES, ECHO))  # noqa: B010  (what editing the table does)
    module = ModuleType("blis_tui.tui.panes.echo")
    module.PANE = Pane(lines=echo_lines)  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    asyncio.run(_look())


async def _look() -> None:
    import blis_tui  # noqa: PLC0415
    from blis_tui.tui.actions import named  # noqa: PLC0415
    from blis_tui.tui.app import BlisApp, Start  # noqa: PLC0415
    from docs.make_terminal_reference import pages  # noqa: PLC0415
    from tests.tui.screens import screen_text, settle  # noqa: PLC0415

    action = named("pane.echo")
    print(action.keys, action.help)
    print([row for row in pages()["keys.md"].splitlines() if "pane.echo" in row])
    app = BlisApp(Start(experiment=blis_tui.load("quickstart"), source="quickstart", at="start"))
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await pilot.press("n", "E")
        await settle(pilot)
        print([row.strip() for row in screen_text(app).splitlines() if "this was" in row or "Echo ─" in row])
        app.exit()


if __name__ == "__main__":
    main()
