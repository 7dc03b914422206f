"""A pane alone on a screen that also goes to what is picked, as the debugger's screen does."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from blis_tui.debugger.history import run_to_stop
from blis_tui.results.conditions.breakpoints import parse_breakpoint
from blis_tui.tui.view import Picked, Selection, View
from tests.tui.pane_harness import OnePane, debugger, view_at
from tests.tui.screens import screen_text, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.tui.boxes import Box


WHOLE = 10**9
"""An event behind the last one of every run."""


def knowing(event: int = WHOLE, *, at: int, experiment: str = "kv-pressure", requests: int = 60) -> Debugger:
    """A debugger that knows an experiment up to an event (or its end) and stands at another one.

    Those that know all of the same run are one and the same: it learns nothing more, and only moves.
    """
    if event == WHOLE:
        made = _knowing_all(experiment, requests)
    else:
        made = debugger(experiment, event, workload__requests=requests)
    run_to_stop(made.seek(at))
    return made


@cache
def _knowing_all(experiment: str, requests: int) -> Debugger:
    return debugger(experiment, WHOLE, workload__requests=requests)


def view_with(made: Debugger, *breaks: str, playing: bool = False) -> View:
    """The present view with checkpoints, and with breakpoints."""
    breakpoints = tuple(parse_breakpoint(text, made.experiment) for text in breaks)
    return replace(view_at(made, playing=playing), checkpoints=made.history.events, breakpoints=breakpoints)


class DrivenPane(OnePane):
    """Goes to what is picked."""

    def __init__(self, pane: Box, made: Debugger) -> None:
        super().__init__(pane, view_with(made))
        self.debugger = made

    @property
    def went(self) -> list[int | None]:
        """The events gone to."""
        return [message.event for message in self.picked if message.go]

    @property
    def pointed(self) -> list[int | None]:
        """The events only pointed at."""
        return [message.event for message in self.picked if not message.go]

    def on_picked(self, message: Picked) -> None:
        message.prevent_default()  # or Textual would call the base class's handler too
        self.picked.append(message)
        if message.go and message.event is not None:
            self.go(message.event)
        else:
            self.pane.view = replace(view_with(self.debugger), selection=Selection(event=message.event))

    def go(self, event: int, *, playing: bool = False) -> None:
        """Go somewhere, and show it."""
        run_to_stop(self.debugger.seek(event))
        self.pane.view = view_with(self.debugger, playing=playing)

    def lines(self) -> list[str]:
        """What is within the border."""
        return [line[1:-1].rstrip() for line in screen_text(self).splitlines()[1:-1]]


@asynccontextmanager
async def driven(
    pane: Box, made: Debugger, size: tuple[int, int] = (80, 15)
) -> AsyncIterator[tuple[DrivenPane, Pilot[None]]]:
    """A pane on a screen, shown."""
    app = DrivenPane(pane, made)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        yield app, pilot
