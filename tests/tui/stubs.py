"""Stand-ins for the screens that the shell opens, so that its tests are about the shell."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

from textual.screen import Screen
from textual.widgets import Static

if TYPE_CHECKING:
    import pytest
    from textual.app import ComposeResult


PLAIN: Final = {"moments": (), "called": "", "remembers": True}
"""What the debugger is also opened with, unless it is a bundle or a report."""


class Opened(Screen[None]):
    """Says what it was opened with."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__()
        self.arguments = arguments
        self.named = named

    def compose(self) -> ComposeResult:
        yield Static("opened")


def replace_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-ins where the real screens would be imported from."""
    for name, screen in (("debugger", "DebuggerScreen"), ("compare", "CompareScreen"), ("goldens", "GoldensScreen")):
        module = ModuleType(f"blis_tui.tui.screens.{name}")
        setattr(module, screen, type(screen, (Opened,), {}))
        monkeypatch.setitem(sys.modules, module.__name__, module)
