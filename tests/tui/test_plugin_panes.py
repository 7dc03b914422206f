"""A pane that a script brings: its place, its key, its lines and what goes wrong in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from textual.style import Style

from blis_tui.tui.app import BlisApp, Start
from blis_tui.tui.panes import PANES, panes_of
from blis_tui.tui.panes.plugin import plugin_pane_lines
from blis_tui.tui.screens.debugger import DebuggerScreen
from tests.plugins.probing import at_end, edited, left_as_found, loaded
from tests.tui.debugging import Debugging
from tests.tui.pane_harness import text_of, view_at
from tests.tui.screens import screen_text, settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    import blis_tui
    from blis_tui.tui.drawing.lines import Line


ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _kinds() -> Iterator[None]:
    with left_as_found():
        yield


def test_they_stand_behind_the_others_with_a_free_letter() -> None:
    *own, last = panes_of(loaded())
    assert [pane for pane in PANES if pane in own] == own
    assert (last.name, last.key, last.upper) == ("Probes", "P", False)
    assert last.letter not in {pane.letter for pane in PANES}


async def test_the_pane_shows_its_lines_and_leads_to_events() -> None:
    experiment = loaded()
    expected = text_of(_presented(experiment, width=60))
    app = BlisApp(Start(experiment=experiment, source="prefix-routing", at="start"))
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, DebuggerScreen)
        here = Debugging(app, pilot, screen)
        await here.press("end", "P")
        assert screen.arrangement.active == screen.arrangement.lower
        first = expected.splitlines()[0]
        assert "Probes" in screen_text(app)
        assert first in screen_text(app)
        last = here.event
        await here.press("down", "enter")
        assert 0 < here.event < last
        assert here.debugger.tape.has(here.event, "cache-probed")
        assert [entry.text for entry in screen.palette_entries("") if entry.noun == "Panes"] == ["Probes"]


def _presented(experiment: blis_tui.Experiment, width: int) -> list[Line]:
    [pane] = [info.brought for info in panes_of(experiment) if info.brought]
    return plugin_pane_lines(pane, view_at(at_end(experiment)), width, Style.parse)


async def test_a_key_that_is_taken_stays_what_it_was(tmp_path: Path) -> None:
    app = BlisApp(Start(experiment=loaded(edited(tmp_path, 'key="P"', 'key="n"')), source="prefix-routing", at="start"))
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, DebuggerScreen)
        here = Debugging(app, pilot, screen)
        await here.press("n")
        assert here.event == 1
        assert screen.arrangement.active == "events"
        assert "· Probes" in screen_text(app)


def test_a_pane_that_fails_says_where(tmp_path: Path) -> None:
    script = edited(tmp_path, "text[:width]", "text[:width] / 0")
    text = text_of(_presented(loaded(script), width=200))
    assert text.splitlines()[0] == "TypeError: unsupported operand type(s) for /: 'str' and 'int'"
    assert f"it happens at {script}:" in text


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            '"bold" if record.request == view.request else ""',
            '"loud"',
            "ValueError: the style of a line is 'loud', which",
        ),
        ("text[:width]", "len(text)", "TypeError: the text of a line is "),
        ("event=record.event", "event=str(record.event)", "TypeError: the event of a line is '"),
        ("event=record.event", "request=7", "TypeError: the request of a line is 7"),
    ],
)
async def test_a_line_that_cannot_be_shown_or_picked_costs_its_pane_only(
    old: str, new: str, told: str, tmp_path: Path
) -> None:
    app = BlisApp(Start(experiment=loaded(edited(tmp_path, old, new)), source="prefix-routing", at="start"))
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        screen = app.screen
        assert isinstance(screen, DebuggerScreen)
        here = Debugging(app, pilot, screen)
        await here.press("end", "P")
        assert told in screen_text(app)
        await here.press("down", "enter", "[")
        assert told in screen_text(app)


def test_a_pane_of_the_package_takes_the_steps_that_the_guide_names(tmp_path: Path) -> None:
    """A file with its lines, and a line in ``tui/panes/__init__.py``: key, help, reference and the screen follow."""
    folder = str(tmp_path)
    environment = {**os.environ, "BLIS_TUI_STATE_DIR": folder, "BLIS_TUI_CONFIG_DIR": folder, "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "tests.tui.one_pane_more"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.stderr == ""
    action, reference, shown = done.stdout.splitlines()
    assert action == "('E',) The present event, again."
    assert reference == "['| `E` | `pane.echo` | The present event, again. |']"
    assert "Echo ─" in shown
    assert "this was event 1 " in shown


def test_a_pane_that_never_ends_is_cut_off(tmp_path: Path) -> None:
    endless = "    while True:\n        yield PaneLine('again')\n    for record in view.past_records('cache-probed'):\n"
    script = edited(tmp_path, '    for record in view.past_records("cache-probed"):\n', endless)
    text = text_of(_presented(loaded(script), width=60))
    assert text.splitlines() == ["again"] * 1000
