"""One pane alone on a screen, with a view of some moment of a shipped experiment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from textual.app import App

import blis_tui
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.debugger.why.ranked_group import RankedGroup, Wanted
from blis_tui.tui.panes.request import here_in, marked_in
from blis_tui.tui.settings import DARK
from blis_tui.tui.view import Picked, Selection, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from blis_tui.tui.boxes import Box
    from blis_tui.tui.drawing.lines import Line


def debugger(experiment: str, event: int, **overrides: object) -> Debugger:
    """A debugger that knows an experiment up to an event and stands there."""
    made = Debugger(blis_tui.load(experiment, set={key.replace("__", "."): value for key, value in overrides.items()}))
    run_to_stop(made.seek(event))
    return made


def view_at(
    made: Debugger, event: int | None = None, *, phase: int | None = None, playing: bool = False, **selected: object
) -> View:
    """A view of an event: the present one, or the one gone to."""
    if event is not None:
        run_to_stop(made.seek(event))
    moment = made.moment()
    if playing:
        moment = replace(moment, records=(), before=None)
    if phase is not None:
        moment = replace(moment, phase=phase)
    view = View(
        moment=moment,
        tape=made.tape,
        experiment=made.experiment,
        selection=replace(Selection(), **selected),  # type: ignore[arg-type]
        playing=playing,
        checkpoints=(),
        breakpoints=(),
        records_of=made.records_of,
        checkup=made.checkup,
        latencies=made.latencies,
        kv_sharing=made.kv_sharing,
        ranking=lambda: ranking_of(view),
    )
    return view


def ranking_of(view: View) -> RankedGroup:
    """The ranking that a view asks for, read to its end."""
    group = RankedGroup(view.tape)
    group.show(Wanted(here_in(view), view.selection.order, view.selection.ranked, marked_in(view)))
    for _ in group.follow():
        pass
    group.look()
    return group


def text_of(lines: Sequence[Line]) -> str:
    """Lines as plain text."""
    return "\n".join(line.draw().plain.rstrip() for line in lines)


class OnePane(App[None], inherit_bindings=False):
    """Shows a pane, and does with what is picked what the debugger's screen does."""

    CSS = "Box { border: round $border; }"

    def __init__(self, pane: Box, view: View) -> None:
        super().__init__()
        self.pane = pane
        self.shown = view
        self.picked: list[Picked] = []
        self.register_theme(DARK)
        self.theme = DARK.name

    def compose(self) -> ComposeResult:
        """Only the pane."""
        yield self.pane

    def on_mount(self) -> None:
        """Show the view."""
        self.pane.view = self.shown
        self.pane.focus()

    def on_picked(self, message: Picked) -> None:
        """Remember what was picked, and select it."""
        self.picked.append(message)
        selection = self.shown.selection
        if message.request is not None:
            selection = replace(selection, request=message.request)
        if message.instance is not None:
            selection = replace(selection, instance=None if message.instance < 0 else message.instance)
        self.shown = replace(self.shown, selection=selection)
        self.pane.view = self.shown
