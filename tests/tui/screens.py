"""Screens as text, and their goldens.

A golden lies in ``tests/tui/goldens/NAME-80x24.txt``; ``pytest --force-regen`` writes what is on the screen now. With
the environment variable ``BLIS_SCREENS_DIR`` each checked screen is also written there as an SVG image.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.worker import WorkerCancelled, WorkerFailed

from blis_tui.tui.screens.debugger import DebuggerScreen

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture
    from rich.console import RenderableType
    from textual.app import App
    from textual.pilot import Pilot
    from textual.screen import Screen
    from textual.strip import Strip

GOLDENS = Path(__file__).parent / "goldens"

_render_update = Compositor.render_update


def render_update(
    compositor: Compositor, full: bool = False, screen_stack: list[Screen[object]] | None = None, simplify: bool = False
) -> RenderableType | None:
    """Takes the place of Textual's own: draws for a picture, but not whenever something has changed."""
    return _render_update(compositor, full, screen_stack, simplify) if full else None


def screen_rows(app: App[None]) -> list[Strip]:
    """What is on the screen. Uses private parts of Textual, which pyproject pins."""
    visible_screen_stack.set(app._background_screens)  # what a window lets see of the screens below
    return app.screen._compositor.render_strips()


def screen_text(app: App[None]) -> str:
    """What is on the screen, without colours."""
    return "\n".join(strip.text.rstrip() for strip in screen_rows(app)) + "\n"


async def check_screen(pilot: Pilot[None], file_regression: FileRegressionFixture, name: str) -> None:
    """Compare the screen with its golden."""
    await draw(pilot)
    app = pilot.app
    file = f"{name}-{app.size.width}x{app.size.height}"
    pictures = os.environ.get("BLIS_SCREENS_DIR")
    if pictures:
        _write_picture(app, Path(pictures), file)
    file_regression.check(screen_text(app), fullpath=GOLDENS / f"{file}.txt")


def _write_picture(app: App[None], folder: Path, file: str) -> None:
    svg = re.sub(r"terminal-\d+", "terminal", app.export_screenshot())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{file}.svg").write_text(svg, encoding="utf-8")


async def idle(*_times: float) -> None:
    """Wait until no task can go on by itself.

    Textual's own way is to sleep until the process takes next to no processor time: 20 ms at least, several times at
    each key, and longer on a busy machine. Messages are handled by tasks, so when none is ready all have been.
    """
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110  (others set no event: they are to have their turn)
        await asyncio.sleep(0)


async def draw(pilot: Pilot[None]) -> None:
    """Lay out and draw what has changed, and what drawing changes: what a terminal would do sixty times a second."""
    for _ in range(3):
        await idle()
        screen = pilot.app.screen
        screen._on_timer_update()
        if not screen._compositor._dirty_regions:
            return
        _render_update(screen._compositor, screen_stack=pilot.app._background_screens)


async def finish(pilot: Pilot[None]) -> None:
    """Wait until what was begun is done."""
    await idle()
    with suppress(WorkerCancelled, WorkerFailed):  # the app deals with those that fail
        await pilot.app.workers.wait_for_complete()
    await idle()
    if pilot.app._resize_timer is not None:  # Textual waits a moment for further changes of the size
        pilot.app._check_resize()
        await idle()
    pilot.app.screen._on_timer_update()


async def settle(pilot: Pilot[None]) -> None:
    """Wait until everything that was begun, and what that began in turn, is done and laid out.

    It is not drawn, which is a third of all work in these tests: whoever looks at the screen draws it.
    """
    for _ in range(4):
        await finish(pilot)
        for screen in pilot.app.screen_stack:
            if isinstance(screen, DebuggerScreen):
                while screen.session.trails and not screen.session.driver.busy:  # a timer would find them bit by bit
                    screen._trace()


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, one after the other, each when the one before is done."""
    for key in keys:
        await pilot.press(key)
        await finish(pilot)
    await settle(pilot)
