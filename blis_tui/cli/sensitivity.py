"""``blis-tui sensitivity``: the effect of each key on the tightest bound."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from blis_tui.base.text import printable_lines
from blis_tui.base.units import plural
from blis_tui.cli import completion
from blis_tui.cli.help import Command
from blis_tui.cli.options import MOST_JOBS, format_option, grouped, plugins_option, set_option
from blis_tui.cli.signals import ProgressLine, interrupting_on_signals
from blis_tui.cli.standard_streams import print_text, reported, require_no_overwrite
from blis_tui.cli.sweep import (
    Asked,
    Runs,
    case_option,
    open_study,
    progress_option,
    runs_options,
    slo_option,
    warn,
)

if TYPE_CHECKING:
    from blis_tui.study.study_rows import Row


@click.command(cls=Command)
@click.argument("source", metavar="SPEC", shell_complete=completion.experiments)
@grouped(
    "asked",
    Asked,
    slo_option,
    click.option(
        "--seeds",
        metavar="N|LIST",
        default="5",
        show_default=True,
        help="Number of seeds per value, or the seeds themselves.",
    ),
    case_option,
    set_option,
    plugins_option,
)
@runs_options
@format_option("table", "json", about="table: for people; json: all metrics.")
@click.option("-o", "--output", metavar="FILE", help="Write the result to FILE instead of standard output.")
@progress_option
@reported
def sensitivity(
    source: str,
    asked: Asked,
    runs: Runs,
    output_format: str,
    output: str | None,
    progress: bool | None,
) -> None:
    """Find which key to tune next: the effect of each on the tightest bound.

    The number of instances, tensor parallelism, `max_num_batched_tokens`, `max_num_seqs`, KV blocks, scheduling order,
    routing policy and a few more keys are changed one at a time, one step down and one step up from SPEC. Runs with
    the same seed are compared, and a change counts if it is larger than the variation between seeds (95 %).
    """
    from blis_tui.base.canonical import to_json  # noqa: PLC0415  (heavy imports only when it runs)
    from blis_tui.output.result_files import atomic_text  # noqa: PLC0415
    from blis_tui.study.sensitivity import sensitivity as find  # noqa: PLC0415
    from blis_tui.study.sensitivity import sensitivity_text  # noqa: PLC0415

    if not asked.slos:
        raise click.UsageError("no bound given: add one, such as --slo 'latency.ttft_ms.p99<=300'")
    line = ProgressLine(progress)

    def show(_: Row) -> None:
        line.show_next(lambda number: plural(number, "run"))

    with interrupting_on_signals(), ExitStack() as opened:
        study = open_study(source, asked)
        require_no_overwrite({"-o": output})
        file = None if output is None else opened.enter_context(atomic_text(output))
        try:
            runner = opened.enter_context(runs.runner(MOST_JOBS))
            effects = find(study, runner, runs.kept(), show, warn)
        finally:
            line.clear()
        text = printable_lines(sensitivity_text(effects)) if output_format == "table" else to_json(asdict(effects))
        if file is not None:
            file.write(text)
    if output is None:
        print_text(text, nl=False)
