"""``blis-tui values``: an expression at each hit of a breakpoint."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import Chosen, case_overrides, chosen_options, format_option
from blis_tui.cli.signals import ProgressLine, interrupting_on_signals
from blis_tui.cli.standard_streams import (
    print_text,
    read_standard_input_text,
    reported,
    require_no_overwrite,
    results,
)

if TYPE_CHECKING:
    from blis_tui.debugger.traces import Print, Printed
    from blis_tui.model import Experiment


@click.command(cls=Command)
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@click.argument("wish", metavar="'EXPRESSION at BREAKPOINT'")
@chosen_options
@format_option(
    "table",
    "csv",
    about="table: for people; csv: for programs.",
    default="table on a terminal, csv into pipes and files",
)
@click.option("-o", "--output", metavar="FILE", help="Write the result to FILE instead of standard output.")
@reported
def values(source: str, wish: str, chosen: Chosen, output_format: str | None, output: str | None) -> None:
    """Print an expression at each hit of a breakpoint in the whole run.

    SPEC is the name of an experiment, a path, or - for standard input. EXPRESSION is a metric or a condition as in the
    debugger's watches, such as `kv.utilization` or `request_12.held_blocks`; BREAKPOINT is one as for --break, such as
    `preempted`, `request request_12` or `change waiting`. Each row has event, time in microseconds, value after the
    event, and the request that it is about.

    \b
    Examples:
      blis-tui values kv-pressure 'kv.utilization at preempted'
      blis-tui values kv-pressure 'ttft_ms at first-token' -o ttft.csv
    """  # noqa: D301  (click's mark for lines it must not join)
    from blis_tui.debugger.traces import parse_print, printed_csv  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.output.result_files import atomic_text  # noqa: PLC0415
    from blis_tui.spec.load import load  # noqa: PLC0415

    stdin_text = read_standard_input_text() if source == "-" else None
    known = chosen.known()
    assignments = case_overrides(source, chosen.case, chosen.overrides, stdin_text, known)
    experiment = load(source, overrides=assignments, seed=chosen.seed, stdin_text=stdin_text, plugins=known)
    asked = parse_print(wish, experiment)
    shown = None if output is not None else results()
    if output_format is None:
        output_format = "csv" if shown is None or not shown.isatty() else "table"
    with interrupting_on_signals(), ExitStack() as opened:
        require_no_overwrite({"-o": output})
        file = None if output is None else opened.enter_context(atomic_text(output))
        rows = _rows(experiment, asked)
        text = _table(asked, rows) if output_format == "table" else "".join(printed_csv(asked, rows))
        if file is not None:
            file.write(text)
    if output is None:
        print_text(text, nl=False)


def _rows(experiment: Experiment, asked: Print) -> tuple[Printed, ...]:
    """Run the experiment, showing its progress."""
    from blis_tui.debugger.traces import printed  # noqa: PLC0415
    from blis_tui.runs.simulation import Simulation  # noqa: PLC0415

    line = ProgressLine(None)
    search = printed(Simulation(experiment), asked)
    try:
        while True:
            at = next(search)
            line.show(lambda at=at: f"{at.event:,} events, {at.time_us / 1e6:,.1f} s simulated")  # type: ignore[misc]
    except StopIteration as end:
        rows: tuple[Printed, ...] = end.value
        return rows
    finally:
        line.clear()


def _table(asked: Print, rows: tuple[Printed, ...]) -> str:
    from blis_tui.base.text import aligned, printable_lines  # noqa: PLC0415
    from blis_tui.base.units import count_text, plural, time_text  # noqa: PLC0415

    cells = [("event", "time", str(asked.figure), "request")]
    cells += [
        (count_text(row.event), time_text(row.time_us), asked.figure.text_of(row.value), row.request) for row in rows
    ]
    lines = aligned(cells, right=(0, 1, 2)) if rows else []
    return printable_lines("\n".join([*lines, plural(len(rows), "hit")]) + "\n")
