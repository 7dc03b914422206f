"""Answers to questions in the debugger (why, what if), and jump mode with a letter on each pane."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual.geometry import Offset
from textual.widgets import Label

from blis_tui.base.errors import InputError
from blis_tui.debugger.places import parse_instance
from blis_tui.tui.actions import DIALOG, bindings
from blis_tui.tui.panes.pane import KINDS, pick
from blis_tui.tui.panes.router import decision_of
from blis_tui.tui.screens.moves import Moves
from blis_tui.tui.screens.prompt import PromptScreen
from blis_tui.tui.screens.window import Window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import ComposeResult
    from textual.events import Click, Key

    from blis_tui.cluster.records import RoutingDecision
    from blis_tui.debugger.why.explanation import Subject
    from blis_tui.tui.shell import LoadedBy
    from blis_tui.tui.view import View
    from blis_tui.tui.widgets.boxes import Box


class JumpScreen(Window[str | None]):
    """Shows the letters; the result is the id of a pane, or None.

    Args:
        panes: the visible panes, by letter; a pane without a letter can be clicked.
    """

    BINDINGS = bindings(DIALOG)
    DEFAULT_CSS = """
    JumpScreen {
        background: $background 40%;
        Label {
            position: absolute;
            width: auto;
            padding: 0 1;
            background: $accent;
            color: $background;
            text-style: bold;
        }
    }
    """

    def __init__(self, panes: Mapping[str, Box]) -> None:
        super().__init__()
        self._targets = {letter: (str(pane.id), pane.region) for letter, pane in panes.items()}

    def compose(self) -> ComposeResult:
        """Create a label in the middle of each pane."""
        for letter, (pane, region) in self._targets.items():
            label = Label(letter, id=f"to-{pane}")
            label.absolute_offset = Offset(region.x + region.width // 2 - 1, region.y + region.height // 2)
            yield label

    def on_key(self, event: Key) -> None:
        """Go to the pane of the letter; any other key ends the mode."""
        event.stop()
        target = self._targets.get(event.character or "")
        self.dismiss(None if target is None else target[0])

    def on_click(self, event: Click) -> None:
        """Go to the clicked pane."""
        for pane, region in self._targets.values():
            if region.contains(event.screen_x, event.screen_y):
                self.dismiss(pane)
                return
        self.dismiss(None)


class Asking(Moves):
    """A stage whose reader can ask questions."""

    @property
    @abstractmethod
    def loaded_by(self) -> LoadedBy:
        """Return what its experiment was loaded from."""

    # ---- why ----

    def action_ask_why(self) -> None:
        """Explain what the cursor is on; of an instance, the latest event there."""
        subject = self.at_cursor()
        about = KINDS[subject.kind].explains(self._view(), subject.value)
        if about is None:
            self.notify(f"Nothing has happened on {subject.text} yet.", markup=False)
        else:
            self.why(about)

    def why(self, about: Subject) -> None:
        """Explain an event, or what happened to a request; a run in progress waits meanwhile."""
        from blis_tui.debugger.why.explain import explain  # noqa: PLC0415  (only needed for questions)
        from blis_tui.tui.screens.why import WhyScreen  # noqa: PLC0415

        self.hold()
        explanation = explain(self.session.debugger, about)
        if explanation is not None:
            screen = WhyScreen(self.session.debugger, explanation, run_waits=self.session.driver.busy)
            self.app.push_screen(screen, self._follow)

    def _follow(self, reference: Subject | None) -> None:
        """Go to a reference in an explanation; a waiting run goes on, unless the reference leads elsewhere."""
        self.resume()
        message = None if reference is None else pick(self._view(), reference, go=True)
        if message is not None:
            self.picked(message)

    # ---- what if ----

    def action_ask_whatif(self) -> None:
        """Ask what another instance would change: the candidate at the cursor, or one that the user names."""
        self.halt()
        one = decision_of(self._view_at_cursor())
        if one is None:
            self.notify("No request has been routed yet.", markup=False)
        elif self.session.debugger.routes:
            self.notify("A decision of this run has already been changed: ask in the original run.", markup=False)
        elif self.arrangement.active == "router" and self._points_at_another(one):
            self._what_if(one, str(self.session.selection.instance))
        else:
            self._ask_which(one)

    def _view_at_cursor(self) -> View:
        """Return the view as if what the cursor is on were selected."""
        view, subject = self.session.view(), self.at_cursor()
        about = None if subject.kind == "instance" else KINDS[subject.kind].explains(view, subject.value)
        if about is None:
            return view
        if about.kind == "request":
            return replace(view, selection=replace(view.selection, event=None, request=about.value))
        return replace(view, selection=replace(view.selection, event=int(about.value)))

    def _ask_which(self, one: RoutingDecision) -> None:
        """Ask for the instance to which a request should go."""
        from blis_tui.runs.compare.reroute import require_instance  # noqa: PLC0415  (only needed for questions)

        count = len(self.session.debugger.moment().state.instances)

        def check(text: str) -> None:
            instance = parse_instance(text)
            require_instance(instance, count)
            if instance == one.instance:
                raise InputError(f"{one.request_id} went there already: name another one.")

        about = (
            f"{one.request_id} went to instance {one.instance}. Which one should it go to instead, 0 to {count - 1}?"
        )
        other = next((each.instance for each in one.top if each.instance != one.instance), 0)
        prompt = PromptScreen("What if", about, placeholder=str(other), check=check, doing="replays the run")
        self.app.push_screen(prompt, partial(self._what_if, one))

    def _points_at_another(self, one: RoutingDecision) -> bool:
        chosen = self.session.selection.instance
        return chosen != one.instance and any(each.instance == chosen for each in one.top)

    def _what_if(self, one: RoutingDecision, instance: str | None) -> None:
        if instance is not None:
            from blis_tui.tui.screens.whatif import WhatIfScreen  # noqa: PLC0415  (only needed for questions)

            self.app.push_screen(WhatIfScreen(self.session.experiment, self.loaded_by, one, parse_instance(instance)))
