"""Keys of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blis_tui.tui.actions import ACTIONS
from blis_tui.tui.app import BlisApp
from blis_tui.tui.settings import default_keymap, is_key, load_keymap
from tests.tui.screens import press, screen_text, settle

if TYPE_CHECKING:
    from pathlib import Path

    from blis_tui.tui.settings import Keymap


def load(tmp_path: Path, text: str) -> Keymap:
    folder = tmp_path / "config"
    folder.mkdir(exist_ok=True)
    (folder / "keys.yaml").write_text(text, encoding="utf-8")
    return load_keymap(folder)


def test_no_file_changes_nothing(tmp_path: Path) -> None:
    assert load_keymap(tmp_path / "none") == default_keymap()


def test_keys_replace_those_of_the_table(tmp_path: Path) -> None:
    keymap = load(
        tmp_path, "step.event: n, j\nrun.toggle: [c, f5]\nhome.reload: 8\nstep.back: ','\nlook.previous_hit: ';'\n"
    )
    assert keymap.problems == ()
    assert keymap.changed == {
        "step.event": ("n", "j"),
        "run.toggle": ("c", "f5"),
        "home.reload": ("8",),
        "step.back": (",",),
        "look.previous_hit": (";",),
    }
    assert keymap.keys["step.phase"] == ("s",)
    assert list(keymap.keys) == [action.name for action in ACTIONS]


def test_two_actions_may_trade_keys(tmp_path: Path) -> None:
    keymap = load(tmp_path, "step.event: s\nstep.phase: n\n")
    assert keymap.problems == ()
    assert keymap.keys["step.event"] == ("s",)
    assert keymap.keys["step.phase"] == ("n",)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("step.evnt: n\n", 1, "there is no action `step.evnt`; did you mean `step.event`?"),
        ("\nstep.event: s\n", 2, "the key s of `step.event` already runs `step.phase`"),
        ("step.event: [j, q]\n", 1, "the key q of `step.event` already runs `app.back`"),
        ("app.help: n\n", 1, "the key n of `app.help` already runs `home.new`"),
        ("step.event: pagdown\n", 1, "there is no key `pagdown`; did you mean `pagedown`?"),
        ("step.event: ctl+n\n", 1, "there is no key `ctl+n`"),
        ("step.event:\n", 1, "`step.event` needs a key"),
        ("step.event: ''\n", 1, "`step.event` needs a key"),
        ("step.event: {a: b}\n", 1, "`step.event` needs a key"),
        ("step.event: yes\nstep.event: no\n", 2, "key `step.event` appears twice"),
        ("step.event: [n\n", 1, "not valid YAML"),
        ("- n\n", 1, "expected lines such as `step.event: n, j`"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, line: int, said: str) -> None:
    keymap = load(tmp_path, text)
    assert len(keymap.problems) == 1
    assert keymap.problems[0].startswith(f"{tmp_path / 'config' / 'keys.yaml'}:{line}: ")
    assert said in keymap.problems[0]
    assert keymap.keys == default_keymap().keys


def test_the_rest_of_a_wrong_file_applies(tmp_path: Path) -> None:
    keymap = load(tmp_path, "step.nothing: j\nstep.event: j\nstep.phase: j\n")
    assert keymap.changed == {"step.event": ("j",)}
    assert [problem.rpartition("keys.yaml:")[2][0] for problem in keymap.problems] == ["1", "3"]


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").mkdir()
    keymap = load_keymap(tmp_path)
    assert keymap.keys == default_keymap().keys
    assert "cannot read" in keymap.problems[0]


@pytest.mark.parametrize("key", ["n", "?", "ü", "ctrl+n", "shift+tab", "f12", "question_mark", "alt+x", "+", "ctrl+up"])
def test_keys_a_terminal_sends(key: str) -> None:
    assert is_key(key)


@pytest.mark.parametrize("key", ["", " ", "nn", "ctrl+", "ctrl+ctrl+n", "ctrl", "hyper+", "f99", "+n", "<any>"])
def test_keys_no_terminal_sends(key: str) -> None:
    assert not is_key(key)


async def test_own_keys_work_and_are_shown(tmp_path: Path, lab: Path) -> None:
    load(tmp_path, "app.help: f2\nhome.search: j\nhome.new: zz\n")
    app = BlisApp()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        assert "j search" in screen_text(app)
        assert "f2 help" in screen_text(app)
        # Where the line breaks, between the words or not, depends on the path of the file.
        assert "`zz`" in screen_text(app)
        assert any("there is no key `zz`" in notice.message for notice in app._notifications)
        await press(pilot, "slash")
        assert not app.screen.has_class("-searching")
        await press(pilot, "j")
        assert app.screen.has_class("-searching")
        await press(pilot, "escape", "f2")
        assert "j  Type part of a name" in screen_text(app)
