"""What all screens share: help, palette, themes, sizes, defects."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import combinations
from math import dist
from operator import mul
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from textual.color import Color
from textual.command import CommandList, CommandPalette
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Button, Input, OptionList, Static

from blis_tui.base.errors import InputError
from blis_tui.spec.load import load
from blis_tui.spec.shipped import data_root, shipped_specs
from blis_tui.tui.actions import ACTIONS, named
from blis_tui.tui.app import BlisApp, Start
from blis_tui.tui.bars import KeyBar, KeyHint, key_line, place_hints, title_line
from blis_tui.tui.catalog import is_searched
from blis_tui.tui.editor import edit, editor_command, read_only
from blis_tui.tui.screens.error import CrashScreen, ErrorScreen
from blis_tui.tui.screens.help import HelpScreen, groups, split_columns
from blis_tui.tui.screens.home import ExperimentList, HomeScreen
from blis_tui.tui.screens.windows import SmallScreen, small_text
from blis_tui.tui.settings import DARK, LIGHT, default_keymap, default_theme
from blis_tui.tui.shell import PaletteEntry
from tests.tui.screens import check_screen, press, screen_text, settle
from tests.tui.stubs import PLAIN, Opened, replace_screens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_regressions.file_regression import FileRegressionFixture
    from textual.app import ComposeResult
    from textual.theme import Theme

SIZES = [(80, 24), (140, 40)]


def top(app: BlisApp) -> object:
    """The screen on top; the type checker must not believe that it stays."""
    return app.screen


# ---- help ----


def test_help_lists_the_screen_s_own_actions_first() -> None:
    keys = default_keymap().keys
    found = groups("home", keys)
    assert found[-1].title == "Everywhere"
    listed = [action.name for group in found for action in group.actions]
    assert sorted(listed) == sorted(action.name for action in ACTIONS if action.scope in ("home", "app"))
    assert [action.name for group in groups("dialog", keys) for action in group.actions] == ["dialog.close"]


def test_help_is_filtered_by_words_in_any_order() -> None:
    keys = default_keymap().keys
    assert [group.actions for group in groups("home", keys, "name part")] == [(named("home.search"),)]
    assert groups("home", keys, "nothing like it") == ()
    assert groups("home", keys, "", lambda action: action.name == "app.quit")[0].actions == (named("app.quit"),)


def test_columns_keep_groups_whole_and_are_about_equal() -> None:
    found = groups("debugger", default_keymap().keys)
    left, right = split_columns(found, 2)
    assert (*left, *right) == found
    heights = [sum(len(group.actions) + 2 for group in column) for column in (left, right)]
    assert abs(heights[0] - heights[1]) <= max(len(group.actions) + 2 for group in found)


@pytest.mark.parametrize("size", SIZES)
async def test_help_of_home(lab: Path, file_regression: FileRegressionFixture, size: tuple[int, int]) -> None:
    app = BlisApp()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await press(pilot, "h")
        await check_screen(pilot, file_regression, "help-home")


async def test_help_runs_what_is_chosen(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "f1", *"new")
        assert isinstance(top(app), HelpScreen)
        await press(pilot, "enter")
        assert "New experiment" in screen_text(app)


async def test_help_moves_with_arrows_over_headings_and_columns(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "h")
        left, right = app.screen.query(OptionList)

        def chosen() -> str | None:
            option = left.highlighted_option or right.highlighted_option
            return None if option is None else option.id

        assert chosen() == "home.open"
        await press(pilot, "down", "down")
        assert chosen() == "home.search"
        await press(pilot, "pageup")
        assert chosen() == "home.open"
        await press(pilot, "tab")
        assert left.highlighted is None
        assert chosen() == "home.edit"
        await press(pilot, "pagedown")
        assert chosen() == "app.quit"
        await press(pilot, *"zzz")
        assert "No match" in screen_text(app)
        await press(pilot, "enter", "down")
        assert isinstance(top(app), HelpScreen)
        await press(pilot, "escape")
        assert app.screen.query_one(Input).value == ""
        await press(pilot, "escape")
        assert isinstance(top(app), HomeScreen)


# ---- palette and themes ----


async def test_the_palette_runs_actions_and_opens_experiments(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_screens(monkeypatch)
    app = BlisApp()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await press(pilot, "ctrl+p")
        assert "Open: open" in screen_text(app)
        assert "(enter)" in screen_text(app)
        await press(pilot, *"open burst")
        await press(pilot, "enter")
        await settle(pilot)
        assert isinstance(app.screen, Opened)
        assert app.screen.named["source"] == "burst"


async def test_a_chosen_theme_is_remembered(lab: Path, tmp_path: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        assert app.theme == "blis-dark"
        assert not (tmp_path / "state").exists()
        await press(pilot, "ctrl+p", *"theme nord")
        await press(pilot, "enter")
        assert app.theme == "nord"
    assert json.loads((tmp_path / "state" / "settings.json").read_text()) == {"theme": "nord"}
    again = BlisApp()
    async with again.run_test(size=(80, 24)):
        assert again.theme == "nord"


@pytest.mark.parametrize("text", ["", "[]", '{"theme": 3}', '{"theme": "gone"}', "\x00"])
async def test_a_damaged_memory_means_the_default(lab: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "settings.json").write_text(text)
    assert BlisApp().theme == "blis-dark"


async def test_a_theme_that_cannot_be_remembered_is_used_all_the_same(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    app = BlisApp()
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await settle(pilot)
        app.theme = "blis-light"
        await settle(pilot)
        assert app.theme == "blis-light"
        assert "could not be saved" in screen_text(app)


async def test_every_theme_works_on_the_first_screen(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        names = app.theme_names()
        assert names[:2] == ("blis-dark", "blis-light")
        assert {"ansi-dark", "ansi-light", "dracula", "textual-dark"} <= set(names)
        before = screen_text(app)
        for name in names:
            app.theme = name
            await settle(pilot)
            assert screen_text(app) == before


def contrast(one: Color, other: Color) -> float:
    """Contrast ratio of WCAG 2."""

    def luminance(color: Color) -> float:
        parts = [part / 255 for part in (color.r, color.g, color.b)]
        r, g, b = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
@pytest.mark.parametrize(
    "text", ["foreground", "text-muted", "primary", "secondary", "accent", "success", "warning", "error"]
)
@pytest.mark.parametrize(
    "below", ["background", "surface", "panel", "block-cursor-background", "block-cursor-blurred-background"]
)
def test_text_can_be_read_on_every_ground(theme: Theme, text: str, below: str) -> None:
    colors = theme.to_color_system().generate()
    assert contrast(Color.parse(colors[text]), Color.parse(colors[below])) >= 4.5


SEEN_BY: Final[Mapping[str, tuple[tuple[float, float, float], ...]]] = {
    "full colour vision": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""What linear RGB becomes (Machado, Oliveira and Fernandes 2009, severity 1)."""


def seen(color: Color, matrix: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """A colour in CIELAB, as somebody sees it."""
    parts = [part / 255 for part in (color.r, color.g, color.b)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    r, g, b = (min(max(sum(map(mul, row, linear)), 0.0), 1.0) for row in matrix)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
@pytest.mark.parametrize("who", SEEN_BY)
def test_colours_are_told_apart_whoever_looks(theme: Theme, who: str) -> None:
    """A difference of 2.3 is just noticed side by side; these are apart by five times that."""
    names = ("primary", "secondary", "accent", "success", "warning", "error", "foreground")
    colors = theme.to_color_system().generate()
    for one, other in combinations(names, 2):
        pair = [seen(Color.parse(colors[name]), SEEN_BY[who]) for name in (one, other)]
        assert dist(*pair) > 11.5, (one, other)


async def test_without_colours_the_meaning_stays(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert app.no_color
        assert "✗ 4 errors" in screen_text(app)
        assert "✓ ok" in screen_text(app)
        assert reversed_rows(app) == ["broken"]


async def test_in_the_terminal_s_own_colours_the_cursor_can_be_read(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert reversed_rows(app) == []
        app.theme = "ansi-light"
        await settle(pilot)
        assert reversed_rows(app) == ["broken"]


def reversed_rows(app: BlisApp) -> list[str]:
    """The first words of the rows of the list that are shown the other way round."""
    rows = app.screen.query_one(ExperimentList)
    strips = [rows.render_line(y) for y in range(rows.size.height)]
    turned = [strip for strip in strips if all(one.style and one.style.reverse for one in strip if one.text.strip())]
    return [strip.text.split()[0] for strip in turned if strip.text.strip()]


# ---- the lines at the top and the bottom ----


def test_keys_that_do_not_fit_are_left_out_whole() -> None:
    hints = [KeyHint(key, "word" * 3) for key in "abcdef"]
    pinned = [KeyHint("h", "help"), KeyHint("ctrl+p", "commands")]
    for width in range(20, 140):
        line = key_line(place_hints(hints, pinned, width), width)
        assert line.cell_length == width
        words = str(line).split()
        assert words[-4:] == ["h", "help", "^p", "commands"] or width < 22
        assert all(word in ("word" * 3, "h", "help", "^p", "commands", *"abcdef") for word in words)
    assert "f wordwordword" in str(key_line(place_hints(hints, pinned, 140), 140))


def test_a_title_gives_way_on_the_left() -> None:
    line = title_line(Content("a long name of something"), Content("right"), 20)
    assert str(line) == " a long nam…  right "
    assert str(title_line(Content("left"), Content("right"), 20)) == " left         right "


def test_a_title_leaves_out_remarks_before_it_is_cut() -> None:
    muted = "$text-muted"
    left = Content.assemble(("run", "bold"), ("  seed 42", muted), "  ", ("event ", muted), "12", (" of 99", muted))
    right = Content.assemble("paused", (" in the past", muted))
    shown = [str(title_line(left, right, width)).split() for width in (52, 46, 36, 28)]
    assert [" ".join(words) for words in shown] == [
        "run seed 42 event 12 of 99 paused in the past",
        "run seed 42 event 12 paused in the past",
        "run seed 42 event 12 paused",
        "run seed 42 eve… paused",
    ]


async def test_a_click_on_a_key_presses_it(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        bar = app.screen.query_one(KeyBar)
        column = next(one.column for one in bar.placed() if one.hint.word == "help")
        await pilot.click(KeyBar, offset=(column, 0))
        await settle(pilot)
        assert isinstance(top(app), HelpScreen)


# ---- sizes ----


def test_even_the_sentence_of_a_tiny_terminal_fits() -> None:
    assert small_text(58, 14) == "terminal too small (need 60x16, have 58x14)"
    for width in range(5, 60):
        for height in range(2, 16):
            lines = small_text(width, height).splitlines()
            assert len(lines) <= height, (width, height)
            assert max(map(len, lines)) <= width, (width, height)
            assert any("60x16" in line for line in lines), (width, height)
    assert small_text(9, 3) == "need\n60x16"


async def test_nothing_that_was_said_covers_the_sentence_of_a_tiny_terminal(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        app.notify("something", markup=False)
        await settle(pilot)
        assert "something" in screen_text(app)
        await pilot.resize_terminal(40, 10)
        await settle(pilot)
        assert screen_text(app).split() == ["terminal", "too", "small", "(need", "60x16,", "have", "40x10)"]
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        assert "something" in screen_text(app)


async def test_only_the_latest_is_said_and_nothing_twice(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        for word in ("one", "two", "one", "three", "one", "one"):
            app.notify(f"this is {word}", markup=False)
        await settle(pilot)
        assert [note.message for note in app._notifications] == ["this is three", "this is one"]
        assert [line.split("▌")[1].strip() for line in screen_text(app).splitlines() if "▌" in line] == [
            "this is three",
            "this is one",
        ]


async def test_a_small_terminal_says_so_on_every_screen_and_all_comes_back(
    lab: Path, file_regression: FileRegressionFixture
) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "n", *"mi")
        before = screen_text(app)
        await pilot.resize_terminal(58, 14)
        await settle(pilot)
        await check_screen(pilot, file_regression, "small")
        await press(pilot, "q", "n", "escape")
        await pilot.resize_terminal(59, 40)
        await settle(pilot)
        assert "have 59x40" in screen_text(app)
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        assert screen_text(app) == before
        await press(pilot, "escape")
        assert isinstance(top(app), HomeScreen)


async def test_beginning_too_small(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(30, 8)) as pilot:
        await settle(pilot)
        assert isinstance(top(app), SmallScreen)
        await pilot.resize_terminal(120, 30)
        await settle(pilot)
        assert isinstance(top(app), HomeScreen)
        assert app.screen.has_class("-normal")
        assert "In this folder" in screen_text(app)


# ---- opening ----


async def test_beginning_with_an_experiment(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_screens(monkeypatch)
    start = Start(experiment=load("quickstart"), source="quickstart", at="12", breaks=("preempted",))
    app = BlisApp(start)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert isinstance(app.screen, Opened)
        assert (
            app.screen.named == {"source": "quickstart", "at": "12", "breaks": ("preempted",), "overrides": ()} | PLAIN
        )
        await pilot.press("q")
        assert app.return_code == 0


async def test_reloading_keeps_what_the_command_line_said(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_screens(monkeypatch)
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_experiment("mine.blis.yaml", ("cluster.instances=3",), seed=5)
        await settle(pilot)
        first = app.screen
        app.reopen_experiment("mine.blis.yaml", at="77")
        await settle(pilot)
        assert isinstance(app.screen, Opened)
        assert app.screen is not first
        assert len(app.screen_stack) == 3
        experiment = app.screen.arguments[0]
        assert (getattr(experiment, "seed", 0), app.screen.named["at"]) == (5, "77")
        assert experiment == load("mine.blis.yaml", overrides=("cluster.instances=3",), seed=5)
        (lab / "mine.blis.yaml").write_text("kind: [")
        app.reopen_experiment("mine.blis.yaml")
        await settle(pilot)
        assert isinstance(top(app), ErrorScreen)


async def test_what_no_file_is_to_blame_for(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        app.open_experiment("quickstrt")
        await settle(pilot)
        assert "no experiment is named `quickstrt`" in screen_text(app)
        assert "did you mean `quickstart`?" in screen_text(app)
        await press(pilot, "e")
        assert "The problem is in the command" in screen_text(app)


async def test_goldens_open_from_anywhere(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_screens(monkeypatch)
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "G", "G")
        assert len(app.screen_stack) == 3
        await press(pilot, "ctrl+c", "q")
        assert isinstance(top(app), HomeScreen)


# ---- editors ----


@pytest.mark.parametrize(
    ("editor", "command"),
    [
        ("vim", ["vim", "+7", "x.yaml"]),
        ("/usr/bin/nano -w", ["/usr/bin/nano", "-w", "+7", "x.yaml"]),
        ("hx", ["hx", "x.yaml:7"]),
        ("code --wait", ["code", "--wait", "--goto", "x.yaml:7"]),
        ("code", ["code", "--wait", "--goto", "x.yaml:7"]),
        ("gedit", ["gedit", "x.yaml"]),
        ("'my editor' -a", ["my editor", "-a", "x.yaml"]),
    ],
)
def test_editors_open_at_the_line(editor: str, command: list[str]) -> None:
    assert editor_command(Path("x.yaml"), 7, {"EDITOR": editor}) == command
    assert editor_command(Path("x.yaml"), 7, {"EDITOR": "other", "VISUAL": editor}) == command


def test_no_editor_no_command(tmp_path: Path) -> None:
    assert editor_command(tmp_path, 7, {"EDITOR": " "}) == []


@pytest.mark.parametrize(
    ("editor", "said"),
    [
        ("false", "ended with exit code 1"),
        ("no-such-editor", "cannot be started"),
        ("'unclosed", "is not a command"),
    ],
)
async def test_an_editor_that_fails_is_explained(
    lab: Path, monkeypatch: pytest.MonkeyPatch, editor: str, said: str
) -> None:
    monkeypatch.setenv("EDITOR", editor)
    app = BlisApp()
    async with app.run_test(size=(80, 24)):
        monkeypatch.setattr(app, "suspend", nullcontext)
        assert said in edit(app, lab / "mine.blis.yaml")


@pytest.mark.parametrize(
    ("shipped", "copy"),
    [
        ("experiments/burst.blis.yaml", "blis-tui spec show burst > my-burst.blis.yaml"),
        ("models/qwen3-14b.yaml", "blis-tui spec show --kind model qwen3-14b > my-qwen3-14b.yaml"),
        ("studies/order-and-load.study.yaml", "spec show --kind study order-and-load > my-order-and-load.study.yaml"),
        ("traces/office-morning.csv", ""),
    ],
)
def test_shipped_files_are_read_only_unless_they_are_the_folders_own(tmp_path: Path, shipped: str, copy: str) -> None:
    path = shipped_specs() / shipped
    said = read_only(path, tmp_path)
    assert "is shipped with blis-tui: read-only." in said
    assert said.endswith(copy or "read-only.")
    assert not read_only(path, data_root())  # in a checkout
    assert not read_only(tmp_path / shipped, tmp_path)
    hidden = tmp_path / ".venv" / "lib"
    hidden.mkdir(parents=True)
    assert not is_searched(hidden / "x.blis.yaml", tmp_path)  # an installed package is nobody's own
    assert is_searched(hidden / "x.blis.yaml", hidden)


def test_a_copy_is_made_of_the_file_that_a_name_of_ones_own_hides(lab: Path) -> None:
    own = lab / "specs" / "experiments" / "burst.blis.yaml"
    own.parent.mkdir(parents=True)
    own.write_text((lab / "mine.blis.yaml").read_text())
    path = shipped_specs() / "experiments" / own.name
    assert f"blis-tui spec show {path} > my-{own.name}" in read_only(path, lab)


async def test_in_a_browser_there_is_no_editor(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "vim")
    app = BlisApp()
    async with app.run_test(size=(80, 24)):
        assert "There is no terminal here for an editor" in edit(app, lab / "mine.blis.yaml")


# ---- defects ----


class Fragile(Screen[None]):
    """Fails in several ways."""

    BINDINGS = [("1", "fail"), ("2", "complain")]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        yield Static("fragile")
        yield Button("fail")

    def action_fail(self) -> None:
        raise ZeroDivisionError("a defect in an action")

    def action_complain(self) -> None:
        raise InputError("the file is gone", help="bring it back")

    def on_button_pressed(self) -> None:
        raise ZeroDivisionError("a defect in a handler")

    def bug_report_facts(self) -> dict[str, object]:
        return {"spec": "abc", "seed": 7, "event": 12}

    def palette_entries(self, query: str) -> Iterable[PaletteEntry]:
        yield PaletteEntry("Request", "request_12", self.action_complain)


async def test_a_defect_in_an_action_is_shown_and_survived(lab: Path) -> None:
    app = BlisApp(survive=True)
    async with app.run_test(size=(100, 40), notifications=True) as pilot:
        await settle(pilot)
        await app.push_screen(Fragile())
        await press(pilot, "1")
        assert isinstance(top(app), CrashScreen)
        assert "ZeroDivisionError: a defect in an action" in screen_text(app)
        await press(pilot, "y")
        assert "in the clipboard" in screen_text(app)
        assert "seed: 7" in app.clipboard
        assert "event: 12" in app.clipboard
        assert "in action_fail" in app.clipboard
        await press(pilot, "escape")
        assert isinstance(top(app), Fragile)


async def test_a_defect_elsewhere_leads_back_to_the_list(lab: Path) -> None:
    app = BlisApp(survive=True)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await app.push_screen(Fragile())
        await press(pilot, "tab", "enter")
        assert isinstance(top(app), CrashScreen)
        await press(pilot, "q")
        assert isinstance(top(app), HomeScreen)
        await settle(pilot)
        assert "In this folder" in screen_text(app)
        await pilot.press("q")
        assert app.return_code == 0


async def test_the_end_after_a_defect_is_a_report(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a defect in [the] application itself")

    app = BlisApp(survive=True)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  (it is raised where the app ends)
        async with app.run_test(size=(80, 24)) as pilot:
            app.call_later(fail)
            await settle(pilot)
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("This is a bug in blis-tui; please report it with this text: blis-tui ")
    assert "ZeroDivisionError: a defect in [the] application itself" in said
    assert app.return_code == 1


async def test_tests_see_defects(lab: Path) -> None:
    app = BlisApp()
    with pytest.raises(ZeroDivisionError, match="in an action"):  # noqa: PT012  (it is raised where the app ends)
        async with app.run_test(size=(80, 24)) as pilot:
            await app.push_screen(Fragile())
            await pilot.press("1")


async def test_what_the_package_says_on_purpose_is_a_notification(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await settle(pilot)
        await app.push_screen(Fragile())
        await press(pilot, "2")
        assert isinstance(top(app), Fragile)
        assert "the file is gone" in screen_text(app)
        assert "help: bring it back" in screen_text(app)


async def test_screens_add_to_the_palette(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await app.push_screen(Fragile())
        await press(pilot, "ctrl+p", *"request")
        assert "Request: request_12" in screen_text(app)


# ---- anything ----


@pytest.mark.parametrize("opened", ["app_palette", "app_theme"])
async def test_the_palette_takes_every_key_before_its_list_is_there(lab: Path, opened: str) -> None:
    app = BlisApp()
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        await app.run_action(opened)
        for key in ("pageup", "pagedown", "pageup", "end"):
            app.simulate_key(key)
        await pilot.pause()
        palette = app.screen
        assert isinstance(palette, CommandPalette)
        commands = palette.query_one(CommandList)
        await pilot.press("pagedown")
        assert commands.highlighted


async def test_the_palette_opens_again_while_it_is_closing(lab: Path) -> None:
    app = BlisApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "ctrl+p")
        closing = app.pop_screen()
        await app.run_action("app_palette")
        await closing
        await settle(pilot)
        assert isinstance(app.screen, CommandPalette)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_no_keys_in_any_order_do_harm(lab: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    replace_screens(monkeypatch)
    choice = Random(seed)  # noqa: S311  (to press keys)
    keys = [key for action in ACTIONS if action.scope in ("home", "app", "error", "dialog") for key in action.keys]
    keys = [key for key in keys if key not in ("q", "ctrl+q")]
    keys += ["up", "down", "pageup", "pagedown", "home", "end", "tab", "shift+tab", "backspace", "a", "1", "comma"]
    app = BlisApp()
    monkeypatch.setattr(app, "exit", lambda: None)  # the palette can quit, too
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        for step in range(100):
            await pilot.press(choice.choice(keys))
            if step % 25 == 0:
                await pilot.resize_terminal(choice.choice((30, 70, 100, 150)), choice.choice((10, 20, 45)))
            if len(app.screen_stack) > 4:
                app.pop_screen()
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        while app.screen is not app.first_screen:
            await app.pop_screen()
        await settle(pilot)
        assert isinstance(top(app), HomeScreen)
        assert "experiments" in screen_text(app)


@pytest.mark.parametrize(
    ("environment", "theme"),
    [
        ({"TERM": "xterm-256color"}, "blis-dark"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "blis-dark"),
        ({"TERM": "xterm-16color"}, "ansi-dark"),
        ({"TERM": "linux"}, "ansi-dark"),
        ({}, "blis-dark"),
    ],
)
def test_few_colours_get_a_theme_of_their_own(environment: dict[str, str], theme: str) -> None:
    assert default_theme(environment) == theme
