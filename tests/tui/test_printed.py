"""What plug-ins print while they are simulated in the terminal interface can be read there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import blis_tui
from blis_tui.tui.app import BlisApp, Start
from blis_tui.tui.screens.debugger import DebuggerScreen
from blis_tui.tui.screens.file_windows import PrintedScreen
from tests.tui.screens import press, screen_text, settle

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SCRIPT = """\
import sys
from blis_tui.plugins import ROUTING, NoSettings

@ROUTING.plugin("chatty", "For tests.")
class Chatty:
    rule = "Says what it does."

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def choose(self, request, fleet, context):
        print("chose for [b]", request.request_id)
        sys.stdout.buffer.write(b"in bytes\\n")
        print("an error", file=sys.stderr)
        return 0, "the first"

    def state(self):
        return ()
"""
SAID = "Something was printed and kept: p shows it."


async def test_it_is_kept_and_said_once_where(lab: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (lab / "own.py").write_text(SCRIPT, encoding="utf-8")
    changed = {"policy.routing": "chatty", "workload.requests": 20}
    experiment = blis_tui.load("quickstart", set=changed, plugins=[lab / "own.py"])
    app = BlisApp(Start(experiment=experiment, source="quickstart", at="start"))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        await press(pilot, "p")
        assert "Nothing has been printed." in screen_text(app)
        await press(pilot, "y", "x", "p", "n", "n")
        assert SAID not in screen_text(app)
        await press(pilot, "n")
        assert SAID in screen_text(app)
        await press(pilot, "end")
        assert isinstance(app.screen, DebuggerScreen)
        while app.screen.session.driver.busy:
            await pilot.pause(0.02)
        await settle(pilot)
        assert SAID not in screen_text(app)
        await press(pilot, "p")
        shown = screen_text(app)
        assert isinstance(app.screen, PrintedScreen)
        assert "events that are replayed print again" in shown
        assert "chose for [b] request_19" in shown
        assert "an error" in shown
        assert "request_0" not in shown
        await press(pilot, "home")
        assert "chose for [b] request_0" in screen_text(app)
        await press(pilot, "y", "x")
        assert app.clipboard.startswith("chose for [b] request_0\nin bytes\nan error\nchose for [b] request_1\n")
        assert (lab / "printed.txt").read_text(encoding="utf-8") == app.clipboard
        await press(pilot, "escape", "home")
        assert len(app.screen_stack) == 2
    capfd.readouterr()
    print("as before", file=sys.stderr)
    assert capfd.readouterr().err == "as before\n"
