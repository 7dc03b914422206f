"""Printing while something else controls the terminal."""

from __future__ import annotations

import logging
import sys
from contextlib import redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING

from blis_tui.base.standard_output import LINES, Printed, Stream, late_bound_stderr

if TYPE_CHECKING:
    import pytest


def test_lines_come_in_pieces() -> None:
    printed = Printed()
    stream = Stream(printed.write)
    print("one", end=" ", file=stream)
    print("line", 2, file=stream)
    stream.buffer.write("\u00fcber\r\nand\nthe rest".encode())
    stream.flush()
    assert printed.lines() == ("one line 2", "\u00fcber", "and", "the rest")
    assert printed.total == 4
    assert printed.take() == "one line 2\n\u00fcber\nand\nthe rest\n"
    assert (printed.lines(), printed.take()) == ((), "")


def test_the_last_lines_are_kept_and_act_on_nothing() -> None:
    printed = Printed()
    for number in range(LINES + 5):
        printed.write(f"{number}\x1b[2J\n")
    assert printed.total == LINES + 5
    assert len(printed.lines()) == LINES
    assert printed.lines()[0] == "5\ufffd[2J"
    printed.write("x" * 10_000_000)
    printed.write("x" * 10_000_000)
    assert len(printed.lines()[-1]) < 10_000


def test_who_keeps_standard_error_writes_to_what_stands_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    with late_bound_stderr():
        handler = logging.StreamHandler()
        record = logging.makeLogRecord({"msg": "a message"})
        handler.emit(record)
        assert capsys.readouterr().err == "a message\n"
        with redirect_stderr(StringIO()) as kept:
            handler.emit(record)
        assert kept.getvalue() == "a message\n"
    handler.emit(record)
    assert capsys.readouterr().err == "a message\n"


def test_without_standard_error_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with late_bound_stderr():
        assert sys.stderr is None
