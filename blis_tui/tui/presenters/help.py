"""The actions of a screen as lists to read and to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from blis_tui.classes import dataclass
from blis_tui.tui.actions import ACTIONS, APP, DIALOG, shown_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    found: dict[str, list[Action]] = {}
    words = query.lower().split()
    for wanted in dict.fromkeys(scopes):
        for action in ACTIONS:
            if action.scope == wanted and usable(action) and _matches(action, keys.get(action.name, ()), words):
                found.setdefault(action.group, []).append(action)
    return tuple(Group(title, tuple(actions)) for title, actions in found.items())


def _matches(action: Action, keys: tuple[str, ...], words: Sequence[str]) -> bool:
    text = f"{shown_keys(keys)} {action.name} {action.title} {action.help} {action.group}".lower()
    return all(word in text for word in words)


def split_columns(found: Sequence[Group], columns: int) -> tuple[tuple[Group, ...], ...]:
    """Divide the groups into columns of about equal height."""
    if columns == 1 or len(found) < 2:
        return (tuple(found),)
    sizes = [len(group.actions) + 2 for group in found]
    best = min(range(1, len(found)), key=lambda at: (max(sum(sizes[:at]), sum(sizes[at:])), at))
    return (tuple(found[:best]), tuple(found[best:]))


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
