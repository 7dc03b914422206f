"""Screens as text, and their goldens.

A golden lies in ``tests/tui/goldens/NAME-80x24.txt``; ``pytest --force-regen`` writes what is on the screen now. With
the environment variable ``BLIS_SCREENS_DIR`` each checked screen is also written there as an SVG image.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textual.worker import WorkerCancelled

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture
    from textual.app import App
    from textual.pilot import Pilot

GOLDENS = Path(__file__).parent / "goldens"


def screen_text(app: App[None]) -> str:
    """What is on the screen, without colours. Uses a private part of Textual, which pyproject pins."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


def check_screen(app: App[None], file_regression: FileRegressionFixture, name: str) -> None:
    """Compare the screen with its golden."""
    file = f"{name}-{app.size.width}x{app.size.height}"
    pictures = os.environ.get("BLIS_SCREENS_DIR")
    if pictures:
        svg = re.sub(r"terminal-\d+", "terminal", app.export_screenshot())
        Path(pictures).mkdir(parents=True, exist_ok=True)
        (Path(pictures) / f"{file}.svg").write_text(svg, encoding="utf-8")
    file_regression.check(screen_text(app), fullpath=GOLDENS / f"{file}.txt")


async def settle(pilot: Pilot[None]) -> None:
    """Wait until everything that was begun is done and shown."""
    for _ in range(3):
        await pilot.pause()
        with suppress(WorkerCancelled):
            await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, one after the other, each when the one before is done."""
    for key in keys:
        await pilot.press(key)
        await pilot.pause()
    await settle(pilot)
