"""The table of actions."""

from __future__ import annotations

import pytest
from textual.binding import Binding, BindingsMap

from blis_tui.tui.actions import ACTIONS, APP, DIALOG, Action, bindings, named, of_scope, shown_key, shown_keys
from blis_tui.tui.screens.help import KEY_WIDTH
from blis_tui.tui.settings import is_key, scopes_overlap

SCOPES = tuple(dict.fromkeys(action.scope for action in ACTIONS))
HELP_WIDTH = 53
"""Columns for a sentence in the help, where it has two columns."""


def test_names_are_unique_and_dotted() -> None:
    names = [action.name for action in ACTIONS]
    assert len(dict.fromkeys(names)) == len(names)
    assert all(name.count(".") == 1 and name.isascii() and name == name.lower() for name in names)
    assert len({action.handler for action in ACTIONS}) == len(names)


@pytest.mark.parametrize("scope", SCOPES)
def test_no_key_does_two_things(scope: str) -> None:
    keys = [shown_key(key) for action in ACTIONS if scopes_overlap(action.scope, scope) for key in action.keys]
    if scope == APP:
        keys = [shown_key(key) for action in of_scope(APP) for key in action.keys]
    assert sorted(dict.fromkeys(keys)) == sorted(keys)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_every_action_can_be_read(action: Action) -> None:
    assert action.title
    assert not action.title.endswith(".")
    assert action.help[0].isupper()
    assert action.help.endswith(".")
    assert action.help.count(". ") == 0
    assert len(action.help) <= HELP_WIDTH
    assert len(shown_keys(action.keys[:1])) <= KEY_WIDTH
    assert len(action.footer) <= 12
    assert all(is_key(key) for key in action.keys)


def test_bindings_carry_what_rebinding_and_tooltips_need() -> None:
    for scope in SCOPES:
        table = {action.name: action for action in of_scope(scope)}
        for binding in bindings(scope):
            assert isinstance(binding, Binding)
            action = table[str(binding.id)]
            assert binding.action == action.handler
            assert binding.tooltip == action.help
            assert binding.show == bool(action.footer)
        assert {binding.id for binding in bindings(scope) if isinstance(binding, Binding)} == {
            name for name, action in table.items() if action.keys
        }


def test_every_key_survives_textual_s_own_reading_of_it() -> None:
    """A comma separates keys in Textual; as a key it needs its name."""
    keys = BindingsMap(bindings("debugger")).key_to_bindings
    assert keys["comma"][0].id == "look.previous_hit"
    assert keys["left_square_bracket"][0].id == "step.back"
    assert sum(len(key) for key in keys.values()) == sum(len(action.keys) for action in of_scope("debugger"))


def test_windows_cut_off_everything_else() -> None:
    assert not scopes_overlap(DIALOG, APP)
    assert scopes_overlap("home", APP)
    assert not scopes_overlap("home", "debugger")


@pytest.mark.parametrize(
    ("key", "text"),
    [("ctrl+p", "^p"), ("question_mark", "?"), ("?", "?"), ("enter", "enter"), ("shift+f3", "shift+f3"), ("+", "+")],
)
def test_keys_are_shown_as_people_write_them(key: str, text: str) -> None:
    assert shown_key(key) == text


def test_the_keys_that_were_promised() -> None:
    assert named("ask.why").keys == ("?",)
    assert set(named("app.help").keys) == {"f1", "h"}
    assert named("copy.value").keys == ("y",)
    assert named("copy.path").keys == ("Y",)
    assert named("break.watch").keys == ("w",)
