"""Windows: what all have in common, those that ask for a line of text or a confirmation, and jump mode."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from textual import on
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Offset
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import Input, Label, Static

from blis_tui.base.errors import BlisError, InputError
from blis_tui.tui.actions import DIALOG, bindings
from blis_tui.tui.bars import KeyBar
from blis_tui.tui.drawing.lines import problem_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Click, Key, Resize
    from textual.geometry import Region

    from blis_tui.results.conditions.suggestions import Suggestion

_Result = TypeVar("_Result")


class Window(ModalScreen[_Result]):
    """A window that closes only once, however many keys arrive meanwhile; its frame is a ``Vertical``."""

    SCOPE = DIALOG
    DEFAULT_CSS = """
    Window {
        align: center middle;
        background: $background 60%;
        & > Vertical {
            width: 64;
            max-width: 100%;
            height: auto;
            max-height: 90%;
            padding: 1 2;
            background: $surface;
            border: round $accent;
            border-title-color: $accent;
            border-title-style: bold;
        }
    }
    """

    def dismiss(self, result: _Result | None = None) -> AwaitComplete:
        """Close with a result; do nothing if the window is no longer on top."""
        if self.is_current:
            return super().dismiss(result)
        nothing: AwaitComplete = AwaitComplete.nothing()  # type: ignore[no-untyped-call]
        return nothing

    def action_dialog_close(self) -> None:
        """Close without a result."""
        self.dismiss(None)


class ScrolledWindow(Window[_Result]):
    """A window with a text in a ``VerticalScroll`` that the usual keys scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home", "ends(False)", show=False),
        Binding("end", "ends(True)", show=False),
    ]

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        """Scroll by pages."""
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=pages * max(1, scroll.size.height - 2), animate=False)

    def action_ends(self, last: bool) -> None:
        """Scroll to the start or the end."""
        scroll = self.query_one(VerticalScroll)
        if last:
            scroll.scroll_end(animate=False)
        else:
            scroll.scroll_home(animate=False)


MIN_WIDTH: Final = 60
MIN_HEIGHT: Final = 16


def is_too_small(width: int, height: int) -> bool:
    """Return whether the terminal is too small for any useful display."""
    return width < MIN_WIDTH or height < MIN_HEIGHT


def small_text(width: int, height: int) -> str:
    """Return the longest message that fits."""
    need, have = f"need {MIN_WIDTH}x{MIN_HEIGHT}", f"have {width}x{height}"
    ways = (
        f"terminal too small ({need}, {have})",
        f"terminal too small\n({need},\n{have})",
        f"too small:\n{need},\n{have}",
        f"too small:\n{need}",
        need,
    )
    return next((text for text in ways if _fits(text, width, height)), ways[-1].replace(" ", "\n"))


def _fits(text: str, width: int, height: int) -> bool:
    lines = text.split("\n")
    return len(lines) <= height and max(map(len, lines)) <= width


class SmallScreen(Window[None]):
    """Covers the screen below, which does not change."""

    BINDINGS = [Binding("ctrl+q", "app.quit", show=False)]  # noqa: RUF012  (Textual's convention)
    DEFAULT_CSS = """
    SmallScreen {
        background: $background;
        & > Static { width: auto; height: auto; text-align: center; color: $warning; }
    }
    """

    def compose(self) -> ComposeResult:
        """Create the message."""
        yield Static(markup=False)

    def on_mount(self) -> None:
        """Show the message."""
        self._say()

    def on_resize(self, _event: Resize) -> None:
        """Show the message with the new size."""
        self._say()

    def _say(self) -> None:
        self.query_one(Static).update(small_text(*self.app.size))


def _nothing(_text: str) -> None:
    return None


def _problem(check: Callable[[str], object], text: str) -> str:
    """Return the problem of a text; empty = none."""
    try:
        check(text)
    except BlisError as error:
        return str(error)
    return ""


def _hint(mark: str, text: str, style: str) -> Content:
    return Content.assemble((mark, f"{style} bold"), (f" {text}", "$error" if style == "$error" else "$text-muted"))


def read_changes(text: str) -> tuple[str, ...]:
    """Parse changes to compare with. Raises InputError if one has no value."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"{error}.".capitalize()) from error
    wrong = next((word for word in words if "=" not in word), None)
    if wrong is not None:
        raise InputError(f"{wrong!r} has no value: write PATH=VALUE, such as cluster.instances=2.")
    return words


class Completing(Suggester):
    """Suggests the result of a function."""

    def __init__(self, complete: Callable[[str], Suggestion | None]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        """Return the completed text."""
        suggestion = self._complete(value)
        return None if suggestion is None else suggestion.text


class PromptScreen(Window[str | None]):
    """Asks for a line; the result is the text, or None if cancelled.

    Args:
        title: the subject.
        about: one or two sentences on its effect, with an example.
        value: the initial text.
        placeholder: an example, shown while the text is empty.
        check: raises BlisError if a text is invalid.
        doing: the word for the effect of enter.
        on_enter: like `check`, but called only on enter, so it may be slow, and its error may have several lines. The
            text stays, to be corrected.
        complete: returns a completion, or None; it is shown dimmed with its meaning, and the right arrow accepts it.
        without: the word for the effect of enter with an empty text; empty = a text is required.
        suggested: whether the initial text is only a suggestion, which the first key that is typed replaces.
    """

    BINDINGS = [  # noqa: RUF012  (Textual's convention)
        *bindings(DIALOG),
        Binding("up", "read(-1)", show=False),
        Binding("down", "read(1)", show=False),
    ]
    DEFAULT_CSS = """
    PromptScreen {
        #about { color: $text-muted; margin-bottom: 1; }
        Input { padding: 0 1; background: $panel; }
        #problem { height: auto; max-height: 9; margin-top: 1; scrollbar-size-vertical: 1; }
        #hint { height: auto; min-height: 1; }
    }
    """

    def __init__(
        self,
        title: str,
        about: str,
        *,
        value: str = "",
        placeholder: str = "",
        check: Callable[[str], object] = _nothing,
        doing: str = "go on",
        on_enter: Callable[[str], object] = _nothing,
        complete: Callable[[str], Suggestion | None] = _nothing,
        without: str = "",
        suggested: bool = False,
    ) -> None:
        super().__init__()
        self._title = title
        self._about = about
        self._value = value
        self._suggested = suggested
        self._placeholder = placeholder
        self._check = check
        self._doing = doing
        self._check_given = on_enter
        self._complete = complete
        self._without = without

    def compose(self) -> ComposeResult:
        """Create explanation, input, and the problem or the effect of enter."""
        with Vertical() as window:
            window.border_title = Content(self._title)
            yield Static(self._about, id="about", markup=False)
            yield Input(
                value=self._value,
                placeholder=self._placeholder,
                suggester=Completing(self._complete),
                select_on_focus=self._suggested,
                compact=True,
            )
            with VerticalScroll(id="problem", can_focus=False):
                yield Static(id="hint", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """Check the initial text."""
        self._say(self.query_one(Input).value)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._say(event.value)

    def _say(self, text: str) -> None:
        wrong = _problem(self._check, text.strip()) if text.strip() else ""
        content = _hint("✗", wrong, "$error") if wrong else _hint("enter", self._does(text), "$accent")
        suggestion = self._complete(text) if text else None
        if suggestion is not None:
            content = Content.assemble(_hint("→", f"{suggestion.word}: {suggestion.meaning}", "$accent"), "\n", content)
        self.query_one("#hint", Static).update(content)

    def _does(self, text: str) -> str:
        """Return the effect of enter."""
        return self._without if self._without and not text.strip() else self._doing

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if not text and not self._without:
            example = self._placeholder or self._value
            message = f"Nothing is entered: try {example}."
            self.query_one("#hint", Static).update(_hint("✗", message, "$error"))
            return
        if text and _problem(self._check, text):
            return
        wrong = _problem(self._check_given, text)
        if wrong:
            width = self.query_one("#problem").size.width - 1
            self.query_one("#hint", Static).update(problem_text(wrong, max(width, 1)))
        else:
            self.dismiss(text)

    def action_read(self, lines: int) -> None:
        """Scroll a long problem."""
        self.query_one("#problem").scroll_relative(y=lines, animate=False)


class MomentScreen(Window[tuple[str, str] | None]):
    """Asks for the name and the note of a moment; the result is both, or None if cancelled.

    Args:
        title: the title of the window.
        about: the event in words.
        name: the initial name, which an empty one means, too.
        note: the initial note.
    """

    BINDINGS = [  # noqa: RUF012  (Textual's convention)
        *bindings(DIALOG),
        Binding("tab,down", "app.focus_next", "other field", priority=True),
        Binding("shift+tab,up", "app.focus_previous", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    MomentScreen {
        #about, .label { color: $text-muted; }
        #about { margin-bottom: 1; }
        Input { padding: 0 1; background: $panel; margin-bottom: 1; }
    }
    """

    def __init__(self, title: str, about: str, *, name: str, note: str = "") -> None:
        super().__init__()
        self._title = title
        self._about = about
        self._named = name
        self._note = note

    def compose(self) -> ComposeResult:
        """Create the event, the two fields, and the effect of enter."""
        with Vertical() as window:
            window.border_title = Content(self._title)
            yield Static(self._about, id="about", markup=False)
            yield Static("Name", classes="label")
            yield Input(value=self._named, placeholder=self._named, id="name", compact=True)
            yield Static("Note", classes="label")
            note = "what to remember of it"
            yield Input(value=self._note, placeholder=note, id="note", select_on_focus=False, compact=True)
            yield Static(_hint("enter", "keeps it", "$accent"))
        yield KeyBar()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        name, note = (self.query_one(field, Input).value.strip() for field in ("#name", "#note"))
        self.dismiss((name or self._named, note))


class ConfirmScreen(Window[bool]):
    """Asks for confirmation; the result is whether to go on.

    Args:
        title: the question.
        text: what exactly would be done.
        doing: the word for going on.
    """

    BINDINGS = [  # noqa: RUF012  (Textual's convention)
        *bindings(DIALOG),
        Binding("y,enter", "yes", "yes"),
        Binding("n", "dialog_close", "no"),
        Binding("q", "dialog_close", show=False),
    ]
    DEFAULT_CSS = """
    ConfirmScreen {
        & > Vertical { border: round $warning; border-title-color: $warning; }
        VerticalScroll { height: auto; max-height: 12; }
        Static { height: auto; }
        #keys { margin-top: 1; }
    }
    """

    def __init__(self, title: str, text: str, *, doing: str) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._doing = doing

    def compose(self) -> ComposeResult:
        """Create question, effect, keys."""
        with Vertical() as window:
            window.border_title = Content(self._title)
            with VerticalScroll():
                yield Static(self._text, markup=False)
            keys = (("y", "$accent bold"), f" {self._doing}   ", ("n", "$accent bold"), " leaves everything as it is")
            yield Static(Content.assemble(*keys), id="keys")
        yield KeyBar()

    def action_yes(self) -> None:
        """Confirm."""
        self.dismiss(True)

    def action_dialog_close(self) -> None:
        """Cancel."""
        self.dismiss(False)


class JumpScreen(Window[str | None]):
    """Shows the letters; the result is the id of a pane, or None.

    Args:
        targets: what can be gone to: its letter, or none if it can only be clicked; the id of its pane, and its place.
    """

    BINDINGS = bindings(DIALOG)
    DEFAULT_CSS = """
    JumpScreen {
        background: $background 40%;
        Label {
            position: absolute;
            width: auto;
            background: $accent;
            color: $background;
            text-style: bold;
        }
    }
    """

    def __init__(self, targets: Sequence[tuple[str, str, Region]]) -> None:
        super().__init__()
        self._targets = tuple(targets)

    def compose(self) -> ComposeResult:
        """Create a label in the middle of each pane, and on the key of each tab."""
        for letter, _, region in self._targets:
            if letter:
                label = Label(f" {letter} " if region.height > 1 else letter)
                label.absolute_offset = (
                    Offset(region.x + region.width // 2 - 1, region.y + region.height // 2)
                    if region.height > 1
                    else region.offset
                )
                yield label

    def on_key(self, event: Key) -> None:
        """Go to the pane of the letter; any other key ends the mode."""
        event.stop()
        self.dismiss(next((pane for letter, pane, _ in self._targets if letter and letter == event.character), None))

    def on_click(self, event: Click) -> None:
        """Go to the clicked pane."""
        for _, pane, region in self._targets:
            if region.contains(event.screen_x, event.screen_y):
                self.dismiss(pane)
                return
        self.dismiss(None)
