"""What looks wrong with the run: a list of warnings, each with its numbers and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from blis_tui.debugger.lints.lints import check_all
from blis_tui.debugger.lints.tally import Tally
from blis_tui.tui.presenters.warnings import FINDING, warnings_page
from blis_tui.tui.view import Picked
from blis_tui.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Click

    from blis_tui.debugger.lints.lints import Checkup
    from blis_tui.debugger.tape import Tape
    from blis_tui.tui.presenters.warnings import WarningsPage
    from blis_tui.tui.view import View

_SLICE: Final = 5000
"""Events counted at once: about 10 ms."""
_SLICE_PLAYING: Final = 500


class WarningsPane(Pane):
    """Keeps the sums that the checks need up to date, a slice at a time, also while it is hidden.

    The sums are a function of the tape; the warnings are about all that is known of the run.
    """

    TITLE = "Warnings"
    JUMP_KEY = "w"
    FOLLOWS_SELECTION = False
    HELP_TEXT = (
        "What looks wrong with this run, as far as it is known, whatever the position: each warning says what to do. "
        "Arrow keys mark a warning, enter goes to what it speaks of. Below stands what was checked besides."
    )
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

        def __init__(self, count: int) -> None:
            super().__init__()
            self.count = count

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self._tape: Tape | None = None
        self._tally: Tally | None = None
        self._checkup: Checkup | None = None
        self._chosen: int | None = None
        self._page: WarningsPage | None = None
        self._catching_up = False

    @property
    def count(self) -> int:
        """How many warnings there are."""
        return 0 if self._checkup is None else len(self._checkup.findings)

    @property
    def checkup(self) -> Checkup | None:
        """The outcome of the checks, as far as the events have been counted; None before the first."""
        return self._checkup

    def compose(self) -> ComposeResult:
        """One scrolled text."""
        with VerticalScroll(can_focus=False):
            yield Static()

    # ---- counting ----

    def watch_view(self) -> None:
        """Count what is new, then show."""
        if self.view is not None:
            self._count(self.view)
        super().watch_view()

    def _count(self, view: View) -> None:
        tape = view.tape
        if self._tally is None or tape is not self._tape or len(tape) < self._tally.event:
            self._tape, self._tally, self._checkup, self._chosen = tape, Tally(view.experiment), None, None
        if self._tally.event == len(tape):
            return
        done = self._tally.follow(tape, _SLICE_PLAYING if view.playing else _SLICE)
        before = self.count
        self._checkup = check_all(self._tally, tape, view.experiment)
        if self.count != before:
            if self._chosen is not None and self._chosen >= self.count:
                self._chosen = None
            self.post_message(self.Counted(self.count))
        if not done and not view.playing and not self._catching_up:
            self._catching_up = True
            self.call_later(self._catch_up)

    def _catch_up(self) -> None:
        self._catching_up = False
        if self.view is not None and not self.view.playing:
            self._count(self.view)
            self.refresh_view()

    # ---- showing ----

    def show(self, view: View) -> None:
        """Bring the list up to date."""
        scroll = self.query_one(VerticalScroll)
        width = max(scroll.size.width - 2, 20)
        self._page = warnings_page(
            self._checkup,
            width,
            chosen=self._chosen,
            complete=view.moment.complete,
            known=len(view.tape),
            failure=view.moment.failure,
        )
        self.query_one(Static).update(self._page.content)

    # ---- keys and mouse ----

    def action_move(self, rows: int) -> None:
        """Mark the next warning or the one before; beyond them, scroll."""
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

    def action_pick(self) -> None:
        """Go to what the marked warning speaks of."""
        self._pick(go=True)

    def _pick(self, *, go: bool) -> None:
        if self._checkup is None or self._chosen is None:
            return
        ref = self._checkup.findings[self._chosen].ref
        if ref is None:
            return
        if ref.kind == "request":
            self.post_message(Picked(request=ref.value, go=go))
        elif ref.kind == "event":
            self.post_message(Picked(event=int(ref.value), go=go))
        else:
            self.post_message(Picked(instance=int(ref.value)))

    def on_click(self, event: Click) -> None:
        """Mark the warning under the pointer; a second click goes where it points."""
        number = event.style.meta.get(FINDING)
        if isinstance(number, int) and number < self.count:
            self._choose(number)
            self._pick(go=event.chain > 1)
