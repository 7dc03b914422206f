"""The list of experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets.option_list import Option

from blis_tui.tui.presenters.home import columns_line, name_width, row, section
from blis_tui.tui.widgets.cursor_list import RowList

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual.events import Resize

    from blis_tui.tui.presenters.home import Entry


class ExperimentList(RowList):
    """One line an experiment; opening and marking are the screen's."""

    DEFAULT_CSS = """
    ExperimentList { height: 1fr; }
    ExperimentList > .option-list--option-disabled { color: $text-muted; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self._entries: tuple[Entry, ...] = ()
        self._sections = False
        self._wanted: Path | None = None

    def show(self, entries: Sequence[Entry], *, sections: bool, cursor: Path | None = None) -> None:
        """Show these entries; the cursor stays on its experiment, or goes to the one asked for.

        Args:
            entries: in the order to show them.
            sections: own and shipped ones below headings.
            cursor: where to put the cursor.
        """
        self._wanted = cursor if cursor is not None else self.cursor_path
        self._entries, self._sections = tuple(entries), sections
        self._build()

    @property
    def cursor_path(self) -> Path | None:
        """The experiment under the cursor."""
        option = self.highlighted_option
        return None if option is None else next((e.found.path for e in self._entries if _id(e) == option.id), None)

    def update_entry(self, entry: Entry) -> None:
        """Show what is newly known about one experiment."""
        self._entries = tuple(entry if one.found.path == entry.found.path else one for one in self._entries)
        if _id(entry) in self._id_to_option:
            self.replace_option_prompt(_id(entry), self._row(entry))

    def headings(self) -> Content:
        """The line above the rows."""
        return columns_line(name_width(self._entries, self.row_width), self.row_width)

    def on_resize(self, _event: Resize) -> None:
        """Lay the rows out anew."""
        self._wanted = self.cursor_path
        self._build()

    def _row(self, entry: Entry) -> Content:
        return row(entry, name_width(self._entries, self.row_width), self.row_width)

    def _build(self) -> None:
        self.clear_options()
        own = [entry for entry in self._entries if not entry.found.shipped]
        shipped = [entry for entry in self._entries if entry.found.shipped]
        if self._sections:
            self._section("In this folder", own, "  none yet: n writes one with every key explained")
            if shipped:
                self.add_option(Option("", disabled=True))
                self._section("Shipped with blis-tui", shipped, "")
        else:
            self.add_options(Option(self._row(entry), id=_id(entry)) for entry in self._entries)
        ids = [option.id for option in self.options]
        wanted = str(self._wanted)
        first = next((at for at, option in enumerate(self.options) if not option.disabled), None)
        self.highlighted = ids.index(wanted) if wanted in ids else first
        if self.highlighted == first:
            self.scroll_home(animate=False)

    def _section(self, title: str, entries: Sequence[Entry], otherwise: str) -> None:
        self.add_option(Option(section(title), disabled=True))
        if not entries:
            self.add_option(Option(Content.styled(otherwise, "$text-muted"), disabled=True))
        self.add_options(Option(self._row(entry), id=_id(entry)) for entry in entries)


def _id(entry: Entry) -> str:
    return str(entry.found.path)
