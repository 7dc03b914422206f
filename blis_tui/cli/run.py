"""``blis-tui run``: simulate an experiment without a user interface."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from blis_tui.cli import completing
from blis_tui.cli.exit_codes import ExitCode
from blis_tui.cli.failures import reported
from blis_tui.cli.options import seed_option, set_option

if TYPE_CHECKING:
    from types import FrameType

    from blis_tui.engine.records import Record
    from blis_tui.metrics.report import Report
    from blis_tui.simulation import Simulation
    from blis_tui.spec.model import Experiment

_PROGRESS_EVERY_S: Final = 0.2


@click.command()
@click.argument("source", metavar="SPEC", shell_complete=completing.experiments)
@set_option
@seed_option
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["json", "table"]),
    default="json",
    show_default=True,
    help="json: canonical bytes; table: the main figures.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the report there instead of to standard output.")
@click.option("--requests", "requests_file", metavar="FILE.csv", help="Also write one row a request.")
@click.option("--records", "records_file", metavar="FILE.jsonl", help="Also write every event record.")
@click.option(
    "--check",
    type=click.Choice(["all", "end", "off"]),
    default="end",
    show_default=True,
    help="Verify the invariants after every event, at the end, or never.",
)
@click.option("--progress/--no-progress", default=None, help="Progress on standard error [default: on a terminal].")
@reported
def run(
    source: str,
    overrides: tuple[str, ...],
    seed: int | None,
    output_format: str,
    output: str | None,
    requests_file: str | None,
    records_file: str | None,
    check: str,
    progress: bool | None,
) -> None:
    """Simulate an experiment and print its report.

    SPEC is the name of an experiment (see `blis-tui spec list`), the path of a .blis.yaml file, or - for standard
    input. Ctrl-C stops the run and reports what has happened so far, marked as incomplete.
    """
    from blis_tui.records.files import atomic_text  # noqa: PLC0415  (heavy imports only when the command runs)
    from blis_tui.records.tables import record_line  # noqa: PLC0415
    from blis_tui.simulation import Simulation  # noqa: PLC0415

    _require_different_files(source, output, requests_file, records_file)
    experiment = _load(source, overrides, seed)
    with ExitStack() as files:
        simulation = Simulation(experiment, check=check)
        if records_file is not None:
            out = files.enter_context(atomic_text(records_file))

            def write_record(record: Record) -> None:
                out.write(record_line(record))

            simulation.subscribe("all", write_record)
        shown = sys.stderr.isatty() if progress is None else progress
        complete = _run(simulation, _Progress(experiment) if shown else None)
        report = simulation.report(complete=complete)
        _write(report, output_format, output, requests_file)
    if not complete:
        sys.exit(ExitCode.INTERRUPTED)
    _judge(report)


def _require_different_files(source: str, output: str | None, *tables: str | None) -> None:
    """Each result needs a file of its own, and none may be the experiment itself."""
    if "-" in tables:
        raise click.UsageError("only the report can go to standard output: --requests and --records need a file")
    given = [name for name in (source, output, *tables) if name not in (None, "-")]
    paths = [Path(name).resolve() for name in given if name is not None and _is_ordinary(Path(name))]
    if len(dict.fromkeys(paths)) < len(paths):
        raise click.UsageError("SPEC, -o, --requests and --records must be different files")


def _is_ordinary(path: Path) -> bool:
    """Whether it is a file, or will be one (and no device, which several results may share)."""
    return path.is_file() or not path.exists()


def _load(source: str, overrides: tuple[str, ...], seed: int | None) -> Experiment:
    from blis_tui.spec.load import load  # noqa: PLC0415

    stdin_text = sys.stdin.buffer.read().decode(errors="surrogateescape") if source == "-" else None
    return load(source, overrides=overrides, seed=seed, stdin_text=stdin_text)


def _run(simulation: Simulation, progress: _Progress | None) -> bool:
    """Run to the end; False when the user interrupted."""
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  (the handler's signature)
        nonlocal interrupted
        interrupted = True

    def go_on(simulation: Simulation) -> bool:
        if progress is not None:
            progress.show(simulation)
        return not interrupted

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return simulation.run(go_on=go_on) and not interrupted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if progress is not None:
            progress.clear()


def _write(report: Report, output_format: str, output: str | None, requests_file: str | None) -> None:
    from blis_tui.records.files import atomic_text, write_standard_output, write_text  # noqa: PLC0415
    from blis_tui.records.summary import summary_text  # noqa: PLC0415
    from blis_tui.records.tables import requests_csv  # noqa: PLC0415

    if requests_file is not None:
        with atomic_text(requests_file) as out:
            out.writelines(requests_csv(report.rows))
    text = report.to_json() if output_format == "json" else summary_text(report)
    if output is None or output == "-":
        write_standard_output(text)
    else:
        write_text(output, text)


def _judge(report: Report) -> None:
    """Tell on standard error what does not hold, and exit accordingly."""
    counts = report.requests
    if counts.completed < counts.total:
        missing = counts.total - counts.completed
        click.echo(
            f"note: {missing:,} of {counts.total:,} requests did not complete; latencies are without them", err=True
        )
    failures = [verdict.sentence() for verdict in report.expectations if not verdict.ok]
    failures += [f"{name} {text}" for name, text in report.invariants.items() if text not in ("ok", "not checked")]
    for failure in failures:
        click.echo(f"FAIL  {failure}", err=True)
    if failures:
        sys.exit(ExitCode.CHECK_FAILED)


class _Progress:
    """One line on standard error that is rewritten a few times a second and cleared at the end."""

    def __init__(self, experiment: Experiment) -> None:
        self._total = experiment.workload.requests
        self._next_s = 0.0

    def show(self, simulation: Simulation) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _PROGRESS_EVERY_S
        total = "" if self._total is None else f" of {self._total:,}"
        text = f"{simulation.ended:,}{total} requests done, {simulation.now_us / 1e6:,.1f} s simulated"
        click.echo(f"\r\x1b[2K{text}", err=True, nl=False)

    def clear(self) -> None:
        if self._next_s:
            click.echo("\r\x1b[2K", err=True, nl=False)
