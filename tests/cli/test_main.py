"""What the command line does before and after each command."""

from __future__ import annotations

import gc

from click.testing import CliRunner

from blis_tui.cli.main import cli

COMMAND = ["explain", "BLIS1001"]


def test_garbage_is_looked_for_once_a_command_begins() -> None:
    usual = gc.get_threshold()
    gc.set_threshold(700)  # Python's
    gc.disable()  # as the process does when it starts
    try:
        assert CliRunner().invoke(cli, COMMAND).exit_code == 0
        assert gc.isenabled()
        assert 700 < gc.get_threshold()[0] < 100_000
    finally:
        gc.set_threshold(*usual)
        gc.enable()


def test_a_program_that_uses_the_command_line_keeps_its_own_rhythm() -> None:
    usual = gc.get_threshold()
    assert CliRunner().invoke(cli, COMMAND).exit_code == 0
    assert gc.get_threshold() == usual
