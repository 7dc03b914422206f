"""The list of golden tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets.option_list import Option

from blis_tui.tui.presenters.goldens import columns_line, name_width, row
from blis_tui.tui.widgets.cursor_list import RowList

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.content import Content
    from textual.events import Resize

    from blis_tui.golden.review import Entry


class GoldenList(RowList):
    """One line a golden test; what can be done with it is the screen's."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self._entries: tuple[Entry, ...] = ()

    @property
    def current(self) -> Entry | None:
        """The test under the cursor."""
        place = self.highlighted
        return None if place is None or place >= len(self._entries) else self._entries[place]

    def show(self, entries: Sequence[Entry], cursor: str | None = None) -> None:
        """Show these; the cursor goes to the test of that name, or stays on its own, or goes to the first."""
        wanted = cursor if cursor is not None or self.current is None else self.current.name
        self._entries = tuple(entries)
        self._build(wanted)

    def headings(self) -> Content:
        """The line above the rows."""
        return columns_line(name_width(self._entries, self.row_width), self.row_width)

    def on_resize(self, _event: Resize) -> None:
        """Lay the rows out anew."""
        self._build(None if self.current is None else self.current.name)

    def _build(self, wanted: str | None) -> None:
        names = name_width(self._entries, self.row_width)
        self.clear_options()
        self.add_options(Option(row(entry, names, self.row_width)) for entry in self._entries)
        place = next((at for at, entry in enumerate(self._entries) if entry.name == wanted), 0)
        self.highlighted = place if self._entries else None
