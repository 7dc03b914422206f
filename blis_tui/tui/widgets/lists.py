"""Lists of experiments and goldens, with a cursor that is visible with any theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.content import Content
from textual.style import Style
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from blis_tui.tui.screens import goldens_lines, home_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual.events import Resize

    from blis_tui.golden.review import GoldenEntry
    from blis_tui.tui.screens.home_lines import HomeEntry


_CURSOR: Final = "option-list--option-highlighted"


class CursorList(OptionList):
    """An option list; with few or no colours, its cursor is shown in reverse."""

    def get_visual_style(self, *component_classes: str, partial: bool = False) -> Style:
        """Return Textual's style, with the reversal that it leaves out."""
        style = super().get_visual_style(*component_classes, partial=partial)
        few = self.app.native_ansi_color or self.app.no_color
        return style + Style(reverse=True) if few and _CURSOR in component_classes else style


class RowList(CursorList, inherit_bindings=False):
    """A list that fills its screen and only moves its cursor; the screen handles everything else."""

    BINDINGS: ClassVar = [
        Binding("down", "cursor_down", show=False),
        Binding("up", "cursor_up", show=False),
        Binding("pagedown", "page_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("home", "first", show=False),
        Binding("end", "last", show=False),
    ]
    DEFAULT_CSS = """
    RowList, RowList:focus {
        border: none;
        padding: 0;
        background: $background;
        background-tint: transparent;
    }
    """

    @property
    def row_width(self) -> int:
        """Width of a row, always without the scrollbar's column, so that rows do not move when it appears."""
        return max(1, self.size.width - 1 if not self.show_vertical_scrollbar else self.scrollable_content_region.width)

    def move(self, rows: int) -> None:
        """Move the cursor a row up (-1) or down, wherever the focus is."""
        if rows < 0:
            self.action_cursor_up()
        else:
            self.action_cursor_down()


class ExperimentList(RowList):
    """One experiment per line; the screen opens and marks them."""

    DEFAULT_CSS = """
    ExperimentList { height: 1fr; }
    ExperimentList > .option-list--option-disabled { color: $text-muted; }
    """

    _entries: tuple[HomeEntry, ...] = ()
    _sections = False
    _wanted: Path | None = None

    def show(self, entries: Sequence[HomeEntry], *, sections: bool, cursor: Path | None = None) -> None:
        """Show entries; the cursor stays on its experiment, or goes to the requested one.

        Args:
            entries: the entries in order.
            sections: whether to put own and shipped ones below headings.
            cursor: where to put the cursor.
        """
        self._wanted = cursor if cursor is not None else self.cursor_path
        self._entries, self._sections = tuple(entries), sections
        self._build()

    @property
    def cursor_path(self) -> Path | None:
        """Path of the selected experiment."""
        option = self.highlighted_option
        return None if option is None else next((e.found.path for e in self._entries if _id(e) == option.id), None)

    def update_entry(self, entry: HomeEntry) -> None:
        """Update one experiment."""
        self._entries = tuple(entry if one.found.path == entry.found.path else one for one in self._entries)
        if _id(entry) in self._id_to_option:
            self.replace_option_prompt(_id(entry), self._row(entry))

    def headings(self) -> Content:
        """Return the headings of the rows."""
        return home_lines.columns_line(home_lines.name_width(self._entries, self.row_width), self.row_width)

    def on_resize(self, _event: Resize) -> None:
        """Redraw the rows."""
        self._wanted = self.cursor_path
        self._build()

    def _row(self, entry: HomeEntry) -> Content:
        return home_lines.row(entry, home_lines.name_width(self._entries, self.row_width), self.row_width)

    def _build(self) -> None:
        self.clear_options()
        experiments = [entry for entry in self._entries if not entry.found.is_study]
        own = [entry for entry in experiments if not entry.found.shipped]
        shipped = [entry for entry in experiments if entry.found.shipped]
        studies = [entry for entry in self._entries if entry.found.is_study]
        if self._sections:
            self._section("In this folder", own, "  none yet: n writes one with every key explained")
            if studies:
                self.add_option(Option("", disabled=True))
                self._section("Studies", studies, "")
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

    def _section(self, title: str, entries: Sequence[HomeEntry], otherwise: str) -> None:
        self.add_option(Option(home_lines.section(title), disabled=True))
        if not entries:
            self.add_option(Option(Content.styled(otherwise, "$text-muted"), disabled=True))
        self.add_options(Option(self._row(entry), id=_id(entry)) for entry in entries)


def _id(entry: HomeEntry) -> str:
    return str(entry.found.path)


class GoldenList(RowList):
    """One golden test per line; the screen handles actions."""

    _entries: tuple[GoldenEntry, ...] = ()

    @property
    def current(self) -> GoldenEntry | None:
        """The selected test."""
        place = self.highlighted
        return None if place is None or place >= len(self._entries) else self._entries[place]

    def show(self, entries: Sequence[GoldenEntry], cursor: str | None = None) -> None:
        """Show entries; the cursor goes to the named test, stays on its own, or goes to the first."""
        wanted = cursor if cursor is not None or self.current is None else self.current.name
        self._entries = tuple(entries)
        self._build(wanted)

    def headings(self) -> Content:
        """Return the headings of the rows."""
        return goldens_lines.columns_line(goldens_lines.name_width(self._entries, self.row_width), self.row_width)

    def on_resize(self, _event: Resize) -> None:
        """Redraw the rows."""
        self._build(None if self.current is None else self.current.name)

    def _build(self, wanted: str | None) -> None:
        names = goldens_lines.name_width(self._entries, self.row_width)
        self.clear_options()
        self.add_options(Option(goldens_lines.row(entry, names, self.row_width)) for entry in self._entries)
        place = next((at for at, entry in enumerate(self._entries) if entry.name == wanted), 0)
        self.highlighted = place if self._entries else None
