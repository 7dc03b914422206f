"""Observation of a server: it runs in a separate process, so that drawing does not disturb the measurement."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen

from blis_tui.tui.actions import bindings
from blis_tui.tui.presenters.observing import (
    Observing,
    activity_text,
    counts_text,
    curves_text,
    rates_text,
    said_text,
    status_of,
    title_text,
)
from blis_tui.tui.widgets.bars import KeyBar, TitleBar
from blis_tui.tui.widgets.compare_box import CompareBox

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from textual.app import ComposeResult
    from textual.events import Resize

    from blis_tui.observe.status import Status
    from blis_tui.tui.observing import ObservingStart

_MOST: Final = 4096
"""Maximum number of statuses kept; beyond that every other one is dropped."""
_LONGEST_LINE: Final = 1 << 20
_NOT_STARTED: Final = 3
"""Exit code if the run cannot be started, as for a file that cannot be read."""


class ObservingScreen(Screen[None]):
    """The run, until it has ended and its result is read.

    Args:
        start: the server and the command; receives the outcome.
    """

    SCOPE = "observing"
    NAME = "observing"
    AUTO_FOCUS = "#counts"
    BINDINGS = bindings(SCOPE)
    DEFAULT_CSS = """
    ObservingScreen {
        #figures { height: auto; max-height: 50%; }
        #figures > CompareBox { width: 1fr; height: auto; max-height: 100%; }
        #curves { height: 1fr; }
        #said { height: auto; max-height: 60%; display: none; }
        &.-over #said { display: block; }
        &.-over.-short #curves { display: none; }
    }
    """

    def __init__(self, start: ObservingStart) -> None:
        super().__init__()
        self.start = start
        self._statuses: list[Status] = []
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._left = False

    def compose(self) -> ComposeResult:
        """Create title, figures, curves, output, keys."""
        yield TitleBar(Content(""), id="status")
        with Horizontal(id="figures"):
            yield CompareBox("Requests", counts_text, id="counts")
            yield CompareBox("The latest seconds", rates_text, id="rates")
        yield CompareBox("Since the beginning", self._curves, id="curves")
        yield CompareBox("At its end", said_text, id="said")
        yield KeyBar()

    def _curves(self, view: Observing, width: int) -> Content:
        return curves_text(view, width, self.query_one("#curves").content_size.height)

    def on_mount(self) -> None:
        """Start the run."""
        self._watching = asyncio.create_task(self._watch())
        self._show()

    def on_resize(self, event: Resize) -> None:
        """In a low terminal, prefer the output to the curves."""
        self.set_class(event.size.height < 34, "-short")

    def view(self) -> Observing:
        """Return the state to display."""
        start = self.start
        return Observing(
            url=start.url, statuses=tuple(self._statuses), over=start.code is not None, said=start.said, code=start.code
        )

    def _show(self) -> None:
        if self._left:
            return
        view = self.view()
        with self.app.batch_update():
            for box in self.query(CompareBox):
                box.show(view)
            status = self.query_one("#status", TitleBar)
            status.left, status.right = title_text(view), activity_text(view)
        self.refresh_bindings()

    # ---- the run ----

    async def _watch(self) -> None:
        """Read the run's output until it ends."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self.start.words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, limit=_LONGEST_LINE
            )
        except OSError as error:
            self._end(f"cannot start {self.start.words[0]}: {error.strerror or error}\n", _NOT_STARTED)
            return
        assert process.stdout is not None  # noqa: S101  (requested above)
        assert process.stderr is not None  # noqa: S101
        output = asyncio.create_task(process.stdout.read())
        said = ""
        while line := await _line(process.stderr):
            text = line.decode(errors="replace")
            if text.startswith("{"):
                self._note(text)
            else:
                said += text
        self._end((await output).decode(errors="replace") + said, await process.wait())

    def _end(self, said: str, code: int) -> None:
        self.start.said, self.start.code = said, code
        if not self._left:
            self.add_class("-over")
            self._show()

    def _note(self, line: str) -> None:
        with suppress(ValueError, TypeError):
            self._statuses.append(status_of(json.loads(line)))
        if len(self._statuses) > _MOST:
            self._statuses = self._statuses[::2]
        self._show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  (Textual's signature)
        """Disable stopping at the end."""
        return None if action == "observing_stop" and self.start.code is not None else True

    def action_observing_stop(self) -> None:
        """End the run gracefully, so that its data is written."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGINT)

    async def on_unmount(self) -> None:
        """End the run when leaving, and wait until its data is written."""
        self._left = True
        self.action_observing_stop()
        if self._watching is not None:
            await self._watching


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, very long ones in parts; empty at the end."""
    try:
        return await stream.readuntil()
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(error.consumed)
