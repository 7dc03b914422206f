"""The warnings pane: a list of warnings, each with its figures and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from blis_tui.debugger.why.explanation import Ref, instance_ref, request_ref
from blis_tui.tui.presenters.warnings import FINDING, warnings_page
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.pane import InTime, Pane

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Click

    from blis_tui.metrics.lints.lints import Checkup
    from blis_tui.tui.presenters.warnings import WarningsPage
    from blis_tui.tui.view import View


class WarningsPane(Pane):
    """Runs the report's checks at the present position, even while hidden, because other widgets show the number."""

    FOLLOWS_SELECTION = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("enter", "pick", show=False),
    ]
    DEFAULT_CSS = """
    WarningsPane {
        & > VerticalScroll { scrollbar-size-vertical: 1; }
        & Static { height: auto; width: 1fr; }
    }
    """

    class Counted(Message):
        """The number of warnings has changed."""

    _chosen: int | None = None
    _page: WarningsPage | None = None

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self._checked = InTime(self, self._check)

    @property
    def checkup(self) -> Checkup | None:
        """The latest result of the checks; None before the first."""
        return self._checked.value

    @property
    def count(self) -> int:
        """Number of warnings."""
        return 0 if self.checkup is None else len(self.checkup.findings)

    def compose(self) -> ComposeResult:
        """Create the scrolled text."""
        with VerticalScroll(can_focus=False):
            yield Static()

    # ---- checks ----

    def watch_view(self) -> None:
        """Check a new view, at once or a little later, then show the result."""
        if self.view is not None:
            self._checked.follow(self.view)
        super().watch_view()

    def _check(self, view: View) -> Checkup:
        found = view.checkup()
        if len(found.findings) != self.count:
            self.post_message(self.Counted())
        if self.checkup is None or (self._chosen is not None and self._chosen >= len(found.findings)):
            self._chosen = None
        return found

    # ---- display ----

    def show(self, view: View) -> None:
        """Update the list."""
        scroll = self.query_one(VerticalScroll)
        width = max(scroll.size.width - 2, 20)
        self._page = warnings_page(
            self.checkup,
            width,
            chosen=self._chosen,
            failure=view.moment.failure,
        )
        self.query_one(Static).update(self._page.content)

    # ---- keys and mouse ----

    def action_move(self, rows: int) -> None:
        """Mark the next or the previous warning; beyond them, scroll."""
        scroll = self.query_one(VerticalScroll)
        target = (-1 if self._chosen is None else self._chosen) + rows
        if self._page is None or not 0 <= target < self.count:
            scroll.scroll_relative(y=rows, animate=False)
            return
        self._choose(target)
        first, end = self._page.places[target]
        top, height = round(scroll.scroll_y), scroll.size.height
        if target == 0:
            scroll.scroll_home(animate=False)
        elif first < top:
            scroll.scroll_to(y=first, animate=False)
        elif end > top + height:
            scroll.scroll_to(y=end - height, animate=False)

    def _choose(self, number: int) -> None:
        self._chosen = number
        self.refresh_view()

    def action_page(self, pages: int) -> None:
        """Scroll by pages."""
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=pages * max(1, scroll.size.height - 1), animate=False)

    def at_cursor(self) -> Ref | None:
        """Return the request or the instance of the marked warning."""
        if self.checkup is None or self._chosen is None:
            return None
        found = self.checkup.findings[self._chosen]
        if found.request is not None:
            return request_ref(found.request)
        return None if found.instance is None else instance_ref(found.instance)

    def action_pick(self) -> None:
        """Go to the subject of the marked warning."""
        self._pick(go=True)

    def _pick(self, *, go: bool) -> None:
        found = self.at_cursor()
        if found is not None and found.kind == "request":
            self.post_message(Picked(request=found.value, go=go))
        elif found is not None:
            self.post_message(Picked(instance=int(found.value)))

    def on_click(self, event: Click) -> None:
        """Mark the clicked warning; a double click goes to its subject."""
        number = event.style.meta.get(FINDING)
        if isinstance(number, int) and number < self.count:
            self._choose(number)
            self._pick(go=event.chain > 1)
