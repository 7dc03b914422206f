"""The last line of a screen: the keys that work now, as many whole entries as fit.

Textual's ``Footer`` cuts entries off at the edge, and the way to all others (help, commands, back) with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.widget import Widget

from blis_tui.tui.actions import ACTIONS, APP, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.events import Click
    from textual.screen import Screen

_ORDER: Final = {action.name: place for place, action in enumerate(ACTIONS)}
_PINNED: Final = frozenset(action.name for action in ACTIONS if action.scope == APP)
_BACK: Final = "app.back"
_GAP: Final = 2


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
    """The keys of the screen it is on; a click presses the key."""

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
