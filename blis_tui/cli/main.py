"""The command line: ``blis-tui``. Each command's module is imported only when that command runs."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import contextmanager
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Final, TextIO

import click

from blis_tui._version import ENGINE, __version__
from blis_tui.base.interrupted import raise_on_signals
from blis_tui.cli.help import NEIGHBOURS, asks_for_all, help_all
from blis_tui.cli.standard_streams import ExitCode, print_text, reported, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMANDS: Final = {
    "tui": ("blis_tui.cli.tui", "tui", "Step through an experiment in the terminal."),
    "run": ("blis_tui.cli.run", "run", "Simulate an experiment and print its report."),
    "sweep": ("blis_tui.cli.sweep", "sweep", "Run an experiment with many settings and compare the results."),
    "plan": ("blis_tui.cli.plan", "plan", "Size a cluster for a request rate, or find the rate it sustains."),
    "sensitivity": ("blis_tui.cli.sensitivity", "sensitivity", "Find which key to tune next."),
    "shrink": ("blis_tui.cli.shrink", "shrink", "Reduce a workload to the smallest one that fails an expectation."),
    "serve": ("blis_tui.cli.serve", "serve", "Serve the terminal interface in a browser."),
    "serve-api": (
        "blis_tui.cli.serve_api",
        "serve_api",
        "Run an OpenAI-compatible server that answers at simulated times.",
    ),
    "diff": ("blis_tui.cli.diff", "diff", "Compare two experiments and their results."),
    "values": ("blis_tui.cli.values", "values", "Print an expression at each hit of a breakpoint."),
    "whatif": ("blis_tui.cli.whatif", "whatif", "Reroute one request and show what that changes."),
    "workload": ("blis_tui.cli.workload", "workload", "Describe, convert, combine and fit workloads and traces."),
    "bundle": ("blis_tui.cli.bundle", "bundle", "Pack a run into one file that can be opened elsewhere."),
    "observe": ("blis_tui.cli.observe", "observe", "Run a workload against a real server and record it."),
    "twin": ("blis_tui.cli.twin", "twin", "Compare a recording with a simulation or another recording."),
    "calibrate": ("blis_tui.cli.calibrate", "calibrate", "Fit a step-time model to measurements, or report its error."),
    "golden": ("blis_tui.cli.golden", "golden", "Review golden tests, and accept or reject new results."),
    "spec": ("blis_tui.cli.spec", "spec", "Find, write, format and convert documents."),
    "check": ("blis_tui.cli.check", "check", "Validate documents of any kind, and your own policies."),
    "upgrade": ("blis_tui.cli.upgrade", "upgrade", "Upgrade documents from older versions to the current format."),
    "explain": ("blis_tui.cli.explain", "explain", "Explain a metric, key, error, warning or term."),
    "lsp": ("blis_tui.cli.lsp", "lsp", "Serve editors: completion, explanations, errors (Language Server Protocol)."),
    "completion": ("blis_tui.cli.completion", "completion", "Print a shell's completion script."),
}
"""Command -> module, attribute, and the line shown by ``--help`` without importing it."""

_RARE: Final = {*NEIGHBOURS, "completion"}
"""Commands that ``--help`` leaves out."""

FORMER_COMMANDS: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ("validate",): ("check",),
    ("plugins", "check"): ("check",),
    ("spec", "explain"): ("explain",),
    ("spec", "migrate"): ("upgrade",),
    ("import",): ("spec", "import"),
    ("golden", "diff"): ("golden", "status", "--format", "diff"),
    ("golden", "report"): ("golden", "status", "--format", "markdown"),
    ("golden", "accept"): ("golden", "review", "--accept"),
    ("golden", "reject"): ("golden", "review", "--reject"),
}
"""Former name of a command -> current name; former names will be removed in version 1.0."""

EPILOG: Final = """\b
Exit codes: 0 ok · 1 an expectation or invariant failed · 2 usage error or invalid
document · 3 I/O error · 4 simulation error · 70 defect of blis-tui · 130 interrupted ·
141 standard output closed"""


_COLLECT_AFTER: Final = 50_000
"""Allocations between two garbage collections; a run's objects are kept and rarely become garbage."""


class _OutputClosedError(Exception):
    """Standard output has lost its reader."""


class _LazyGroup(click.Group):
    """A group that knows its commands by name and imports each on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.{attribute} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        now = current_arguments(args)
        try:
            return super().resolve_command(ctx, now)
        except click.NoSuchCommand as error:  # click knows no commands that are imported on first use
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _distinguishing_broken_pipes():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        with _distinguishing_broken_pipes():
            result: object = super().invoke(ctx)
            return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rare = () if asks_for_all(ctx) else _RARE
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items() if name not in rare])

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), help_all("Show this message with all commands and exit.")]


def current_arguments(args: list[str]) -> list[str]:
    """Return the arguments with a former command name replaced; only a terminal gets a note about it."""
    for former, now in FORMER_COMMANDS.items():
        if tuple(args[: len(former)]) == former:
            if sys.stderr is not None and sys.stderr.isatty():
                tell(f"note: `blis-tui {' '.join(former)}` is `blis-tui {' '.join(now)}` now")
            return [*now, *args[len(former) :]]
    return args


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        _tell_version()
        context.exit()


@reported
def _tell_version() -> None:
    from blis_tui.base.pickling import COMPILED  # noqa: PLC0415  (only needed here)

    print_text(f"blis-tui {__version__} (engine {ENGINE}, {'compiled' if COMPILED else 'plain Python'})")


@reported
def _require_output() -> None:
    print_text("", nl=False)


@click.command(
    cls=_LazyGroup,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
@reported
def cli(context: click.Context) -> None:
    """Deterministic simulator of LLM inference serving.

    An experiment is a YAML document: model, hardware, workload, policy, cluster. The same document and seed always
    produce the same bytes. Without a command, the terminal interface opens with the list of experiments.

    \b
    Getting started:
      blis-tui spec list            list the documents that ship, by name
      blis-tui run quickstart       simulate an experiment, print the main metrics
      blis-tui explain kv.hit_rate  explain a metric, key or term
    """  # noqa: D301  (click's mark for lines it must not join)
    raise_on_signals()
    _collect_garbage()
    if context.invoked_subcommand is None:
        from blis_tui.cli.tui import has_terminal, show_home  # noqa: PLC0415  (only needed here)

        if has_terminal():
            show_home()
        else:
            print_text(context.get_help())


def _collect_garbage() -> None:
    """Enable garbage collection if the process started without it; imported objects are exempt."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)
        gc.enable()


def main() -> None:
    """Run the command line; every failure gives one message and its exit code."""
    try:
        shown = cli(prog_name="blis-tui", standalone_mode=False)
        if shown is not None and sys.stdout is None:  # a text such as `--help` could not be shown
            _require_output()
        if sys.stdout is not None:
            sys.stdout.flush()
    except (click.ClickException, click.Abort, KeyboardInterrupt, _OutputClosedError, OSError) as error:
        sys.exit(_failed(error))


def _failed(error: BaseException) -> int:
    """Report a failure, if standard error is open; return the exit code."""
    if isinstance(error, click.ClickException):
        text = StringIO()
        error.show(text)
        message = click.unstyle(error.message)  # in the form in which it is shown
        from blis_tui.base.text import printable, printable_lines  # noqa: PLC0415

        # A group without a command "fails" with its own help, which has many lines.
        is_help = error.message == (error.ctx.get_help() if isinstance(error, click.UsageError) and error.ctx else "")
        tell(text.getvalue().replace(message, (printable_lines if is_help else printable)(message)), nl=False)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        _tell_interrupted(error)
        return ExitCode.INTERRUPTED
    _discard(sys.stdout)
    if isinstance(error, _OutputClosedError | BrokenPipeError):
        return ExitCode.READER_GONE
    if isinstance(error, OSError):
        tell(f"error: cannot write standard output: {error.strerror or error}")
    return ExitCode.IO


def _tell_interrupted(error: BaseException | None) -> None:
    """Report the interruption, and what happened to files being written (see ``atomic_bytes``)."""
    while isinstance(error, click.Abort):
        error = error.__cause__
    if isinstance(error, KeyboardInterrupt):
        left = "; ".join(getattr(error, "__notes__", ()))
        from blis_tui.base.text import printable  # noqa: PLC0415

        tell(f"interrupted{left and ': '}{printable(left)}")


@contextmanager
def _distinguishing_broken_pipes() -> Iterator[None]:
    """Hide a broken pipe from click, which would exit with 1, the code of a failed expectation."""
    try:
        yield
    except BrokenPipeError as error:
        raise _OutputClosedError from error


def _discard(stream: TextIO | None) -> None:
    """Redirect a stream, so that flushing it at interpreter exit cannot fail again."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
