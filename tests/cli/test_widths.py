"""Texts keep to the lines of the terminal that they are for."""

from __future__ import annotations

import os
import sys
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING

import blis_tui
from blis_tui.cli.signals import ProgressLine
from blis_tui.cli.standard_streams import columns
from blis_tui.output.section_text import summary_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from typing import TextIO

    import pytest


@contextmanager
def terminal(width: int) -> Iterator[tuple[TextIO, FileIO]]:
    """A stream to a terminal of so many columns, and what it gets."""
    screen, end = os.openpty()
    termios.tcsetwinsize(end, (24, width))
    with os.fdopen(screen, "rb", buffering=0) as shown, os.fdopen(end, "w") as stream:
        yield stream, shown


def test_progress_stays_on_one_line_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a terminal has on a second line is not cleared by rewriting the line."""
    with terminal(40) as (stream, shown):
        monkeypatch.setattr(sys, "stderr", stream)
        ProgressLine(None).show(lambda: "x" * 60 + "y" * 60)
        stream.flush()
        text = shown.read(1000)
    assert text.count(b"x") == 39
    assert b"y" not in text


def test_without_a_terminal_progress_has_a_hundred_characters(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressLine(wanted=True).show(lambda: "x" * 120)
    assert capsys.readouterr().err.count("x") == 100


def test_a_text_is_as_wide_as_its_terminal_where_that_is_known() -> None:
    for width, wide in ((80, 80), (200, 116), (0, 116)):
        with terminal(width) as (stream, _):
            assert columns(116, stream) == wide
    assert columns(116, None) == 116


def test_a_report_keeps_to_its_width_and_names_stay_whole() -> None:
    report = blis_tui.run(blis_tui.load("kv-tiers"))
    wide, narrow = summary_text(report), summary_text(report, 80)
    assert wide.split() == narrow.split()
    assert "mistral-nemo-instruct-2407" in narrow
    assert max(map(len, narrow.splitlines())) <= 80
