"""Widgets of several screens: title, tabs of panes, current keys, and lists with a visible cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.style import Style
from textual.widget import Widget
from textual.widgets import OptionList

from blis_tui.base.classes import dataclass
from blis_tui.tui.actions import ACTIONS, APP, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from textual.events import Click
    from textual.geometry import Size
    from textual.screen import Screen

    from blis_tui.tui.panes import PaneInfo

_GAP: Final = 2
"""Minimum number of columns between two items of a line."""

# ---- title ----

_REMARK = "$text-muted"
"""Style of remarks that may be left out; one blank joins them to their subject: ``paused in the past``."""


def title_line(left: Content, right: Content, width: int) -> Content:
    """Return both ends of a line of that width.

    If they do not fit, muted remarks are left out one by one from the left; then the left part is truncated with an
    ellipsis.
    """
    inner = max(0, width - 2)
    while left.cell_length + _GAP + right.cell_length > inner:
        fewer_left, fewer_right = _without_remark(left), _without_remark(right)
        if fewer_left is not None:
            left = fewer_left
        elif fewer_right is not None:
            right = fewer_right
        else:
            break
    right = right.truncate(inner, ellipsis=True) if right.cell_length > inner else right
    room = inner - right.cell_length - (_GAP if right.cell_length else 0)
    left = left.truncate(max(0, room), ellipsis=True) if left.cell_length > room else left
    gap = inner - left.cell_length - right.cell_length
    return Content.assemble(" ", left, " " * gap, right, " ")


def _without_remark(text: Content) -> Content | None:
    """Return the text without its first removable remark; None if there is none."""
    for span in text.spans:
        words = text.plain[span.start : span.end]
        if span.style == _REMARK and words.startswith(" ") and words == f" {words.strip()}":
            return text[: span.start] + text[span.end :]
    return None


class TitleBar(Widget):
    """A screen's subject on the left, its state on the right; set ``left`` and ``right``.

    Textual's ``Header`` has one centred title, which is truncated if it does not fit.
    """

    DEFAULT_CSS = """
    TitleBar {
        height: 1;
        background: $panel;
        color: $foreground;
        text-wrap: nowrap;
    }
    """

    left: reactive[Content] = reactive(Content(""))
    right: reactive[Content] = reactive(Content(""))

    def __init__(self, left: Content | str = "", right: Content | str = "", *, id: str | None = None) -> None:  # noqa: A002  (Textual's name)
        super().__init__(id=id)
        self.set_reactive(TitleBar.left, Content(left) if isinstance(left, str) else left)
        self.set_reactive(TitleBar.right, Content(right) if isinstance(right, str) else right)

    def render(self) -> Content:
        """Return the line."""
        return title_line(self.left, self.right, self.size.width)


# ---- tabs ----

_NO_KEY: Final = "·"
"""Shown instead of the key for a pane without one."""
_ROOMY: Final = 20
"""Height of a terminal from which the tabs may have two rows."""


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab: its pane, and a count."""

    pane: PaneInfo
    badge: str = ""
    shown: bool = False
    """Whether its pane is visible."""
    active: bool = False
    """Whether it has the focus."""

    def label(self, *, short: bool) -> str:
        """Return its text."""
        badge = f" {self.badge}" if self.badge else ""
        name = self.pane.short if short and self.pane.short else self.pane.name
        return f"{self.pane.key or _NO_KEY} {name}{badge}"


@dataclass(frozen=True, slots=True)
class PlacedTab:
    """A tab with its position and text."""

    row: int
    column: int
    tab: Tab
    label: str


def place_tabs(tabs: tuple[Tab, ...], width: int, rows: int = 1) -> tuple[PlacedTab, ...]:
    """Return the tabs with the longest names that fit: on one line if the short names do, else on two if allowed.

    If not even these fit, only the active tab has a name, the others their keys.
    """
    for short, gap, lines in (
        (False, 3, 1),
        (False, 2, 1),
        (True, 2, 1),
        (True, 1, 1),
        (False, 2, 2),
        (True, 2, 2),
        (True, 1, 2),
    ):
        labels = [tab.label(short=short) for tab in tabs]
        places = _lined_up(labels, gap, width) if lines == 1 else _balanced(labels, gap, width)
        if places and lines <= rows:
            break
    else:
        labels = [tab.label(short=True) if tab.active else tab.pane.key or _NO_KEY for tab in tabs]
        places = _lined_up(labels, 2, width) or [(0, 1)] * len(tabs)
    return tuple(PlacedTab(*at, tab, label) for at, tab, label in zip(places, tabs, labels, strict=True))


def _lined_up(labels: Sequence[str], gap: int, width: int, row: int = 0) -> list[tuple[int, int]]:
    """Return row and column of each label on a line; empty if they do not fit."""
    column, places = 1, list[tuple[int, int]]()
    for label in labels:
        places.append((row, column))
        column += len(label) + gap
    return places if column - gap < width else []


def _balanced(labels: Sequence[str], gap: int, width: int) -> list[tuple[int, int]]:
    """Do the same for two lines, the longer of them as short as possible."""

    def longer(cut: int) -> int:
        return max(sum(map(len, part)) + gap * len(part) for part in (labels[:cut], labels[cut:]))

    cut = min(range(len(labels) + 1), key=longer)
    first, second = _lined_up(labels[:cut], gap, width), _lined_up(labels[cut:], gap, width, 1)
    return [*first, *second] if len(first) + len(second) == len(labels) else []


def tab_lines(tabs: tuple[Tab, ...], width: int, rows: int = 1) -> Content:
    """Return the tabs as lines of that width."""
    placed = place_tabs(tabs, width, rows)
    last = max((placed_tab.row for placed_tab in placed), default=0)
    return Content("\n").join(
        _tab_line([placed_tab for placed_tab in placed if placed_tab.row == row], width) for row in range(last + 1)
    )


def _tab_line(placed: Sequence[PlacedTab], width: int) -> Content:
    parts: list[str | tuple[str, str]] = []
    column = 0
    for placed_tab in placed:
        start, tab, label = placed_tab.column, placed_tab.tab, placed_tab.label
        parts.append(" " * (start - column))
        key, space, rest = label.partition(" ")
        word = "$accent bold underline" if tab.active else ("$foreground bold" if tab.shown else "$text-muted")
        parts += [(key, "$accent bold" if tab.shown or tab.active else "$accent"), (space, ""), (rest, word)]
        column = start + len(label)
    parts.append(" " * max(0, width - column))
    return Content.assemble(*parts)


class TabBar(Widget):
    """The panes and their keys, the active one highlighted; a click goes to a pane.

    Textual's ``Tabs`` scroll out of sight if they do not fit, and cannot mark tabs that are visible but not active.
    """

    DEFAULT_CSS = """
    TabBar {
        height: auto;
        background: $surface;
        text-wrap: nowrap;
    }
    """

    tabs: reactive[tuple[Tab, ...]] = reactive(())

    def watch_tabs(self) -> None:
        """Take up another number of lines, if there is one: a new layout of the screen takes long."""
        if self._lines(self.size.width) != self.size.height:
            self.refresh(layout=True)

    @dataclass
    class Chosen(Message):
        """The tab of a pane was clicked."""

        pane: str

    def render(self) -> Content:
        """Return the line, or two."""
        return tab_lines(self.tabs, self.size.width, self._rows)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002  (Textual's)
        """Return the number of lines for a width."""
        return self._lines(width)

    def _lines(self, width: int) -> int:
        return max((placed_tab.row + 1 for placed_tab in place_tabs(self.tabs, width, self._rows)), default=1)

    @property
    def _rows(self) -> int:
        return 2 if self.app.size.height >= _ROOMY else 1

    def places(self) -> Iterator[tuple[str, Region]]:
        """Yield the panes, and where their tabs are on the screen."""
        left, top = self.region.offset
        for placed_tab in place_tabs(self.tabs, self.size.width, self._rows):
            yield (
                placed_tab.tab.pane.id,
                Region(left + placed_tab.column, top + placed_tab.row, len(placed_tab.label), 1),
            )

    def on_click(self, event: Click) -> None:
        """Go to the clicked pane."""
        for placed_tab in place_tabs(self.tabs, self.size.width, self._rows):
            if event.y == placed_tab.row and placed_tab.column <= event.x < placed_tab.column + len(placed_tab.label):
                self.post_message(self.Chosen(placed_tab.tab.pane.id))


# ---- keys ----

_ORDER: Final = {action.name: place for place, action in enumerate(ACTIONS)}
_PINNED: Final = frozenset(action.name for action in ACTIONS if action.scope == APP)
_BACK: Final = "app.back"


@dataclass(frozen=True, slots=True)
class KeyHint:
    """A key and a word for its action."""

    key: str
    """Textual's name of the key."""
    word: str
    enabled: bool = True

    @property
    def width(self) -> int:
        """Its width."""
        return len(shown_key(self.key)) + 1 + len(self.word)


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry and its first column."""

    hint: KeyHint
    column: int


def place_hints(hints: Sequence[KeyHint], pinned: Sequence[KeyHint], width: int) -> tuple[Placed, ...]:
    """Place entries from the left, and pinned ones at the right end; entries that do not fit are left out.

    Pinned entries are placed first, because they lead to all other keys.
    """
    kept: list[KeyHint] = []
    room = width - 2
    for hint in pinned:
        if hint.width + (_GAP if kept else 0) <= room:
            room -= hint.width + (_GAP if kept else 0)
            kept.append(hint)
    right = width - 1 - sum(hint.width for hint in kept) - _GAP * max(0, len(kept) - 1)
    placed: list[Placed] = []
    column = 1
    for hint in hints:
        if column + hint.width + (_GAP if kept else 0) > right:
            break
        placed.append(Placed(hint, column))
        column += hint.width + _GAP
    for hint in kept:
        placed.append(Placed(hint, right))
        right += hint.width + _GAP
    return tuple(placed)


def key_line(placed: Iterable[Placed], width: int) -> Content:
    """Return the entries as a line of that width."""
    parts: list[str | tuple[str, str]] = []
    column = 0
    for entry in placed:
        parts.append(" " * (entry.column - column))
        parts.append((shown_key(entry.hint.key), "$accent bold" if entry.hint.enabled else "$text-disabled"))
        parts.append((f" {entry.hint.word}", "$foreground" if entry.hint.enabled else "$text-disabled"))
        column = entry.column + entry.hint.width
    parts.append(" " * max(0, width - column))
    return Content.assemble(*parts)


class KeyBar(Widget):
    """The screen's current keys, as many complete entries as fit; a click presses the key.

    Textual's ``Footer`` truncates entries at the edge, including those that lead to all others (help, commands, back).
    """

    DEFAULT_CSS = """
    KeyBar {
        dock: bottom;
        height: 1;
        background: $panel;
        text-wrap: nowrap;
    }
    """

    def on_mount(self) -> None:
        """Subscribe to changes of the screen's bindings."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if screen is self.screen:
            self.refresh()

    def placed(self) -> tuple[Placed, ...]:
        """Return the visible entries with their positions."""
        visible: dict[str, tuple[int, KeyHint, bool]] = {}
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and binding.action not in visible:
                name = binding.id or ""
                last = name == _BACK and self.app.screen_stack[1:2] == [self.screen]
                hint = KeyHint(binding.key, "quit" if last else binding.description, enabled)
                visible[binding.action] = (_ORDER.get(name, -1), hint, name in _PINNED)
        entries = sorted(visible.values(), key=lambda entry: entry[0])
        hints = [hint for _, hint, pinned in entries if not pinned]
        return place_hints(hints, [hint for _, hint, pinned in entries if pinned], self.size.width)

    def render(self) -> Content:
        """Return the line."""
        return key_line(self.placed(), self.size.width)

    def on_click(self, event: Click) -> None:
        """Press the clicked key."""
        for entry in self.placed():
            if entry.column <= event.x < entry.column + entry.hint.width and entry.hint.enabled:
                self.app.simulate_key(entry.hint.key)


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
