"""Signals that end a program: at once outside of a command, in good order within one, and never by a signal's death."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from blis_tui.base.interrupted import INTERRUPTED
from tests.wheels import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")

PROGRAM = """
import os, signal, sys
from blis_tui.base import interrupted
interrupted.exit_on_signals()
{lines}
print("on")
"""
CAUGHT = """
interrupted.raise_on_signals()
try:
    os.kill(os.getpid(), {number})
except interrupted.Interrupted:
    print("caught")
{more}
"""


def ended(lines: str) -> tuple[int, list[str]]:
    """The exit code of a program with these lines, and what it printed."""
    program = PROGRAM.format(lines=lines)
    done = subprocess.run([sys.executable, "-u", "-c", program], capture_output=True, check=False, cwd=ROOT)
    return done.returncode, done.stdout.decode().split()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_outside_of_a_command_a_program_ends_at_once(number: signal.Signals) -> None:
    assert ended(f"os.kill(os.getpid(), {int(number)})") == (INTERRUPTED, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_can_clean_up_after_the_first_signal(number: signal.Signals) -> None:
    assert ended(CAUGHT.format(number=int(number), more="")) == (0, ["caught", "on"])


def test_the_second_signal_ends_at_once() -> None:
    more = f"os.kill(os.getpid(), {int(signal.SIGTERM)})"
    assert ended(CAUGHT.format(number=int(signal.SIGINT), more=more)) == (INTERRUPTED, ["caught"])


def test_after_a_command_a_signal_ends_at_once() -> None:
    lines = f"interrupted.raise_on_signals()\ninterrupted.command_ended()\nos.kill(os.getpid(), {int(signal.SIGINT)})"
    assert ended(lines) == (INTERRUPTED, [])


def test_an_exception_that_was_lost_is_raised_again() -> None:
    more = "try:\n    interrupted.raise_lost_interrupt()\nexcept interrupted.Interrupted:\n    print('again')"
    assert ended(CAUGHT.format(number=int(signal.SIGINT), more=more)) == (0, ["caught", "again", "on"])
    assert ended("interrupted.raise_on_signals()\ninterrupted.raise_lost_interrupt()") == (0, ["on"])


def test_one_that_python_drops_ends_the_program() -> None:
    """As in a finalizer, whose exceptions are only printed."""
    lines = "class Last:\n    def __del__(self): raise interrupted.Interrupted\nLast()"
    assert ended(lines) == (INTERRUPTED, [])
    assert ended(lines.replace("interrupted.Interrupted", "ValueError")) == (0, ["on"])


def test_a_signal_that_is_ignored_stays_so() -> None:
    """`nohup` ignores one."""
    lines = f"signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{CAUGHT.format(number=int(signal.SIGHUP), more='')}"
    assert ended(lines) == (0, ["on"])


def test_in_a_program_of_others_nothing_is_changed() -> None:
    program = "import signal\nfrom blis_tui.base import interrupted\ninterrupted.raise_on_signals()\n"
    program += "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, cwd=ROOT)
    assert done.stdout.split() == [b"True"]
