"""The window that answers "what if?": a run repeated with one routing decision changed, and the effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual import work
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static
from textual.worker import get_current_worker

from blis_tui.compare.whatif import ask_whatif
from blis_tui.compare.whatif_text import whatif_text
from blis_tui.errors import BlisError
from blis_tui.tui.actions import bindings
from blis_tui.tui.presenters.problems import message_text
from blis_tui.tui.presenters.whatif import whatif_lines
from blis_tui.tui.screens.window import ScrolledWindow
from blis_tui.tui.shell import shell
from blis_tui.tui.widgets.bars import KeyBar

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from blis_tui.cluster.records import RoutingDecision
    from blis_tui.compare.whatif import WhatIf
    from blis_tui.spec.model import Experiment
    from blis_tui.tui.shell import LoadedBy

_WAITING: Final = "Replaying the run with that one decision changed …"


class WhatIfScreen(ScrolledWindow[None]):
    """Shows the answer, from which both runs can be opened side by side.

    Args:
        experiment: the original experiment.
        by: what it was loaded from.
        decision: the decision to change.
        route_to: the new instance for the request.
    """

    SCOPE = "whatif"
    BINDINGS = [*bindings(SCOPE), Binding("q", "whatif_close", show=False)]  # noqa: RUF012  (Textual's convention)
    DEFAULT_CSS = """
    WhatIfScreen {
        & > Vertical { width: 96%; max-width: 104; max-height: 96%; padding: 0 1 0 2; }
        VerticalScroll { height: auto; max-height: 100%; padding: 1 0; scrollbar-size-vertical: 1; }
        Static { height: auto; width: 1fr; padding-right: 1; }
    }
    """

    def __init__(self, experiment: Experiment, by: LoadedBy, decision: RoutingDecision, route_to: int) -> None:
        super().__init__()
        self._experiment = experiment
        self._by = by
        self._decision = decision
        self._route_to = route_to
        self._found: WhatIf | None = None
        self._error: BlisError | None = None

    def compose(self) -> ComposeResult:
        """Create the text."""
        with Vertical(), VerticalScroll(can_focus=False):
            yield Static(_WAITING)
        yield KeyBar()

    def on_mount(self) -> None:
        """Start the computation."""
        self.query_one(Vertical).border_title = Content(self._question)
        self._ask()
        self.call_after_refresh(self._show)

    def on_resize(self) -> None:
        """Adapt to the new size."""
        self.call_after_refresh(self._show)

    @property
    def _question(self) -> str:
        one = self._decision
        return f"What if {one.request_id} went to instance {self._route_to} instead of {one.instance}?"

    @work(thread=True, exclusive=True, group="whatif")
    def _ask(self) -> None:
        """Repeat the run, until the window is closed."""
        worker = get_current_worker()
        asking = ask_whatif(self._experiment, self._decision.request_id, self._route_to, self._decision.event)
        try:
            while not worker.is_cancelled:
                next(asking)
        except StopIteration as end:
            self._found = end.value
        except BlisError as error:
            self._error = error
        if not worker.is_cancelled:
            self.call_later(self._show)

    def _show(self) -> None:
        if self.is_attached:
            width = max(self.query_one(Static).content_size.width, 20)
            self.query_one(Static).update(self._text(width))
            self.refresh_bindings()

    def _text(self, width: int) -> Content:
        if self._error is not None:
            return message_text(self._error, width)
        if self._found is None:
            return Content(_WAITING)
        lines = whatif_lines(self._found, width)
        return Content("\n").join(one.draw() for one in lines)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide actions that are impossible."""
        del parameters
        if action == "whatif_copy":
            return self._found is not None
        if action == "whatif_compare":
            return self._found is not None and self._found.divergence is not None
        return True

    def action_whatif_compare(self) -> None:
        """Show both runs side by side, at their divergence."""
        found = self._found
        if found is not None and found.divergence is not None:
            request = found.request.request_id
            names = (self._by.source, f"{request} on instance {found.forced}")
            experiment, event = self._experiment, found.divergence.event
            by = (self._by, self._by)
            shell(self.app).open_compare(experiment, experiment, names, event=event, routes=found.routes, loaded_by=by)

    def action_whatif_copy(self) -> None:
        """Copy the answer in the format of the command line."""
        if self._found is not None:
            self.app.copy_to_clipboard(whatif_text(self._found))
            self.app.notify("The answer is in the clipboard.")

    action_whatif_close = ScrolledWindow.action_dialog_close
