"""What the program says of a failure, and with which exit code it ends, of every kind."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from blis_tui.base.errors import BlisError, InputError, InvariantError, SimulationError
from blis_tui.cli import main as program
from blis_tui.cli.main import COMMANDS, FORMER_COMMANDS, current_arguments
from blis_tui.cli.standard_streams import ExitCode, reported, tell_defect

if TYPE_CHECKING:
    from collections.abc import Callable

_BROKEN = "INV-4 does not hold at t=3 us (event 2): no sum"
CASES: list[tuple[BaseException, ExitCode, str]] = [
    (InputError("no file", help="write one"), ExitCode.IO, "error: no file\n  = help: write one\n"),
    (SimulationError("stuck"), ExitCode.SIMULATION, "error: stuck\n"),
    (InvariantError("INV-4", "no sum", time_us=3, event=2), ExitCode.CHECK_FAILED, f"error: {_BROKEN}\n"),
    (BlisError("odd"), ExitCode.USAGE, "error: odd\n"),
    (FileNotFoundError(errno.ENOENT, "No such file", "x\x1b.yaml"), ExitCode.IO, "error: x\ufffd.yaml: No such file\n"),
    (OSError(errno.ENOSPC, "No space left"), ExitCode.IO, "error: No space left\n"),
    (OSError("odd\nthing"), ExitCode.IO, "error: odd\ufffdthing\n"),
]


def raising(error: BaseException) -> Callable[[], None]:
    @reported
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(("error", "code", "message"), CASES, ids=[type(error).__name__ for error, _, _ in CASES])
def test_a_failure_is_a_message_and_an_exit_code(
    error: BaseException, code: ExitCode, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        raising(error)()
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err) == (code, "", message)


@pytest.mark.parametrize("error", [KeyError("k"), ZeroDivisionError("z"), BrokenPipeError(), KeyboardInterrupt()])
def test_what_nobody_expected_is_not_hidden(error: BaseException) -> None:
    with pytest.raises(type(error)):
        raising(error)()


def test_a_defect_is_told_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="what") as raised:
        int("what is this")
    code = tell_defect(raised.value)
    message = capsys.readouterr().err
    assert code == ExitCode.DEFECT
    assert "test_failures.py" in message
    assert message.splitlines()[-2:] == [
        "ValueError: invalid literal for int() with base 10: 'what is this'",
        "error: this is a defect of blis-tui: please report it, with the lines above",
    ]


def test_a_folder_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SystemExit):
        raising(FileNotFoundError(errno.ENOENT, "No such file"))()
    monkeypatch.chdir(tmp_path)
    assert "the working directory does not exist any more" in capsys.readouterr().err


# ---- the program ----


def ended(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> object:
    """The exit code of the program if its command raises an error."""

    def failing(**_: object) -> object:
        raise error

    monkeypatch.setattr(program, "cli", failing)
    with pytest.raises(SystemExit) as left:
        program.main()
    return left.value.code


def aborted(*notes: str) -> click.Abort:
    """As click turns an interruption into its own exception."""
    pressed = KeyboardInterrupt()
    for note in notes:
        pressed.add_note(note)
    outer, inner = click.Abort(), click.Abort()
    outer.__cause__, inner.__cause__ = inner, pressed
    return outer


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (click.UsageError("no\x1bsuch"), ExitCode.USAGE, "Error: no\ufffdsuch\n"),
        (click.ClickException("one\ntwo"), 1, "Error: one\ufffdtwo\n"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "interrupted\n"),
        (aborted(), ExitCode.INTERRUPTED, "interrupted\n"),
        (aborted("a was\nwritten", "b not"), ExitCode.INTERRUPTED, "interrupted: a was\ufffdwritten; b not\n"),
        (click.Abort(), ExitCode.INTERRUPTED, ""),
    ],
)
def test_what_the_command_line_raises_ends_the_program(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(monkeypatch, error) == code
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BrokenPipeError(), ExitCode.READER_GONE, ""),
        (program._OutputClosedError(), ExitCode.READER_GONE, ""),
        (OSError(errno.ENOSPC, "No space left"), ExitCode.IO, "error: cannot write standard output: No space left\n"),
        (OSError("odd"), ExitCode.IO, "error: cannot write standard output: odd\n"),
    ],
)
def test_a_closed_or_full_standard_output_is_not_written_again(
    error: OSError,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (tmp_path / "out").open("w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert ended(monkeypatch, error) == code
        print("lost", file=out, flush=True)
        assert os.fstat(out.fileno()).st_rdev == Path(os.devnull).stat().st_rdev
    assert (tmp_path / "out").read_text(encoding="utf-8") == ""
    monkeypatch.undo()
    assert capsys.readouterr().err == message


@pytest.mark.parametrize("shown", [None, "help"])
def test_a_program_that_ends_well_says_what_it_has(shown: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    flushed: list[str] = []
    out.flush = lambda: flushed.append(out.getvalue())  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(program, "cli", lambda **_: (out.write("said"), shown)[1])
    program.main()
    assert flushed[-1] == "said"


# ---- names of commands ----


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("former", FORMER_COMMANDS)
def test_a_former_name_is_told_to_people_alone(
    former: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    terminal: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    now = FORMER_COMMANDS[former]
    assert current_arguments([*former, "more", "--x"]) == [*now, "more", "--x"]
    note = f"note: `blis-tui {' '.join(former)}` is `blis-tui {' '.join(now)}` now\n"
    assert capsys.readouterr().err == (note if terminal else "")
    assert now[0] in COMMANDS


def test_other_names_stay() -> None:
    assert current_arguments(["run", "quickstart"]) == ["run", "quickstart"]
    assert current_arguments([]) == []


@pytest.mark.parametrize("resilient", [True, False])
def test_completion_prints_no_version(capsys: pytest.CaptureFixture[str], *, resilient: bool) -> None:
    context = click.Context(program.cli, resilient_parsing=resilient)
    for wanted in (True, False):
        left = wanted and not resilient
        if left:
            with pytest.raises(click.exceptions.Exit):
                program._print_version(context, click.Option(["--version"]), wanted)
        else:
            program._print_version(context, click.Option(["--version"]), wanted)
        assert capsys.readouterr().out.startswith("blis-tui ") is left
