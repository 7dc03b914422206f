"""The line that tells how far a command is."""

from __future__ import annotations

import os
import sys
import termios
from typing import TYPE_CHECKING

from blis_tui.cli.progress import ProgressLine

if TYPE_CHECKING:
    import pytest

_COLUMNS = 40


def test_it_stays_on_one_line_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a terminal has on a second line is not cleared by rewriting the line."""
    reader, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, _COLUMNS))
    with os.fdopen(reader, "rb", buffering=0) as screen, os.fdopen(terminal, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        ProgressLine(None).show(lambda: "x" * 60 + "y" * 60)
        stream.flush()
        shown = screen.read(1000)
    assert shown.count(b"x") == _COLUMNS - 1
    assert b"y" not in shown


def test_without_a_terminal_it_has_a_hundred_characters(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressLine(wanted=True).show(lambda: "x" * 120)
    assert capsys.readouterr().err.count("x") == 100
