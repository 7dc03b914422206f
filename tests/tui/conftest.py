"""What all tests of the terminal interface share: folders of their own, and nothing that moves by itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import textual.app
import textual.pilot
import textual.strip
from textual import constants
from textual._compositor import Compositor
from textual.css.stylesheet import Stylesheet
from textual.notifications import Notification
from textual.pilot import Pilot
from textual.widgets import Input

from blis_tui.debugger.why import ranked_group
from blis_tui.tui import app as app_module
from blis_tui.tui import view as view_module
from blis_tui.tui.catalog import check
from blis_tui.tui.screens import home as home_screen
from tests.tui.screens import draw, idle, render_update

if TYPE_CHECKING:
    from pathlib import Path

    from textual.css.model import RuleSet
    from textual.css.types import CSSLocation

    from blis_tui.tui.catalog import Checked, Found

LAB = {
    "mine.blis.yaml": """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: mine, description: "One H100 serves a handful of chats."}
seed: 7
model: llama-3.1-8b-instruct
hardware: h100
workload:
  requests: 40
  rate_per_s: 10.0
  clients:
    - id: chats
      arrivals: {kind: poisson}
      input_tokens: {kind: constant, value: 200}
      output_tokens: {kind: constant, value: 20}
expect:
  - {metric: requests.completed, equals: 40}
""",
    "broken.blis.yaml": """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: broken, description: "Three mistakes."}
model: llama-3.1-8b
hardware: h1000
workload: {requests: 40, rate_per_s: 10.0, clients: []}
engine: {max_num_seq: 4}
""",
    "deep/er/other.blis.yaml": """\
apiVersion: blis/v1
kind: Experiment
metadata: {name: other}
extends: ../../mine.blis.yaml
seed: 8
""",
    ".venv/lib/hidden.blis.yaml": "not for us",
    "node_modules/hidden.blis.yaml": "not for us",
}
"""Files of the folder ``lab``."""


@pytest.fixture(autouse=True)
def _quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of our own, no editor, no movement."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("BLIS_TUI_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("BLIS_TUI_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("EDITOR", "VISUAL", "NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_DRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr(Input, "_toggle_cursor", lambda _self: None)
    monkeypatch.setattr(textual.app, "wait_for_idle", idle)
    monkeypatch.setattr(textual.pilot, "wait_for_idle", idle)
    monkeypatch.setattr(Pilot, "_wait_for_screen", _wait_for_screen)
    monkeypatch.setattr(Pilot, "pause", _pause)
    monkeypatch.setattr(Compositor, "render_update", render_update)
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parse_rules)
    monkeypatch.setattr(textual.strip, "FIFOCache", lambda _maxsize: _NOTHING)
    monkeypatch.setattr(home_screen, "check", _check)
    # What a slow machine would compute in the reader's next pause is shown at once.
    monkeypatch.setattr(view_module, "_CHEAP_S", 1e9)
    monkeypatch.setattr(ranked_group, "AT_ONCE_S", 1e9)
    # A program sets aside once what lives as long as it does: here every test has one, and leaves garbage behind.
    monkeypatch.setattr(app_module, "gc", SimpleNamespace(collect=lambda: 0, freeze=lambda: None))
    # Messages go by the wall clock: on a busy machine, they would be gone before a test has read them.
    monkeypatch.setattr(Notification, "time_left", property(lambda _self: 3600.0))


class _Nothing:
    """Takes the place of the seven caches that each line of a widget has: here, hardly any line is drawn twice."""

    def get(self, _key: object) -> None:
        """Nothing is known."""

    def __setitem__(self, _key: object, _value: object) -> None:
        """Nothing is kept."""


_NOTHING = _Nothing()

_parsed: dict[tuple[object, ...], list[RuleSet]] = {}
_parse = Stylesheet._parse_rules


def _parse_rules(
    sheet: Stylesheet,
    css: str,
    read_from: CSSLocation,
    is_default_rules: bool = False,
    tie_breaker: int = 0,
    scope: str = "",
) -> list[RuleSet]:
    """Textual's own remembers what it has parsed for one app; here every test has an app, all with the same styles."""
    key = (css, read_from, is_default_rules, tie_breaker, scope, _number(sheet._variables))
    if key not in _parsed:
        _parsed[key] = _parse(sheet, css, read_from, is_default_rules, tie_breaker, scope)
    return _parsed[key]


_numbers: dict[tuple[tuple[str, str], ...], int] = {}
_latest: dict[str, tuple[dict[str, str], int]] = {}


def _number(variables: dict[str, str]) -> int:
    """One number for all variables of the same values: there are two hundred, and they are asked for at each rule."""
    latest = _latest.get("")
    if latest is None or latest[0] is not variables:
        latest = (variables, _numbers.setdefault(tuple(variables.items()), len(_numbers)))
        _latest[""] = latest
    return latest[1]


_checked: dict[Path, Checked] = {}


def _check(found: Found) -> Checked:
    """The product's own, once for each document that ships: the first screen of every test checks all forty of them."""
    if not found.shipped:
        return check(found)
    if found.path not in _checked:
        _checked[found.path] = check(found)
    return _checked[found.path]


async def _wait_for_screen(pilot: Pilot[None]) -> bool:
    """Textual's own has each widget tell when it is done; they all are when nothing can go on."""
    await idle()
    return not pilot.app._exception_event.is_set()


async def _pause(pilot: Pilot[None], delay: float = 0) -> None:
    """Textual's own, and what has changed since the last pause is drawn at the end, once."""
    await idle()
    if delay:
        await asyncio.sleep(delay)
    await draw(pilot)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with experiments: shown as ``~/lab``."""
    folder = tmp_path / "home" / "lab"
    for name, text in LAB.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without experiments: shown as ``~/empty``."""
    folder = tmp_path / "home" / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
