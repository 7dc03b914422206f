"""Windows that write files into the working folder, and the one with what was printed meanwhile."""

from __future__ import annotations

import os
from io import BytesIO, TextIOWrapper
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import BlisError, InputError
from blis_tui.base.units import count_text, plural
from blis_tui.output.result_files import atomic_bytes, write_text
from blis_tui.tui.actions import DIALOG, bindings
from blis_tui.tui.bars import CursorList, KeyBar
from blis_tui.tui.catalog import shown_folder
from blis_tui.tui.screens.windows import ScrolledWindow, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO, TextIO

    from textual.app import ComposeResult

    from blis_tui.base.standard_output import Printed


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file: its suffix and description."""

    id: str
    ending: str
    about: str


def new_name(stem: str, ending: str) -> str:
    """Return ``STEM.ENDING``, or ``STEM-2.ENDING`` and so on if the working folder has that file."""
    names = (f"{stem}{f'-{number}' if number > 1 else ''}.{ending}" for number in count(1))
    # A dangling link also counts as existing.
    return next(name for name in names if not os.path.lexists(Path.cwd() / name))


def require_new(text: str) -> None:
    """Raise InputError unless a new file can be created there."""
    path = Path(text).expanduser()
    if path.is_dir():
        raise InputError(f"{text} is a folder.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"There is no folder {path.parent}.")
    if path.exists():
        raise InputError(f"{text} exists already.")


class FilesScreen(Window[None]):
    """Offers files; enter writes one.

    Args:
        kinds: the kinds of files.
        about: their content, as the beginning of a sentence.
    """

    BINDINGS = [*bindings(DIALOG), Binding("q", "dialog_close", show=False)]  # noqa: RUF012  (Textual's convention)
    DEFAULT_CSS = """
    FilesScreen {
        & > Vertical { width: 72; }
        OptionList, OptionList:focus {
            height: auto;
            border: none;
            padding: 0;
            background: $surface;
            background-tint: transparent;
        }
        #about { color: $text-muted; margin-bottom: 1; }
    }
    """

    def __init__(self, kinds: Sequence[Kind], about: str) -> None:
        super().__init__()
        self._kinds = tuple(kinds)
        self._about = about

    @property
    def stem(self) -> str:
        """The stem of the names of current files."""
        raise NotImplementedError

    def writer(self, kind: Kind) -> Callable[[BinaryIO], object]:
        """Return a writer of the current content that can run in a thread, independent of later actions."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """Create a line per kind."""
        with Vertical() as window:
            window.border_title = "Export"
            yield Static(f"{self._about} Enter writes one to {shown_folder(Path.cwd())}", id="about", markup=False)
            names = {kind: self.file_name(kind) for kind in self._kinds}
            width = max(map(len, names.values()))
            yield CursorList(
                *(
                    Option(
                        Content.assemble((f"{name:<{width}}", "bold"), (f"  {kind.about}", "$text-muted")),
                        id=kind.id,
                    )
                    for kind, name in names.items()
                )
            )
        yield KeyBar()

    def file_name(self, kind: Kind) -> str:
        """Return the file's name: run, event, a number if the file exists, kind."""
        return new_name(self.stem, kind.ending)

    @on(OptionList.OptionSelected)
    def _chosen(self, message: OptionList.OptionSelected) -> None:
        self.write(self._kinds[message.option_index])

    def write(self, kind: Kind) -> None:
        """Write a file in the background, and say where it is."""
        self._write(self.stem, kind, self.writer(kind))

    @work(thread=True, exclusive=True, group="export", exit_on_error=False)
    def _write(self, stem: str, kind: Kind, write: Callable[[BinaryIO], object]) -> None:
        first = f"{stem}.{kind.ending}"
        if self.app.is_web:
            out = BytesIO()
            write(out)
            out.seek(0)
            self.call_later(self.app.deliver_binary, out, save_filename=first)
            self._done(f"{first} is being sent to your browser.")
            return
        name = new_name(stem, kind.ending)
        try:
            with atomic_bytes(Path.cwd() / name) as file:
                write(file)
        except InputError as error:
            self.call_later(self.app.notify, str(error), severity="error", markup=False)
        else:
            kept = "" if name == first else f"\n{first} existed already and was left as it is."
            self._done(f"Written: {Path.cwd() / name}{kept}")

    def _done(self, message: str) -> None:
        """Close and notify together, because after closing nothing waits for this thread."""

        def tell() -> None:
            self.app.notify(message, markup=False)
            self.dismiss(None)

        self.call_later(tell)


def text_bytes(write: Callable[[TextIO], object]) -> Callable[[BinaryIO], None]:
    """Return a writer of bytes for a writer of text."""

    def to_bytes(out: BinaryIO) -> None:
        text = TextIOWrapper(out, encoding="utf-8", newline="\n")
        write(text)
        text.detach()

    return to_bytes


_NOTHING = "Nothing has been printed. What plug-ins print while an experiment is simulated is kept and shown here."


class PrintedScreen(ScrolledWindow[None]):
    """The last lines, the latest at the bottom.

    Args:
        printed: the stored output.
    """

    SCOPE = "printed"
    BINDINGS = [*bindings(SCOPE), Binding("q,p", "printed_close", show=False)]  # noqa: RUF012  (Textual's convention)
    DEFAULT_CSS = """
    PrintedScreen {
        & > Vertical { width: 96%; max-width: 140; max-height: 96%; padding: 0 1 0 2; }
        & > Vertical { border-subtitle-color: $text-muted; }
        VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
        Static { height: auto; width: 1fr; padding-right: 1; }
    }
    """

    def __init__(self, printed: Printed) -> None:
        super().__init__()
        self._lines = printed.lines()
        self._total = printed.total

    def compose(self) -> ComposeResult:
        """Create the lines."""
        with Vertical() as window:
            window.border_title = Content(self._title())
            window.border_subtitle = "events that are replayed print again"
            with VerticalScroll(can_focus=False):
                yield Static("\n".join(self._lines) or _NOTHING, markup=False)
        yield KeyBar()

    def _title(self) -> str:
        kept = len(self._lines)
        if kept < self._total:
            return f"Printed: the last {count_text(kept)} of {plural(self._total, 'line')}"
        return f"Printed: {plural(kept, 'line')}" if kept else "Printed"

    def on_mount(self) -> None:
        """Scroll to the latest line."""
        self.call_after_refresh(self.action_ends, True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide actions that are impossible."""
        del parameters
        return bool(self._lines) or action not in ("printed_copy", "printed_export")

    def _text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def action_printed_copy(self) -> None:
        """Copy the lines."""
        self.app.copy_to_clipboard(self._text())
        self.app.notify("The lines are in the clipboard.")

    def action_printed_export(self) -> None:
        """Write the lines to a new file."""
        name = new_name("printed", "txt")
        try:
            write_text(Path(name), self._text())
        except BlisError as error:
            self.app.notify(str(error), title="Nothing was written", severity="error", markup=False)
        else:
            self.app.notify(f"Wrote {name}.", markup=False)

    action_printed_close = ScrolledWindow.action_dialog_close
