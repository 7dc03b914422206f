"""The window that answers "why?", with references that can be followed."""

from __future__ import annotations

from functools import partialmethod
from typing import TYPE_CHECKING

from textual import on
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from blis_tui.debugger.why.explain import explain
from blis_tui.tui.actions import bindings
from blis_tui.tui.bars import KeyBar
from blis_tui.tui.drawing.why import MENTION, explanation_page
from blis_tui.tui.screens.windows import ScrolledWindow

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Click

    from blis_tui.debugger.debugger import Debugger
    from blis_tui.debugger.why.explanation import Explanation, Subject
    from blis_tui.tui.drawing.why import Page


class _Text(Static):
    """Reports changes of its size, because only then the width without a scrollbar is known."""

    class Resized(Message):
        """The size has changed."""

    def on_resize(self) -> None:
        """Post the message."""
        self.post_message(self.Resized())


class WhyScreen(ScrolledWindow["Subject | None"]):
    """Shows an explanation, and those of its references; the result is where the reader wants to go, or None.

    Args:
        debugger: the run, whose position stays; None = what is explained is no part of one.
        explanation: the first explanation.
        run_waits: whether a run in progress goes on after the window closes.
    """

    SCOPE = "why"
    BINDINGS = [  # noqa: RUF012  (Textual's convention)
        *bindings(SCOPE),
        Binding("q", "why_close", show=False),
    ]
    DEFAULT_CSS = """
    WhyScreen {
        & > Vertical {
            width: 96%;
            max-width: 94;
            max-height: 96%;
            padding: 0 1 0 2;
            border-subtitle-color: $text-muted;
        }
        VerticalScroll { height: auto; max-height: 100%; padding: 1 0; scrollbar-size-vertical: 1; }
        Static { height: auto; width: 1fr; padding-right: 1; }
    }
    """

    def __init__(self, debugger: Debugger | None, explanation: Explanation, *, run_waits: bool = False) -> None:
        super().__init__()
        self._run_waits = run_waits
        self._debugger = debugger
        self._explanation = explanation
        self._chosen: int | None = None
        self._earlier: list[tuple[Explanation, int | None]] = []
        self._page: Page | None = None
        self._shown_width = 0

    def compose(self) -> ComposeResult:
        """Create the text."""
        with Vertical(), VerticalScroll(can_focus=False):
            yield _Text()
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the first explanation, once its width is known."""
        self.call_after_refresh(self._show)

    def on_resize(self) -> None:
        """Adapt to the new size."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        self._shown_width = self._width()
        self._page = explanation_page(self._explanation, self._shown_width, self._chosen)
        self.query_one(Static).update(self._page.content)
        window = self.query_one(Vertical)
        window.border_title = Content(self._explanation.title)
        depth = len(self._earlier)
        notes = (f"{depth} back" if depth else "", "the run is paused until you close this" if self._run_waits else "")
        window.border_subtitle = Content(" · ".join(note for note in notes if note))
        self.refresh_bindings()

    @on(_Text.Resized)
    def _fit(self) -> None:
        """Wrap the lines again after a scrollbar has appeared."""
        if self._page is not None and self._width() != self._shown_width:
            self._show()

    def _width(self) -> int:
        return max(self.query_one(Static).content_size.width, 20)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide actions that are impossible."""
        del parameters
        if action == "why_back":
            return bool(self._earlier)
        if action in ("why_next", "why_previous"):
            return bool(self._page and self._page.mentions)
        if action == "why_follow":
            return self._chosen_ref() is not None
        if action == "why_go":
            return self._destination() is not None
        return True

    def _chosen_ref(self) -> Subject | None:
        if self._page is None or self._chosen is None or self._chosen >= len(self._page.mentions):
            return None
        return self._page.mentions[self._chosen].ref

    def _destination(self) -> Subject | None:
        """Return the destination of `g`: the marked reference, else the subject of the explanation, unless it has none.

        A key of the document has none: it is where it is explained.
        """
        about = self._explanation.about
        return self._chosen_ref() or (None if about.kind == "key" else about)

    # ---- references ----

    def _mark(self, move: int) -> None:
        """Mark the next or the previous reference."""
        if self._page is None or not self._page.mentions:
            return
        count = len(self._page.mentions)
        if self._chosen is None:
            self._chosen = 0 if move > 0 else count - 1
        else:
            self._chosen = (self._chosen + move) % count
        self._show()
        self._reveal(self._page.mentions[self._chosen].line)

    action_why_next = partialmethod(_mark, 1)
    action_why_previous = partialmethod(_mark, -1)

    def _reveal(self, line: int) -> None:
        """Scroll as little as necessary, with one line of margin."""
        scroll = self.query_one(VerticalScroll)
        top, height = round(scroll.scroll_y), scroll.size.height
        line += 1  # the padding above
        if line < top + 1:
            scroll.scroll_to(y=line - 2, animate=False)
        elif line > top + height - 2:
            scroll.scroll_to(y=line - height + 2, animate=False)

    def action_why_follow(self) -> None:
        """Explain the marked reference."""
        ref = self._chosen_ref()
        if ref is not None:
            self._follow(ref)

    def _follow(self, ref: Subject) -> None:
        explanation = None if self._debugger is None else explain(self._debugger, ref)
        if explanation is None:
            self.dismiss(ref)
            return
        self._earlier.append((self._explanation, self._chosen))
        self._explanation = explanation
        self._chosen = None
        self._from_top()

    def action_why_back(self) -> None:
        """Show the previous explanation."""
        if self._earlier:
            self._explanation, self._chosen = self._earlier.pop()
            self._from_top()
            if self._chosen is not None and self._page is not None:
                self._reveal(self._page.mentions[self._chosen].line)

    def _from_top(self) -> None:
        self._show()
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def on_click(self, event: Click) -> None:
        """Follow the clicked reference; a click beside the window closes it."""
        number = event.style.meta.get(MENTION)
        if isinstance(number, int) and self._page is not None and number < len(self._page.mentions):
            self._chosen = number
            self._follow(self._page.mentions[number].ref)
        elif event.widget is self:
            self.dismiss(None)

    # ---- leaving, copying ----

    def action_why_go(self) -> None:
        """Go to the marked reference, else to the subject of the explanation."""
        self.dismiss(self._destination())

    def action_why_copy(self) -> None:
        """Copy the text."""
        self.app.copy_to_clipboard(self._explanation.to_text())
        self.app.notify("The explanation is in the clipboard.")

    action_why_close = ScrolledWindow.action_dialog_close
