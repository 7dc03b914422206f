"""The single lines of a screen: its title, the tabs of its panes, and the keys that work now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from blis_tui.classes import dataclass
from blis_tui.tui.actions import ACTIONS, APP, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.events import Click
    from textual.geometry import Size
    from textual.screen import Screen

    from blis_tui.tui.layout import PaneInfo

_GAP: Final = 2
"""Columns at least between two things in a line."""

# ---- title ----

_REMARK = "$text-muted"
"""Style of what can be left out if one blank joins it to what it remarks on: ``paused in the past``."""


def title_line(left: Content, right: Content, width: int) -> Content:
    """Both ends of a line of that many columns.

    Where they do not fit, muted remarks are left out, one after the other from the left; then the left gives way with
    an ellipsis.
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
    """Without the first muted piece that can go; None when there is none."""
    for span in text.spans:
        words = text.plain[span.start : span.end]
        if span.style == _REMARK and words.startswith(" ") and words == f" {words.strip()}":
            return text[: span.start] + text[span.end :]
    return None


class TitleBar(Widget):
    """What a screen shows on the left, how it stands on the right; set ``left`` and ``right``.

    Textual's ``Header`` has one title in the middle, which is cut off where it does not fit.
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
        """The line."""
        return title_line(self.left, self.right, self.size.width)


# ---- tabs ----

_NO_KEY: Final = "·"
"""Where the key would stand of a pane that has none."""
_ROOMY: Final = 20
"""Rows of a terminal from which on the tabs may take two of them."""


@dataclass(frozen=True, slots=True)
class Tab:
    """One entry: its pane, and a count to notice."""

    pane: PaneInfo
    badge: str = ""
    shown: bool = False
    """Whether its pane is on the screen."""
    active: bool = False
    """Whether it has the focus."""

    def label(self, *, short: bool) -> str:
        """What stands on it."""
        badge = f" {self.badge}" if self.badge else ""
        name = self.pane.short if short and self.pane.short else self.pane.name
        return f"{self.pane.key or _NO_KEY} {name}{badge}"


@dataclass(frozen=True, slots=True)
class PlacedTab:
    """A tab, where it begins, and what stands on it."""

    row: int
    column: int
    tab: Tab
    label: str


def place_tabs(tabs: tuple[Tab, ...], width: int, rows: int = 1) -> tuple[PlacedTab, ...]:
    """The tabs by the longest names that fit: in one line if the short ones do, else in two where there are two.

    Where not even these fit, the one in use keeps its name, the others their keys.
    """
    for short, gap, lines in ((False, 3, 1), (True, 2, 1), (True, 1, 1), (False, 2, 2), (True, 2, 2), (True, 1, 2)):
        labels = [tab.label(short=short) for tab in tabs]
        found = _lined_up(labels, gap, width) if lines == 1 else _balanced(labels, gap, width)
        if found and lines <= rows:
            break
    else:
        labels = [tab.label(short=True) if tab.active else tab.pane.key or _NO_KEY for tab in tabs]
        found = _lined_up(labels, 2, width) or [(0, 1)] * len(tabs)
    return tuple(PlacedTab(*at, tab, label) for at, tab, label in zip(found, tabs, labels, strict=True))


def _lined_up(labels: Sequence[str], gap: int, width: int, row: int = 0) -> list[tuple[int, int]]:
    """Row and column of each label of a line; empty when they do not fit."""
    column, found = 1, list[tuple[int, int]]()
    for label in labels:
        found.append((row, column))
        column += len(label) + gap
    return found if column - gap < width else []


def _balanced(labels: Sequence[str], gap: int, width: int) -> list[tuple[int, int]]:
    """The same of two lines, the longer of them as short as can be."""

    def longer(cut: int) -> int:
        return max(sum(map(len, part)) + gap * len(part) for part in (labels[:cut], labels[cut:]))

    cut = min(range(len(labels) + 1), key=longer)
    first, second = _lined_up(labels[:cut], gap, width), _lined_up(labels[cut:], gap, width, 1)
    return [*first, *second] if len(first) + len(second) == len(labels) else []


def tab_lines(tabs: tuple[Tab, ...], width: int, rows: int = 1) -> Content:
    """The tabs as lines of that many columns."""
    placed = place_tabs(tabs, width, rows)
    last = max((one.row for one in placed), default=0)
    return Content("\n").join(_tab_line([one for one in placed if one.row == row], width) for row in range(last + 1))


def _tab_line(placed: Sequence[PlacedTab], width: int) -> Content:
    parts: list[str | tuple[str, str]] = []
    column = 0
    for one in placed:
        start, tab, label = one.column, one.tab, one.label
        parts.append(" " * (start - column))
        key, space, rest = label.partition(" ")
        word = "$accent bold underline" if tab.active else ("$foreground bold" if tab.shown else "$text-muted")
        parts += [(key, "$accent bold" if tab.shown or tab.active else "$accent"), (space, ""), (rest, word)]
        column = start + len(label)
    parts.append(" " * max(0, width - column))
    return Content.assemble(*parts)


class TabBar(Widget):
    """The panes and their keys, the one in use marked; a click goes to a pane.

    Textual's ``Tabs`` scroll out of sight where they do not fit, and know one active tab but none that is also shown.
    """

    DEFAULT_CSS = """
    TabBar {
        height: auto;
        background: $surface;
        text-wrap: nowrap;
    }
    """

    tabs: reactive[tuple[Tab, ...]] = reactive((), layout=True)

    @dataclass
    class Chosen(Message):
        """The tab of a pane was clicked."""

        pane: str

    def render(self) -> Content:
        """The line, or two."""
        return tab_lines(self.tabs, self.size.width, self._rows)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002  (Textual's)
        """How many lines that makes in so many columns."""
        return max((one.row + 1 for one in place_tabs(self.tabs, width, self._rows)), default=1)

    @property
    def _rows(self) -> int:
        return 2 if self.app.size.height >= _ROOMY else 1

    def on_click(self, event: Click) -> None:
        """Go to the pane."""
        for one in place_tabs(self.tabs, self.size.width, self._rows):
            if event.y == one.row and one.column <= event.x < one.column + len(one.label):
                self.post_message(self.Chosen(one.tab.pane.id))


# ---- keys ----

_ORDER: Final = {action.name: place for place, action in enumerate(ACTIONS)}
_PINNED: Final = frozenset(action.name for action in ACTIONS if action.scope == APP)
_BACK: Final = "app.back"


@dataclass(frozen=True, slots=True)
class KeyHint:
    """One entry: a key and the word for what it does."""

    key: str
    """The key as Textual names it."""
    word: str
    enabled: bool = True

    @property
    def width(self) -> int:
        """Columns it takes."""
        return len(shown_key(self.key)) + 1 + len(self.word)


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry and the column it begins at."""

    hint: KeyHint
    column: int


def place_hints(hints: Sequence[KeyHint], pinned: Sequence[KeyHint], width: int) -> tuple[Placed, ...]:
    """Put entries from the left, the pinned ones at the right end; whatever does not fit whole is left out.

    The pinned ones go first into the room: they lead to all the others.
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
    """The entries as one line of that many columns."""
    parts: list[str | tuple[str, str]] = []
    column = 0
    for one in placed:
        parts.append(" " * (one.column - column))
        parts.append((shown_key(one.hint.key), "$accent bold" if one.hint.enabled else "$text-disabled"))
        parts.append((f" {one.hint.word}", "$foreground" if one.hint.enabled else "$text-disabled"))
        column = one.column + one.hint.width
    parts.append(" " * max(0, width - column))
    return Content.assemble(*parts)


class KeyBar(Widget):
    """The keys of the screen that work now, as many whole entries as fit; a click presses the key.

    Textual's ``Footer`` cuts entries off at the edge, and the way to all others (help, commands, back) with them.
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
        """Follow the screen's bindings."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if screen is self.screen:
            self.refresh()

    def placed(self) -> tuple[Placed, ...]:
        """What is shown where."""
        found: dict[str, tuple[int, KeyHint, bool]] = {}
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and binding.action not in found:
                name = binding.id or ""
                last = name == _BACK and self.app.screen_stack[1:2] == [self.screen]
                hint = KeyHint(binding.key, "quit" if last else binding.description, enabled)
                found[binding.action] = (_ORDER.get(name, -1), hint, name in _PINNED)
        entries = sorted(found.values(), key=lambda entry: entry[0])
        hints = [hint for _, hint, pinned in entries if not pinned]
        return place_hints(hints, [hint for _, hint, pinned in entries if pinned], self.size.width)

    def render(self) -> Content:
        """The line."""
        return key_line(self.placed(), self.size.width)

    def on_click(self, event: Click) -> None:
        """Press the key that was clicked."""
        for one in self.placed():
            if one.column <= event.x < one.column + one.hint.width and one.hint.enabled:
                self.app.simulate_key(one.hint.key)
