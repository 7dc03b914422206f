"""The line that names the panes and their keys; it marks the one in use.

Textual's ``Tabs`` scroll out of sight where they do not fit, know one active tab but none that is also shown, and take
a second line.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


@dataclass(frozen=True, slots=True)
class Tab:
    """One entry: the key that goes there, a name for wide and one for narrow terminals, a count to notice."""

    key: str
    name: str
    short: str
    badge: str = ""
    shown: bool = False
    """Whether its pane is on the screen."""
    active: bool = False
    """Whether it has the focus."""

    def label(self, *, short: bool) -> str:
        """What stands on it."""
        badge = f" {self.badge}" if self.badge else ""
        return f"{self.key} {self.short if short else self.name}{badge}"


def place_tabs(tabs: tuple[Tab, ...], width: int) -> tuple[tuple[int, Tab, str], ...]:
    """Each tab with the column it begins at and its label, by the longer names where they fit."""
    for short, gap in ((False, 3), (True, 2), (True, 1)):
        labels = [tab.label(short=short) for tab in tabs]
        if sum(map(len, labels)) + gap * (len(labels) - 1) + 2 <= width:
            break
    else:
        # Not even the short names fit: the one in use keeps its name, the others their keys.
        gap = 2
        labels = [tab.label(short=True) if tab.active else tab.key for tab in tabs]
    column = 1
    placed: list[tuple[int, Tab, str]] = []
    for tab, label in zip(tabs, labels, strict=True):
        placed.append((column, tab, label))
        column += len(label) + gap
    return tuple(placed)


def tab_line(tabs: tuple[Tab, ...], width: int) -> Content:
    """The tabs as one line."""
    parts: list[str | tuple[str, str]] = []
    column = 0
    for start, tab, label in place_tabs(tabs, width):
        parts.append(" " * (start - column))
        key, space, rest = label.partition(" ")
        word = "$accent bold underline" if tab.active else ("$foreground bold" if tab.shown else "$text-muted")
        parts += [(key, "$accent bold" if tab.shown or tab.active else "$accent"), (space, ""), (rest, word)]
        column = start + len(label)
    parts.append(" " * max(0, width - column))
    return Content.assemble(*parts)


class TabBar(Widget):
    """One line of tabs; a click goes to a pane."""

    DEFAULT_CSS = """
    TabBar {
        height: 1;
        background: $surface;
        text-wrap: nowrap;
    }
    """

    tabs: reactive[tuple[Tab, ...]] = reactive(())

    class Chosen(Message):
        """A tab was clicked. ``key``: its key."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def render(self) -> Content:
        """The line."""
        return tab_line(self.tabs, self.size.width)

    def on_click(self, event: object) -> None:
        """Go to the pane."""
        x = getattr(event, "x", -1)
        for start, tab, label in place_tabs(self.tabs, self.size.width):
            if start <= x < start + len(label):
                self.post_message(self.Chosen(tab.key))
