"""The keys of the screen below, as a list that also runs actions.

Textual's ``HelpPanel`` needs room beside the screen, and can be neither searched nor used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual import on
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from blis_tui.base.classes import dataclass
from blis_tui.tui.actions import ACTIONS, APP, DIALOG, bindings, named, shown_keys
from blis_tui.tui.bars import CursorList, KeyBar
from blis_tui.tui.screens.windows import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.events import Resize

    from blis_tui.tui.actions import Action


KEY_WIDTH: Final = 9
"""Width of the keys."""


@dataclass(frozen=True, slots=True)
class Group:
    """A heading with its actions."""

    title: str
    actions: tuple[Action, ...]


def groups(
    scope: str,
    keys: Mapping[str, tuple[str, ...]],
    query: str = "",
    usable: Callable[[Action], bool] = lambda _action: True,
) -> tuple[Group, ...]:
    """Return the actions of a screen by heading, the screen's own first.

    Args:
        scope: the screen's scope.
        keys: action name -> keys, including the user's own.
        query: words that must all occur in an action's keys, title, sentence or heading.
        usable: whether an action can currently be run.
    """
    scopes = (scope,) if scope == DIALOG else (scope, APP)
    by_title: dict[str, list[Action]] = {}
    words = query.lower().split()
    for wanted in dict.fromkeys(scopes):
        for action in ACTIONS:
            if action.scope == wanted and usable(action) and _matches(action, keys.get(action.name, ()), words):
                by_title.setdefault(action.group, []).append(action)
    return tuple(Group(title, tuple(actions)) for title, actions in by_title.items())


def _matches(action: Action, keys: tuple[str, ...], words: Sequence[str]) -> bool:
    text = f"{shown_keys(keys)} {action.name} {action.title} {action.help} {action.group}".lower()
    return all(word in text for word in words)


def split_columns(sections: Sequence[Group], columns: int) -> tuple[tuple[Group, ...], ...]:
    """Divide the groups into columns of about equal height."""
    if columns == 1 or len(sections) < 2:
        return (tuple(sections),)
    sizes = [len(group.actions) + 2 for group in sections]
    best = min(range(1, len(sections)), key=lambda at: (max(sum(sizes[:at]), sum(sizes[at:])), at))
    return (tuple(sections[:best]), tuple(sections[best:]))


def action_row(action: Action, keys: tuple[str, ...]) -> Content:
    """Return an action's keys and its sentence."""
    return Content.assemble((f"{_keys(keys):>{KEY_WIDTH}}", "$accent bold"), "  ", action.help)


def _keys(keys: tuple[str, ...]) -> str:
    """Return as many keys as fit, at least the first one."""
    fitting = [count for count in range(1, len(keys) + 1) if len(shown_keys(keys[:count])) <= KEY_WIDTH]
    return shown_keys(keys[: max(fitting, default=1)])


def heading(title: str) -> Content:
    """Return a group's heading."""
    return Content.styled(title, "$text-muted bold")


_TWO_COLUMNS: Final = 132
"""Width of the terminal from which the list has two columns."""
_AROUND: Final = 6
"""Lines of the window besides actions."""


class _Actions(CursorList, can_focus=False):
    """One column; the screen has the keys, and the filter keeps the focus."""


class HelpScreen(Window["Action | None"]):
    """The available actions; the result is the action to run, or None.

    Args:
        scope: scope of the screen below.
        title: name of that screen.
        keys: action name -> keys.
        usable: whether an action can currently be run.
    """

    BINDINGS = [  # noqa: RUF012  (Textual's convention)
        *bindings(DIALOG),
        Binding("f1", "dialog_close", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("tab,shift+tab", "other_column", "other column", priority=True),
        Binding("enter", "run", "run", priority=True),
    ]
    DEFAULT_CSS = """
    HelpScreen {
        & > Vertical { width: 78; max-width: 98%; }
        &.-two > Vertical { width: 150; }
        Input { padding: 0 1; background: $panel; margin-bottom: 1; }
        Horizontal { height: 1fr; }
        _Actions, _Actions:focus { width: 1fr; height: 100%; border: none; padding: 0; background: $surface; }
        _Actions > .option-list--option-disabled { color: $text-muted; }
        _Actions > .option-list--option-highlighted {
            background: $block-cursor-background;
            color: $block-cursor-foreground;
        }
        #right { display: none; }
        &.-two #right { display: block; }
        #none { display: none; color: $text-muted; height: 1fr; }
        &.-none #none { display: block; }
        &.-none Horizontal { display: none; }
    }
    """

    def __init__(
        self,
        scope: str,
        title: str,
        keys: Mapping[str, tuple[str, ...]],
        usable: Callable[[Action], bool],
    ) -> None:
        super().__init__()
        self._scope = scope
        self._title = title
        self._keys = keys
        self._usable = usable

    def compose(self) -> ComposeResult:
        """Create filter and lists."""
        with Vertical() as window:
            window.border_title = Content(f"Keys: {self._title}")
            yield Input(placeholder="type to find a key; enter runs it", compact=True)
            yield Static("No match. Delete a letter to see more keys.", id="none")
            with Horizontal():
                yield _Actions(id="left")
                yield _Actions(id="right")
        yield KeyBar()

    def on_mount(self) -> None:
        """Show all actions."""
        self._fill()
        self._fit()

    def _fit(self) -> None:
        """Set the height for all actions; filtering does not change it."""
        rows = max(column.option_count for column in self._columns())
        self.query_one(Vertical).styles.height = rows + _AROUND

    def on_resize(self, _event: Resize) -> None:
        """Choose one column or two."""
        two = self.app.size.width >= _TWO_COLUMNS
        if two != self.has_class("-two"):
            self.set_class(two, "-two")
            self.refresh_bindings()
            self._fill()
            self._fit()

    @on(Input.Changed)
    def _fill(self) -> None:
        sections = groups(self._scope, self._keys, self.query_one(Input).value, self._usable)
        self.set_class(not sections, "-none")
        columns = split_columns(sections, 2 if self.has_class("-two") else 1)
        for at, column in enumerate(self._columns()):
            self._show(column, columns[at] if at < len(columns) else ())
        self._choose(0, 0)

    def _show(self, column: _Actions, sections: tuple[Group, ...]) -> None:
        column.clear_options()
        for number, group in enumerate(sections):
            if number:
                column.add_option(Option("", disabled=True))
            column.add_option(Option(heading(group.title), disabled=True))
            for action in group.actions:
                column.add_option(Option(action_row(action, self._keys.get(action.name, ())), id=action.name))

    def _columns(self) -> tuple[_Actions, _Actions]:
        return self.query_one("#left", _Actions), self.query_one("#right", _Actions)

    def _choose(self, column: int, near: int) -> None:
        """Move the cursor into a column, to the action at a row or the next one."""
        for at, actions in enumerate(self._columns()):
            if at != column:
                actions.highlighted = None
        chosen = self._columns()[column]
        rows = [at for at, option in enumerate(chosen.options) if not option.disabled]
        chosen.highlighted = min(rows, key=lambda row: abs(row - near)) if rows else None
        if near == 0:
            chosen.scroll_home(animate=False)

    def _current(self) -> tuple[int, int] | None:
        """Return column and row of the cursor."""
        for at, column in enumerate(self._columns()):
            if column.highlighted is not None:
                return at, column.highlighted
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  (Textual's)
        """Disable the other column if there is none."""
        return action != "other_column" or self.has_class("-two")

    def action_move(self, rows: int) -> None:
        """Move the cursor by some actions."""
        current = self._current()
        if current is None:
            return
        column = self._columns()[current[0]]
        actions = [at for at, option in enumerate(column.options) if not option.disabled]
        place = max(0, min(actions.index(current[1]) + rows, len(actions) - 1))
        column.highlighted = actions[place]
        if place == 0:
            column.scroll_home(animate=False)

    def action_other_column(self) -> None:
        """Move the cursor into the other column."""
        current = self._current()
        if current is not None and self._columns()[1 - current[0]].option_count:
            self._choose(1 - current[0], current[1])

    def action_run(self) -> None:
        """Close, and run the selected action."""
        current = self._current()
        if current is not None:
            self._leave_with(self._columns()[current[0]].options[current[1]].id)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._leave_with(event.option_id)

    def _leave_with(self, name: str | None) -> None:
        if name is not None:
            self.dismiss(named(name))

    def action_dialog_close(self) -> None:
        """Clear the filter; without one, close."""
        words = self.query_one(Input)
        if words.value:
            words.value = ""
        else:
            self.dismiss(None)
